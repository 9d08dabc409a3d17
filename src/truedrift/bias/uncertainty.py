"""The uncertainty of a bias that is computed from a sample of references, and simulated minibatches from this sample.

**Jackknife.** The references are split at random into G = 8 groups; copies of one reference are always in the same
group. With b the bias vector of a query from all references and b_(g) the one without group g, the delete-group
jackknife is

    Var b ≈ (G − 1)/G Σ_g (b_(g) − b̄)(b_(g) − b̄)ᵀ.

The factor scales the variation of overlapping subsamples up to that of independent samples of N references. The
jackknife gives three numbers for the mean over queries θ = mean ‖b‖:

    log_error       √((G − 1)/G Σ_g (log θ_(g) − mean)²)   the standard error of log θ
    relative_noise  mean √(tr Var b) / θ                   the error of the vector; large if θ is the norm of noise
    extrapolation   (G − 1)(log θ − mean log θ_(g))        how more references would change log θ, as the jackknife
                                                           estimates it

and a 95 % interval,

    log θ ± √((t · log_error)² + (REACH · extrapolation)² + (WIDENING · relative_noise)² + (t · query_error)²),

with t the quantile of Student's distribution with G − 1 degrees of freedom. Extrapolation and noise are included
because the estimate from N references is itself biased, by order 1/N, which no variation between groups shows. The last
term is included if the queries are a sample of the user's.

**Minibatches.** n_eff, the largest α and √(tr Var T_n) come from simulated minibatches, drawn with replacement from the
references. All queries share the draws. A precision of a few per cent is enough for these.
"""

import hashlib
import math
from dataclasses import dataclass

import torch

from truedrift.axes import Float, Int, Tensor
from truedrift.bias.diagnosis import Quantiles, Weights
from truedrift.bias.expected_weights import References
from truedrift.kernels.weights import DOMINATES_ABOVE, effective_sample_size

GROUPS = 8
STUDENT = 2.3646
"""97.5 % quantile with 7 degrees of freedom."""
REACH = 2.0
WIDENING = 0.4
"""REACH and WIDENING are the smallest with which 95 % of the intervals contained the truth in the calibration."""
ESTIMATORS = ("standard", "abc", "abc2")


def random_groups(N: int, generator: torch.Generator) -> Int[Tensor, " N"]:
    """Return labels 0 … G − 1 of N references in random order, in groups of equal size up to one."""
    labels = torch.arange(N) % min(GROUPS, N)
    return labels[torch.randperm(N, generator=generator)]


def distinct_index(rows: Float[Tensor, "N D"]) -> Int[Tensor, " N"]:
    """Return the index of each row among the distinct rows, in the order of their first appearance.

    Rows are compared bit by bit (−0 equals 0) by a hash of 128 bits, because the rows themselves are large.
    """
    index: dict[bytes, int] = {}
    hashes = (hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in (rows + 0.0).contiguous().numpy())
    return torch.tensor([index.setdefault(each, len(index)) for each in hashes])


def merge_close_values(d: Float[Tensor, "Q N"], within: float) -> Float[Tensor, "Q N"]:
    """Replace the values of each row by their ranks; values that gaps of at most `within` connect have the same rank.

    Distances to copies of a reference differ by rounding, because a matrix product adds in another order at its edges.
    """
    ordered, order = d.sort(-1)
    steps = (ordered.diff(dim=-1, prepend=ordered[:, :1]) > within).to(d.dtype).cumsum(-1)
    return torch.empty_like(d).scatter_(-1, order, steps)


def jackknife_groups(which: Int[Tensor, " N"], generator: torch.Generator) -> Int[Tensor, " N"]:
    """Return group labels of the references; reference i is a copy of the distinct one `which[i]`.

    Copies have the same label. If all references are the same, the copies themselves are split.
    """
    count = int(which.max()) + 1
    return random_groups(count, generator)[which] if count > 1 else random_groups(len(which), generator)


@dataclass(frozen=True)
class Estimate:
    """The bias of one estimator at one n, with its uncertainty."""

    estimator: str
    norms: Tensor
    """[Q] ‖b‖ from all references."""
    log_error: float
    relative_noise: float
    extrapolation: float

    @property
    def norm(self) -> float:
        """θ."""
        return float(self.norms.mean())

    def interval(self, queries: int, floor: float) -> tuple[float, float]:
        """Return the 95 % interval of the mean over all `queries`, of which these are a sample.

        For a bias at or below the floor, the smallest that is resolved, it is 0 to the floor.
        """
        Q = len(self.norms)
        if self.norm <= floor:
            return 0.0, floor
        left_out = 1 - Q / queries
        query_error = math.sqrt(left_out * float(self.norms.var()) / Q) / self.norm if left_out > 0 else 0.0
        half = half_width(
            log_error=self.log_error,
            extrapolation=self.extrapolation,
            relative_noise=self.relative_noise,
            query_error=query_error,
        )
        return self.norm * math.exp(-half), self.norm * math.exp(min(half, 700.0))


def half_width(*, log_error: float, extrapolation: float, relative_noise: float, query_error: float = 0.0) -> float:
    """Return half the width of the interval of log θ."""
    return math.hypot(STUDENT * log_error, REACH * extrapolation, WIDENING * relative_noise, STUDENT * query_error)


def jackknife_estimates(
    references: References, n: int, labels: Int[Tensor, " N"], sizes: tuple[int, ...] = ()
) -> tuple[tuple[Estimate, ...], Float[Tensor, "estimators sizes"]]:
    """Return the estimates of all estimators at n, and θ at further `sizes`, which cost little more."""
    b = references.biases(ESTIMATORS, (n, *sizes))[:, 0]  # [Q, estimators, 1 + sizes, D]
    without = references.biases(ESTIMATORS, (n,), labels)[:, :, :, 0]  # [Q, G, estimators, D]
    estimates = tuple(_estimate(name, b[:, k, 0], without[:, :, k]) for k, name in enumerate(ESTIMATORS))
    return estimates, b[:, :, 1:].norm(dim=-1).mean(0)


def _estimate(name: str, b: Float[Tensor, "Q D"], without: Float[Tensor, "Q G D"]) -> Estimate:
    G = without.shape[1]
    norms = b.norm(dim=-1)
    theta = norms.mean().clamp_min(torch.finfo(norms.dtype).tiny)
    logs = _log(without.norm(dim=-1).mean(0))
    variance = (without - without.mean(1, keepdim=True)).square().sum((1, 2)) * (G - 1) / G
    return Estimate(
        estimator=name,
        norms=norms,
        log_error=math.sqrt((G - 1) / G * float((logs - logs.mean()).square().sum())),
        relative_noise=float(variance.sqrt().mean() / theta),
        extrapolation=(G - 1) * float(_log(theta) - logs.mean()),
    )


def _log(positive: Tensor) -> Tensor:
    return positive.clamp_min(torch.finfo(positive.dtype).tiny).log()


MOST_DRAWS, FEWEST_DRAWS = 256, 16
_ELEMENTS = 1 << 23


def simulate_batches(references: References, n: int, generator: torch.Generator) -> tuple[Weights, float]:
    """Simulate up to 256 minibatches of n references, fewer if n is large.

    Returns:
        Statistics of the weights, and the noise √(tr Var T_n), root mean square over queries.
    """
    # Choose how many minibatches to simulate, and how many at a time
    Q, N = references.s.shape
    draws = max(FEWEST_DRAWS, min(MOST_DRAWS, _ELEMENTS // n))
    width = Q + (0 if references.per_query else references.y.shape[-1])
    at_a_time = max(1, _ELEMENTS // (n * width))
    # Compute weights and centroids
    n_eff, dominance, T = [], [], []
    for index in torch.randint(N, (draws, n), generator=generator).split(at_a_time):
        alpha = (-references.s[:, index]).softmax(-1)  # [Q, draws, n]
        n_eff.append(effective_sample_size(alpha))
        dominance.append(alpha.amax(-1))
        T.append(references.centroids(alpha, index))  # [Q, draws, D]
    noise = torch.cat(T, 1).var(1).sum(-1).mean().sqrt()
    return summarize_batches(torch.cat(n_eff, 1), torch.cat(dominance, 1), n), float(noise)


def summarize_batches(n_eff: Tensor, dominance: Tensor, n: int) -> Weights:
    """Summarize rows of weights by 1/Σα² and the largest α of each."""
    return Weights(
        rows=n_eff.numel(),
        n=n,
        n_eff=Quantiles.of(n_eff),
        dominance=Quantiles.of(dominance),
        sum_of_squares=Quantiles.of(1 / n_eff),
        dominated=float((dominance > DOMINATES_ABOVE).double().mean()),
    )
