"""What the drift loss hides: raw forces, effective sample sizes, domination, the size of the correction, spread.

The loss is mean V² of fields normalized to unit RMS, so it stays where it is from the first step to the last. These
numbers move. They are computed on first use from the distances of the batch, so that a step which nobody looks at
does not pay for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from truedrift.axes import Float, Tensor
from truedrift.centroids.resampling import Bootstrap
from truedrift.field.affinity import FieldSpec, SideWeights, batch_weights, log_kernels
from truedrift.kernels.weights import effective_sample_size


@dataclass(frozen=True)
class LossTerms:
    """What a path computes: the loss, and what the report is made of."""

    loss: Tensor
    negatives: int
    distances: Tensor
    weight_neg: Tensor | None
    mean_square: Tensor
    """[..., T] mean V_τ² with relative masses."""
    largest_log_mass: Tensor
    """[..., T] the logarithm of what those masses are relative to; 0 for the separate form."""
    log_k: Tensor | None = None
    """[..., T, n, columns] of a kernel that is not −d/τ; None for that one, which the distances give again."""

    def log_kernels(self, temperatures: Sequence[float]) -> Float[Tensor, "*batch T n columns"]:
        """log k at every temperature, in memory of its own."""
        return log_kernels(self.distances, temperatures) if self.log_k is None else self.log_k.clone()


DOMINATES_ABOVE = 0.5
"""A weight dominates when it holds more than half."""

PER_TEMPERATURE = (
    "force",
    "n_eff_pos",
    "n_eff_neg",
    "dominated_pos",
    "dominated_neg",
    "correction_pos",
    "correction_neg",
)


@dataclass(frozen=True)
class DriftReport:
    """Telemetry of one batch; every entry is a tensor without gradient on the device of the features."""

    _terms: LossTerms
    temperatures: tuple[float, ...]
    spec: FieldSpec
    _memo: list[SideWeights] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def log_force(self) -> Tensor:
        """[..., T] logarithm of `force`, which itself may be too small for float32."""
        return 0.5 * self._terms.mean_square.log() + self._terms.largest_log_mass

    @property
    def force(self) -> Tensor:
        """[..., T] RMS of the raw field V_τ before normalization. Falls as the generator reaches the data.

        In the product form the masses weigh in, which are also small far from the data: there it rises first.
        """
        return self.log_force.exp()

    @property
    def n_eff_pos(self) -> Tensor:
        """[..., T] effective number of positives, 1/Σα², mean over queries."""
        return effective_sample_size(self._sides.alpha_pos).mean(-1)

    @property
    def n_eff_neg(self) -> Tensor:
        """[..., T] effective number of negatives, mean over queries."""
        return effective_sample_size(self._sides.alpha_neg).mean(-1)

    @property
    def dominated_pos(self) -> Tensor:
        """[..., T] share of queries for which one positive holds more than half of the weight."""
        return _dominated_share(self._sides.alpha_pos)

    @property
    def dominated_neg(self) -> Tensor:
        """[..., T] share of queries for which one negative holds more than half of the weight."""
        return _dominated_share(self._sides.alpha_neg)

    @property
    def correction_pos(self) -> Tensor:
        """[..., T] share of the weight that the estimator moves between positives, Σ max(α − γ, 0) = ½ Σ|γ − α|."""
        return _relative_shift(self._sides.alpha_pos, self._sides.gamma_pos)

    @property
    def correction_neg(self) -> Tensor:
        """[..., T] share of the weight that the estimator moves between negatives, mean over queries; 0 without any."""
        return _relative_shift(self._sides.alpha_neg, self._sides.gamma_neg)

    @property
    def spread(self) -> Tensor:
        """[...] mean distance among generated features over that to positives: near 1, and near 0 on collapse.

        These are distances as the kernel sees them. A batch that collapsed onto the very mean of the data keeps its
        directions from there, so that unit features (standardize-l2) do not show it; watch n_eff and the samples.
        """
        d = self._terms.distances
        n = d.shape[-2]
        among = d[..., :n].sum((-2, -1)) / max(1, n * (n - 1))
        return among / d[..., self._terms.negatives :].mean((-2, -1)).clamp_min(torch.finfo(d.dtype).tiny)

    def summary(self) -> dict[str, Tensor]:
        """Every number averaged over groups: [T] for those of a temperature, a scalar for `spread`."""
        per_temperature = {name: getattr(self, name) for name in PER_TEMPERATURE}
        means = {name: value.reshape(-1, value.shape[-1]).mean(0) for name, value in per_temperature.items()}
        return means | {"spread": self.spread.mean()}

    @property
    def _sides(self) -> SideWeights:
        """Weighed again from the distances of the batch, once; no lock, so that compiled code can read it."""
        if not self._memo:
            self._memo.append(self._weigh())
        return self._memo[0]

    def _weigh(self) -> SideWeights:
        terms = self._terms
        # Draws of its own where an estimator draws: reading a number must not move the random numbers of a run.
        draws = Bootstrap in (type(self.spec.estimator_pos), type(self.spec.estimator_neg))
        generator = torch.Generator(terms.distances.device).manual_seed(0) if draws else None
        with torch.no_grad():
            log_k = terms.log_kernels(self.temperatures)
            return batch_weights(log_k, terms.negatives, terms.weight_neg, self.spec, generator=generator)


def _dominated_share(alpha: Tensor) -> Tensor:
    return (alpha.amax(-1) > DOMINATES_ABOVE).to(alpha.dtype).mean(-1)


def _relative_shift(alpha: Tensor, gamma: Tensor) -> Tensor:
    return (alpha - gamma).clamp_min(0).sum(-1).mean(-1)
