"""One optimizer step: samples → features → ∂loss/∂features → gradient of the weights → AdamW → average.

The target of the drift loss is fixed, so that samples meet only in the loss of their features. A step therefore has two
halves. First features f of all samples and g = ∂loss/∂f. Then Σ_i g_i·∂f_i/∂θ, a sum over samples that can be taken
in one pass (whose graph was kept), in micro-batches (which compute f again, with a graph), or in several processes: the
same gradient, for references that were pooled and not for averages of smaller losses.

A loss or gradient that is not finite changes nothing: AdamW is told on the device, without waiting for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from truedrift import collectives
from truedrift.axes import Float, Tensor
from truedrift.encoders.scales import stack
from truedrift.seeding import stream
from truedrift.training.config import RunConfig
from truedrift.training.draws import Draws, draw, weight_of_unconditional
from truedrift.training.feature_loss import FeatureLoss, Objective
from truedrift.training.positives import Positives
from truedrift.training.schedule import learning_rate
from truedrift.training.state import TrainingState
from truedrift.training.transfer import to_device

DTYPES = {"float32": torch.float32, "bfloat16": torch.float32, "float64": torch.float64}
"""Of weights and inputs; bfloat16 is what autocast computes in."""


@dataclass(frozen=True)
class Outcome:
    """What a step leaves for those who look."""

    features: FeatureLoss
    gradient_norm: Tensor
    """[] before clipping."""
    finite: Tensor
    """[] whether loss and gradient are; where not, weights are as they were."""


@dataclass(frozen=True)
class Step:
    """A step of a run, by its number."""

    config: RunConfig
    state: TrainingState
    encode: Callable[[Tensor], tuple[Tensor, ...]]
    positives: Positives
    objective: Objective
    device: torch.device

    def __call__(self, step: int) -> Outcome:
        """Take step number `step`, counted from 0."""
        features = self.gradients(step)
        return self._update(step, features)

    def gradients(self, step: int) -> FeatureLoss:
        """The gradients of step number `step` on the parameters, summed over processes."""
        engine = self.config.engine
        draws = draw(self.config, self.state.generator, step)
        start, end = collectives.bounds(len(draws))
        parts = own_parts(draws.rows(start, end).to(self.device, DTYPES[engine.precision]), engine.micro_batch)
        self.state.optimizer.zero_grad(set_to_none=True)
        in_one_pass = len(parts) == 1
        with torch.set_grad_enabled(in_one_pass):
            features = [self.features(part) for part in parts]
        joined = collectives.gather_rows(torch.cat([f.detach() for f in features]), len(draws))
        loss = self._loss(joined, step)
        wanted = loss.gradient.flatten(1, 2).transpose(0, 1)[start:end].split([len(part) for part in parts])
        for part, f, g in zip(parts, features, wanted, strict=True):
            (f if in_one_pass else self.features(part)).backward(g)
        collectives.add([_gradient(parameter) for parameter in self.state.parameters])
        return loss

    def features(self, draws: Draws) -> Float[Tensor, "b S D"]:
        """Of generated samples, [b, S, D] in float32 or wider."""
        with autocast(self.config.engine.precision, self.device):
            samples = self.state.call(draws.z, draws.labels, draws.strength, draws.style_ids)
            features = stack([f.to(torch.promote_types(f.dtype, torch.float32)) for f in self.encode(samples)])
        return features.transpose(0, 1)

    def _loss(self, gen: Float[Tensor, "N S D"], step: int) -> FeatureLoss:
        generator, config = self.state.generator, self.config
        by_class = gen.transpose(0, 1).unflatten(1, (generator.classes, config.generated))
        pos = self.positives.at(step).to(by_class.dtype)
        neg = weight = None
        if config.batch.unconditional > 0:
            neg = self.positives.unconditional(step).to(by_class.dtype).unsqueeze(1)
            neg = neg.expand(-1, generator.classes, -1, -1)
            weight = weight_of_unconditional(config, generator.classes, step).unsqueeze(-1)
            weight = to_device(weight, self.device, by_class.dtype).expand(-1, config.batch.unconditional)
        drawn = torch.Generator(self.device).manual_seed(stream(config.seed, "estimator", step).initial_seed())
        return self.objective(by_class, pos, neg, weight, drawn)

    def _update(self, step: int, features: FeatureLoss) -> Outcome:
        parameters, options = self.state.parameters, self.config.optimizer
        limit = torch.inf if options.clip is None else options.clip
        norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
        finite = torch.isfinite(norm) & torch.isfinite(features.loss)
        self.state.advance(learning_rate(options, step), finite)
        return Outcome(features, norm, finite)


def autocast(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Inside, networks compute in the precision of that name."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()


def own_parts(draws: Draws, micro_batch: int | None) -> list[Draws]:
    """The rows of this process, at most `micro_batch` at a time; one part of no rows where there are none."""
    rows = max(1, len(draws))
    size = micro_batch or rows
    return [draws.rows(start, start + size) for start in range(0, rows, size)]


def _gradient(parameter: Tensor) -> Tensor:
    """Zeros where no sample reached the parameter, so that all processes add the same tensors."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad
