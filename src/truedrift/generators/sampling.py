"""Sampling: x_i = f(z_i, c_i, s_i, k_i), where noise z_i and style ids k_i are a pure function of (seed, i).

Noise is drawn in blocks of 64 ids, each block from the stream (seed, "sample", block). A sample does not depend on the
batch size or on the other samples, up to rounding in matrix products of different sizes.
"""

from collections.abc import Sequence

import torch

from truedrift.axes import Float, Int, Tensor
from truedrift.errors import UserError, require_integer
from truedrift.generators.base import Generator
from truedrift.progress import Progress, no_progress
from truedrift.seeding import require_seed, stream

BLOCK = 64
"""Ids per block of noise."""


def sample(
    generator: Generator,
    labels: Int[Tensor, " N"],
    *,
    seed: int,
    strength: float | Float[Tensor, " N"] = 1.0,
    batch: int = 256,
    first_id: int = 0,
    device: torch.device | str | None = None,
    progress: Progress = no_progress,
) -> Float[Tensor, "N ..."]:
    """Sample one x per label.

    Args:
        generator: The network.
        labels: int64 [N]; `generator.classes` means no label.
        seed: Seed of noise and style ids.
        strength: One strength for all samples, or one per sample.
        batch: Samples per forward pass.
        first_id: Id of the first sample; the ids are first_id … first_id + N − 1.
        device: Device to move the generator to; None computes where the generator is.
        progress: Called with a description, the number of samples drawn, and their number.

    Returns:
        Samples [N, *sample_shape] in float32 on the CPU.

    Example:
        >>> from truedrift.generators import MLP, MLPOptions
        >>> generator = MLP(MLPOptions(width=16), sample_shape=(1, 8, 8), classes=10)
        >>> sample(generator, torch.tensor([3, 3, 10]), seed=0).shape
        torch.Size([3, 1, 8, 8])
    """
    _require_labels(labels, generator.classes)
    batch, first_id = require_integer("batch", batch, 1, 256), require_integer("first_id", first_id, 0, 0)
    seed = require_seed(seed)
    strengths = torch.as_tensor(strength, dtype=torch.float32)
    if strengths.shape not in ((), labels.shape):
        allowed = f"must be one number or have shape {list(labels.shape)}"
        raise UserError(f"has shape {list(strengths.shape)}", allowed, "pass one per label", field="strength")
    strengths = strengths.expand(len(labels))
    if device is not None:
        generator.to(device)
    # Fill the result batch by batch.
    samples = torch.empty(len(labels), *generator.sample_shape)
    with torch.no_grad():
        for start in range(0, len(labels), batch):
            rows = slice(start, min(start + batch, len(labels)))
            z, style_ids = draw_inputs(generator, range(first_id + rows.start, first_id + rows.stop), seed)
            like = next(generator.parameters(), z)  # a generator may have no parameters
            samples[rows] = generator(
                z.to(like), labels[rows].long().to(like.device), strengths[rows].to(like), style_ids.to(like.device)
            )
            progress("drawing samples", rows.stop, len(labels))
    return samples


def balanced_labels(classes: Sequence[int], count: int, *, equal: bool = False) -> Int[Tensor, " N"]:
    """Return labels of count // C samples per class, and one more for the first count mod C classes, class by class.

    Args:
        classes: Numbers of the C classes.
        count: Number of samples.
        equal: Drop the remainder, so that all classes have the same number, unless count < C.

    Example:
        >>> balanced_labels([3, 7], 5)
        tensor([3, 3, 3, 7, 7])
    """
    per_class, remainder = divmod(count, len(classes))
    extra = 0 if equal and per_class else remainder
    return torch.tensor(classes).repeat_interleave(per_class + (torch.arange(len(classes)) < extra).long())


def draw_labels(shares: Sequence[float], count: int, seed: int) -> Int[Tensor, " N"]:
    """Draw labels of classes that are as frequent as given.

    Args:
        shares: Weight of each class, ≥ 0.
        count: Number of labels.
        seed: Seed. A larger count does not change the first labels.

    Example:
        >>> draw_labels([0.0, 1.0], 3, seed=0)
        tensor([1, 1, 1])
    """
    seed = require_seed(seed)
    limits = torch.tensor(shares, dtype=torch.float64).cumsum(0)
    draws = torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.searchsorted(limits / limits[-1], draws, right=True).clamp_max(len(shares) - 1)


def draw_inputs(
    generator: Generator, ids: range, seed: int
) -> tuple[Float[Tensor, "ids ..."], Int[Tensor, "ids style_draws"]]:
    """Draw noise z and style ids of the samples `ids`, on the CPU.

    Args:
        generator: The network that the inputs are for.
        ids: Consecutive ids of the samples.
        seed: Seed of noise and style ids.

    Returns:
        z [ids, *noise_shape] and style ids [ids, style_draws].
    """
    if ids.step != 1 or ids.start < 0:
        raise UserError(f"is {ids!r}", "must be consecutive ids ≥ 0", "pass range(first, last + 1)", field="ids")
    if len(ids) == 0:
        return torch.empty(0, *generator.noise_shape), torch.empty(0, generator.style_draws, dtype=torch.long)
    # Draw every block that holds one of the ids, then cut out their rows.
    first = ids.start // BLOCK
    blocks = [_draw_block(generator, seed, block) for block in range(first, (ids.stop - 1) // BLOCK + 1)]
    rows = slice(ids.start - first * BLOCK, ids.stop - first * BLOCK)
    z, style_ids = (torch.cat(part)[rows] for part in zip(*blocks, strict=True))
    return z, style_ids


def _draw_block(generator: Generator, seed: int, block: int) -> tuple[Tensor, Tensor]:
    numbers = stream(seed, "sample", block)
    z = torch.randn(BLOCK, *generator.noise_shape, generator=numbers)
    # randint needs at least one entry to choose from, even for a generator without styles.
    entries = max(generator.style_entries, 1)
    return z, torch.randint(entries, (BLOCK, generator.style_draws), generator=numbers)


def _require_labels(labels: Tensor, classes: int) -> None:
    if not isinstance(labels, Tensor) or labels.ndim != 1 or labels.dtype.is_floating_point:
        kind = f"{labels.dtype} {list(labels.shape)}" if isinstance(labels, Tensor) else f"a {type(labels).__name__}"
        raise UserError(f"is {kind}", "must be an int64 tensor [N]", "pass one label per sample", field="labels")
    if len(labels) and not (int(labels.min()) >= 0 and int(labels.max()) <= classes):
        problem = f"has values from {int(labels.min())} to {int(labels.max())}"
        allowed = f"must be 0 to {classes - 1}, or {classes} for no label"
        raise UserError(problem, allowed, "check the labels", field="labels")
