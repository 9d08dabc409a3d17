"""One optimizer step: samples → features → ∂loss/∂features → gradient of the weights → AdamW → average.

The target of the drift loss is fixed, so that samples interact only in the loss of their features. A step therefore has
two halves. The first computes the features f of all samples and g = ∂loss/∂f. The second computes Σ_i g_i·∂f_i/∂θ, a
sum over samples that can be taken in one pass, which keeps the graph of the first half; in micro-batches, which compute
f again with a graph; or in several processes. The gradient is the same in all cases: it is that of pooled references,
not an average of the gradients of smaller losses.

A loss or gradient that is not finite changes no weight. AdamW reads the flag on the device, without synchronization.
"""

from collections.abc import Callable, Mapping, Sequence
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
from truedrift.kernels.precision import full_precision
from truedrift.objective.drift_loss import DriftLoss, drift_loss
from truedrift.objective.feature_scale import Features, standardize_l2
from truedrift.objective.published import abc_release_groups
from truedrift.objective.report import DriftReport, distances_in_blocks, energy_distance
from truedrift.seeding import stream
from truedrift.training.batch import GeneratorInputs, Positives, draw_inputs, to_device, unconditional_weight
from truedrift.training.config import ObjectiveOptions, RunConfig
from truedrift.training.state import TrainingState, learning_rate
from truedrift.training.telemetry import finite_or_none

RELEASE_ORDERS = {"standard": 0, "abc": 1, "abc2": 2}
"""Estimators of the published arithmetic → the order of their correction."""


@dataclass(frozen=True)
class FeatureLoss:
    """The loss of a batch and its gradient with respect to the features."""

    loss: Tensor
    """Scalar: the mean over classes and scales."""
    gradient: Tensor
    """Gradient [S, C, g, D] with respect to the generated features."""
    report: Callable[[], DriftReport]
    """Computes the diagnostics of the batch on demand, always in the stable arithmetic."""
    energy: Callable[[], Tensor]
    """Computes the energy distance [S] on demand, mean over classes; NaN if a side has one sample."""


@dataclass(frozen=True)
class Objective:
    """The loss that the options describe; a kernel and estimators of the user replace the named ones."""

    options: ObjectiveOptions
    weights: Sequence[float]
    """[S] factors of the gradients of the scales, whose features are padded to one dimension."""
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
        fresh_neg: Float[Tensor, "S C r D"] | None = None,
    ) -> FeatureLoss:
        """Compute loss and gradient of all classes and scales."""
        with torch.enable_grad():
            leaf = gen.detach().requires_grad_()
            if self.options.arithmetic == "abc-release":
                losses = self._release_losses(leaf, pos)
                report = partial(self._report, gen.detach(), pos)
                energy = partial(_release_energy, gen.detach(), pos)
            else:
                out = self._stable_loss(leaf, pos, neg, weight_neg, generator, fresh_neg)
                losses, report = out.loss, partial(getattr, out, "report")
                energy = partial(getattr, out.report, "energy")
            # The loss is the mean over all groups, and each scale has its weight.
            share = torch.tensor(self.weights, dtype=losses.dtype).div_(losses.numel()).view(-1, 1)
            (gradient,) = torch.autograd.grad(losses, leaf, to_device(share, losses.device).expand_as(losses))
        sides = min(gen.shape[-2], pos.shape[-2])
        return FeatureLoss(losses.detach().mean(), gradient, report, partial(_mean_over_classes, energy, sides))

    def _report(self, gen: Tensor, pos: Tensor) -> DriftReport:
        return self._stable_loss(gen, pos, None, None, None).report

    def _stable_loss(
        self,
        gen: Tensor,
        pos: Tensor,
        neg: Tensor | None,
        weight_neg: Tensor | None,
        generator: torch.Generator | None,
        fresh_neg: Tensor | None = None,
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
            matched=options.matched,
            fresh_neg=fresh_neg,
            kernel=self.kernel or options.kernel,
            generator=generator,
        )

    def _release_losses(self, gen: Tensor, pos: Tensor) -> Tensor:
        """Compute the losses in the published arithmetic."""
        options = self.options
        return abc_release_groups(
            gen,
            pos,
            temperatures=options.temperatures,
            abc=RELEASE_ORDERS[options.estimator_pos],
            abc_neg=RELEASE_ORDERS[options.estimator_neg],
        )


def _release_energy(gen: Tensor, pos: Tensor) -> Tensor:
    """Return the energy distance [S, C] of unit features, the scale of the published arithmetic."""
    with full_precision(gen):
        features = standardize_l2(Features(gen.float(), pos.float()))
        g = features.negatives
        return energy_distance(features.distances(), g, distances_in_blocks(features.pos, g))


def _mean_over_classes(energy: Callable[[], Tensor], smaller_side: int) -> Tensor:
    """Return the mean [S] over classes of an energy distance [S, C], NaN if a side has no pair of samples."""
    values = energy().mean(-1)
    return values if smaller_side > 1 else values * torch.nan


DTYPES = {"float32": torch.float32, "bfloat16": torch.float32, "float64": torch.float64}
"""Precision → dtype of weights and inputs. For bfloat16 autocast computes in bfloat16."""


@dataclass(frozen=True)
class StepResult:
    """The result of a step."""

    features: FeatureLoss
    gradient_norm: Tensor
    """Scalar: the norm before clipping."""
    finite: Tensor
    """Scalar: whether loss and gradient are finite. If not, the weights are unchanged."""


@dataclass(frozen=True)
class Step:
    """The optimizer step of a run, called with its number."""

    config: RunConfig
    state: TrainingState
    """The generator, its optimizer and its average, which the step changes."""
    encode: Callable[[Tensor], tuple[Tensor, ...]]
    """Generated samples → one tensor [b, D_s] per scale."""
    positives: Positives
    objective: Objective
    device: torch.device

    def __call__(self, step: int) -> StepResult:
        """Take step number `step`, counted from 0."""
        features = self.gradients(step)
        return self._update(step, features)

    def gradients(self, step: int) -> FeatureLoss:
        """Compute the gradients of step number `step` into the parameters, summed over processes."""
        engine = self.config.engine
        # Draw the inputs; this process takes its rows.
        draws = draw_inputs(self.config, self.state.generator, step)
        start, end = distributed.row_range(len(draws))
        parts = split_rows(draws.rows(start, end).to(self.device, DTYPES[engine.precision]), engine.micro_batch)
        # First half: features of all samples, and the gradient of the loss with respect to them.
        self.state.optimizer.zero_grad(set_to_none=True)
        in_one_pass = len(parts) == 1
        with torch.set_grad_enabled(in_one_pass):
            features = [self.features(part) for part in parts]
        joined = distributed.gather_rows(torch.cat([f.detach() for f in features]), len(draws))
        loss = self._loss(joined, self.fresh_features(step), step)
        # Second half: the gradient of the weights, part by part.
        gradients = loss.gradient.flatten(1, 2).transpose(0, 1)[start:end].split([len(part) for part in parts])
        for part, f, g in zip(parts, features, gradients, strict=True):
            (f if in_one_pass else self.features(part)).backward(g)
        distributed.all_reduce_sum([_gradient(parameter) for parameter in self.state.parameters])
        return loss

    @torch.no_grad()
    def fresh_features(self, step: int) -> Float[Tensor, "N S D"] | None:
        """Return the features of the fresh negatives of all processes, or None if there are none."""
        if self.config.batch.fresh_negatives == 0:
            return None
        engine = self.config.engine
        draws = draw_inputs(self.config, self.state.generator, step, fresh=True)
        start, end = distributed.row_range(len(draws))
        parts = split_rows(draws.rows(start, end).to(self.device, DTYPES[engine.precision]), engine.micro_batch)
        return distributed.gather_rows(torch.cat([self.features(part) for part in parts]), len(draws))

    def features(self, draws: GeneratorInputs) -> Float[Tensor, "b S D"]:
        """Generate samples and return their features [b, S, D] in float32 or wider."""
        with autocast(self.config.engine.precision, self.device):
            samples = self.state.call(draws.z, draws.labels, draws.strength, draws.style_ids)
            features = stack_padded([f.to(torch.promote_types(f.dtype, torch.float32)) for f in self.encode(samples)])
        return features.transpose(0, 1)

    def _loss(self, gen: Float[Tensor, "N S D"], fresh: Float[Tensor, "R S D"] | None, step: int) -> FeatureLoss:
        generator, config = self.state.generator, self.config
        by_class = gen.transpose(0, 1).unflatten(1, (generator.classes, -1))
        if fresh is not None:
            fresh = fresh.transpose(0, 1).unflatten(1, (generator.classes, -1))
        pos = self.positives.at(step).to(by_class.dtype)
        neg = weight = None
        if config.batch.unconditional > 0:
            neg = self.positives.unconditional(step).to(by_class.dtype).unsqueeze(1)
            neg = neg.expand(-1, generator.classes, -1, -1)
            weight = unconditional_weight(config, generator.classes, step).unsqueeze(-1)
            weight = to_device(weight, self.device, by_class.dtype).expand(-1, config.batch.unconditional)
        estimator_stream = torch.Generator(self.device).manual_seed(
            stream(config.seed, "estimator", step).initial_seed()
        )
        return self.objective(by_class, pos, neg, weight, estimator_stream, fresh)

    def _update(self, step: int, features: FeatureLoss) -> StepResult:
        parameters, options = self.state.parameters, self.config.optimizer
        limit = torch.inf if options.clip is None else options.clip
        norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
        finite = torch.isfinite(norm) & torch.isfinite(features.loss)
        self.state.advance(learning_rate(options, step), finite)
        return StepResult(features, norm, finite)


def autocast(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which networks compute in that precision."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()


def split_rows(draws: GeneratorInputs, micro_batch: int | None) -> list[GeneratorInputs]:
    """Split the rows of this process into micro-batches; one empty part if there are no rows."""
    rows = max(1, len(draws))
    size = micro_batch or rows
    return [draws.rows(start, start + size) for start in range(0, rows, size)]


def _gradient(parameter: Tensor) -> Tensor:
    """Return the gradient, zeros if no sample reached the parameter, so that all processes add the same tensors."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


COLLAPSED_BELOW = 0.1
"""A collapse after the warm-up: distances within a class of generated features, relative to distances to the data.

A network with nearly zero initial output, such as DriftDiT, starts below this value and leaves it."""

PER_TEMPERATURE = ("n_eff_pos", "n_eff_neg", "dominated_pos", "dominated_neg", "correction_pos", "correction_neg")


def step_metrics(
    config: RunConfig, step: int, outcome: StepResult, energy: Mapping[str, Sequence[float]], skipped: int
) -> dict[str, Any]:
    """Return the metrics after `step` steps, all functions of the state.

    Lists have one entry per temperature, those of the energy distance since the last log one per scale.
    """
    report = outcome.features.report()
    force = report.force.mean(-2)  # [S, C, T] → [S, T]
    spread = float(report.spread.mean())
    means = {name: getattr(report, name).mean((0, 1)).tolist() for name in PER_TEMPERATURE}
    metrics = {
        "step": step,
        "epoch": step / config.cadence.steps_per_epoch,
        "positives_seen": config.positives_seen(step),
        **energy,
        "loss": float(outcome.features.loss),
        "gradient_norm": float(outcome.gradient_norm),
        "learning_rate": learning_rate(config.optimizer, step - 1),
        "temperatures": list(config.objective.temperatures),
        "force": force.tolist(),
        **means,
        "spread": spread,
        "collapsed": spread < COLLAPSED_BELOW and step > config.optimizer.warmup_steps,
        "skipped": skipped,
    }
    return dict(finite_or_none(metrics))
