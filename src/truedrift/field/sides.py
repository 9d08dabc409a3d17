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
from truedrift.field.affinity import Normalization, log_affinity
from truedrift.kernels.weights import logsumexp, normalize

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
    """The weights of both sides at every query."""

    alpha_pos: Tensor
    alpha_neg: Tensor
    gamma_pos: Tensor
    gamma_neg: Tensor
    log_mass: Tensor
    """[..., B, 1] log S⁺S⁻ of the product form; −∞ where a side is empty."""

    def mass(self, form: Form) -> Tensor | None:
        """S⁺S⁻ relative to the largest of the batch of queries, or None for the separate form.

        Subtracting the largest logarithm is a factor that the RMS normalization of the field cancels.
        """
        return (self.log_mass - self.largest_log_mass()).exp() if form == "product" else None

    def largest_log_mass(self) -> Tensor:
        """[..., 1, 1] max over queries of log S⁺S⁻."""
        return self.log_mass.amax(-2, keepdim=True).clamp_min(torch.finfo(self.log_mass.dtype).min)

    def coefficients(self, form: Form) -> Float[Tensor, "*batch B columns"]:
        """C = S⁺S⁻ [−γ⁻ | γ⁺], with relative masses: V = C·[Y⁻ | Y⁺]."""
        mass = self.mass(form)
        if mass is None:
            return torch.cat((-self.gamma_neg, self.gamma_pos), -1)
        return torch.cat((self.gamma_neg * -mass, self.gamma_pos * mass), -1)


def sides(
    log_k: Float[Tensor, "*batch B columns"],
    neg: int,
    weighting: Weighting,
    *,
    log_weight_neg: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Sides:
    """The weights of both sides from log k over columns [neg | pos], of which the first `neg` are negatives.

    `log_weight_neg` [..., 1, neg] multiplies the affinity of the negatives after its normalization.
    """
    affinity = log_affinity(log_k, weighting.normalization)
    log_w_neg, log_w_pos = affinity.log_w[..., :neg], affinity.log_w[..., neg:]
    log_A_neg, log_A_pos = affinity.log_A[..., :neg], affinity.log_A[..., neg:]
    if log_weight_neg is not None:
        log_w_neg, log_A_neg = log_w_neg + log_weight_neg, log_A_neg + log_weight_neg
    alpha_neg, gamma_neg, log_S_neg = _side(log_w_neg, weighting.estimator_neg, generator)
    alpha_pos, gamma_pos, log_S_pos = _side(log_w_pos, weighting.estimator_pos, generator)
    if affinity.log_w is not affinity.log_A and weighting.form == "product":
        log_S_neg, log_S_pos = logsumexp(log_A_neg, -1), logsumexp(log_A_pos, -1)
    return Sides(alpha_pos, alpha_neg, gamma_pos, gamma_neg, log_S_pos + log_S_neg)


def _side(log_w: Tensor, estimator: Estimator, generator: torch.Generator | None) -> tuple[Tensor, Tensor, Tensor]:
    """(α, γ, log S) of one side."""
    alpha, log_S = normalize(log_w)
    gamma = estimator.gamma(alpha) if isinstance(estimator, OfAlpha) else estimator.reweight(log_w, generator)
    return alpha, gamma, log_S
