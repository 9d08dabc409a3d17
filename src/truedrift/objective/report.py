"""Telemetry of the drift loss: raw forces, effective sample sizes, dominance, size of the correction, distance ratio.

The loss is mean V² of fields normalized to unit RMS, so it is nearly constant during training; the quantities
of the report are not. They are computed on first use from the distances of the batch, so a step whose report is not
read costs nothing extra.
"""

from dataclasses import dataclass, field

import torch

from truedrift.axes import Float, Tensor
from truedrift.centroids.resampling import Bootstrap
from truedrift.field.affinity import SideWeights, log_kernels
from truedrift.field.batch import batch_weights
from truedrift.field.spec import FieldSpec
from truedrift.kernels.precision import full_precision, to_widest
from truedrift.objective.terms import LossTerms, positive_blocks
from truedrift.summary import list_numbers


def distances_in_blocks(pos: Float[Tensor, "*batch n D"], g: int) -> Float[Tensor, "*batch K b b"]:
    """Compute the distances among the positives of every block, for g generated features.

    The products are in the format of the features, from an origin in the block: a mean needs no more digits, and
    float64 would take four times as long.
    """
    K, b = positive_blocks(g, pos.shape[-2])
    blocks = pos[..., : K * b, :].unflatten(-2, (K, b))
    y = blocks - blocks[..., :1, :]
    with full_precision(pos):
        product = y @ y.mT
    square = product.diagonal(dim1=-2, dim2=-1)
    squared = (square.unsqueeze(-1) + square.unsqueeze(-2)).sub_(product, alpha=2).clamp_min_(0)
    squared.diagonal(dim1=-2, dim2=-1).zero_()
    return squared.sqrt_()


def energy_distance(
    d: Float[Tensor, "*batch g columns"], negatives: int, d_pos: Float[Tensor, "*batch K b b"]
) -> Float[Tensor, "*batch"]:
    """Compute the energy distance between generated features and every block of positives, and its mean over blocks.

    Each term is divided by the mean distance over all pairs of its generated features and positives. That mean does not
    change when samples are exchanged, and the mean of the numerator over all exchanges is 0. So the expectation of each
    ratio is exactly 0 at equal distributions, for any sizes.

    Args:
        d: Distances from the generated features to columns [gen | neg | pos].
        negatives: The number of columns before the positives.
        d_pos: Distances among the positives of every block.

    Returns:
        The mean over blocks, for every group.
    """
    g, K, b, dtype = d.shape[-2], d_pos.shape[-3], d_pos.shape[-1], d.dtype
    d, d_pos = to_widest(d), to_widest(d_pos)
    # Sums of distances: among the generated features, to the positives of a block, and among these.
    among_gen = d[..., :g].sum((-2, -1)).unsqueeze(-1)
    between = d[..., negatives : negatives + K * b].unflatten(-1, (K, b)).sum((-3, -1))
    among_pos = d_pos.sum((-2, -1))
    # The distance of every block in units of the mean distance.
    distance = 2 * between / (g * b) - among_gen / max(1, g * (g - 1)) - among_pos / max(1, b * (b - 1))
    mean = (among_gen + among_pos + 2 * between) / max(1, (g + b) * (g + b - 1))
    return (distance / mean.clamp_min(torch.finfo(d.dtype).tiny)).mean(-1).to(dtype)


PER_TEMPERATURE = (
    "force",
    "n_eff_pos",
    "n_eff_neg",
    "dominated_pos",
    "dominated_neg",
    "correction_pos",
    "correction_neg",
)
"""The properties of a report with one value per temperature."""


@dataclass(frozen=True)
class DriftReport:
    """Telemetry of one batch. Every property is a tensor without gradient on the device of the features.

    Example:
        >>> from truedrift import drift_loss
        >>> report = drift_loss(torch.randn(2, 4, 8), torch.randn(2, 4, 8)).report
        >>> report.n_eff_pos.shape  # 2 groups, 3 temperatures
        torch.Size([2, 3])
    """

    _terms: LossTerms
    temperatures: tuple[float, ...]
    spec: FieldSpec
    _cache: list[SideWeights] = field(default_factory=list, init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        n_eff, force = (
            list_numbers(each.reshape(-1, each.shape[-1]).mean(0).tolist()) for each in (self.n_eff_pos, self.force)
        )
        temperatures = f"temperatures={self.temperatures}"
        return f"DriftReport({temperatures})\n  mean n_eff of positives {n_eff}; force {force}"

    @property
    def log_force(self) -> Tensor:
        """[..., T] logarithm of `force`, for forces that are too small for float32."""
        log_rms = 0.5 * self._terms.mean_square.log()
        return log_rms.to(self._terms.largest_log_mass.dtype) + self._terms.largest_log_mass

    @property
    def force(self) -> Tensor:
        """[..., T] RMS of the raw field V_τ before normalization. It falls as the generator approaches the data.

        In the product form it contains the masses, which are small far from the data, so it rises first.
        """
        return self.log_force.exp()

    @property
    def n_eff_pos(self) -> Tensor:
        """[..., T] effective sample size of the positives, 1/Σα², mean over queries, and over windows if matched."""
        return self._weights.statistics_pos.n_eff.mean(-1)

    @property
    def n_eff_neg(self) -> Tensor:
        """[..., T] the same for negatives."""
        return self._weights.statistics_neg.n_eff.mean(-1)

    @property
    def dominated_pos(self) -> Tensor:
        """[..., T] share of queries, or of their windows, for which one positive has more than half of the weight."""
        return self._weights.statistics_pos.dominated.mean(-1)

    @property
    def dominated_neg(self) -> Tensor:
        """[..., T] the same for negatives."""
        return self._weights.statistics_neg.dominated.mean(-1)

    @property
    def correction_pos(self) -> Tensor:
        """[..., T] share of the weight that the estimator moves between positives, Σ max(α − γ, 0) = ½ Σ|γ − α|."""
        return self._weights.statistics_pos.correction.mean(-1)

    @property
    def correction_neg(self) -> Tensor:
        """[..., T] the same for negatives, mean over queries; 0 without negatives."""
        return self._weights.statistics_neg.correction.mean(-1)

    @property
    def spread(self) -> Tensor:
        """[...] mean distance among generated features divided by that to positives; near 0 after a collapse.

        These are the distances that enter the kernel. With unit features (standardize-l2) the ratio does not show a
        collapse onto the mean of the data, because the directions from the mean still differ; use n_eff and samples.
        """
        d = to_widest(self._terms.distances)
        n = d.shape[-2]
        among = d[..., :n].sum((-2, -1)) / max(1, n * (n - 1))
        between = d[..., self._terms.negatives :].mean((-2, -1))
        return (among / between.clamp_min(torch.finfo(d.dtype).tiny)).to(self._terms.distances.dtype)

    @property
    def energy(self) -> Tensor:
        """[...] energy distance 2 E‖x − y‖ − E‖x − x′‖ − E‖y − y′‖ of generated and real features, over their mean
        distance.

        Its expectation is exactly 0 where both distributions are equal, for any number of samples. Elsewhere it is
        positive, but it is a ratio and not unbiased there. With the feature scale "standardize-l2" it is small for
        samples that are only too wide or too narrow, because unit features have no length. A single batch is noisy and
        may be negative; average over steps.
        With many positives it is the mean over blocks of them (`positive_blocks`), so that its cost is linear in n.
        """
        return energy_distance(self._terms.distances, self._terms.negatives, self._distances_pos())

    def _distances_pos(self) -> Tensor:
        """Return the distances [..., K, b, b] among the positives of every block."""
        terms = self._terms
        if terms.squared_pos is not None:
            return terms.squared_pos.sqrt()
        assert terms.pos is not None  # every path has one of the two
        return distances_in_blocks(terms.pos, terms.distances.shape[-2]) / terms.unit

    def summary(self) -> dict[str, Tensor]:
        """Return every number averaged over groups: [T] for those per temperature, a scalar for the others."""
        per_temperature = {name: getattr(self, name) for name in PER_TEMPERATURE}
        means = {name: value.reshape(-1, value.shape[-1]).mean(0) for name, value in per_temperature.items()}
        return means | {"spread": self.spread.mean(), "energy": self.energy.mean()}

    @property
    def _weights(self) -> SideWeights:
        """The weights, computed again from the distances on first use. No lock, so that compiled code can read it."""
        if not self._cache:
            self._cache.append(self._compute_weights())
        return self._cache[0]

    def _compute_weights(self) -> SideWeights:
        terms = self._terms
        # Its own random numbers for estimators that draw: reading a report must not change those of a run.
        draws = Bootstrap in (type(self.spec.estimator_pos), type(self.spec.estimator_neg))
        generator = torch.Generator(terms.distances.device).manual_seed(0) if draws else None
        # A copy, because the weights mask in place, which an inference tensor does not allow outside inference mode.
        log_k = log_kernels(terms.distances, self.temperatures) if terms.log_k is None else terms.log_k.clone()
        return batch_weights(
            log_k,
            terms.negatives,
            terms.weight_neg,
            self.spec,
            fresh=terms.fresh,
            columns=terms.columns,
            log_ratio=terms.log_ratio,
            complete=True,
            generator=generator,
        )
