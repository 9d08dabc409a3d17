"""What a step draws for its generated samples: noise, style, strength, hidden labels, by global sample id.

Sample id c·g + i is the i-th of class c. Every process draws the numbers of the whole batch, a pure function of
(seed, step), and takes the rows of its own, so that the stream of samples does not depend on how many processes there
are. Strength a is uniform on [low, high], or p(a) ∝ a⁻³ by inversion: a = (low⁻² − u (low⁻² − high⁻²))^(−1/2).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from truedrift.axes import Tensor
from truedrift.generators.base import Generator
from truedrift.seeding import stream
from truedrift.training.config import ConditionOptions, RunConfig
from truedrift.training.transfer import to_device


@dataclass(frozen=True)
class Draws:
    """The inputs of the generator for some rows of the batch."""

    z: Tensor
    labels: Tensor
    """[b] as the generator is told: the null class where the label is hidden."""
    strength: Tensor
    style_ids: Tensor

    def __len__(self) -> int:
        return len(self.z)

    def rows(self, start: int, end: int) -> Draws:
        """Those of rows start to end."""
        return Draws(self.z[start:end], self.labels[start:end], self.strength[start:end], self.style_ids[start:end])

    def to(self, device: torch.device, dtype: torch.dtype) -> Draws:
        """On the device, real numbers in that dtype."""
        return Draws(
            to_device(self.z, device, dtype),
            to_device(self.labels, device),
            to_device(self.strength, device, dtype),
            to_device(self.style_ids, device),
        )


def draw(config: RunConfig, generator: Generator, step: int) -> Draws:
    """The inputs of all samples of the step, classes one after another."""
    of_class = config.generated
    total = generator.classes * of_class
    labels = torch.arange(generator.classes).repeat_interleave(of_class)
    hidden = torch.rand(total, generator=stream(config.seed, "label-dropout", step)) < config.condition.label_dropout
    strength = strengths(config, generator.classes, step)
    style_shape, entries = (total, generator.style_draws), max(1, generator.style_entries)
    return Draws(
        z=torch.randn(total, *generator.noise_shape, generator=stream(config.seed, "noise", step)),
        labels=torch.where(hidden, generator.classes, labels),
        strength=strength,
        style_ids=torch.randint(entries, style_shape, generator=stream(config.seed, "style", step)),
    )


def strengths(config: RunConfig, classes: int, step: int) -> Tensor:
    """[classes · g] one a sample; with unconditional negatives, whose weight it sets, one a class."""
    shared = config.batch.unconditional > 0
    u = torch.rand(classes, 1 if shared else config.generated, generator=stream(config.seed, "strength", step))
    return _by_law(u, config.condition).expand(classes, config.generated).reshape(-1)


def _by_law(u: Tensor, condition: ConditionOptions) -> Tensor:
    low, high = condition.strength_low, condition.strength_high
    if condition.strength_law == "uniform":
        return low + (high - low) * u
    return (low**-2 - u * (low**-2 - high**-2)).rsqrt()


def weight_of_unconditional(config: RunConfig, classes: int, step: int) -> Tensor:
    """w_u [classes] = (a − 1)(g − 1)/u: their total weight is (a − 1) times that of the other generated samples."""
    a = strengths(config, classes, step).view(classes, -1)[:, 0]
    return (a - 1) * (config.generated - 1) / config.batch.unconditional
