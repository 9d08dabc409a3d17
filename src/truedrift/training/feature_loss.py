"""Features of a whole batch → loss and ∂loss/∂features: the one place where samples meet.

The gradient with respect to the features is all that a sample's backward pass needs. It is computed once for the joined
batch, after which every sample goes its own way: in one pass, in micro-batches, in several processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from truedrift.axes import Float, Tensor
from truedrift.centroids.base import Estimator
from truedrift.kernels.kernel import LogKernel
from truedrift.objective.drift_loss import DriftLoss, drift_loss
from truedrift.objective.published import abc_release_groups
from truedrift.objective.report import DriftReport
from truedrift.training.config import ObjectiveOptions
from truedrift.training.transfer import to_device

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
