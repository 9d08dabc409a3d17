"""One normalized kernel matrix, split into its two sides and reweighted: γ⁻, γ⁺ and the masses S⁻, S⁺.

For a query, α± is the affinity of its side divided by its sum S±, γ± is what the side's estimator makes of it, and

    V = S⁺S⁻ (γ⁺·Y⁺ − γ⁻·Y⁻)   (product, the published code),   V = γ⁺·Y⁺ − γ⁻·Y⁻   (separate, `eq:meanshift`).

Either way the field is linear in the references: V = C·[Y⁻ | Y⁺] with the coefficients C = S⁺S⁻ [−γ⁻ | γ⁺], whose
rows sum to zero. The masses stay logarithms: in float32 they are 0 at d/τ = 500.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch

from truedrift.axes import Float, Tensor
from truedrift.centroids.base import Estimator, OfAlpha
from truedrift.field.affinity import LogAffinity, Normalization, log_affinity
from truedrift.kernels.weights import logsumexp, lowest, normalize

Form = Literal["separate", "product"]
FORMS: tuple[Form, ...] = get_args(Form)


@dataclass(frozen=True)
class Weighting:
    """How a kernel matrix becomes a field: everything but the features."""

    normalization: Normalization
    form: Form
    estimator_pos: Estimator
    estimator_neg: Estimator


@dataclass(frozen=True)
class Sides:
    """The weights of both sides at every query, over columns [neg | pos] of which the first `neg` are negatives."""

    neg: int
    alpha: Tensor
    """[..., B, columns] the affinity of each side over its sum."""
    gamma: Tensor
    """[..., B, columns] what the estimator of each side makes of it."""
    log_mass: Tensor
    """[..., B, 1] log S⁺S⁻ of the product form; below −10³⁸ where a side is empty."""
    largest_log_mass: Tensor
    """[..., 1, 1] its maximum over queries, or a number far above it where every query has an empty side."""

    @property
    def alpha_neg(self) -> Tensor:
        """[..., B, neg] α of the negatives."""
        return self.alpha[..., : self.neg]

    @property
    def alpha_pos(self) -> Tensor:
        """[..., B, pos] α of the positives."""
        return self.alpha[..., self.neg :]

    @property
    def gamma_neg(self) -> Tensor:
        """[..., B, neg] γ of the negatives."""
        return self.gamma[..., : self.neg]

    @property
    def gamma_pos(self) -> Tensor:
        """[..., B, pos] γ of the positives."""
        return self.gamma[..., self.neg :]

    def relative_mass(self) -> Tensor:
        """[..., B, 1] S⁺S⁻ over its maximum: a factor that the RMS normalization of the field cancels."""
        return (self.log_mass - self.largest_log_mass).exp()

    def coefficients(self, form: Form) -> Float[Tensor, "*batch B columns"]:
        """C = S⁺S⁻ [−γ⁻ | γ⁺], with relative masses: V = C·[Y⁻ | Y⁺]."""
        C = self.gamma * self.relative_mass() if form == "product" else self.gamma.clone()
        C[..., : self.neg].neg_()
        return C


def sides(
    log_k: Float[Tensor, "*batch B columns"],
    neg: int,
    weighting: Weighting,
    *,
    log_weight_neg: Tensor | None = None,
    nowhere_empty: bool = False,
    generator: torch.Generator | None = None,
) -> Sides:
    """The weights of both sides from log k over columns [neg | pos], of which the first `neg` are negatives.

    `log_weight_neg` [..., 1, neg] multiplies the affinity of the negatives after its normalization. `nowhere_empty`
    says that no row and no column of log k is masked throughout.
    """
    affinity = log_affinity(log_k, weighting.normalization, nowhere_empty=nowhere_empty)
    if log_weight_neg is not None:
        affinity = LogAffinity(*(_weighted(log_A, log_weight_neg) for log_A in affinity))
    alpha, gamma, log_mass = _both(affinity.log_w, neg, weighting, nowhere_empty, generator)
    if affinity.log_w is not affinity.log_A:
        log_mass = logsumexp(affinity.log_A[..., :neg], -1) + logsumexp(affinity.log_A[..., neg:], -1)
    log_mass = log_mass.clamp_min(lowest(log_mass))  # two empty sides would be −∞
    largest = log_mass.amax(-2, keepdim=True).clamp_min(lowest(log_mass) / 2)
    return Sides(neg, alpha, gamma, log_mass, largest)


def _both(
    log_w: Tensor, neg: int, weighting: Weighting, nowhere_empty: bool, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """(α, γ, log S⁺S⁻) of both sides: as a dimension where they are alike, else one by one."""
    *leading, columns = log_w.shape
    if 2 * neg == columns and weighting.estimator_neg == weighting.estimator_pos:
        alpha, gamma, log_S = _side(log_w.view(*leading, 2, neg), weighting.estimator_pos, nowhere_empty, generator)
        return alpha.view(log_w.shape), gamma.view(log_w.shape), log_S.sum(-2)
    alpha_neg, gamma_neg, log_S_neg = _side(log_w[..., :neg], weighting.estimator_neg, nowhere_empty, generator)
    alpha_pos, gamma_pos, log_S_pos = _side(log_w[..., neg:], weighting.estimator_pos, nowhere_empty, generator)
    return torch.cat((alpha_neg, alpha_pos), -1), torch.cat((gamma_neg, gamma_pos), -1), log_S_neg + log_S_pos


def _side(
    log_w: Tensor, estimator: Estimator, nowhere_empty: bool, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """(α, γ, log S) of one side, or of two as a dimension."""
    alpha, log_S = normalize(log_w, nowhere_empty=nowhere_empty)
    gamma = estimator.gamma(alpha) if isinstance(estimator, OfAlpha) else estimator.reweight(log_w, generator)
    return alpha, gamma, log_S


def _weighted(log_A: Tensor, log_weight_neg: Tensor) -> Tensor:
    pos = log_A.shape[-1] - log_weight_neg.shape[-1]
    return log_A + torch.nn.functional.pad(log_weight_neg, (0, pos))
