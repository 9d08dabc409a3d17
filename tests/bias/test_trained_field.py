"""The Monte Carlo of the training signal against a literal loop, the exact field, and its zeros at q = p."""

import math

import pytest
import torch

from truedrift.bias import exact_field, measure_trained_field
from truedrift.data import FOUR_MODES
from truedrift.seeding import stream

TAU = 0.2


@pytest.fixture(scope="module")
def toy():
    """Five queries and a pool of the four modes."""
    generator = torch.Generator().manual_seed(0)
    return [FOUR_MODES.sample(count, generator, dtype=torch.float64) for count in (5, 400)]


def statistic(found):
    """Σ_q M ēᵀΣ̂⁻¹ē: χ² with Q·D degrees of freedom if the expectation is 0."""
    mean = found.bias[:, 0]
    return found.trials * float((mean * torch.linalg.solve(found.covariance[:, 0], mean)).sum())


LIMIT = 35.6
"""The χ² of 10 degrees of freedom exceeds it with probability 10⁻⁴."""


def test_the_limit_has_its_false_alarm_rate():
    """P(χ²_10 > t) = e^{−t/2} Σ_{k<5} (t/2)^k/k!."""
    half = LIMIT / 2
    assert math.exp(-half) * sum(half**k / math.factorial(k) for k in range(5)) == pytest.approx(1e-4, rel=0.05)


@pytest.mark.parametrize("divide_by_rms", [False, True])
@pytest.mark.parametrize("fresh", [0, 3])
def test_signal_matches_the_literal_loop(toy, divide_by_rms, fresh):
    """The standard centroid with row normalization, batch by batch."""
    x, pool = toy
    n, g, trials = 4, 3, 6
    found = measure_trained_field(
        x, pool, pool + 0.1, tau=TAU, n=n, g=g, fresh=fresh, trials=trials, normalization="row", form="separate",
        estimator="standard", divide_by_rms=divide_by_rms,
    )  # fmt: skip
    for q, query in enumerate(x):
        generator = stream(0, "trained field", q, 0)
        others, extra, drawn = (torch.randint(400, (trials, size), generator=generator) for size in (g - 1, fresh, n))
        signals = []
        for t in range(trials):
            gen, pos = torch.cat((query[None], pool[others[t]] + 0.1)), pool[drawn[t]]
            rows = []
            for i in range(g):
                neg = pool[extra[t]] + 0.1 if fresh else torch.cat((gen[:i], gen[i + 1 :]))
                T = [(-(y - gen[i]).norm(dim=-1) / TAU).softmax(-1) @ y for y in (pos, neg)]
                rows.append(T[0] - T[1])
            V = torch.stack(rows)
            signals.append(V[0] / (V.square().mean() + 1e-8).sqrt() if divide_by_rms else V[0])
        signals = torch.stack(signals)
        torch.testing.assert_close(found.bias[q, 0], signals.mean(0), rtol=0, atol=1e-12)
        torch.testing.assert_close(found.covariance[q, 0], signals.mT.cov(), rtol=0, atol=1e-12)


def test_row_normalization_has_the_exact_expectation(toy):
    """χ² of 10 degrees of freedom at two shifts of q, each with a false-alarm rate of 10⁻⁴."""
    x, pool = toy
    for shift in (0.0, 0.1):
        found = measure_trained_field(
            x, pool, pool + shift, tau=TAU, n=12, g=5, trials=4000, normalization="row", form="separate",
            divide_by_rms=False,
        )  # fmt: skip
        for m, agrees in ((4, True), (12, False)):
            expected = exact_field(x, pool, pool + shift, tau=TAU, n=12, m=m).V
            chi_square = statistic(
                type(found)(found.n, found.trials, found.T_star, found.bias - expected, found.covariance)
            )
            assert (chi_square < LIMIT) == agrees, (shift, m, chi_square)


ZERO = [
    {"normalization": "row", "form": "separate", "matched": True, "n": 8, "divide_by_rms": False},
    {"normalization": "row", "form": "product", "matched": True, "n": 14, "divide_by_rms": False},
    {"normalization": "symmetric", "form": "product", "matched": True, "n": 14, "divide_by_rms": False},
    {"normalization": "row", "form": "separate", "fresh": 8, "n": 8},
    {"normalization": "bidirectional", "form": "product", "fresh": 8, "n": 8, "estimator": "standard"},
    {"normalization": "bidirectional-loo", "form": "separate", "fresh": 8, "n": 8},
    {"normalization": "sinkhorn", "form": "separate", "fresh": 8, "n": 8},
    {"normalization": "bidirectional", "form": "product", "fresh": 8, "n": 8, "feature_scale": "mean-distance"},
    {"normalization": "row", "form": "separate", "fresh": 8, "n": 16, "matched": True, "divide_by_rms": False},
]
NOT_ZERO = [
    {"normalization": "row", "form": "separate", "n": 14, "divide_by_rms": False},
    {"normalization": "row", "form": "product", "n": 14, "divide_by_rms": False},
    {"normalization": "symmetric", "form": "separate", "n": 14, "divide_by_rms": False},
    {"normalization": "bidirectional", "form": "product", "n": 14},
    {"normalization": "bidirectional", "form": "product", "fresh": 8, "n": 32},
    {"normalization": "sinkhorn", "form": "separate", "n": 8},
    {"normalization": "row", "form": "separate", "fresh": 8, "n": 16, "divide_by_rms": False},
    {"normalization": "bidirectional", "form": "product", "n": 14, "feature_scale": "mean-distance"},
]


@pytest.mark.parametrize("settings", ZERO, ids=lambda each: "-".join(map(str, each.values())))
def test_expectation_is_zero_at_equal_distributions(toy, settings):
    """False-alarm rate 10⁻⁴ each; the controls below exceed the same limit."""
    x, pool = toy
    assert statistic(measure_trained_field(x, pool, pool, tau=TAU, g=8, trials=6000, **settings)) < LIMIT


@pytest.mark.parametrize("settings", NOT_ZERO, ids=lambda each: "-".join(map(str, each.values())))
def test_expectation_is_not_zero_without_matching(toy, settings):
    x, pool = toy
    assert statistic(measure_trained_field(x, pool, pool, tau=TAU, g=8, trials=6000, **settings)) > 1.5 * LIMIT


def test_expectation_is_not_zero_at_a_shifted_distribution(toy):
    """Matching removes the push at q = p and keeps that of q ≠ p: it points against the shift."""
    x, pool = toy
    for settings in (ZERO[0], ZERO[3]):
        found = measure_trained_field(x, pool, pool + 0.2, tau=TAU, g=8, trials=2000, **settings)
        assert statistic(found) > 10 * LIMIT
        assert (found.bias.mean((0, 1)) < 0).all()


def test_draws_depend_on_the_seed_alone(toy):
    x, pool = toy
    settings = {"tau": TAU, "n": 4, "g": 4, "trials": 50}
    one, again, other = (measure_trained_field(x, pool, pool, seed=seed, **settings) for seed in (3, 3, 4))
    assert one.bias.equal(again.bias)
    assert not one.bias.equal(other.bias)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"n": 0}, r"n is 0; "),
        ({"g": 1}, r"g is 1; "),
        ({"fresh": -1}, r"fresh is -1; "),
        ({"trials": 1}, r"trials is 1; "),
        ({"seed": -1}, r"seed is -1; "),
        (
            {"divide_by_rms": False, "feature_scale": "mean-distance"},
            r"feature_scale is 'mean-distance' with divide_by",
        ),
        ({"matched": True}, r"normalization is 'bidirectional' with matched=True; "),
    ],
)
def test_bad_arguments_are_rejected(toy, changed, message):
    x, pool = toy
    with pytest.raises(ValueError, match=message):
        measure_trained_field(x, pool, pool, **({"tau": TAU, "n": 4, "g": 4, "trials": 10} | changed))
