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
from collections.abc import Mapping
from typing import Any

from truedrift.axes import Tensor
from truedrift.errors import UserError
from truedrift.generators.layers import inverse_periods, rope_angles

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
PUBLISHED = "must be the state dict of a published DriftDiT"
FIX = "pass a complete checkpoint of a DriftDiT"


def without_wrappers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Remove the `module.` of data-parallel and the `_orig_mod.` of compiled networks from the names."""
    return {_WRAPPERS.sub("", name): tensor for name, tensor in state.items()}


def read_shape(
    state: Mapping[str, Tensor], image_size: int | None = None, style_draws: int | None = None
) -> tuple[dict[str, Any], tuple[int, int, int], int]:
    """Read the options, the sample shape and the number of classes of the network off its tensors.

    `image_size` and `style_draws` override what the tensors imply.
    """
    # Read the sizes.
    width, channels, patch, _ = _shape(state, PATCHES, 4)
    (head,) = _shape(state, HEAD, 1)
    if width % head:
        problem = f"{HEAD!r} has {head} entries and the width is {width}"
        raise UserError(problem, "must be a divisor of the width", FIX)
    entries = _shape(state, STYLES, 2)[0] if STYLES in state else 0
    options = {
        "width": width,
        "depth": len({name.split(".")[1] for name in state if name.startswith("blocks.")}),
        "heads": width // head,
        "patch": patch,
        "registers": _shape(state, REGISTERS, 3)[1],
        "style_draws": (STYLE_DRAWS if entries else 0) if style_draws is None else style_draws,
        "style_entries": entries,
    }
    side = image_size or infer_image_size(state) or IMAGE_SIZE
    return options, (channels, side, side), _shape(state, LABELS, 2)[0] - 1


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
        raise UserError(f"{name!r} is missing", PUBLISHED, FIX)
    shape = tuple(state[name].shape)
    if len(shape) != dimensions or (0 in shape and name != REGISTERS):
        raise UserError(f"{name!r} has shape {list(shape)}", f"must have {dimensions} dimensions, none of size 0", FIX)
    return shape


def with_positions(state: Mapping[str, Tensor], *, tokens: int, head: int) -> dict[str, Tensor]:
    """Return the state dict with the published position cache of `tokens` tokens added."""
    cos, sin = rope_angles(tokens + SPARE_POSITIONS, head)
    cache = {"inv_freq": inverse_periods(head).float(), "cos_cached": cos[None, None], "sin_cached": sin[None, None]}
    return {**state, **{f"rope.{name}": tensor for name, tensor in cache.items()}}
