"""KID, precision, recall and the Inception Score against their literal definitions."""

import itertools
import math

import pytest
import torch

from truedrift.evaluation import metrics
from truedrift.evaluation.metrics import PARTS, ScoreSums, kernel_distance, precision_recall, split_count


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    """Blocks that do not divide the sets."""
    monkeypatch.setattr(metrics, "BLOCK_ROWS", 4)


def sets(n=9, m=7, D=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, D, generator=generator), 1.5 * torch.randn(m, D, generator=generator) + 0.7


def literal_kid(f, g):
    def k(a, b):
        return (sum(x * y for x, y in zip(a, b, strict=True)) / len(a) + 1) ** 3

    f, g = f.tolist(), g.tolist()
    own = [sum(k(a, b) for a, b in itertools.permutations(each, 2)) / (len(each) * (len(each) - 1)) for each in (f, g)]
    return own[0] + own[1] - 2 * sum(k(a, b) for a in f for b in g) / (len(f) * len(g))


def test_kid_is_the_unbiased_mmd_over_all_pairs():
    f, g = sets()
    assert kernel_distance(f, g)[0] == pytest.approx(literal_kid(f, g), rel=1e-12)


def test_the_error_of_kid_is_its_deviation_over_draws():
    """400 draws of 60 and 40: the mean error is within 15 % of the deviation, whose own error is 3.5 %."""
    generator = torch.Generator().manual_seed(1)
    draws = [
        kernel_distance(torch.randn(60, 2, generator=generator), torch.randn(40, 2, generator=generator) + 1)
        for _ in range(400)
    ]
    distances, errors = torch.tensor(draws, dtype=torch.float64).unbind(1)
    assert float(errors.mean()) == pytest.approx(float(distances.std()), rel=0.15)


def test_kid_of_one_law_is_zero_on_average():
    generator = torch.Generator().manual_seed(2)
    distances = torch.tensor(
        [kernel_distance(*torch.randn(2, 30, 2, generator=generator))[0] for _ in range(400)], dtype=torch.float64
    )
    assert abs(float(distances.mean())) < 4 * float(distances.std()) / 20  # 4σ: false alarm once in 16 000


def literal_share(points, centers, k):
    inside = 0
    for point in points.tolist():
        for i, center in enumerate(centers.tolist()):
            others = sorted(math.dist(center, other) for j, other in enumerate(centers.tolist()) if j != i)
            if math.dist(point, center) <= others[k - 1]:
                inside += 1
                break
    return inside / len(points)


@pytest.mark.parametrize("k", [1, 3])
def test_precision_and_recall_are_shares_inside_balls(k):
    data, generated = (each.double() for each in sets(23, 17))
    expected = literal_share(generated, data, k), literal_share(data, generated, k)
    assert expected[0] != expected[1]
    assert precision_recall(data, generated, k=k) == pytest.approx(expected)


def test_a_collapse_has_precision_and_no_recall():
    data, _ = sets(200, 1)
    collapsed = data[:1].expand(100, -1) + 1e-3 * torch.randn(100, 3, generator=torch.Generator().manual_seed(3))
    precision, recall = precision_recall(data, collapsed)
    assert precision > 0.95
    assert recall < 0.05
    precision, recall = precision_recall(collapsed, data)  # with swapped arguments
    assert precision < 0.05
    assert recall > 0.95


def test_duplicates_are_neighbors_too():
    data = torch.zeros(5, 2)
    assert precision_recall(data, data.clone()) == (1.0, 1.0)
    assert precision_recall(data, data + 1) == (0.0, 0.0)


def test_too_few_features_have_no_number():
    f, g = sets(3, 9)
    assert precision_recall(f, g, k=3) == (None, None)
    assert kernel_distance(f[:1], g) == (None, None)


def literal_score(p):
    marginal = p.mean(0)
    return math.exp(sum(float((row * (row / marginal).log()).sum()) for row in p) / len(p))


@pytest.mark.parametrize("batch", [1, 6, 40])
def test_inception_score_is_the_mean_over_parts(batch):
    generator = torch.Generator().manual_seed(4)
    p = torch.randn(40, 3, generator=generator, dtype=torch.float64).mul(2).softmax(1)
    sums = ScoreSums.empty(3, PARTS)
    for ids in torch.arange(40).split(batch):
        sums = sums.add(ids, 40, p[ids])
    scores = torch.tensor([literal_score(part) for part in p.split(40 // PARTS)])
    mean, deviation = sums.score()
    assert mean == pytest.approx(float(scores.mean()), rel=1e-6)
    assert deviation == pytest.approx(float(scores.std(correction=0)), rel=1e-5)


def test_inception_score_reaches_from_one_to_the_number_of_classes():
    ids = torch.arange(50)
    sure = torch.eye(5, dtype=torch.float64)[ids % 5]
    assert ScoreSums.empty(5, PARTS).add(ids, 50, sure).score() == pytest.approx((5.0, 0.0))
    assert ScoreSums.empty(5, PARTS).add(ids, 50, torch.full((50, 5), 0.2)).score() == pytest.approx(
        (1.0, 0.0), abs=1e-6
    )


def test_few_samples_are_one_part():
    """Ten parts of five samples could not score more than five."""
    assert (split_count(999), split_count(1000)) == (1, 10)
    ids = torch.arange(50)
    sure = torch.eye(10, dtype=torch.float64)[ids % 10]
    assert ScoreSums.empty(10, split_count(50)).add(ids, 50, sure).score() == pytest.approx((10.0, 0.0))
