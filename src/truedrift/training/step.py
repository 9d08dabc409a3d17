"""One optimizer step: samples → features → ∂loss/∂features → gradient of the weights → AdamW → average.

The target of the drift loss is fixed, so that samples meet only in the loss of their features. A step therefore has two
halves. First features f of all samples and g = ∂loss/∂f. Then Σ_i g_i·∂f_i/∂θ, a sum over samples that can be taken
in one pass (whose graph was kept), in micro-batches (which compute f again, with a graph), or in several processes: the
same gradient, for references that were pooled and not for averages of smaller losses.

A loss or gradient that is not finite changes nothing: AdamW is told on the device, without waiting for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

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
        generator = self.state.generator
        draws = draw(self.config, generator, step)
        total = len(draws)
        own = draws.rows(*collectives.bounds(total)).to(self.device, DTYPES[self.config.engine.precision])
        parts = list(own_parts(own, self.config.engine.micro_batch))
        self.state.optimizer.zero_grad(set_to_none=True)
        in_one_pass = len(parts) == 1
        with torch.set_grad_enabled(in_one_pass):
            features = [self.features(part) for part in parts]
        joined = collectives.gather_rows(torch.cat([part.detach() for part in features]), total)
        loss = self._loss(joined, step)
        start, end = collectives.bounds(total)
        wanted = loss.gradient.flatten(1, 2).transpose(0, 1)[start:end]
        for position, (part, g) in enumerate(zip(parts, wanted.split([len(part) for part in parts]), strict=True)):
            f = features[position] if in_one_pass else self.features(part)
            f.backward(g)
        collectives.add([_gradient(parameter) for parameter in self.state.parameters])
        return loss

    def features(self, draws: Draws) -> Float[Tensor, "b S D"]:
        """Of generated samples, [b, S, D] in float32 or wider."""
        with self._autocast():
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
            weight = weight_of_unconditional(config, generator.classes, step).to(self.device, by_class.dtype)
            weight = weight.unsqueeze(-1).expand(-1, config.batch.unconditional)
        drawn = torch.Generator(self.device).manual_seed(stream(config.seed, "estimator", step).initial_seed())
        return self.objective(by_class, pos, neg, weight, drawn)

    def _update(self, step: int, features: FeatureLoss) -> Outcome:
        parameters, options = self.state.parameters, self.config.optimizer
        limit = torch.inf if options.clip is None else options.clip
        norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
        finite = torch.isfinite(norm) & torch.isfinite(features.loss)
        self.state.advance(learning_rate(options, step), finite)
        return Outcome(features, norm, finite)

    def _autocast(self) -> AbstractContextManager[None]:
        if self.config.engine.precision == "bfloat16":
            return torch.autocast(self.device.type, torch.bfloat16)  # type: ignore[return-value]
        return nullcontext()


def own_parts(draws: Draws, micro_batch: int | None) -> Iterator[Draws]:
    """The rows of this process, at most `micro_batch` at a time."""
    size = micro_batch or max(1, len(draws))
    yield from (draws.rows(start, start + size) for start in range(0, max(1, len(draws)), size))


def _gradient(parameter: Tensor) -> Tensor:
    """Zeros where no sample reached the parameter, so that all processes add the same tensors."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad
