"""log-kernels → γ of both sides: the arithmetic between the kernel and the drifting field, in four steps.

**1. Log-kernels.** log k_ij of queries i and references j, −d_ij/τ for the paper's kernel, one matrix per temperature.
The columns are [neg | pos]. In a training batch the negatives are the generated features themselves, followed by the
unconditional negatives if there are any, and each query's own column is masked (log k = −∞).

**2. Normalization.** With row sums r_i = Σ_j k_ij over both sides jointly, column sums c_j = Σ_i k_ij over the queries,
and masked entries left out of both,

| normalization     | A_ij                       |                                                                     |
|-------------------|----------------------------|---------------------------------------------------------------------|
| row               | k_ij / r_i                 | softmax of a row: the estimator that the theorems are about         |
| bidirectional     | k_ij / √(r_i c_j)          | √(softmax_row · softmax_col), the image recipe                      |
| bidirectional-loo | k_ij / √(r_i (c_j − k_ij)) | leaves a query's own term out of the column sums that weight it     |

For "bidirectional", c_j is estimated from a batch that contains query i itself. That correlation leaves an O(1/n) bias
which ABC does not correct. Leaving the own term out removes most of it from T⁺, and none from T⁻. It changes only the
weights: the masses keep the ordinary affinity, because k_ij/(c_j − k_ij) is unbounded. If no other query has weight in
a column, the row weight is used. Everything stays in log-space.

**3. Weights of both sides.** For each query, S± is the sum of the affinities of a side (its mass), α± = A/S±, and γ± is
what the estimator of that side computes from α±. The masses stay logarithms: in float32 they are 0 at d/τ = 500.

**4. Coefficients.** The field is

    V = S⁺S⁻ (γ⁺·Y⁺ − γ⁻·Y⁻)   (product, the published code),   V = γ⁺·Y⁺ − γ⁻·Y⁻   (separate, `eq:meanshift`).

Either way it is linear in the references: V = C·[Y⁻ | Y⁺] with C = S⁺S⁻ [−γ⁻ | γ⁺] or [−γ⁻ | γ⁺], whose rows sum to 0.

The fields of several temperatures are divided by their RMS and added: V = Σ_τ V_τ / √(mean V_τ² + ε). The mean is over
the queries and the D coordinates of a group (a class at a feature scale). Kernels with a small τ give
weight to few references, and their fields are small. Without the division, the field of the largest τ would dominate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from truedrift.axes import Float, Tensor
from truedrift.centroids.estimator import AlphaEstimator, Estimator
from truedrift.field.spec import FieldSpec, Form, Normalization
from truedrift.kernels.weights import (
    DOMINATES_ABOVE,
    effective_sample_size,
    log_softmax,
    logsumexp,
    logsumexp_and_leave_one_out,
    lowest_finite,
    normalize,
)

EPSILON = 1e-8
"""ε inside the root of the RMS, as in the published code."""


# 1. Log-kernels.


def log_kernels(distance: Float[Tensor, "*batch B n"], temperatures: Sequence[float]) -> Float[Tensor, "*batch T B n"]:
    """Compute log k = −d/τ at every temperature.

    Args:
        distance: d [..., B, n].
        temperatures: T temperatures τ.

    Returns:
        log k [..., T, B, n].

    Example:
        >>> log_kernels(torch.tensor([[1.0, 2.0]]), (0.5, 2.0))
        tensor([[[-2.0000, -4.0000]],
        <BLANKLINE>
                [[-0.5000, -1.0000]]])
    """
    minus_tau = torch.tensor([[[-tau]] for tau in temperatures], dtype=distance.dtype)
    return distance.unsqueeze(-3) / minus_tau.to(distance.device, non_blocking=True)  # does not wait for the device


# 2. Normalization.


class LogAffinity(NamedTuple):
    """The normalized kernel in log-space. The two tensors differ only for bidirectional-loo."""

    log_w: Tensor
    """[..., B, n] the log-weights of the centroids."""
    log_A: Tensor
    """[..., B, n] the log-affinities that the masses S⁺ and S⁻ sum."""


def log_affinity(
    log_k: Float[Tensor, "*batch B n"], normalization: Normalization, *, assume_nonempty: bool = False
) -> LogAffinity:
    """Normalize log k over columns [neg | pos].

    Args:
        log_k: Log-kernels [..., B, n], −∞ where masked.
        normalization: One of `NORMALIZATIONS`.
        assume_nonempty: Set to True if no row and no column is completely masked; this is faster.

    Returns:
        log A, −∞ where log k is −∞.

    Example:
        >>> log_affinity(torch.tensor([[3.0, 1.0], [1.0, 1.0]]).log(), "row").log_A.exp()
        tensor([[0.7500, 0.2500],
                [0.5000, 0.5000]])
    """
    log_row = log_softmax(log_k, -1, assume_nonempty=assume_nonempty)
    if normalization == "row":
        return LogAffinity(log_row, log_row)
    if normalization == "bidirectional":
        log_A = (log_row + log_softmax(log_k, -2, assume_nonempty=assume_nonempty)).mul_(0.5)
        return LogAffinity(log_A, log_A)
    log_c, log_c_others = logsumexp_and_leave_one_out(log_k, -2)
    log_column = torch.where(log_c_others > -math.inf, log_k - log_c_others, log_row)
    return LogAffinity(log_w=(log_row + log_column).mul_(0.5), log_A=(log_row + (log_k - log_c)).mul_(0.5))


# 3. Weights of both sides.


class SideStatistics(NamedTuple):
    """Statistics of the weights of one side at every query [..., B]; their means over windows if there are any."""

    n_eff: Tensor
    """Effective sample size 1/Σα²."""
    dominated: Tensor
    """1 if one reference has more than half of the weight, else 0."""
    correction: Tensor
    """Share of the weight that the estimator moves, Σ max(α − γ, 0) = ½ Σ|γ − α|."""

    @classmethod
    def of_weights(cls, alpha: Float[Tensor, "*batch n"], gamma: Float[Tensor, "*batch n"]) -> "SideStatistics":
        """Compute the statistics of weights [..., n]; all are 0 where everything is masked."""
        dominated = (alpha.amax(-1) > DOMINATES_ABOVE).to(alpha.dtype)
        return cls(effective_sample_size(alpha), dominated, (alpha - gamma).clamp_min(0).sum(-1))


@dataclass(frozen=True)
class SideWeights:
    """The weights of both sides at every query, over columns [neg | pos] of which the first `neg` are negatives."""

    neg: int
    alpha: Tensor | None
    """[..., B, columns] the affinities of each side divided by their sum; None if the sides are split into windows."""
    gamma: Tensor
    """[..., B, columns] the weights that the estimator of each side computes from α."""
    log_mass: Tensor
    """[..., B, 1] log S⁺S⁻ of the product form; below −10³⁸ where a side is empty."""
    largest_log_mass: Tensor
    """[..., 1, 1] its maximum over queries, or a number far above it where every query has an empty side."""
    window_statistics: tuple[SideStatistics, SideStatistics] | None = None
    """The statistics of the negatives and of the positives by windows, if requested."""

    @property
    def alpha_neg(self) -> Tensor:
        """[..., B, neg] α of the negatives."""
        assert self.alpha is not None  # not defined for windows
        return self.alpha[..., : self.neg]

    @property
    def alpha_pos(self) -> Tensor:
        """[..., B, pos] α of the positives."""
        assert self.alpha is not None  # not defined for windows
        return self.alpha[..., self.neg :]

    @property
    def statistics_neg(self) -> SideStatistics:
        """The statistics of the negatives."""
        if self.window_statistics is not None:
            return self.window_statistics[0]
        return SideStatistics.of_weights(self.alpha_neg, self.gamma_neg)

    @property
    def statistics_pos(self) -> SideStatistics:
        """The statistics of the positives."""
        if self.window_statistics is not None:
            return self.window_statistics[1]
        return SideStatistics.of_weights(self.alpha_pos, self.gamma_pos)

    @property
    def gamma_neg(self) -> Tensor:
        """[..., B, neg] γ of the negatives."""
        return self.gamma[..., : self.neg]

    @property
    def gamma_pos(self) -> Tensor:
        """[..., B, pos] γ of the positives."""
        return self.gamma[..., self.neg :]

    def with_empty_columns(self, count: int) -> "SideWeights":
        """Return the weights with `count` columns of weight 0 in front."""
        pad = torch.nn.functional.pad
        alpha = None if self.alpha is None else pad(self.alpha, (count, 0))
        return replace(self, neg=self.neg + count, alpha=alpha, gamma=pad(self.gamma, (count, 0)))

    # 4. Coefficients.

    def relative_mass(self) -> Tensor:
        """Return S⁺S⁻ [..., B, 1] divided by its maximum, a factor that the RMS normalization of the field cancels."""
        return (self.log_mass - self.largest_log_mass).exp()

    def own(self) -> Float[Tensor, "*batch B 1"]:
        """Return Σγ⁻ − Σγ⁺, the coefficient of the query itself in the form "potential"."""
        return self.gamma_neg.sum(-1, keepdim=True) - self.gamma_pos.sum(-1, keepdim=True)

    def coefficients(self, form: Form) -> Float[Tensor, "*batch B columns"]:
        """Return C of V = C·[Y⁻ | Y⁺], with relative masses: C = S⁺S⁻ [−γ⁻ | γ⁺] or [−γ⁻ | γ⁺].

        The first B columns are the queries. In the form "potential" they have their own coefficients too.
        """
        C = self.gamma * self.relative_mass() if form == "product" else self.gamma.clone()
        C[..., : self.neg].neg_()
        if form == "potential":
            C.diagonal(dim1=-2, dim2=-1).add_(self.own().squeeze(-1))
        return C

    def log_scale(self, form: Form) -> Float[Tensor, "*batch"]:
        """Return the logarithm [...] of what the masses in C are relative to; 0 for the separate form."""
        largest = self.largest_log_mass.squeeze((-2, -1))
        return largest if form == "product" else torch.zeros_like(largest)


def side_weights(
    log_k: Float[Tensor, "*batch B columns"],
    neg: int,
    spec: FieldSpec,
    *,
    log_weight_neg: Tensor | None = None,
    assume_nonempty: bool = False,
    generator: torch.Generator | None = None,
) -> SideWeights:
    """Compute the weights of both sides from log k.

    Args:
        log_k: Log-kernels [..., B, columns] over columns [neg | pos].
        neg: The number of negatives.
        spec: Normalization, form and estimators.
        log_weight_neg: [..., 1, neg] added to the log-affinity of the negatives after its normalization.
        assume_nonempty: Set to True if no row and no column of log k is completely masked; this is faster.
        generator: Random numbers for estimators that draw.

    Returns:
        α, γ and the masses of both sides.
    """
    # Normalize the kernel over both sides jointly.
    affinity = log_affinity(log_k, spec.normalization, assume_nonempty=assume_nonempty)
    if log_weight_neg is not None:
        padded = torch.nn.functional.pad(log_weight_neg, (0, log_k.shape[-1] - log_weight_neg.shape[-1]))
        affinity = LogAffinity(*(log_A + padded for log_A in affinity))
    # Split it into its sides: α, γ and the masses.
    alpha, gamma, log_mass = _weigh_both_sides(affinity.log_w, neg, spec, assume_nonempty, generator)
    if affinity.log_w is not affinity.log_A:
        log_mass = logsumexp(affinity.log_A[..., :neg], -1) + logsumexp(affinity.log_A[..., neg:], -1)
    log_mass = log_mass.clamp_min(lowest_finite(log_mass))  # two empty sides would be −∞
    largest = log_mass.amax(-2, keepdim=True).clamp_min(lowest_finite(log_mass) / 2)
    return SideWeights(neg, alpha, gamma, log_mass, largest)


def _weigh_both_sides(
    log_w: Tensor, neg: int, spec: FieldSpec, assume_nonempty: bool, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute (α, γ, log S⁺S⁻) of both sides: stacked as a dimension where they are alike, else one by one."""
    *leading, columns = log_w.shape
    if 2 * neg == columns and spec.estimator_neg == spec.estimator_pos:
        stacked = log_w.view(*leading, 2, neg)
        alpha, gamma, log_S = _weigh_side(stacked, spec.estimator_pos, assume_nonempty, generator)
        return alpha.view(log_w.shape), gamma.view(log_w.shape), log_S.sum(-2)
    alpha_neg, gamma_neg, log_S_neg = _weigh_side(log_w[..., :neg], spec.estimator_neg, assume_nonempty, generator)
    alpha_pos, gamma_pos, log_S_pos = _weigh_side(log_w[..., neg:], spec.estimator_pos, assume_nonempty, generator)
    return torch.cat((alpha_neg, alpha_pos), -1), torch.cat((gamma_neg, gamma_pos), -1), log_S_neg + log_S_pos


def _weigh_side(
    log_w: Tensor, estimator: Estimator, assume_nonempty: bool, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute (α, γ, log S) of one side, or of two sides stacked as a dimension."""
    alpha, log_S = normalize(log_w, assume_nonempty=assume_nonempty)
    gamma = estimator.gamma(alpha) if isinstance(estimator, AlphaEstimator) else estimator.reweight(log_w, generator)
    return alpha, gamma, log_S


# The sum over temperatures.


def mean_square(V: Float[Tensor, "*batch B D"]) -> Float[Tensor, "*batch 1 1"]:
    """Compute mean V² over queries and coordinates.

    Args:
        V: A field [..., B, D].

    Returns:
        The mean square [..., 1, 1], which broadcasts with V; its root is the RMS of the field.

    Example:
        >>> mean_square(torch.tensor([[1.0, -1.0], [3.0, 1.0]]))
        tensor([[3.]])
    """
    return V.square().mean((-2, -1), keepdim=True)


def sum_normalized(V: Float[Tensor, "*batch T B D"]) -> Float[Tensor, "*batch B D"]:
    """Compute Σ_τ V_τ / √(mean V_τ² + ε).

    Args:
        V: The fields [..., T, B, D] of T temperatures.

    Returns:
        The sum [..., B, D] of the fields after each is divided by its RMS.

    Example:
        >>> sum_normalized(torch.tensor([[[2.0, -2.0]], [[0.5, 0.5]]]))
        tensor([[2., 0.]])
    """
    return (V * (mean_square(V) + EPSILON).rsqrt()).sum(-3)
