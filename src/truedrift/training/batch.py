"""Host → device without waiting: a GPU copies from pinned memory while the processor goes on.

From ordinary memory CUDA first waits for all work that was asked for before.

What a step draws for its generated samples: noise, style, strength, hidden labels, by global sample id.

Sample id c·g + i is the i-th of class c. Every process draws the numbers of the whole batch, a pure function of
(seed, step), and takes the rows of its own, so that the stream of samples does not depend on how many processes there
are. Strength a is uniform on [low, high], or p(a) ∝ a⁻³ by inversion: a = (low⁻² − u (low⁻² − high⁻²))^(−1/2).

Features of the real images of a step: encoded as they come, or looked up where both views of each are kept.

Encoding is dealt out over the processes by rows and gathered; looking up is done by each for itself.

(φ_1(x), …, φ_S(x), x): the samples themselves as one more feature group, beside those of an encoder.

Pooled features say what is in an image and little of where. The pixels of positives are read from the images in memory,
so that kept features stay as small as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from truedrift import distributed
from truedrift.axes import Float, Tensor
from truedrift.data.class_batches import Batch, ClassBatches, gather_samples
from truedrift.data.samples import Samples, to_model_range
from truedrift.encoders.base import stack_padded
from truedrift.generators.base import Generator
from truedrift.seeding import stream
from truedrift.training.config import ConditionOptions, RunConfig


def to_device(tensor: Tensor, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """The tensor of the host on the device, in another dtype if one is named."""
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, dtype, non_blocking=True) if dtype else tensor.to(device, non_blocking=True)


@dataclass(frozen=True)
class GeneratorInputs:
    """The inputs of the generator for some rows of the batch."""

    z: Tensor
    labels: Tensor
    """[b] as the generator is told: the null class where the label is hidden."""
    strength: Tensor
    style_ids: Tensor

    def __len__(self) -> int:
        return len(self.z)

    def rows(self, start: int, end: int) -> GeneratorInputs:
        """Those of rows start to end."""
        return GeneratorInputs(
            self.z[start:end], self.labels[start:end], self.strength[start:end], self.style_ids[start:end]
        )

    def to(self, device: torch.device, dtype: torch.dtype) -> GeneratorInputs:
        """On the device, real numbers in that dtype."""
        return GeneratorInputs(
            to_device(self.z, device, dtype),
            to_device(self.labels, device),
            to_device(self.strength, device, dtype),
            to_device(self.style_ids, device),
        )


def draw_inputs(config: RunConfig, generator: Generator, step: int) -> GeneratorInputs:
    """The inputs of all samples of the step, classes one after another."""
    of_class = config.generated
    total = generator.classes * of_class
    labels = torch.arange(generator.classes).repeat_interleave(of_class)
    hidden = torch.rand(total, generator=stream(config.seed, "label-dropout", step)) < config.condition.label_dropout
    strength = strengths(config, generator.classes, step)
    style_shape, entries = (total, generator.style_draws), max(1, generator.style_entries)
    return GeneratorInputs(
        z=torch.randn(total, *generator.noise_shape, generator=stream(config.seed, "noise", step)),
        labels=torch.where(hidden, generator.classes, labels),
        strength=strength,
        style_ids=torch.randint(entries, style_shape, generator=stream(config.seed, "style", step)),
    )


def strengths(config: RunConfig, classes: int, step: int) -> Tensor:
    """[classes · g] one a sample; with unconditional negatives, whose weight it sets, one a class."""
    shared = config.batch.unconditional > 0
    u = torch.rand(classes, 1 if shared else config.generated, generator=stream(config.seed, "strength", step))
    return _draw_by_law(u, config.condition).expand(classes, config.generated).reshape(-1)


def _draw_by_law(u: Tensor, condition: ConditionOptions) -> Tensor:
    low, high = condition.strength_low, condition.strength_high
    if condition.strength_law == "uniform":
        return low + (high - low) * u
    return (low**-2 - u * (low**-2 - high**-2)).rsqrt()


def unconditional_weight(config: RunConfig, classes: int, step: int) -> Tensor:
    """w_u [classes] = (a − 1)(g − 1)/u: their total weight is (a − 1) times that of the other generated samples."""
    a = strengths(config, classes, step).view(classes, -1)[:, 0]
    return (a - 1) * (config.generated - 1) / config.batch.unconditional


Encode = Callable[[Tensor], tuple[Tensor, ...]]


class FeatureSource(Protocol):
    """Features of the images of a batch."""

    def __call__(self, batch: Batch) -> Float[Tensor, "rows S D"]:
        """[rows, S, D] for indices [rows]."""
        ...


class Positives:
    """The positives of every class, and unconditional negatives, by step."""

    def __init__(self, batches: ClassBatches, lookup: FeatureSource, unconditional: int = 0) -> None:
        self.batches, self.lookup, self.unconditionals = batches, lookup, unconditional

    def at(self, step: int) -> Float[Tensor, "S C n D"]:
        """The positives of that step."""
        batch = self.batches.at(step)
        features = self.lookup(Batch(batch.indices.flatten(), batch.mirrored.flatten()))
        return features.transpose(0, 1).unflatten(1, tuple(batch.indices.shape))

    def unconditional(self, step: int) -> Float[Tensor, "S u D"]:
        """Images of any class at that step."""
        return self.lookup(self.batches.unconditional(step, self.unconditionals)).transpose(0, 1)


class OnTheFlyFeatures:
    """Encodes the images of a batch, at most `at_once` at a time."""

    def __init__(
        self, samples: Samples, encode: Encode, *, device: torch.device, dtype: torch.dtype, at_once: int | None
    ) -> None:
        self.samples, self.encode, self.device, self.dtype, self.at_once = samples, encode, device, dtype, at_once

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Float[Tensor, "rows S D"]:
        total = len(batch.indices)
        start, end = distributed.row_range(total)
        own = Batch(batch.indices[start:end], batch.mirrored[start:end])
        values = to_device(gather_samples(self.samples.values, own), self.device)
        parts = values.split(self.at_once or max(1, len(values)))
        features = torch.cat([self._features(part) for part in parts])
        return distributed.gather_rows(features, total)

    def _features(self, values: Tensor) -> Tensor:
        groups = self.encode(to_model_range(values).to(self.dtype))
        return stack_padded([f.to(torch.promote_types(f.dtype, torch.float32)) for f in groups]).transpose(0, 1)


@dataclass(frozen=True)
class EncoderWithPixels:
    """An encoder's groups, then the values."""

    encode: Encode

    def __call__(self, values: Tensor) -> tuple[Tensor, ...]:
        return (*self.encode(values), values.flatten(1))


@dataclass(frozen=True)
class FeaturesWithPixels:
    """The same of real images whose features are looked up."""

    lookup: FeatureSource
    samples: Samples

    def __call__(self, batch: Batch) -> Float[Tensor, "rows S D"]:
        features = self.lookup(batch)
        values = to_device(gather_samples(self.samples.values, batch), features.device)
        pixels = to_model_range(values).to(features.dtype).flatten(1)
        return stack_padded((*features.unbind(1), pixels)).transpose(0, 1)
