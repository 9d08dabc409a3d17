"""The bias of minibatch Sinkhorn plans against enumeration and a literal plan of the population."""

import itertools
import math

import torch

from truedrift.grids import StudyOptions
from truedrift.paper.equilibrium_sinkhorn import (
    SinkhornBias,
    SinkhornBiases,
    compute_population_centroid,
    measure_sinkhorn,
    sinkhorn_findings,
    sinkhorn_notes,
    study_sinkhorn,
)

TAU = 0.7
QUERY, GENERATED, POSITIVES = (0.1, 0.0), ((0.0, 0.2), (1.0, -0.3)), ((0.3, 0.0), (1.5, 0.4))


def points(*values):
    return torch.tensor(values, dtype=torch.float64)


def literal_plan(queries, references, iterations):
    """diag(u) K diag(v) with unit sums of rows and columns, in plain numbers."""
    K = [[math.exp(-math.dist(a, b) / TAU) for b in references] for a in queries]
    u, n = [1 / sum(row) for row in K], range(len(queries))
    for _ in range(iterations):
        v = [1 / sum(u[i] * K[i][j] for i in n) for j in n]
        u = [1 / sum(K[i][j] * v[j] for j in n) for i in n]
    return [[u[i] * K[i][j] * v[j] for j in n] for i in n]


def test_target_is_the_row_of_the_population_plan():
    plan = literal_plan(GENERATED, POSITIVES, 10_000)
    T_star = compute_population_centroid(points(*GENERATED), points(*POSITIVES), points(*GENERATED), TAU)
    expected = [[sum(p * y[d] for p, y in zip(row, POSITIVES, strict=True)) for d in range(2)] for row in plan]
    torch.testing.assert_close(T_star, points(*expected))
    alone = [math.exp(-math.dist(GENERATED[0], y) / TAU) for y in POSITIVES]
    assert abs(plan[0][0] - alone[0] / sum(alone)) > 0.05  # the plan differs from the row normalization


def test_bias_matches_the_enumeration_of_all_minibatches():
    """Two queries and two references from pools of two: 8 minibatches. Two estimators × two coordinates within 4.5
    standard errors of 16,000 draws: exceeded for one seed in 36,000."""
    target = points((0.5, 0.1))
    found = measure_sinkhorn(
        points(QUERY), points(*POSITIVES), points(*GENERATED), target, tau=TAU, n=2, batches=16_000,
        estimators=("standard", "abc"), seed=2,
    )  # fmt: skip
    exact = {"standard": [0.0, 0.0], "abc": [0.0, 0.0]}
    for other, *y in itertools.product(GENERATED, POSITIVES, POSITIVES):
        alpha = literal_plan((QUERY, other), y, 20)[0]
        gamma = [a * (1 - sum(b * b for b in alpha) + a) for a in alpha]
        for name, weights in (("standard", alpha), ("abc", gamma)):
            for d in range(2):
                T = sum(w * each[d] for w, each in zip(weights, y, strict=True))
                T = sum(w * each[d] for w, each in zip(weights, y, strict=True))
                exact[name][d] += (T - float(target[0, d])) / 8
    for name, bias in exact.items():
        error = (found[name].covariance[0, 0].diagonal() / 16_000).sqrt()
        assert ((found[name].bias[0, 0] - points(*bias)).abs() < 4.5 * error).all()
    assert abs(exact["standard"][0] - exact["abc"][0]) > 4.5 * float(error[0])  # the check tells them apart


def test_study_measures_every_size_and_estimator():
    record = study_sinkhorn(StudyOptions(scale="smoke", seed=1))
    assert [(each.n, each.estimator) for each in record.biases] == [
        (n, estimator) for n in (8, 16) for estimator in ("standard", "abc", "abc2")
    ]
    assert all(each.resolved and each.variance > 0 for each in record.biases)
    for estimator in ("standard", "abc", "abc2"):
        assert record.find_bias(16, estimator).root < record.find_bias(8, estimator).root


def test_summary_shows_bias_and_variance():
    biases = tuple(
        SinkhornBias(n=n, estimator=name, square=root**2, square_error=1e-4, variance=0.25)
        for n, roots in ((8, (0.4, 0.3)), (64, (0.2, 0.19)))
        for name, root in zip(("standard", "abc"), roots, strict=True)
    )
    record = SinkhornBiases(tau=0.2, shift=0.1, pool_points=9, queries=3, batches=5, biases=biases)
    assert sinkhorn_notes(record)[1:] == [
        "sinkhorn, standard: n = 8: 4.0e-01 (2.5e-01); n = 64: 2.0e-01 (2.5e-01)",
        "sinkhorn, ABC: n = 8: 3.0e-01 (2.5e-01); n = 64: 1.9e-01 (2.5e-01)",
    ]
    (finding,) = sinkhorn_findings(record)
    assert "leaves 75% at n = 8 and 95% at n = 64 of the bias" in finding
