"""Features of a whole batch → loss and ∂loss/∂features: the one place where samples meet.

The gradient with respect to the features is all that a sample's backward pass needs. It is computed once for the joined
batch, after which every sample goes its own way: in one pass, in micro-batches, in several processes.

One optimizer step: samples → features → ∂loss/∂features → gradient of the weights → AdamW → average.

The target of the drift loss is fixed, so that samples meet only in the loss of their features. A step therefore has two
halves. First features f of all samples and g = ∂loss/∂f. Then Σ_i g_i·∂f_i/∂θ, a sum over samples that can be taken
in one pass (whose graph was kept), in micro-batches (which compute f again, with a graph), or in several processes: the
same gradient, for references that were pooled and not for averages of smaller losses.

A loss or gradient that is not finite changes nothing: AdamW is told on the device, without waiting for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from truedrift import distributed
from truedrift.axes import Float, Tensor
from truedrift.centroids.estimator import Estimator
from truedrift.encoders.base import stack_padded
from truedrift.kernels.kernel import LogKernel
from truedrift.objective.drift_loss import DriftLoss, drift_loss
from truedrift.objective.published import abc_release_groups
from truedrift.objective.report import DriftReport
from truedrift.seeding import stream
from truedrift.training.batch import GeneratorInputs, Positives, draw_inputs, to_device, unconditional_weight
from truedrift.training.config import ObjectiveOptions, RunConfig
from truedrift.training.state import TrainingState, learning_rate

RELEASE_ORDERS = {"standard": 0, "abc": 1, "abc2": 2}
"""Estimators of the published arithmetic, by the order of their correction."""


@dataclass(frozen=True)
class FeatureLoss:
    """The loss of a batch, and what it asks of every feature."""

    loss: Tensor
    """[] mean over classes and scales."""
    gradient: Tensor
    """[S, C, g, D] with respect to the generated features."""
    report: Callable[[], DriftReport]
    """What people look at now and then; in the correct arithmetic, whichever the loss has."""


@dataclass(frozen=True)
class Objective:
    """The loss of named options, or with a kernel and estimators of one's own in their place."""

    options: ObjectiveOptions
    weights: Sequence[float]
    """[S] what the gradient of each scale is multiplied with, for features that were padded to one dimension."""
    estimator_pos: Estimator | None = None
    estimator_neg: Estimator | None = None
    kernel: LogKernel | None = None

    def __call__(
        self,
        gen: Float[Tensor, "S C g D"],
        pos: Float[Tensor, "S C n D"],
        neg: Float[Tensor, "S C u D"] | None = None,
        weight_neg: Float[Tensor, "C u"] | None = None,
        generator: torch.Generator | None = None,
    ) -> FeatureLoss:
        """Loss and gradient of all classes and scales at once."""
        with torch.enable_grad():
            leaf = gen.detach().requires_grad_()
            if self.options.arithmetic == "abc-release":
                losses = self._released(leaf, pos)
                report = partial(self._report, gen.detach(), pos)
            else:
                out = self._stable(leaf, pos, neg, weight_neg, generator)
                losses, report = out.loss, partial(getattr, out, "report")
            # Of the mean over all groups, each scale with its weight.
            share = torch.tensor(self.weights, dtype=losses.dtype).div_(losses.numel()).view(-1, 1)
            (gradient,) = torch.autograd.grad(losses, leaf, to_device(share, losses.device).expand_as(losses))
        return FeatureLoss(losses.detach().mean(), gradient, report)

    def _report(self, gen: Tensor, pos: Tensor) -> DriftReport:
        return self._stable(gen, pos, None, None, None).report

    def _stable(
        self,
        gen: Tensor,
        pos: Tensor,
        neg: Tensor | None,
        weight_neg: Tensor | None,
        generator: torch.Generator | None,
    ) -> DriftLoss:
        options = self.options
        return drift_loss(
            gen,
            pos,
            neg,
            temperatures=options.temperatures,
            normalization=options.normalization,
            form=options.form,
            estimator_pos=self.estimator_pos or options.estimator_pos,
            estimator_neg=self.estimator_neg or options.estimator_neg,
            feature_scale=options.feature_scale,
            weight_neg=weight_neg,
            kernel=self.kernel or options.kernel,
            generator=generator,
        )

    def _released(self, gen: Tensor, pos: Tensor) -> Tensor:
        """In the published arithmetic."""
        options = self.options
        return abc_release_groups(
            gen,
            pos,
            temperatures=options.temperatures,
            abc=RELEASE_ORDERS[options.estimator_pos],
            abc_neg=RELEASE_ORDERS[options.estimator_neg],
        )


DTYPES = {"float32": torch.float32, "bfloat16": torch.float32, "float64": torch.float64}
"""Of weights and inputs; bfloat16 is what autocast computes in."""


@dataclass(frozen=True)
class StepResult:
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

    def __call__(self, step: int) -> StepResult:
        """Take step number `step`, counted from 0."""
        features = self.gradients(step)
        return self._update(step, features)

    def gradients(self, step: int) -> FeatureLoss:
        """The gradients of step number `step` on the parameters, summed over processes."""
        engine = self.config.engine
        draws = draw_inputs(self.config, self.state.generator, step)
        start, end = distributed.row_range(len(draws))
        parts = own_rows(draws.rows(start, end).to(self.device, DTYPES[engine.precision]), engine.micro_batch)
        self.state.optimizer.zero_grad(set_to_none=True)
        in_one_pass = len(parts) == 1
        with torch.set_grad_enabled(in_one_pass):
            features = [self.features(part) for part in parts]
        joined = distributed.gather_rows(torch.cat([f.detach() for f in features]), len(draws))
        loss = self._loss(joined, step)
        wanted = loss.gradient.flatten(1, 2).transpose(0, 1)[start:end].split([len(part) for part in parts])
        for part, f, g in zip(parts, features, wanted, strict=True):
            (f if in_one_pass else self.features(part)).backward(g)
        distributed.all_reduce_sum([_gradient(parameter) for parameter in self.state.parameters])
        return loss

    def features(self, draws: GeneratorInputs) -> Float[Tensor, "b S D"]:
        """Of generated samples, [b, S, D] in float32 or wider."""
        with autocast(self.config.engine.precision, self.device):
            samples = self.state.call(draws.z, draws.labels, draws.strength, draws.style_ids)
            features = stack_padded([f.to(torch.promote_types(f.dtype, torch.float32)) for f in self.encode(samples)])
        return features.transpose(0, 1)

    def _loss(self, gen: Float[Tensor, "N S D"], step: int) -> FeatureLoss:
        generator, config = self.state.generator, self.config
        by_class = gen.transpose(0, 1).unflatten(1, (generator.classes, config.generated))
        pos = self.positives.at(step).to(by_class.dtype)
        neg = weight = None
        if config.batch.unconditional > 0:
            neg = self.positives.unconditional(step).to(by_class.dtype).unsqueeze(1)
            neg = neg.expand(-1, generator.classes, -1, -1)
            weight = unconditional_weight(config, generator.classes, step).unsqueeze(-1)
            weight = to_device(weight, self.device, by_class.dtype).expand(-1, config.batch.unconditional)
        drawn = torch.Generator(self.device).manual_seed(stream(config.seed, "estimator", step).initial_seed())
        return self.objective(by_class, pos, neg, weight, drawn)

    def _update(self, step: int, features: FeatureLoss) -> StepResult:
        parameters, options = self.state.parameters, self.config.optimizer
        limit = torch.inf if options.clip is None else options.clip
        norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
        finite = torch.isfinite(norm) & torch.isfinite(features.loss)
        self.state.advance(learning_rate(options, step), finite)
        return StepResult(features, norm, finite)


def autocast(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Inside, networks compute in the precision of that name."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()


def own_rows(draws: GeneratorInputs, micro_batch: int | None) -> list[GeneratorInputs]:
    """The rows of this process, at most `micro_batch` at a time; one part of no rows where there are none."""
    rows = max(1, len(draws))
    size = micro_batch or rows
    return [draws.rows(start, start + size) for start in range(0, rows, size)]


def _gradient(parameter: Tensor) -> Tensor:
    """Zeros where no sample reached the parameter, so that all processes add the same tensors."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad
