"""Matched references: γ = mean over windows of s references of the window's own γ.

The expectation of a centroid depends on its number of references. With n positives and m negatives drawn from the same
distribution, E[V] = F_n − F_m is therefore not 0, and a field that should vanish at q = p pushes samples away. If both
centroids are averages over windows of the same size s = min(n, m), every window is s independent draws and

    E[V] = F_s[p] − F_s[q],

which is 0 at q = p for every size, kernel, temperature and estimator. All references are used, which lowers the
variance. The mean over windows is a reweighting like every other estimator.

**Windows** lie on a ring of the n references and start at every multiple of gcd(n, s), so that every reference is in
equally many. They are disjoint blocks if s divides n. If s = n − 1, they are all subsets without one reference.

**Leave-one-out.** The mean over these subsets needs O(n) operations for an estimator that is a polynomial,
γ_j = Σ_k q_k α_j^k with q_k a function of the power sums p_k. The window without i has the weights α_j r_i with
r_i = 1/(1 − α_i), and the power sums (p_k − α_i^k) r_i^k, so that

    γ_j = Σ_k α_j^k Σ_{i≠j} ω_i q_k^{(i)} r_i^k,   ω_i = 1/n, or other weights of the windows.

Only the largest weight can exceed ½. Its window is computed from the log-weights of the others; all other r_i are at
most 2, and nothing cancels.
"""

import math
from dataclasses import dataclass

import torch

from truedrift.axes import Bool, Float, Int, Shaped, Tensor
from truedrift.centroids.estimator import AlphaEstimator, Estimator, PolynomialEstimator
from truedrift.errors import UserError, require_integer
from truedrift.kernels.precision import can_be_read, cast_like, to_widest
from truedrift.kernels.weights import argmax_mask, logsumexp, logsumexp_and_leave_one_out, power_sum, softmax


@dataclass(frozen=True)
class Windows:
    """The windows of `size` references among n.

    Args:
        n: The number of references.
        size: The number s of references per window, from 1 to n.
    """

    n: int
    size: int

    def __post_init__(self) -> None:
        if not 1 <= self.size <= self.n:
            problem = f"is {self.size} with {self.n} references"
            raise UserError(problem, f"must be from 1 to {self.n}", "pass a smaller size", field="size")

    @property
    def count(self) -> int:
        """The number of windows: n / gcd(n, s)."""
        return self.n // math.gcd(self.n, self.size)

    @property
    def are_blocks(self) -> bool:
        """Whether the windows are disjoint."""
        return self.n % self.size == 0

    @property
    def leave_one_out(self) -> bool:
        """Whether the windows are all subsets without one reference."""
        return self.size == self.n - 1 and not self.are_blocks

    def members(self, device: torch.device | None = None) -> Tensor:
        """Return the references [count, size] of every window."""
        start = torch.arange(0, self.n, self.n // self.count, device=device)
        return (start.unsqueeze(-1) + torch.arange(self.size, device=device)) % self.n

    def split(self, values: Shaped[Tensor, "*batch n"]) -> Shaped[Tensor, "*batch W s"]:
        """Return the values of every window [..., W, s]; a view if the windows are blocks."""
        if self.are_blocks:
            return values.unflatten(-1, (self.count, self.size))
        return values[..., self.members(values.device)]

    def merge(self, values: Float[Tensor, "*batch W s"]) -> Float[Tensor, "*batch n"]:
        """Return the sum [..., n] over windows of the values of every reference."""
        flat = values.flatten(-2)
        if self.are_blocks:
            return flat
        # Reference j is in the windows a = ⌊j/g⌋, ⌊j/g⌋ − 1, … with g = gcd(n, s), at the place j − ag.
        g = self.n // self.count
        j = torch.arange(self.n, device=values.device).unsqueeze(-1)
        a = j // g - torch.arange(self.size // g, device=values.device)
        return flat[..., a % self.count * self.size + j - a * g].sum(-1)

    def logsumexp(self, log_w: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch W"]:
        """Compute log Σ exp(l) of every window."""
        if self.leave_one_out:
            without = logsumexp_and_leave_one_out(log_w, -1)[1]
            return without.roll(1, -1)  # window a lacks the reference a − 1
        return logsumexp(self.split(log_w), -1).squeeze(-1)


def window_weights(
    log_w: Float[Tensor, "*batch n"],
    windows: Windows,
    estimator: Estimator,
    shares: Float[Tensor, "*batch W"] | None = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "*batch n"]:
    """Compute γ as the mean over windows of the window's γ, in the dtype of `log_w`.

    Args:
        log_w: Log-weights [..., n].
        windows: The windows of the n references.
        estimator: The estimator of every window.
        shares: The weight of each window in the mean, with sum 1; 1/W by default.
        generator: Random numbers for estimators that draw.

    Returns:
        γ [..., n] with Σγ = 1.
    """
    if windows.leave_one_out and isinstance(estimator, PolynomialEstimator):
        return _leave_one_out_weights(log_w, estimator, shares)
    return split_window_weights(windows.split(log_w), windows, estimator, shares, generator)


def split_window_weights(
    log_w: Float[Tensor, "*batch W s"],
    windows: Windows,
    estimator: Estimator,
    shares: Float[Tensor, "*batch W"] | None = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "*batch n"]:
    """Compute `window_weights` from log-weights [..., W, s] that may differ between windows."""
    if isinstance(estimator, AlphaEstimator):
        gamma = estimator.gamma(softmax(log_w))
    else:
        gamma = estimator.reweight(log_w, generator)
    if shares is not None:
        gamma = gamma * shares.unsqueeze(-1)
    elif windows.count > 1:
        gamma = gamma / windows.count
    return windows.merge(gamma)


def _leave_one_out_weights(log_w: Tensor, estimator: PolynomialEstimator, shares: Tensor | None) -> Tensor:
    """Compute the mean over all windows without one reference, in O(n)."""
    # The window without the largest weight
    is_top = argmax_mask(log_w, -1)
    without_top = estimator.gamma(softmax(log_w.masked_fill(is_top, -math.inf)))
    # The others: r_i, power sums and coefficients of the window without i
    alpha = softmax(log_w)
    below = alpha.masked_fill(is_top, 0)
    r = (1 - below).reciprocal()
    sums = [(power_sum(alpha, k) - below**k) * r**k for k in range(2, estimator.degree + 1)]
    coefficients = estimator.coefficients(*sums)
    # ω_i of the window without i, times n; 0 without the largest weight, whose window is added below
    omega = (~is_top).to(log_w.dtype)
    if shares is not None:
        scaled = shares.roll(-1, -1) * log_w.shape[-1]
        without_top = without_top * scaled.masked_fill(~is_top, 0).sum(-1, keepdim=True)
        omega = omega * scaled
    # Σ_k α_j^k Σ_{i≠j} ω_i q_k r_i^k, by Horner's rule
    total = without_top.new_zeros(())
    for k, q in reversed(list(enumerate(coefficients, start=1))):
        each = omega * r if k == 1 else omega * r**k
        each = each if isinstance(q, float) and q == 1 else each * q
        total = (total + each.sum(-1, keepdim=True) - each) * alpha
    return ((total + without_top) / log_w.shape[-1]).clamp_min(0)


@dataclass(frozen=True)
class Windowed(Estimator):
    """The mean over windows of another estimator: γ = mean_w γ_w.

    Its expectation is that of a centroid of `size` references, for any number n of references.

    Args:
        estimator: The estimator of every window.
        size: The number of references per window.

    Example:
        >>> import torch
        >>> from truedrift.centroids import Standard, Windowed
        >>> Windowed(Standard(), size=2).reweight(torch.tensor([3.0, 1.0, 1.0, 1.0]).log())
        tensor([0.3750, 0.1250, 0.2500, 0.2500])
    """

    estimator: Estimator
    size: int

    def __post_init__(self) -> None:
        require_integer("size", self.size, 1, 8)

    @property
    def name(self) -> str:
        """The name of the estimator and the size of a window."""
        return f"{self.estimator.name}, windows of {self.size}"

    @property
    def bias_order(self) -> int:
        """The k for which the bias of the centroid is O(s^−k)."""
        return self.estimator.bias_order

    def reweight(self, log_w: Float[Tensor, "*batch n"], generator: torch.Generator | None = None) -> Tensor:
        """Return the mean over windows of γ.

        Raises:
            UserError: If a mask leaves more references in one window than in another. This is checked on the CPU only,
                and not in compiled functions and under torch.func, where the values cannot be read.
        """
        windows = Windows(log_w.shape[-1], self.size)
        if can_be_read(log_w):
            count_per_window(log_w > -math.inf, windows)
        return cast_like(window_weights(to_widest(log_w), windows, self.estimator, generator=generator), log_w)


def count_per_window(used: Bool[Tensor, "*batch n"], windows: Windows, field: str = "mask") -> Int[Tensor, "*batch"]:
    """Return the number of used references per window, and require that it is the same in all. Reads the values."""
    counts = windows.split(used).sum(-1)
    if bool((counts != counts[..., :1]).any()):
        problem = f"leaves from {int(counts.min())} to {int(counts.max())} references in windows of {windows.size}"
        fix = "mask equally many in every window, or drop the masked references"
        raise UserError(problem, "every window must keep the same number", fix, field=field)
    return counts[..., 0]
