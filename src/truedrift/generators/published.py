"""Format of published DriftDiT checkpoints: the size of a network from the shapes of its tensors.

| tensor                                | shape                    | implies                            |
|---------------------------------------|--------------------------|------------------------------------|
| `patch_embed.proj.weight`             | [width, C, p, p]         | width, channels, patch             |
| `register_tokens`                     | [1, r, width]            | registers                          |
| `label_embed.embedding_table.weight`  | [classes + 1, width]     | classes; the last row is the null  |
| `style_embed.codebook.weight`         | [entries, width]         | style entries; missing: no styles  |
| `blocks.i.…`                          |                          | depth                              |
| `blocks.0.attn.q_norm.weight`         | [width/heads]            | heads                              |
| `rope.cos_cached`                     | [1, 1, r + tokens + 64, width/heads] | image size p·√tokens   |

No tensor implies the number of style draws: the caller passes it, or it is 32 as in all published networks.
"""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch

from truedrift.axes import Tensor
from truedrift.errors import UserError
from truedrift.generators.layers import inverse_periods

PATCHES = "patch_embed.proj.weight"
REGISTERS = "register_tokens"
LABELS = "label_embed.embedding_table.weight"
STYLES = "style_embed.codebook.weight"
HEAD = "blocks.0.attn.q_norm.weight"
POSITIONS = "rope.cos_cached"
SPARE_POSITIONS = 64
"""Length of the published position cache beyond the tokens."""
STYLE_DRAWS = 32
IMAGE_SIZE = 32
"""Values of the published networks, for checkpoints that do not imply them."""
_WRAPPERS = re.compile(r"^(module\.|_orig_mod\.)+")
_PUBLISHED = "must be the state dict of a published DriftDiT"
_FIX = "pass a complete checkpoint of a DriftDiT"


@dataclass(frozen=True, kw_only=True)
class PublishedShape:
    """Size of a network, as the tensors of its checkpoint imply it."""

    width: int
    depth: int
    heads: int
    patch: int
    registers: int
    style_draws: int
    style_entries: int
    channels: int
    classes: int
    image_size: int


def without_wrappers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Remove the `module.` of data-parallel and the `_orig_mod.` of compiled networks from the names."""
    return {_WRAPPERS.sub("", name): tensor for name, tensor in state.items()}


def parameters(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return everything except the position cache."""
    return {name: tensor for name, tensor in state.items() if not name.startswith("rope.")}


def read_shape(
    state: Mapping[str, Tensor], image_size: int | None = None, style_draws: int | None = None
) -> PublishedShape:
    """Read the size of the network off its tensors; `image_size` and `style_draws` override what they imply."""
    width, channels, patch, _ = _shape(state, PATCHES, 4)
    _, registers, _ = _shape(state, REGISTERS, 3)
    rows, _ = _shape(state, LABELS, 2)
    (head,) = _shape(state, HEAD, 1)
    if width % head:
        problem = f"{HEAD!r} has {head} entries and the width is {width}"
        raise UserError(problem, "must be a divisor of the width", _FIX)
    entries = _shape(state, STYLES, 2)[0] if STYLES in state else 0
    blocks = {name.split(".")[1] for name in state if name.startswith("blocks.")}
    return PublishedShape(
        width=width,
        depth=len(blocks),
        heads=width // head,
        patch=patch,
        registers=registers,
        style_draws=(STYLE_DRAWS if entries else 0) if style_draws is None else style_draws,
        style_entries=entries,
        channels=channels,
        classes=rows - 1,
        image_size=image_size or infer_image_size(state) or IMAGE_SIZE,
    )


def infer_image_size(state: Mapping[str, Tensor]) -> int | None:
    """Return p·√tokens from the length of the position cache, or None without one."""
    if POSITIONS not in state:
        return None
    length = _shape(state, POSITIONS, 4)[2]
    _, registers, _ = _shape(state, REGISTERS, 3)
    tokens = length - registers - SPARE_POSITIONS
    side = math.isqrt(max(tokens, 0))
    if side < 1 or side**2 != tokens:
        problem = f"{POSITIONS!r} has {length} positions and there are {registers} registers"
        raise UserError(problem, f"must be registers + a square + {SPARE_POSITIONS}", "pass the image size")
    return _shape(state, PATCHES, 4)[3] * side


def _shape(state: Mapping[str, Tensor], name: str, dimensions: int) -> tuple[int, ...]:
    if name not in state:
        raise UserError(f"{name!r} is missing", _PUBLISHED, _FIX)
    shape = tuple(state[name].shape)
    if len(shape) != dimensions or (0 in shape and name != REGISTERS):
        raise UserError(f"{name!r} has shape {list(shape)}", f"must have {dimensions} dimensions, none of size 0", _FIX)
    return shape


def require_same(state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Require exactly the names and shapes of the expected state dict."""
    _require_none(expected.keys() - state.keys(), "missing")
    _require_none(state.keys() - expected.keys(), "unexpected")
    for name, tensor in expected.items():
        if state[name].shape != tensor.shape:
            problem = f"{name!r} has shape {list(state[name].shape)}"
            raise UserError(problem, f"must have shape {list(tensor.shape)}, as the other tensors imply", _FIX)


def _require_none(names: Collection[str], defect: str) -> None:
    if names:
        first, *others = sorted(names)
        more = f" (and {len(others)} more)" if others else ""
        raise UserError(f"{first!r} is {defect}{more}", _PUBLISHED, _FIX)


def with_positions(state: Mapping[str, Tensor], *, tokens: int, head: int) -> dict[str, Tensor]:
    """Return the state dict with the published position cache of `tokens` tokens added."""
    periods = inverse_periods(head)
    angles = torch.outer(torch.arange(tokens + SPARE_POSITIONS, dtype=torch.float64), periods).repeat(1, 2)
    cache = {"inv_freq": periods, "cos_cached": angles.cos()[None, None], "sin_cached": angles.sin()[None, None]}
    return {**state, **{f"rope.{name}": tensor.float() for name, tensor in cache.items()}}
