"""d_ij = ‖x_i − y_j‖₂, the distance inside every kernel (`eq:meanshift`).

There are two methods, and they agree to rounding. *exact* forms the differences, and does not store them if they are
not differentiated on a CPU; *matmul* expands the square,

    ‖x − y‖² = ‖x‖² + ‖y‖² − 2 x·y,

which costs one matrix product but cancels when x is near y. A log-weight is −d/τ, so an error of 1e-7 in d² is
an error of 1e-3 in a weight at d = 0.005, τ = 0.02. Both methods therefore compute in float64 where the device has it,
and round once. *matmul* subtracts the mean of y first. Entries that are zero by identity are set to 0, not computed.
"""

from typing import Literal, get_args

import torch

from truedrift.axes import Float, Tensor
from truedrift.errors import require_choice
from truedrift.kernels.precision import cast, may_be_differentiated, to_widest

Method = Literal["auto", "exact", "matmul"]
METHODS: tuple[Method, ...] = get_args(Method)

EXACT_UP_TO_ELEMENTS = 1 << 14
"""`auto` forms differences up to this number of elements: a matrix product is not faster there."""

BLOCK_ELEMENTS = 1 << 18
"""Elements of y per block of groups on a CPU, two megabytes in float64, which fit into its cache."""

EXACT_UP_TO_DIMENSION = 4
"""`auto` always forms differences up to this D: they need little more memory than the distances."""


def pairwise_distance(
    x: Float[Tensor, "*#batch B D"],
    y: Float[Tensor, "*#batch n D"],
    *,
    method: Method = "auto",
    same: bool = False,
) -> Float[Tensor, "*batch B n"]:
    """Compute d_ij = ‖x_i − y_j‖. The gradient at distance zero is zero.

    Args:
        x: Queries [..., B, D].
        y: References [..., n, D].
        method: "exact" forms the differences, "matmul" expands the square, "auto" chooses by size.
        same: Whether y is x, so that the diagonal is exactly zero.

    Returns:
        d [..., B, n], in at least float32.

    Raises:
        UserError: If `method` is unknown.

    Example:
        >>> pairwise_distance(torch.zeros(1, 2), torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
        tensor([[5., 1.]])
    """
    if _choose(method, x, y) == "exact" and _is_read_only(x) and _is_read_only(y):
        d = torch.cdist(to_widest(x), to_widest(y), compute_mode="donot_use_mm_for_euclid_dist")
        return cast(_zero_diagonal(d) if same else d, result_dtype(x, y))
    return _safe_sqrt(_squared(x, y, method, same)).to(result_dtype(x, y))


def squared_distance(
    x: Float[Tensor, "*#batch B D"],
    y: Float[Tensor, "*#batch n D"],
    *,
    method: Method = "auto",
    same: bool = False,
) -> Float[Tensor, "*batch B n"]:
    """Compute d²_ij = ‖x_i − y_j‖².

    Args:
        x: Queries [..., B, D].
        y: References [..., n, D].
        method: "exact" forms the differences, "matmul" expands the square, "auto" chooses by size.
        same: Whether y is x, so that the diagonal is exactly zero.

    Returns:
        d² [..., B, n], in at least float32.

    Raises:
        UserError: If `method` is unknown.

    Example:
        >>> squared_distance(torch.zeros(1, 2), torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
        tensor([[25.,  1.]])
    """
    return _squared(x, y, method, same).to(result_dtype(x, y))


def _squared(x: Tensor, y: Tensor, method: Method, same: bool) -> Tensor:
    """Compute d² in the widest format of the device: float32 would overflow at d = 10¹⁹."""
    if _choose(method, x, y) == "exact":
        squared = (to_widest(x).unsqueeze(-2) - to_widest(y).unsqueeze(-3)).square().sum(-1)
    elif _fits_no_cache(x, y):
        squared = _expand_square_in_blocks(x.flatten(0, -3), y.flatten(0, -3)).view(*x.shape[:-1], y.shape[-2])
    else:
        squared = _expand_square(x, y)
    return _zero_diagonal(squared) if same else squared


def _choose(method: Method, x: Tensor, y: Tensor) -> Method:
    """Return "exact" or "matmul"."""
    if method != "auto":
        require_choice("method", method, METHODS)
        return method
    D = x.shape[-1]
    small = D <= EXACT_UP_TO_DIMENSION or x.shape[-2] * y.shape[-2] * D <= EXACT_UP_TO_ELEMENTS
    return "exact" if small else "matmul"


def _zero_diagonal(d: Tensor) -> Tensor:
    return d.masked_fill(torch.eye(d.shape[-1], dtype=torch.bool, device=d.device), 0)


def _expand_square(x: Tensor, y: Tensor) -> Tensor:
    """Compute ‖x‖² + ‖y‖² − 2 x·y around the mean of y."""
    x, y = to_widest(x), to_widest(y)
    center = y.mean(-2, keepdim=True)
    x, y = x - center, y - center
    squared = x.square().sum(-1).unsqueeze(-1) + y.square().sum(-1).unsqueeze(-2) - 2 * (x @ y.mT)
    return squared.clamp_min(0)


def _expand_square_in_blocks(x: Float[Tensor, "G B D"], y: Float[Tensor, "G n D"]) -> Float[Tensor, "G B n"]:
    """Compute `_expand_square` block by block. The blocks share their memory: new memory would be slower."""
    G, n, D = y.shape
    size = min(G, max(1, BLOCK_ELEMENTS // (n * D)))
    memory, squared = y.new_empty(size, n, D, dtype=torch.float64), []
    for x_block, y_block in zip(x.split(size), y.split(size), strict=True):
        y_centered = memory[: len(y_block)].copy_(y_block)
        center = y_centered.mean(-2, keepdim=True)
        y_centered -= center
        x_centered = to_widest(x_block) - center
        x_norm, y_norm = (torch.linalg.vector_norm(side, dim=-1) for side in (x_centered, y_centered))
        norms = x_norm.square_().unsqueeze(-1) + y_norm.square_().unsqueeze(-2)
        squared.append(norms.sub_(x_centered @ y_centered.mT, alpha=2).clamp_min_(0))
    return torch.cat(squared)


def _fits_no_cache(x: Tensor, y: Tensor) -> bool:
    """Return whether many references on a CPU, in groups and without a derivative, are better taken block by block."""
    if y.numel() <= BLOCK_ELEMENTS or y.ndim < 3 or x.shape[:-2] != y.shape[:-2]:
        return False
    return _is_read_only(x) and _is_read_only(y)


def _is_read_only(x: Tensor) -> bool:
    """Return whether x is on a CPU and no derivative is taken."""
    return x.is_cpu and not may_be_differentiated(x)


def result_dtype(x: Tensor, y: Tensor) -> torch.dtype:
    """Return the wider dtype of x and y, at least float32."""
    if x.dtype is y.dtype and x.dtype in (torch.float32, torch.float64):
        return x.dtype
    return torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32)


def _safe_sqrt(squared: Tensor) -> Tensor:
    """Compute √s with the derivative 0, instead of ∞, at s = 0."""
    if not may_be_differentiated(squared):
        return squared.sqrt()
    positive = squared > 0
    return torch.where(positive, torch.where(positive, squared, 1).sqrt(), 0)
