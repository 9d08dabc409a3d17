"""V = Σ_τ V_τ / √(mean V_τ² + ε): fields of several temperatures, each normalized by its RMS, then summed.

The mean runs over the queries and the D coordinates of a group (a class at a feature scale). Sharp kernels see few
references and give small forces; without the normalization the widest kernel would drown them.

How the kernel matrix k_ij of queries i and references j is normalized before it weights a centroid.

Columns are [neg | pos]. With row sums r_i = Σ_j k_ij over both sides jointly, column sums c_j = Σ_i k_ij over the
queries, and masked entries left out of both,

| normalization     | A_ij            |                                                                         |
|-------------------|-----------------|-------------------------------------------------------------------------|
| row               | k_ij / r_i      | softmax of a row: the estimator that the theorems are about             |
| bidirectional     | k_ij / √(r_i c_j) | √(softmax_row · softmax_col), the image recipe                        |
| bidirectional-loo | k_ij / √(r_i (c_j − k_ij)) | a query's own term left out of the column sums that weight it |

In the second, c_j is estimated from a batch that holds query i itself; that correlation leaves an O(1/n) bias which
ABC does not see. Leaving the own term out removes most of it from T⁺, and none from T⁻. It changes only the weights:
the masses keep the ordinary affinity, because k_ij/(c_j − k_ij) is unbounded. Where no other query reaches a column the
row weight is used. Everything stays in log-space.

One normalized kernel matrix, split into its two sides and reweighted: γ⁻, γ⁺ and the masses S⁻, S⁺.

For a query, α± is the affinity of its side divided by its sum S±, γ± is what the side's estimator makes of it, and

    V = S⁺S⁻ (γ⁺·Y⁺ − γ⁻·Y⁻)   (product, the published code),   V = γ⁺·Y⁺ − γ⁻·Y⁻   (separate, `eq:meanshift`).

Either way the field is linear in the references: V = C·[Y⁻ | Y⁺] with the coefficients C = S⁺S⁻ [−γ⁻ | γ⁺], whose
rows sum to zero. The masses stay logarithms: in float32 they are 0 at d/τ = 500.

The part of the loss that both paths share: kernels of every group → weights at every temperature.

log k [..., T, n, columns] over columns [gen | neg | pos], −d/τ for the paper's kernel, has each query's own column
masked and becomes the weights of both sides; no loop over groups or temperatures. A query without negatives is
its own centroid, T⁻ = f: only a single generated feature can be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import torch

from truedrift.axes import Float, Tensor
from truedrift.centroids.estimator import AlphaEstimator, Estimator
from truedrift.kernels.weights import log_softmax, logsumexp, logsumexp_and_leave_one_out, lowest_finite, normalize

EPSILON = 1e-8
"""ε inside the root, as in the published code."""


def mean_square(V: Float[Tensor, "*batch B D"]) -> Float[Tensor, "*batch 1 1"]:
    """mean V² over queries and coordinates."""
    return V.square().mean((-2, -1), keepdim=True)


def sum_normalized(V: Float[Tensor, "*batch T B D"]) -> Float[Tensor, "*batch B D"]:
    """Σ_τ V_τ / √(mean V_τ² + ε)."""
    return (V * (mean_square(V) + EPSILON).rsqrt()).sum(-3)


def log_kernels(distance: Float[Tensor, "*batch B n"], temperatures: Sequence[float]) -> Float[Tensor, "*batch T B n"]:
    """log k = −d/τ at every temperature."""
    minus_tau = torch.tensor([-tau for tau in temperatures], dtype=distance.dtype).view(-1, 1, 1)
    return distance.unsqueeze(-3) / minus_tau.to(distance.device, non_blocking=True)  # no waiting for the device


Normalization = Literal["row", "bidirectional", "bidirectional-loo"]
NORMALIZATIONS: tuple[Normalization, ...] = get_args(Normalization)


class LogAffinity(NamedTuple):
    """Two views of the normalized kernel, which differ only for bidirectional-loo."""

    log_w: Tensor
    """[..., B, n] what weights the centroids."""
    log_A: Tensor
    """[..., B, n] what the masses S⁺ and S⁻ sum."""


def log_affinity(
    log_k: Float[Tensor, "*batch B n"], normalization: Normalization, *, nowhere_empty: bool = False
) -> LogAffinity:
    """log A from log k, over columns [neg | pos]; −∞ where log k is.

    `nowhere_empty` says that no row and no column is masked throughout, which saves the care for it.
    """
    log_row = log_softmax(log_k, -1, nowhere_empty=nowhere_empty)
    if normalization == "row":
        return LogAffinity(log_row, log_row)
    if normalization == "bidirectional":
        log_A = (log_row + log_softmax(log_k, -2, nowhere_empty=nowhere_empty)).mul_(0.5)
        return LogAffinity(log_A, log_A)
    log_c, log_c_others = logsumexp_and_leave_one_out(log_k, -2)
    log_column = torch.where(log_c_others > -math.inf, log_k - log_c_others, log_row)
    return LogAffinity(log_w=(log_row + log_column).mul_(0.5), log_A=(log_row + (log_k - log_c)).mul_(0.5))


Form = Literal["separate", "product"]
FORMS: tuple[Form, ...] = get_args(Form)


@dataclass(frozen=True)
class FieldSpec:
    """How a kernel matrix becomes a field: everything but the features."""

    normalization: Normalization
    form: Form
    estimator_pos: Estimator
    estimator_neg: Estimator


@dataclass(frozen=True)
class SideWeights:
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


def side_weights(
    log_k: Float[Tensor, "*batch B columns"],
    neg: int,
    weighting: FieldSpec,
    *,
    log_weight_neg: Tensor | None = None,
    nowhere_empty: bool = False,
    generator: torch.Generator | None = None,
) -> SideWeights:
    """The weights of both sides from log k over columns [neg | pos], of which the first `neg` are negatives.

    `log_weight_neg` [..., 1, neg] multiplies the affinity of the negatives after its normalization. `nowhere_empty`
    says that no row and no column of log k is masked throughout.
    """
    affinity = log_affinity(log_k, weighting.normalization, nowhere_empty=nowhere_empty)
    if log_weight_neg is not None:
        affinity = LogAffinity(*(_weighted_side(log_A, log_weight_neg) for log_A in affinity))
    alpha, gamma, log_mass = _weigh_both(affinity.log_w, neg, weighting, nowhere_empty, generator)
    if affinity.log_w is not affinity.log_A:
        log_mass = logsumexp(affinity.log_A[..., :neg], -1) + logsumexp(affinity.log_A[..., neg:], -1)
    log_mass = log_mass.clamp_min(lowest_finite(log_mass))  # two empty sides would be −∞
    largest = log_mass.amax(-2, keepdim=True).clamp_min(lowest_finite(log_mass) / 2)
    return SideWeights(neg, alpha, gamma, log_mass, largest)


def _weigh_both(
    log_w: Tensor, neg: int, weighting: FieldSpec, nowhere_empty: bool, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """(α, γ, log S⁺S⁻) of both sides: as a dimension where they are alike, else one by one."""
    *leading, columns = log_w.shape
    if 2 * neg == columns and weighting.estimator_neg == weighting.estimator_pos:
        alpha, gamma, log_S = _weigh_side(
            log_w.view(*leading, 2, neg), weighting.estimator_pos, nowhere_empty, generator
        )
        return alpha.view(log_w.shape), gamma.view(log_w.shape), log_S.sum(-2)
    alpha_neg, gamma_neg, log_S_neg = _weigh_side(log_w[..., :neg], weighting.estimator_neg, nowhere_empty, generator)
    alpha_pos, gamma_pos, log_S_pos = _weigh_side(log_w[..., neg:], weighting.estimator_pos, nowhere_empty, generator)
    return torch.cat((alpha_neg, alpha_pos), -1), torch.cat((gamma_neg, gamma_pos), -1), log_S_neg + log_S_pos


def _weigh_side(
    log_w: Tensor, estimator: Estimator, nowhere_empty: bool, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """(α, γ, log S) of one side, or of two as a dimension."""
    alpha, log_S = normalize(log_w, nowhere_empty=nowhere_empty)
    gamma = estimator.gamma(alpha) if isinstance(estimator, AlphaEstimator) else estimator.reweight(log_w, generator)
    return alpha, gamma, log_S


def _weighted_side(log_A: Tensor, log_weight_neg: Tensor) -> Tensor:
    pos = log_A.shape[-1] - log_weight_neg.shape[-1]
    return log_A + torch.nn.functional.pad(log_weight_neg, (0, pos))


def batch_weights(
    log_k: Float[Tensor, "*batch T n columns"],
    negatives: int,
    weight_neg: Tensor | None,
    weighting: FieldSpec,
    *,
    bounded: bool = False,
    generator: torch.Generator | None = None,
) -> SideWeights:
    """γ± and masses [..., T, n, ·] of every group at every temperature; `bounded` says that no log k is infinite.

    The own columns of `log_k` are masked in place.
    """
    n = log_k.shape[-2]
    log_k.diagonal(dim1=-2, dim2=-1).fill_(-math.inf)
    log_weight = None
    if weight_neg is not None:
        log_weight = torch.nn.functional.pad(weight_neg.log(), (n, 0))[..., None, None, :]
    both = side_weights(
        log_k,
        negatives,
        weighting,
        log_weight_neg=log_weight,
        nowhere_empty=bounded and n > 1,
        generator=generator,
    )
    return both if n > 1 else _own_centroid(both)


def _own_centroid(both: SideWeights) -> SideWeights:
    """γ⁻ = 1 on the own column, the first, of a single query whose negatives have no weight."""
    alone = (both.alpha_neg == 0).all(-1, keepdim=True)
    own = torch.nn.functional.pad(alone.to(both.gamma.dtype), (0, both.gamma.shape[-1] - 1))
    return replace(both, gamma=both.gamma + own)


def largest_log_mass(both: SideWeights, form: Form) -> Float[Tensor, "*batch T"]:
    """[..., T] the logarithm of the largest mass, 0 for the separate form."""
    largest = both.largest_log_mass[..., 0, 0]
    return largest if form == "product" else torch.zeros_like(largest)
