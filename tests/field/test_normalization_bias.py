"""The bias that each normalization leaves after ABC: row < bidirectional-loo < bidirectional (n = 64, τ = 0.2).

Queries and references are drawn with replacement from finite pools of the four-mode toy, so that the target T* (weights
k(x, y), or k(x, y)/√c(y) with c the mean over the pool of queries) is exact. The first-order part of every estimate is
subtracted, a sum of independent terms of mean exactly zero (a control variate): the influence of each reference, and of
each other query through the column sums. That divides the standard error by five and adds no bias.
"""

import pytest
import torch

from truedrift.centroids import ABC, Standard
from truedrift.field import JOINT_NORMALIZATIONS, log_affinity

TAU, N, n, TRIALS = 0.2, 2000, 64, 10_000
QUERY = torch.tensor([[0.3, 0.1]], dtype=torch.float64)


def four_modes(generator):
    centers = torch.tensor([[0.5, 0.5], [0.5, -0.5], [-0.5, 0.5], [-0.5, -0.5]], dtype=torch.float64)
    mode = torch.randint(4, (N,), generator=generator)
    return centers[mode] + 0.1 * torch.randn(N, 2, generator=generator, dtype=torch.float64)


class Target:
    """The exact target at QUERY for weights w over the pool of references, and the influence of every pool point."""

    def __init__(self, w, p, queries_over_mean=None):
        self.T_star = w @ p / w.sum()
        self.of_reference = (w / w.mean()).unsqueeze(1) * (p - self.T_star)
        self.of_query = torch.zeros(N, 2, dtype=torch.float64)
        if queries_over_mean is not None:  # the weight of y is ∝ c^−½, and one query of n moves c by (k/c − 1)/n
            self.of_query = -0.5 * (queries_over_mean - 1) @ self.of_reference / N


@pytest.fixture(scope="module")
def errors():
    """Per (normalization, estimator): the error of every trial [TRIALS, 2], less its first-order part."""
    generator = torch.Generator().manual_seed(0)
    q, p = four_modes(generator), four_modes(generator)
    log_k = torch.cat((-torch.cdist(q, p) / TAU, -torch.cdist(QUERY, p) / TAU))  # the query of interest is row N
    k, w = log_k[:N].exp(), log_k[N].exp()
    c = k.mean(0)
    row, bidirectional = Target(w, p), Target(w / c.sqrt(), p, k / c)
    targets = dict(zip(JOINT_NORMALIZATIONS, (row, bidirectional, bidirectional), strict=True))
    found = {(normalization, name): [] for normalization in JOINT_NORMALIZATIONS for name in ("standard", "abc")}
    log_k = log_k.float()
    for _ in range(TRIALS // 500):
        i = torch.randint(N, (500, n - 1), generator=generator)
        j = torch.randint(N, (500, n), generator=generator)
        drawn = log_k[torch.cat((torch.full((500, 1), N), i), 1).unsqueeze(2), j.unsqueeze(1)]
        for normalization, target in targets.items():
            log_w = log_affinity(drawn, normalization).log_w[:, 0].double()
            linear = target.of_reference[j].mean(1) + target.of_query[i].sum(1) / n
            for name, estimator in (("standard", Standard()), ("abc", ABC())):
                T = (estimator.reweight(log_w).unsqueeze(-1) * p[j]).sum(1)
                found[normalization, name].append(T - target.T_star - linear)
    return {key: torch.cat(of_trials) for key, of_trials in found.items()}


def deviations_below(share, smaller, larger):
    """(share·‖larger bias‖ − ‖smaller bias‖) in standard errors of that difference, trials being paired."""
    a, b = smaller.mean(0), larger.mean(0)
    gap = share * larger @ (b / b.norm()) - smaller @ (a / a.norm())
    return (gap.mean() / (gap.std() / TRIALS**0.5)).item()


def test_leaving_the_own_term_out_reduces_the_bias_after_abc(errors):
    """Bias of row < ¾ of leave-own-out, and that < ¾ of bidirectional, by at least four standard errors of each gap.

    The gaps are 12 and 14 standard errors wide, so that a correct program would fail on fewer than one seed in 10⁹.
    """
    row, both, loo = (errors[normalization, "abc"] for normalization in JOINT_NORMALIZATIONS)
    assert deviations_below(0.75, row, loo) > 4
    assert deviations_below(0.75, loo, both) > 4


def test_abc_removes_the_leading_bias_of_the_row_normalization(errors):
    """5.2e-3 against 1.5e-4, each ± 1.2e-4: the threshold of 1e-3 lies seven standard errors off."""
    standard, corrected = errors["row", "standard"].mean(0), errors["row", "abc"].mean(0)
    assert corrected.norm() < 0.2 * standard.norm()


def test_abc_leaves_a_third_of_the_bidirectional_bias(errors):
    """Negative control of the test above: ABC does not correct the bias of the column sums."""
    standard, corrected = errors["bidirectional", "standard"].mean(0), errors["bidirectional", "abc"].mean(0)
    assert corrected.norm() > 0.2 * standard.norm()
