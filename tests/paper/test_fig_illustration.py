"""The study `fig:illustration`, compared with literal loops and an exact integral."""

import math

import pytest
import torch

from truedrift.data import THREE_CLUSTERS
from truedrift.paper import fig_illustration


def literal_centroids(references):
    """T_n = Σ α_i y_i and T_n^ABC = (1 − Σ α_i²) T_n + Σ α_i² y_i, number by number."""
    w = [math.exp(-math.dist(fig_illustration.QUERY, y) / fig_illustration.TAU) for y in references]
    alpha = [each / sum(w) for each in w]
    T = [sum(a * y[axis] for a, y in zip(alpha, references, strict=True)) for axis in (0, 1)]
    p_2 = sum(a * a for a in alpha)
    return T, [
        (1 - p_2) * T[axis] + sum(a * a * y[axis] for a, y in zip(alpha, references, strict=True)) for axis in (0, 1)
    ]


def exact_target():
    """T* = ∫ w y p / ∫ w p in polar coordinates around the query, where the integrand is smooth."""
    theta = torch.arange(256, dtype=torch.float64) * (2 * math.pi / 256)
    r = (torch.arange(4000, dtype=torch.float64) + 0.5) * (8 / 4000)
    offset = r[:, None, None] * torch.stack((theta.cos(), theta.sin()), -1)
    y = torch.tensor(fig_illustration.QUERY, dtype=torch.float64) + offset
    squared = (y.unsqueeze(-2) - torch.tensor(THREE_CLUSTERS.means, dtype=torch.float64)).square().sum(-1)
    density = (-squared / (2 * THREE_CLUSTERS.std**2)).exp().sum(-1)
    mass = density * (r * (-r / fig_illustration.TAU).exp())[:, None]
    return (mass.unsqueeze(-1) * y).sum((0, 1)) / mass.sum()


def test_the_pool_gives_the_exact_target():
    T_star = fig_illustration.target(
        torch.tensor([fig_illustration.QUERY], dtype=torch.float64), fig_illustration.pool()
    )[0]
    # The standard error of the pool of 10⁶ is about 0.8·10⁻³; five of them.
    assert (T_star - exact_target()).norm() < 4e-3
    # The check can fail: the neighboring quantity, the plain mean, is far away.
    assert (T_star - torch.tensor(THREE_CLUSTERS.mean)).norm() > 0.5


@pytest.fixture
def small_pool(monkeypatch):
    monkeypatch.setattr(fig_illustration, "POOL_POINTS", 5_000)


@pytest.mark.usefixtures("small_pool")
@pytest.mark.parametrize("block", [1 << 18, 10])
def test_record_matches_a_literal_loop(monkeypatch, block):
    monkeypatch.setattr(fig_illustration, "_BLOCK", block)
    options = fig_illustration.Options(n=4, draws=60, seed=5)
    record = fig_illustration.run(options)
    everything = fig_illustration.pool()
    draws = torch.cat(list(fig_illustration.minibatches(everything, options))).tolist()
    assert len(draws) == 60
    assert {tuple(y) for draw in draws for y in draw} <= {tuple(y) for y in everything.tolist()}
    standard, abc = zip(*map(literal_centroids, draws), strict=True)
    T_star = record.T_star
    assert T_star == pytest.approx(literal_centroids(everything.tolist())[0], rel=1e-9)
    nearer = [math.dist(b, T_star) < math.dist(a, T_star) for a, b in zip(standard, abc, strict=True)]
    assert 0 < sum(nearer) < 60
    assert record.share_nearer == sum(nearer) / 60
    assert record.references == tuple(map(tuple, draws[0]))
    for T, shown, mean, noise, rms in (
        (standard, record.T_standard, record.mean_standard, record.noise_standard, record.rms_standard),
        (abc, record.T_abc, record.mean_abc, record.noise_abc, record.rms_abc),
    ):
        literal_mean = [sum(axis) / 60 for axis in zip(*T, strict=True)]
        assert shown == pytest.approx(T[0], rel=1e-12)
        assert mean == pytest.approx(literal_mean, rel=1e-12)
        assert rms == pytest.approx(math.sqrt(sum(math.dist(t, T_star) ** 2 for t in T) / 60), rel=1e-12)
        assert noise == pytest.approx(math.sqrt(sum(math.dist(t, literal_mean) ** 2 for t in T) / 59 / 60), rel=1e-12)
    assert record.distance_standard == pytest.approx(math.dist(standard[0], T_star), rel=1e-12)
    assert record.distance_abc == pytest.approx(math.dist(abc[0], T_star), rel=1e-12)
    assert record.bias_standard == pytest.approx(math.dist(record.mean_standard, T_star))
    assert record.bias_abc == pytest.approx(math.dist(record.mean_abc, T_star))


def test_abc_reduces_the_mean_error():
    record = fig_illustration.run(fig_illustration.Options())
    assert (record.n, record.draws, record.pool_points) == (4, 10_000, 1_000_000)
    # Bias 0.19 and 0.08 with noise 0.007 each: the gap is eight of its standard errors.
    assert record.bias_abc + 5 * record.noise_abc < record.bias_standard
    pull = torch.tensor(record.mean_standard) - torch.tensor(record.T_star)
    inward = torch.tensor(THREE_CLUSTERS.mean) - torch.tensor(record.T_star)
    assert torch.cosine_similarity(pull, inward, dim=0) > 0.95
    # 58.5 % within five standard errors of 0.5 %.
    assert record.share_nearer == pytest.approx(0.585, abs=0.025)
    # The scatter of single draws stays.
    assert record.rms_abc == pytest.approx(record.rms_standard, rel=0.02)


@pytest.mark.usefixtures("small_pool")
def test_draw_0_depends_on_the_seed_and_n_alone():
    one, many, other = (
        fig_illustration.run(fig_illustration.Options(draws=draws, seed=seed))
        for draws, seed in ((1, 7), (300, 7), (300, 8))
    )
    assert (one.references, one.T_standard, one.T_abc) == (many.references, many.T_standard, many.T_abc)
    assert other.references != many.references
    assert other.T_star == many.T_star
    assert one.noise_standard is None
    assert one.mean_standard == one.T_standard


@pytest.mark.usefixtures("small_pool")
def test_at_n_1_the_correction_changes_nothing():
    record = fig_illustration.run(fig_illustration.Options(n=1, draws=50))
    assert record.T_standard == record.T_abc == pytest.approx(record.references[0], rel=1e-12)
    assert record.share_nearer == 0


def test_the_query_is_nearest_to_the_left_cluster():
    left, *others = THREE_CLUSTERS.means
    assert all(
        math.dist(fig_illustration.QUERY, left) < 0.5 * math.dist(fig_illustration.QUERY, other) for other in others
    )


@pytest.mark.parametrize(
    ("options", "came"),
    [
        ({"n": 0}, "n is 0; must be from 1 to 10000; "),
        ({"n": 10_001}, "n is 10001; must be from 1 to 10000; "),
        ({"draws": 0}, "draws is 0; must be from 1 to 1000000; "),
        ({"draws": 1_000_001}, "draws is 1000001; must be from 1 to 1000000; "),
        ({"seed": -1}, "seed is -1; must be from 0 to 2147483647; "),
        ({"seed": 2**31}, "seed is 2147483648; must be from 0 to 2147483647; "),
        ({"n": 10_000, "draws": 1_000_000}, "n · draws is 10000000000; must be at most 100000000; "),
    ],
)
def test_options_out_of_range_are_errors(options, came):
    with pytest.raises(ValueError, match=came):
        fig_illustration.Options(**options)
