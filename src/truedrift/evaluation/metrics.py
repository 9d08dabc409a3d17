r"""Metrics of generated features against features of data: FID, KID, precision, recall, Inception Score.

    FID        ‖μ_1 − μ_2‖² + tr(Σ_1 + Σ_2 − 2 (Σ_1 Σ_2)^½)                    from streamed moments μ, Σ
    KID        unbiased MMD² under k(f, g) = (f·g/D + 1)³                      from features, in pairs
    precision  share of generated features within the k-NN balls of the data   from features, in pairs
    recall     share of data features within the k-NN balls of the generated   from features, in pairs
    IS         exp(mean_x KL(p(y|x) ‖ p(y)))                                   from streamed class probabilities

`FeatureStatistics` collects what these formulas need, batch by batch and across processes. The moments of 50 000
features in 2 048 dimensions take 34 MB. KID, precision and recall use at most 10 000 features per side, whose ids are
fixed beforehand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from truedrift import distributed
from truedrift.axes import Float, Int, Tensor
from truedrift.evaluation.extractors import ExtractedFeatures
from truedrift.kernels.distance import squared_distance

BLOCK_ROWS = 1024
"""Rows of a matrix of pairs that are computed at a time."""

# ---- Moments and the Fréchet distance ----


@dataclass(frozen=True)
class Moments:
    """N, μ = (1/N) Σ f_i and M = Σ (f_i − μ)(f_i − μ)ᵀ of features, in float64."""

    count: Float[Tensor, ""]
    mean: Float[Tensor, " D"]
    scatter: Float[Tensor, "D D"]

    @property
    def covariance(self) -> Float[Tensor, "D D"]:
        """Unbiased covariance M/(N − 1); zero for a single feature."""
        return self.scatter / (self.count - 1).clamp_min(1)

    def to(self, device: torch.device | str) -> Moments:
        """Return the moments on another device."""
        return Moments(self.count.to(device), self.mean.to(device), self.scatter.to(device))

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both sets together, by the formula of Chan, Golub and LeVeque.

        With δ = μ_b − μ_a,  μ = μ_a + δ N_b/N  and  M = M_a + M_b + δ δᵀ N_a N_b/N. Nothing cancels when the mean is
        large compared with the deviation, and batch size and order matter only up to rounding.
        """
        count = self.count + other.count
        share = other.count / count.clamp_min(1)
        delta = other.mean - self.mean
        scatter = self.scatter + other.scatter + torch.outer(delta, delta) * (self.count * share)
        return Moments(count, self.mean + delta * share, scatter)

    def all_reduce(self) -> Moments:
        """Return the moments of the features of all processes, about their joint mean."""
        if distributed.size() == 1:
            return self
        count, total = self.count.clone(), self.mean * self.count
        distributed.all_reduce_sum((count, total))
        mean = total / count.clamp_min(1)
        delta = self.mean - mean
        scatter = self.scatter + torch.outer(delta, delta) * self.count
        distributed.all_reduce_sum((scatter,))
        return Moments(count, mean, scatter)


def empty_moments(dimensions: int, device: torch.device | None = None) -> Moments:
    """Return the moments of no features."""
    zero = torch.zeros((), dtype=torch.float64, device=device)
    return Moments(zero, zero.expand(dimensions), zero.expand(dimensions, dimensions))


def batch_moments(features: Float[Tensor, "N D"]) -> Moments:
    """Compute the moments of one batch.

    Args:
        features: Features [N, D] of any floating-point dtype.

    Returns:
        N, μ and M in float64, on the device of the features.

    Example:
        >>> moments = batch_moments(torch.tensor([[0.0], [2.0]]))
        >>> moments.mean.item(), moments.covariance.item()
        (1.0, 2.0)
    """
    wide = features.double()
    mean = wide.mean(0)
    centered = wide - mean
    count = torch.tensor(len(wide), dtype=torch.float64, device=wide.device)
    return Moments(count, mean, centered.mT @ centered)


def frechet_distance(a: Moments, b: Moments) -> float:
    """Compute d² = ‖μ_1 − μ_2‖² + tr(Σ_1 + Σ_2 − 2 (Σ_1 Σ_2)^½) of the Gaussians with these moments.

    tr (Σ_1 Σ_2)^½ = tr (A Σ_2 A)^½ with A = Σ_1^½. That matrix is symmetric, so two eigendecompositions in float64
    suffice. Covariances of fewer features than dimensions are singular: eigenvalues that rounding made negative count
    as zero. The result is d², as everywhere in the literature; in Inception features it is the FID.

    Args:
        a: Moments of one side; the order of the sides does not matter.
        b: Moments of the other side, with the same D.

    Returns:
        d² ≥ 0. It is computed on the CPU.

    Example:
        >>> features = torch.tensor([[0.0], [2.0]])
        >>> frechet_distance(batch_moments(features), batch_moments(features + 3))
        9.0
    """
    shift = (a.mean - b.mean).square().sum()
    sigma_a, sigma_b = a.covariance.cpu(), b.covariance.cpu()
    root = _matrix_root(sigma_a)
    overlap = torch.linalg.eigvalsh(_symmetrize(root @ sigma_b @ root)).clamp_min(0).sqrt().sum()
    distance = shift.cpu() + sigma_a.trace() + sigma_b.trace() - 2 * overlap
    return float(distance.clamp_min(0))


def _matrix_root(sigma: Float[Tensor, "D D"]) -> Float[Tensor, "D D"]:
    """Compute Σ^½ of a symmetric matrix without negative eigenvalues."""
    values, vectors = torch.linalg.eigh(_symmetrize(sigma))
    return (vectors * values.clamp_min(0).sqrt()) @ vectors.mT


def _symmetrize(matrix: Tensor) -> Tensor:
    return (matrix + matrix.mT) / 2


# ---- KID ----


def kernel_distance(f: Float[Tensor, "n D"], g: Float[Tensor, "m D"]) -> tuple[float | None, float | None]:
    """Compute KID, the unbiased MMD² under k(f, g) = (f·g/D + 1)³ (Bińkowski et al., 2018), and its standard error.

        KID = (1/n(n−1)) Σ_{i≠j} k(f_i, f_j) + (1/m(m−1)) Σ_{i≠j} k(g_i, g_j) − (2/nm) Σ_{ij} k(f_i, g_j)

    over all pairs. Other tools average this over random subsets, which estimates the same number with more noise. The
    standard error is that of a U-statistic: with h(f) = mean_j k(f, f_j) − mean_j k(f, g_j), and h(g) likewise,

        error² = 4 Var h(f)/n + 4 Var h(g)/m.

    Args:
        f: Features [n, D] of one side; the order of the sides does not matter.
        g: Features [m, D] of the other side.

    Returns:
        (KID, standard error), computed in float64; (None, None) if a side has fewer than two features. KID is unbiased,
        so it may be negative.

    Example:
        >>> kernel_distance(torch.zeros(2, 1), torch.ones(2, 1))  # 1 + 8 − 2·1
        (7.0, 0.0)
    """
    n, m = len(f), len(g)
    if min(n, m) < 2:
        return None, None
    f, g = f.double(), g.double()
    within_f = (_kernel_row_sums(f, f) - _kernel_diagonal(f)) / (n - 1)
    within_g = (_kernel_row_sums(g, g) - _kernel_diagonal(g)) / (m - 1)
    f_to_g, g_to_f = _kernel_row_sums(f, g) / m, _kernel_row_sums(g, f) / n
    distance = within_f.mean() + within_g.mean() - 2 * f_to_g.mean()
    error = 2 * torch.sqrt((within_f - f_to_g).var() / n + (within_g - g_to_f).var() / m)
    return float(distance), float(error)


def _kernel_row_sums(f: Tensor, g: Tensor) -> Float[Tensor, " n"]:
    """Compute Σ_j k(f_i, g_j)."""
    return torch.cat([(rows @ g.mT / f.shape[1] + 1).pow(3).sum(1) for rows in f.split(BLOCK_ROWS)])


def _kernel_diagonal(f: Tensor) -> Float[Tensor, " n"]:
    """Compute k(f_i, f_i)."""
    return (f.square().sum(1) / f.shape[1] + 1).pow(3)


# ---- Precision and recall ----

NEIGHBORS = 3
"""k of precision and recall."""


def precision_recall(
    data: Float[Tensor, "n D"], generated: Float[Tensor, "m D"], *, k: int = NEIGHBORS
) -> tuple[float | None, float | None]:
    """Compute precision and recall by k nearest neighbors (Kynkäänniemi et al., 2019).

    The manifold of a set is the union of balls around its features, each with the distance to the k-th nearest other
    feature as its radius. Precision is the share of generated features in the manifold of the data; recall is the
    share of data features in the manifold of the generated ones. A generator that makes only one picture has precision
    1 and recall near 0.

    Args:
        data: Features [n, D] of the data.
        generated: Features [m, D] of generated samples.
        k: Which nearest neighbor sets the radius of a ball.

    Returns:
        (precision, recall), both from 0 to 1; (None, None) if a side has k features or fewer.

    Example:
        >>> data = torch.arange(8.0)[:, None]
        >>> precision_recall(data, torch.full((8, 1), 3.5))  # eight times the same picture
        (1.0, 0.0)
    """
    if min(len(data), len(generated)) <= k:
        return None, None
    data, generated = data.double(), generated.double()
    return _share_inside(generated, data, k), _share_inside(data, generated, k)


def _share_inside(points: Tensor, centers: Tensor, k: int) -> float:
    """Compute the share of points that lie in the ball of at least one center."""
    radii = torch.cat([_squared_radii(centers, start, k) for start in range(0, len(centers), BLOCK_ROWS)])
    inside = [(squared_distance(rows, centers) <= radii).any(1) for rows in points.split(BLOCK_ROWS)]
    return float(torch.cat(inside).double().mean())


def _squared_radii(centers: Tensor, start: int, k: int) -> Float[Tensor, " rows"]:
    """Compute d² to the k-th nearest other center, for one block of centers."""
    rows = centers[start : start + BLOCK_ROWS]
    squared = squared_distance(rows, centers)
    squared[torch.arange(len(rows)), start + torch.arange(len(rows))] = math.inf  # not itself; duplicates count
    return squared.topk(k, dim=1, largest=False).values[:, -1]


# ---- Inception Score ----

PARTS = 10
MIN_SAMPLES_OF_PARTS = 1000


def split_count(samples: int) -> int:
    """Return the number of parts that the Inception Score is averaged over.

    A score cannot exceed the number of samples, so fewer than 1 000 samples are one part.
    """
    return PARTS if samples >= MIN_SAMPLES_OF_PARTS else 1


class ScoreSums:
    """Sums for the Inception Score exp(mean_x KL(p(y|x) ‖ p(y))) of each part.

    mean KL = H(p(y)) − mean H(p(y|x)) with the entropy H, so the sums of p(y|x) and of p log p suffice. Sample i of N
    belongs to part ⌊parts · i/N⌋. Labels take turns, so each part is balanced to within one sample per class.
    """

    def __init__(self, classes: int, parts: int, device: torch.device | None = None) -> None:
        self.counts = torch.zeros(parts, dtype=torch.float64, device=device)
        self.marginals = torch.zeros(parts, classes, dtype=torch.float64, device=device)
        self.negative_entropies = torch.zeros_like(self.counts)

    def add(self, ids: Int[Tensor, " B"], total: int, probabilities: Float[Tensor, "B classes"]) -> None:
        """Add the samples `ids` out of `total`."""
        p = probabilities.double()
        part = ids.to(p.device) * len(self.counts) // total
        self.counts.index_add_(0, part, torch.ones_like(part, dtype=torch.float64))
        self.marginals.index_add_(0, part, p)
        self.negative_entropies.index_add_(0, part, torch.xlogy(p, p).sum(1))

    def score(self) -> tuple[float, float]:
        """Compute the mean and the standard deviation of the score over the parts that have samples."""
        occupied = self.counts > 0
        counts = self.counts[occupied]
        marginal = self.marginals[occupied] / counts[:, None]
        divergence = self.negative_entropies[occupied] / counts - torch.xlogy(marginal, marginal).sum(1)
        scores = divergence.exp()
        return float(scores.mean()), float(scores.std(correction=0))


# ---- Collecting features ----

COMPARED = 10_000
"""The largest number of features per side that are compared in pairs."""


class FeatureStatistics:
    """Statistics of features that arrive in batches: moments, some of the features, and sums for the Inception Score.

    Args:
        total: Number of features that all batches have together.
        feature_ids: Sorted ids of the features to store, for the metrics that compare pairs.
        dimensions: D of the features.
        classes: Number of classes of the extractor; None: it has no classifier, and there is no Inception Score.
        device: The device of the extractor. Statistics are collected there if it is a CUDA device, else on the CPU.
    """

    def __init__(
        self, total: int, feature_ids: Int[Tensor, " K"], dimensions: int, classes: int | None, device: torch.device
    ) -> None:
        where = device if device.type == "cuda" else torch.device("cpu")  # Apple GPUs do not support float64
        self.total, self.feature_ids = total, feature_ids
        self.moments = empty_moments(dimensions, where)
        self.features = torch.zeros(len(feature_ids), dimensions, device=where)
        self.scores = None if classes is None else ScoreSums(classes, split_count(total), where)

    def add(self, ids: Int[Tensor, " B"], extracted: ExtractedFeatures) -> None:
        """Add a batch with consecutive ids."""
        features = extracted.features.to(self.features.device)
        self.moments = self.moments.merge(batch_moments(features))
        first, end = torch.searchsorted(self.feature_ids, torch.stack((ids[0], ids[-1] + 1))).tolist()
        self.features[first:end] = features[self.feature_ids[first:end] - ids[0]].float()
        if self.scores is not None and extracted.probabilities is not None:
            self.scores.add(ids, self.total, extracted.probabilities.to(self.features.device))

    def all_reduce(self) -> None:
        """Add the statistics of all processes. Each stored feature is in one process, and zero in the others."""
        self.moments = self.moments.all_reduce()
        distributed.all_reduce_sum((self.features,))
        if self.scores is not None:
            distributed.all_reduce_sum(tuple(vars(self.scores).values()))
