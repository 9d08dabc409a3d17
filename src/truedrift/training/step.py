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
from typing import Any

import torch

from truedrift import distributed
from truedrift.axes import Float, Tensor
from truedrift.seeding import stream
from truedrift.training.batch import (
    GeneratorInputs,
    Positives,
    draw_inputs,
    flatten_groups,
    to_device,
    unconditional_weight,
)
from truedrift.training.config import RunConfig
from truedrift.training.objective import PER_TEMPERATURE, BatchLoss, BatchObjective
from truedrift.training.state import TrainingState, learning_rate
from truedrift.training.telemetry import finite_or_none

DTYPES = {"float32": torch.float32, "bfloat16": torch.float32, "float64": torch.float64}
"""Precision → dtype of weights and inputs. For bfloat16 autocast computes in bfloat16."""


@dataclass(frozen=True)
class StepResult:
    """The result of a step."""

    features: BatchLoss
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
    """Generated samples → one tensor [b, D_s] or [b, P_s, D_s] per group."""
    positives: Positives
    objective: BatchObjective
    device: torch.device

    def __call__(self, step: int) -> StepResult:
        """Take step number `step`, counted from 0."""
        features = self.gradients(step)
        return self._update(step, features)

    def gradients(self, step: int) -> BatchLoss:
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
        gradients = loss.gradient.flatten(0, 1)[start:end].split([len(part) for part in parts])
        for part, f, g in zip(parts, features, gradients, strict=True):
            (f if in_one_pass else self.features(part)).backward(g)
        distributed.all_reduce_sum([_gradient(parameter) for parameter in self.state.parameters])
        return loss

    @torch.no_grad()
    def fresh_features(self, step: int) -> Float[Tensor, "N F"] | None:
        """Return the features of the fresh negatives of all processes, or None if there are none."""
        if self.config.batch.fresh_negatives == 0:
            return None
        engine = self.config.engine
        draws = draw_inputs(self.config, self.state.generator, step, fresh=True)
        start, end = distributed.row_range(len(draws))
        parts = split_rows(draws.rows(start, end).to(self.device, DTYPES[engine.precision]), engine.micro_batch)
        return distributed.gather_rows(torch.cat([self.features(part) for part in parts]), len(draws))

    def features(self, draws: GeneratorInputs) -> Float[Tensor, "b F"]:
        """Generate samples and return their feature vectors [b, F] in float32 or wider."""
        with autocast(self.config.engine.precision, self.device):
            samples = self.state.call(draws.z, draws.labels, draws.strength, draws.style_ids)
            return flatten_groups(self.encode(samples))

    def _loss(self, gen: Float[Tensor, "N F"], fresh: Float[Tensor, "R F"] | None, step: int) -> BatchLoss:
        config = self.config
        classes = config.classes_per_step(self.state.generator.classes)
        by_class = gen.unflatten(0, (classes, -1))
        if fresh is not None:
            fresh = fresh.unflatten(0, (classes, -1))
        pos = self.positives.at(step).to(by_class.dtype)
        neg = weight = None
        if config.batch.unconditional > 0:
            neg = self.positives.unconditional(step).to(by_class.dtype)
            weight = unconditional_weight(config, classes, step).unsqueeze(-1)
            weight = to_device(weight, self.device, by_class.dtype).expand(-1, config.batch.unconditional)
        estimator_stream = torch.Generator(self.device).manual_seed(
            stream(config.seed, "estimator", step).initial_seed()
        )
        return self.objective(by_class, pos, neg, weight, estimator_stream, fresh, step=step)

    def _update(self, step: int, features: BatchLoss) -> StepResult:
        parameters, options = self.state.parameters, self.config.optimizer
        limit = torch.inf if options.clip is None else options.clip
        norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
        finite = torch.isfinite(norm) & torch.isfinite(features.loss)
        self.state.advance(step, learning_rate(options, step, self.config.cadence.steps), finite)
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


def step_metrics(
    config: RunConfig,
    step: int,
    outcome: StepResult,
    energy: Mapping[str, Sequence[float]],
    skipped: int,
    classes: int | None = None,
) -> dict[str, Any]:
    """Return the metrics after `step` steps, all functions of the state.

    Lists have one entry per temperature, those of the energy distance since the last log one per scale. `classes` is
    the number of all classes, for the positives seen.
    """
    means = outcome.features.report_means()
    spread = float(means["spread"])
    metrics = {
        "step": step,
        "epoch": step / config.cadence.steps_per_epoch,
        "positives_seen": config.positives_seen(step, classes),
        **energy,
        "loss": float(outcome.features.loss),
        "gradient_norm": float(outcome.gradient_norm),
        "learning_rate": learning_rate(config.optimizer, step - 1, config.cadence.steps),
        "temperatures": list(config.objective.temperatures),
        **{name: means[name].tolist() for name in ("force", *PER_TEMPERATURE)},
        "spread": spread,
        "collapsed": spread < COLLAPSED_BELOW and step > config.optimizer.warmup_steps,
        "skipped": skipped,
    }
    return dict(finite_or_none(metrics))
