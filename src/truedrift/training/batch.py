"""The inputs of a step: noise, style, strength and labels of generated samples, and features of real images.

Generated samples have global ids: id k·g + i is the i-th sample of the k-th class of the step. Every process draws the
inputs of the whole batch, a pure function of (seed, step), and takes its own rows, so that the samples do not depend on
the number of processes. The strength a is uniform on [low, high], or p(a) ∝ a^(−m−1) with m = 2 or 4 by inversion:
a = (low⁻ᵐ − u (low⁻ᵐ − high⁻ᵐ))^(−1/m). With probability f = `strength_one_fraction` it is low: u < f gives low, and
other u give the quantile at (u − f)/(1 − f).

Features of real images are encoded in each step, or looked up if both views of every image are cached. Encoding is
divided among the processes by rows and gathered; each process looks up all rows itself. Pixels of positives are read
from the images in memory, so that the feature cache stays small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from truedrift import distributed
from truedrift.axes import Float, Tensor
from truedrift.data.class_batches import Batch, ClassBatches, draw_classes, gather_samples
from truedrift.data.samples import Samples, to_model_range
from truedrift.generators.base import Generator
from truedrift.seeding import stream
from truedrift.training.config import ConditionOptions, RunConfig


def to_device(tensor: Tensor, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Copy a tensor of the host to the device, optionally in another dtype.

    From pinned memory CUDA copies asynchronously; from ordinary memory it first waits for all pending work.
    """
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, dtype, non_blocking=True) if dtype else tensor.to(device, non_blocking=True)


@dataclass(frozen=True)
class GeneratorInputs:
    """Inputs of the generator for some rows of the batch."""

    z: Tensor
    """[b, *noise_shape] standard normal noise."""
    labels: Tensor
    """[b] labels, with the null class where the label is hidden."""
    strength: Tensor
    """[b] guidance strength a ≥ 1."""
    style_ids: Tensor
    """[b, K] style ids."""

    def __len__(self) -> int:
        return len(self.z)

    def rows(self, start: int, end: int) -> GeneratorInputs:
        """Return rows start to end."""
        return GeneratorInputs(
            self.z[start:end], self.labels[start:end], self.strength[start:end], self.style_ids[start:end]
        )

    def to(self, device: torch.device, dtype: torch.dtype) -> GeneratorInputs:
        """Copy to the device, real numbers in that dtype."""
        return GeneratorInputs(
            to_device(self.z, device, dtype),
            to_device(self.labels, device),
            to_device(self.strength, device, dtype),
            to_device(self.style_ids, device),
        )


def draw_inputs(config: RunConfig, generator: Generator, step: int, *, fresh: bool = False) -> GeneratorInputs:
    """Draw the inputs of all samples of a step.

    Args:
        config: The configuration: seed, classes per step C', generated samples per class g, label dropout, and the law
            of the strength.
        generator: The generator, which gives the number of all classes and the shapes of noise and styles.
        step: The number of the step, counted from 0.
        fresh: Draw the fresh negatives of the step instead, independent samples of the same law.

    Returns:
        Inputs of C'·g samples, class by class, on the CPU: noise [C'·g, *noise_shape], labels [C'·g], strength [C'·g]
        and style ids [C'·g, K].
    """
    per_class = config.batch.fresh_negatives if fresh else config.generated
    prefix = "fresh " if fresh else ""
    classes = draw_classes(generator.classes, config.batch.labels, config.seed, step).classes
    total = len(classes) * per_class
    labels = classes.repeat_interleave(per_class)
    dropout = stream(config.seed, f"{prefix}label-dropout", step)
    hidden = torch.rand(total, generator=dropout) < config.condition.label_dropout
    style_shape, entries = (total, generator.style_draws), max(1, generator.style_entries)
    return GeneratorInputs(
        z=torch.randn(total, *generator.noise_shape, generator=stream(config.seed, f"{prefix}noise", step)),
        labels=torch.where(hidden, generator.classes, labels),
        strength=strengths(config, len(classes), step, fresh=fresh),
        style_ids=torch.randint(entries, style_shape, generator=stream(config.seed, f"{prefix}style", step)),
    )


def strengths(config: RunConfig, classes: int, step: int, *, fresh: bool = False) -> Tensor:
    """Draw strengths [classes · g], one per sample; one per class if it sets the weight of unconditional negatives.

    `classes` is the number of classes of the step.
    """
    per_class = config.batch.fresh_negatives if fresh else config.generated
    shared = config.batch.unconditional > 0
    purpose = "fresh strength" if fresh else "strength"
    u = torch.rand(classes, 1 if shared else per_class, generator=stream(config.seed, purpose, step))
    return _strength_quantile(u, config.condition).expand(classes, per_class).reshape(-1)


def _strength_quantile(u: Tensor, condition: ConditionOptions) -> Tensor:
    """Return the strength a with F(a) = u; `strength_low` where u is below its probability."""
    low, fraction = condition.strength_low, condition.strength_one_fraction
    if fraction == 0:
        return _law_quantile(u, condition)
    others = ((u - fraction) / max(1 - fraction, 1e-12)).clamp(0, 1)
    return torch.where(u < fraction, low, _law_quantile(others, condition))


def _law_quantile(u: Tensor, condition: ConditionOptions) -> Tensor:
    low, high = condition.strength_low, condition.strength_high
    if condition.strength_law == "uniform":
        return low + (high - low) * u
    if condition.strength_law == "inverse-cube":
        return (low**-2 - u * (low**-2 - high**-2)).rsqrt()
    # high⁻⁴ may be lost in float32.
    return (low**-4 - u.double() * (low**-4 - high**-4)).pow(-1 / 4).clamp(low, high).to(u.dtype)


def unconditional_weight(config: RunConfig, classes: int, step: int) -> Tensor:
    """Return w_u [classes] = (a − 1)(g − 1)/u: a total weight of (a − 1) times that of the other generated samples.

    `classes` is the number of classes of the step.
    """
    a = strengths(config, classes, step).view(classes, -1)[:, 0]
    return (a - 1) * (config.generated - 1) / config.batch.unconditional


Encode = Callable[[Tensor], tuple[Tensor, ...]]


def flatten_groups(groups: Sequence[Tensor]) -> Float[Tensor, "rows F"]:
    """Join feature groups [rows, …] to one vector per sample, in float32 or wider."""
    flat = [group.flatten(1).to(torch.promote_types(group.dtype, torch.float32)) for group in groups]
    return flat[0] if len(flat) == 1 else torch.cat(flat, -1)


class FeatureSource(Protocol):
    """A function from a batch of real images to their features."""

    def __call__(self, batch: Batch) -> Float[Tensor, "rows F"]:
        """Return feature vectors [rows, F] for indices [rows]."""
        ...


class Positives:
    """Features of positives and of unconditional negatives, by step.

    Args:
        batches: The positives of each step, as positions in the data set.
        lookup: A function from such positions to features: `OnTheFlyFeatures` or `CachedFeatures`.
        unconditional: Number u of unconditional negatives per step.
    """

    def __init__(self, batches: ClassBatches, lookup: FeatureSource, unconditional: int = 0) -> None:
        self.batches, self.lookup, self.unconditionals = batches, lookup, unconditional

    def at(self, step: int) -> Float[Tensor, "C n F"]:
        """Return the positives of that step."""
        batch = self.batches.at(step)
        features = self.lookup(Batch(batch.indices.flatten(), batch.mirrored.flatten()))
        return features.unflatten(0, tuple(batch.indices.shape))

    def unconditional(self, step: int) -> Float[Tensor, "u F"]:
        """Return the unconditional negatives of that step, images of any class."""
        return self.lookup(self.batches.unconditional(step, self.unconditionals))


class OnTheFlyFeatures:
    """Features that are encoded in each step.

    Args:
        samples: The training data.
        encode: Function of values in [−1, 1] to one tensor [B, D_s] per scale.
        device: Where features are computed.
        dtype: The dtype of the values that are encoded.
        at_once: Images encoded at a time, to limit memory; None: all images of this process.
    """

    def __init__(
        self, samples: Samples, encode: Encode, *, device: torch.device, dtype: torch.dtype, at_once: int | None
    ) -> None:
        self.samples, self.encode, self.device, self.dtype, self.at_once = samples, encode, device, dtype, at_once

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Float[Tensor, "rows F"]:
        total = len(batch.indices)
        start, end = distributed.row_range(total)
        own = Batch(batch.indices[start:end], batch.mirrored[start:end])
        values = to_device(gather_samples(self.samples.values, own), self.device)
        parts = [self._features(part) for part in values.split(self.at_once or max(1, len(values)))]
        features = parts[0] if len(parts) == 1 else torch.cat(parts)
        return distributed.gather_rows(features, total)

    def _features(self, values: Tensor) -> Tensor:
        return flatten_groups(self.encode(to_model_range(values).to(self.dtype)))


class JoinedEncoder(nn.Module):
    """Several encoders as one: the groups of the first come first."""

    def __init__(self, encoders: Sequence[Encode]) -> None:
        super().__init__()
        self.encoders = list(encoders)
        self.modules_of_encoders = nn.ModuleList(each for each in encoders if isinstance(each, nn.Module))

    def forward(self, values: Tensor) -> tuple[Tensor, ...]:
        return tuple(group for encode in self.encoders for group in encode(values))


@dataclass(frozen=True)
class JoinedFeatures:
    """Features of real images from several encoders."""

    lookups: Sequence[FeatureSource]

    def __call__(self, batch: Batch) -> Float[Tensor, "rows F"]:
        first, *others = (lookup(batch) for lookup in self.lookups)
        return torch.cat((first, *(features.to(first.dtype) for features in others)), -1)
