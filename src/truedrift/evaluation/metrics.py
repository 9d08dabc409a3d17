"""Mean μ = (1/N) Σ f_i and covariance Σ = M/(N − 1), M = Σ (f_i − μ)(f_i − μ)ᵀ, of features that come in batches.

Batches are merged by Chan, Golub and LeVeque's formula, in float64: with δ = μ_b − μ_a,

    μ = μ_a + δ N_b/N,    M = M_a + M_b + δ δᵀ N_a N_b/N.

Nothing cancels when the mean is large beside the deviation, and neither batch size nor order matters beyond rounding.

Fréchet distance of two Gaussians, d² = ‖μ_1 − μ_2‖² + tr(Σ_1 + Σ_2 − 2 (Σ_1 Σ_2)^½): FID in Inception features.

(Σ_1 Σ_2)^½ has the trace of (A Σ_2 A)^½ with A = Σ_1^½, which is symmetric: two eigendecompositions in float64, no
complex numbers. Covariances of fewer features than dimensions are singular; eigenvalues that rounding made negative
are zero. The result is d², as everywhere in the literature.

KID: the unbiased MMD² of two sets of features under k(f, g) = (f·g/D + 1)³ (Bińkowski and others, 2018).

    KID = (1/n(n−1)) Σ_{i≠j} k(f_i, f_j) + (1/m(m−1)) Σ_{i≠j} k(g_i, g_j) − (2/nm) Σ_{ij} k(f_i, g_j)

over all pairs: other tools average this over random subsets, which estimates the same number with more noise. Its
standard error is that of a U-statistic: with h(f) = mean_j k(f, f_j) − mean_j k(f, g_j), and h(g) likewise,

    error² = 4 Var h(f)/n + 4 Var h(g)/m.

Precision and recall by k nearest neighbors (Kynkäänniemi and others, 2019), k = 3.

A set's manifold is the union of balls around its features, each as large as the distance to its k-th nearest other
one. Precision is the share of generated features in the manifold of the data, recall the share of the data's in that
of the generated. A generator that knows one picture has precision 1 and recall near 0.

Inception Score, exp(mean_x KL(p(y|x) ‖ p(y))), over ten parts of the samples: mean and deviation of the parts.

With H the entropy, mean KL = H(p(y)) − mean H(p(y|x)), so that sums of p(y|x) and of p log p are all that is kept of
the samples. Sample i of N belongs to part ⌊10 i/N⌋; labels are dealt in turn, so that every part is balanced to within
one sample a class. A score cannot exceed the number of samples: fewer than 1 000 of them are one part.

What is kept of features that stream by: their moments, some of them in full, and sums for the Inception Score.

The moments of 50 000 features in 2 048 dimensions take 34 MB, whatever their number. KID, precision and recall compare
features in pairs, and take those of the ids that were chosen beforehand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from truedrift import distributed
from truedrift.axes import Float, Int, Tensor
from truedrift.evaluation.extractors import ExtractedFeatures
from truedrift.kernels.distance import squared_distance


@dataclass(frozen=True)
class Moments:
    """N, μ and M of the features so far."""

    count: Float[Tensor, ""]
    mean: Float[Tensor, " D"]
    scatter: Float[Tensor, "D D"]

    @property
    def covariance(self) -> Float[Tensor, "D D"]:
        """Unbiased; zero for a single feature."""
        return self.scatter / (self.count - 1).clamp_min(1)

    def merged(self, other: Moments) -> Moments:
        """Of both sets together."""
        count = self.count + other.count
        share = other.count / count.clamp_min(1)
        delta = other.mean - self.mean
        scatter = self.scatter + other.scatter + torch.outer(delta, delta) * (self.count * share)
        return Moments(count, self.mean + delta * share, scatter)

    def over_processes(self) -> Moments:
        """Of the features of all processes; about the joint mean, which they find first."""
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
    """Of no features."""
    zero = torch.zeros((), dtype=torch.float64, device=device)
    return Moments(zero, zero.expand(dimensions), zero.expand(dimensions, dimensions))


def batch_moments(features: Float[Tensor, "N D"]) -> Moments:
    """Of one batch."""
    wide = features.double()
    mean = wide.mean(0)
    centered = wide - mean
    count = torch.tensor(len(wide), dtype=torch.float64, device=wide.device)
    return Moments(count, mean, centered.mT @ centered)


def frechet_distance(a: Moments, b: Moments) -> float:
    """d² of the Gaussians with these moments."""
    shift = (a.mean - b.mean).square().sum()
    sigma_a, sigma_b = a.covariance.cpu(), b.covariance.cpu()
    root = _root(sigma_a)
    overlap = torch.linalg.eigvalsh(_symmetric(root @ sigma_b @ root)).clamp_min(0).sqrt().sum()
    distance = shift.cpu() + sigma_a.trace() + sigma_b.trace() - 2 * overlap
    return float(distance.clamp_min(0))


def _root(sigma: Float[Tensor, "D D"]) -> Float[Tensor, "D D"]:
    """Σ^½ of a symmetric matrix without negative eigenvalues."""
    values, vectors = torch.linalg.eigh(_symmetric(sigma))
    return (vectors * values.clamp_min(0).sqrt()) @ vectors.mT


def _symmetric(matrix: Tensor) -> Tensor:
    return (matrix + matrix.mT) / 2


KERNEL_ROWS = 1024
"""Of the kernel matrix at a time."""


def kernel_distance(f: Float[Tensor, "n D"], g: Float[Tensor, "m D"]) -> tuple[float | None, float | None]:
    """KID and its standard error; None where a side has fewer than two features."""
    n, m = len(f), len(g)
    if min(n, m) < 2:
        return None, None
    f, g = f.double(), g.double()
    own_f = (_row_sums(f, f) - _own_block(f)) / (n - 1)
    own_g = (_row_sums(g, g) - _own_block(g)) / (m - 1)
    f_to_g, g_to_f = _row_sums(f, g) / m, _row_sums(g, f) / n
    distance = own_f.mean() + own_g.mean() - 2 * f_to_g.mean()
    error = 2 * torch.sqrt((own_f - f_to_g).var() / n + (own_g - g_to_f).var() / m)
    return float(distance), float(error)


def _row_sums(f: Tensor, g: Tensor) -> Float[Tensor, " n"]:
    return torch.cat([(rows @ g.mT / f.shape[1] + 1).pow(3).sum(1) for rows in f.split(KERNEL_ROWS)])


def _own_block(f: Tensor) -> Float[Tensor, " n"]:
    return (f.square().sum(1) / f.shape[1] + 1).pow(3)


NEIGHBORS = 3
NEIGHBOR_ROWS = 1024
"""Of the distances at a time."""


def precision_recall(
    data: Float[Tensor, "n D"], generated: Float[Tensor, "m D"], *, k: int = NEIGHBORS
) -> tuple[float | None, float | None]:
    """(precision, recall); None where a side has no k-th neighbor."""
    if min(len(data), len(generated)) <= k:
        return None, None
    data, generated = data.double(), generated.double()
    return _share_inside(generated, data, k), _share_inside(data, generated, k)


def _share_inside(points: Tensor, centers: Tensor, k: int) -> float:
    """Share of the points in a ball of one of the centers."""
    radii = _squared_radii(centers, k)
    inside = [(squared_distance(rows, centers) <= radii).any(1) for rows in points.split(NEIGHBOR_ROWS)]
    return float(torch.cat(inside).double().mean())


def _squared_radii(centers: Tensor, k: int) -> Float[Tensor, " n"]:
    """d² to the k-th nearest other one."""
    return torch.cat([_kth_other(centers, start, k) for start in range(0, len(centers), NEIGHBOR_ROWS)])


def _kth_other(centers: Tensor, start: int, k: int) -> Tensor:
    rows = centers[start : start + NEIGHBOR_ROWS]
    squared = squared_distance(rows, centers)
    squared[torch.arange(len(rows)), start + torch.arange(len(rows))] = math.inf  # not itself, duplicates or not
    return squared.topk(k, dim=1, largest=False).values[:, -1]


PARTS = 10
FEWEST = 1000
"""Samples that are taken apart."""


def split_count(samples: int) -> int:
    """In how many parts so many samples are judged."""
    return PARTS if samples >= FEWEST else 1


@dataclass(frozen=True)
class ScoreSums:
    """Of every part: how many samples, Σ p(y|x), and Σ Σ_y p log p."""

    counts: Float[Tensor, " parts"]
    marginals: Float[Tensor, "parts classes"]
    negative_entropies: Float[Tensor, " parts"]

    @classmethod
    def empty(cls, classes: int, parts: int, device: torch.device | None = None) -> ScoreSums:
        """Of no samples."""
        zeros = torch.zeros(parts, dtype=torch.float64, device=device)
        return cls(zeros, zeros[:, None].expand(-1, classes).clone(), zeros.clone())

    def add(self, ids: Int[Tensor, " B"], total: int, probabilities: Float[Tensor, "B classes"]) -> ScoreSums:
        """With these samples, of `total`."""
        p = probabilities.double()
        part = ids.to(p.device) * len(self.counts) // total
        return ScoreSums(
            self.counts.index_add(0, part, torch.ones_like(part, dtype=torch.float64)),
            self.marginals.index_add(0, part, p),
            self.negative_entropies.index_add(0, part, torch.xlogy(p, p).sum(1)),
        )

    def over_processes(self) -> ScoreSums:
        """Of the samples of all processes."""
        sums = (self.counts.clone(), self.marginals.clone(), self.negative_entropies.clone())
        distributed.all_reduce_sum(sums)
        return ScoreSums(*sums)

    def score(self) -> tuple[float, float]:
        """Mean and deviation over the parts that have samples."""
        some = self.counts > 0
        counts = self.counts[some]
        marginal = self.marginals[some] / counts[:, None]
        divergence = self.negative_entropies[some] / counts - torch.xlogy(marginal, marginal).sum(1)
        scores = divergence.exp()
        return float(scores.mean()), float(scores.std(correction=0))


COMPARED = 10_000
"""Features of each side, at most, that are compared in pairs."""


@dataclass
class FeatureStatistics:
    """Of `total` features, those of the sorted ids `chosen` in full."""

    total: int
    chosen: Int[Tensor, " K"]
    moments: Moments
    kept: Float[Tensor, "K D"]
    scores: ScoreSums | None
    seen: int = 0

    @classmethod
    def begin(
        cls, total: int, chosen: Int[Tensor, " K"], dimensions: int, classes: int | None, device: torch.device
    ) -> FeatureStatistics:
        """Before the first batch. Sums are in float64, which Apple's GPUs do not have."""
        where = device if device.type == "cuda" else torch.device("cpu")
        return cls(
            total,
            chosen,
            empty_moments(dimensions, where),
            torch.zeros(len(chosen), dimensions, device=where),
            None if classes is None else ScoreSums.empty(classes, split_count(total), where),
        )

    def add(self, ids: Int[Tensor, " B"], extracted: ExtractedFeatures) -> None:
        """A batch: `ids` are consecutive."""
        features = extracted.features.to(self.kept.device)
        self.moments = self.moments.merged(batch_moments(features))
        first, end = torch.searchsorted(self.chosen, torch.stack((ids[0], ids[-1] + 1))).tolist()
        self.kept[first:end] = features[self.chosen[first:end] - ids[0]].float()
        if self.scores is not None and extracted.probabilities is not None:
            self.scores = self.scores.add(ids, self.total, extracted.probabilities.to(self.kept.device))
        self.seen += len(ids)

    def over_processes(self) -> FeatureStatistics:
        """Of all processes; every chosen feature is in one of them, and zero elsewhere."""
        kept = self.kept.clone()
        distributed.all_reduce_sum((kept,))
        scores = None if self.scores is None else self.scores.over_processes()
        return FeatureStatistics(self.total, self.chosen, self.moments.over_processes(), kept, scores, self.total)


def first_ids(total: int) -> Int[Tensor, " K"]:
    """Of samples that are alike whatever their number: the first ones."""
    return torch.arange(min(total, COMPARED))
