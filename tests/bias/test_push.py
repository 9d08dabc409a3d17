"""The push of the field at q = p against enumeration of all batches, its direction, its noise, and the advice."""

import itertools
import json
import math
from dataclasses import asdict, replace

import pytest
import torch

from truedrift import drift
from truedrift.bias import diagnose, exact_moments_by_estimator, expected_weights
from truedrift.errors import UserError
from truedrift.report import screens

NAMES = ("standard", "abc")


def features(seed=0, Q=5, N=600, D=2):
    """An asymmetric population."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(rows, D, generator=generator).double().square() for rows in (Q, N)]


def only(diagnosis):
    (at,) = diagnosis.temperatures
    return at


def pushes(x, y, n, generated, tau=0.1, **options):
    return only(diagnose(queries=x, references=y, tau=tau, n=n, generated=generated, wanted=None, **options)).pushes


def literal_gamma(alpha, name):
    """γ = α, or α (1 − p_2 + α)."""
    return alpha if name == "standard" else [a * (1 - sum(b * b for b in alpha) + a) for a in alpha]


def enumerate_mean(log_w, y, name, n):
    """E[T_n] over all N^n draws, each with its softmax written out."""
    N, total = len(log_w), torch.zeros(y.shape[1], dtype=torch.float64)
    for draw in itertools.product(range(N), repeat=n):
        w = [math.exp(log_w[i]) for i in draw]
        gamma = literal_gamma([each / sum(w) for each in w], name)
        total += sum(g * y[i] for g, i in zip(gamma, draw, strict=True)) / N**n
    return total


def check_against_enumeration(found, log_w, y_of_query, n, m):
    for push, name in zip(found, NAMES, strict=True):
        V = [
            enumerate_mean(row.tolist(), y, name, n) - enumerate_mean(row.tolist(), y, name, m)
            for row, y in zip(log_w, y_of_query, strict=True)
        ]
        norms = torch.stack(V).norm(dim=-1)
        to_target = [row.softmax(-1) @ y - y.mean(0) for row, y in zip(log_w, y_of_query, strict=True)]
        outward = [float(v @ (u / u.norm())) for v, u in zip(V, to_target, strict=True)]
        assert push.estimator == name
        assert push.norm == pytest.approx(float(norms.mean()), rel=0, abs=1e-10)
        assert push.quantiles.p50 == pytest.approx(float(norms.median()), rel=0, abs=1e-10)
        assert push.outward == pytest.approx(sum(outward) / len(outward), rel=0, abs=1e-10)
        assert push.norm > 1e-4  # a push of 0 would also be within the tolerance


@pytest.mark.parametrize("tau", [0.1, 1.0])
@pytest.mark.parametrize(("n", "m"), [(5, 2), (2, 5), (4, 3)])
def test_enumeration_of_all_draws(n, m, tau):
    x, y = features(n, Q=3, N=4)
    check_against_enumeration(pushes(x, y, n, m + 1, tau), -torch.cdist(x, y) / tau, [y] * 3, n, m)


def test_enumeration_of_all_draws_of_distances():
    x, y = features(1, Q=3, N=4)
    d = torch.cdist(x, y)
    found = only(diagnose(distances=d, tau=0.3, n=5, generated=3, wanted=None)).pushes
    check_against_enumeration(found, -d / 0.3, list(d.unsqueeze(-1)), 5, 2)


@pytest.mark.parametrize("estimator", NAMES)
def test_the_field_of_the_library_has_this_mean_and_matched_references_none(estimator):
    """`drift` at all 4^5 batches of 3 positives and 2 negatives from the same four references."""
    x, y = features(2, Q=3, N=4)
    draws = torch.tensor(list(itertools.product(range(4), repeat=5)))
    options = {"tau": 0.2, "estimator_pos": estimator, "estimator_neg": estimator}
    batches = (x.expand(len(draws), -1, -1), y[draws[:, :3]], y[draws[:, 3:]])
    found = pushes(x, y, 3, 3, tau=0.2)[NAMES.index(estimator)]
    mean = drift(*batches, **options).V.mean(0)
    assert found.norm == pytest.approx(float(mean.norm(dim=-1).mean()), rel=0, abs=1e-10)
    matched = drift(*batches, **options, matched=True).V.mean(0)
    assert float(matched.abs().max()) < 1e-14
    assert found.norm > 1e-3


def test_large_pools_agree_with_the_exact_moments():
    x, y = features(3, N=3000)
    moments = exact_moments_by_estimator(x, y, tau=0.1, n=(64, 7))
    for push in pushes(x, y, 64, 8):
        n, m = moments[push.estimator].bias.unbind(1)
        assert push.norm == pytest.approx(float((n - m).norm(dim=-1).mean()), rel=1e-4)


def test_points_and_grid_agree():
    x, y = features(4, N=500)
    references = expected_weights.References.from_log_weights(-torch.cdist(x, y) / 0.05, y, per_query=False)
    at_points, on_grid = (f(("standard", "abc", "abc2"), (3, 64)) for f in (references.expectations, references.biases))
    assert at_points.shape == (5, 3, 2, 2)
    error = float((at_points - on_grid[:, 0]).norm(dim=-1).max() / references.spread.min())
    assert 1e-12 < error < 1e-6


def test_blocks_of_queries_change_nothing(monkeypatch):
    x, y = features(5, Q=7, N=60)
    whole = pushes(x, y, 8, 5)
    monkeypatch.setattr(expected_weights, "_ELEMENTS", 1)
    for one_by_one, push in zip(pushes(x, y, 8, 5), whole, strict=True):
        assert one_by_one.norm == pytest.approx(push.norm, rel=1e-12)


@pytest.mark.parametrize("source", ["features", "distances"])
def test_more_positives_than_negatives_push_outward(source):
    x, y = features(6, Q=12, N=800)
    given = {"queries": x, "references": y} if source == "features" else {"distances": torch.cdist(x, y)}

    def find(n, m):
        return only(diagnose(**given, tau=0.1, n=n, generated=m + 1, wanted=None)).pushes

    few_negatives, few_positives, equal = find(64, 7), find(7, 64), find(7, 7)
    for wide, narrow, none in zip(few_negatives, few_positives, equal, strict=True):
        assert wide.outward > 0.5 * wide.norm
        assert narrow.outward == pytest.approx(-wide.outward)
        assert narrow.norm == pytest.approx(wide.norm)
        assert (none.norm, none.outward, none.of_noise, none.matched_noise_ratio) == (0.0, 0.0, 0.0, 1.0)
        assert none.quantiles.p95 == 0.0
    # The correction leaves less of it
    assert few_negatives[1].norm < few_negatives[0].norm


@pytest.mark.parametrize(("n", "m"), [(126, 7), (7, 126)])
def test_noise_and_the_effect_of_disjoint_windows(n, m):
    """Exact variances: windows that do not overlap are independent, so Var W = (s/L) Var T_s with L = 126, s = 7.

    Over 60 seeds, the standard deviation of the simulated noise is at most 2.4 %, and that of the ratio is 0.0013.
    Tolerances are 5 standard deviations: false-alarm rate below 1e-5 per comparison.
    """
    x, y = features(3, N=400)
    moments = exact_moments_by_estimator(x, y, tau=0.1, n=(n, m))
    for push in pushes(x, y, n, m + 1):
        var_n, var_m = moments[push.estimator].variance.mean(0).tolist()
        var_s, var_L = (var_m, var_n) if n > m else (var_n, var_m)
        assert push.noise == pytest.approx(math.sqrt(var_n), rel=0.12)
        assert push.of_noise == pytest.approx(push.norm / push.noise)
        expected = math.sqrt((var_s * 7 / 126 + var_s) / (var_L + var_s))
        assert expected > 1.01
        assert push.matched_noise_ratio == pytest.approx(expected, abs=0.0065)


@pytest.mark.parametrize(("n", "windows"), [(3, [(0, 1), (1, 2), (2, 0)]), (5, [(a, (a + 1) % 5) for a in range(5)])])
def test_the_effect_of_overlapping_windows(n, windows):
    """Windows of 2 by enumeration of all draws. Over 30 seeds, the standard deviation of the ratio is at most 0.00275.

    The tolerance is 4.5 of these: false-alarm rate below 1e-5 per comparison.
    """
    x, y = features(7, Q=6, N=4)
    log_w = -torch.cdist(x, y) / 0.5
    draws = torch.tensor(list(itertools.product(range(4), repeat=n)))

    def variance(T):  # [Q, draws, D]
        return float((T - T.mean(1, keepdim=True)).square().sum(-1).mean(1).mean())

    def centroids(columns, name):
        alpha = log_w[:, draws[:, columns]].softmax(-1)
        gamma = alpha if name == "standard" else alpha * (1 - alpha.square().sum(-1, keepdim=True) + alpha)
        return (gamma.unsqueeze(-1) * y[draws[:, columns]]).sum(-2)

    for push in pushes(x, y, n, 3, tau=0.5):
        W = torch.stack([centroids(list(window), push.estimator) for window in windows]).mean(0)
        var_n, var_2 = (variance(centroids(list(range(k)), push.estimator)) for k in (n, 2))
        expected = math.sqrt((variance(W) + var_2) / (var_n + var_2))
        assert expected > 1.0125  # a ratio of 1 is not within the tolerance
        assert push.matched_noise_ratio == pytest.approx(expected, abs=0.0125)


def test_windows_that_take_too_long_are_left_out():
    x, y = features(8, N=100)
    found = diagnose(queries=x, references=y, tau=0.1, n=20_000, generated=402, wanted=None)
    assert [push.matched_noise_ratio for push in only(found).pushes] == [None, None]
    assert "noise of the field" not in found.push_advice
    (line,) = (line for line in screens.diagnosis_summary(found, "").splitlines() if "noise of V" in line)
    assert line.split(maxsplit=5)[5] == "not available"


def test_results_scale_with_the_unit_of_length():
    x, y = features(9, N=200)
    for small, large in zip(pushes(x, y, 16, 4), pushes(1000 * x, 1000 * y, 16, 4, tau=100), strict=True):
        assert (1000 * small.norm, 1000 * small.outward) == pytest.approx((large.norm, large.outward))
        assert (small.of_spread, small.of_noise) == pytest.approx((large.of_spread, large.of_noise))


def test_the_other_numbers_do_not_change():
    x, y = features(10, N=100)
    given = {"queries": x, "references": y, "tau": (0.1, 0.5), "n": 8}
    without, found = diagnose(**given), diagnose(**given, generated=4)
    assert (without.generated, without.window, without.push_advice) == (None, None, None)
    assert (found.generated, found.window) == (4, 3)
    assert all(len(at.pushes) == 2 for at in found.temperatures)
    temperatures = tuple(replace(at, pushes=()) for at in found.temperatures)
    assert replace(found, temperatures=temperatures, generated=None, window=None, push_advice=None) == without


@pytest.mark.parametrize("tau", [1e-30, 0.1, 1e30])
def test_json_has_every_field(tau):
    x, y = features(11, Q=2, N=50)
    found = diagnose(queries=x, references=y, tau=tau, n=4, generated=9)
    written = json.loads(found.to_json())
    assert written == json.loads(json.dumps(asdict(found)))
    keys = set(written["temperatures"][0]["pushes"][0])
    assert keys == {
        "estimator", "norm", "resolved", "quantiles", "outward", "noise", "of_spread", "of_noise", "matched_noise_ratio"
    }  # fmt: skip
    assert {"generated", "window", "push_advice"} < set(written)


def test_equal_references_have_no_push():
    found = diagnose(queries=torch.zeros(2, 3), references=torch.ones(20, 3), tau=0.5, n=4, generated=8)
    for push in only(found).pushes:
        assert push.norm == pytest.approx(0, abs=1e-12)
        assert (push.resolved, push.of_noise, push.matched_noise_ratio) == (False, 0.0, 1.0)


def test_advice_on_the_push():
    x, y = features(12, Q=12, N=800)

    def advice(n, generated, tau=(0.1, 0.5)):
        found = diagnose(queries=x, references=y, tau=tau, n=n, generated=generated, wanted=None)
        return found.push_advice, found

    text, found = advice(63, 8)
    at = max(found.temperatures, key=lambda at: at.pushes[0].of_noise)
    standard, abc = at.pushes
    assert text == (
        f"At q = p, 63 positives and 7 negatives push samples outward by {standard.of_noise:.0%} of the centroid's "
        f"noise (ABC {abc.of_noise:.1%}, τ = {at.tau:g}): pass matched=True, which makes it 0 with windows of 7 and "
        f"changes the noise of the field by {abc.matched_noise_ratio - 1:+.1%}, or use 7 positives, or 63 fresh "
        "negatives (fresh_neg)."
    )
    assert "push samples inward by" in advice(8, 64)[0]
    assert "with windows of 8" in advice(8, 64)[0]
    assert advice(7, 8)[0] == "7 positives and 7 negatives are equally many, so the push at q = p is exactly 0."
    small, found = advice(512, 512, tau=0.5)
    assert small.startswith("At q = p, 512 positives and 511 negatives push samples by 0.0")
    assert small.endswith(", τ = 0.5), which is small; matched=True makes it 0.")
    for each in (text, small):
        assert each.count(". ") == 0  # one sentence


X, D_ = torch.zeros(2, 3), torch.ones(2, 5)


@pytest.mark.parametrize("generated", [2, 0, -1, 2.5, True, "8", 1_000_001])
def test_generated_is_an_integer_from_3(generated):
    message = r"^generated is .*; must be an integer from 3 to 1000000, for 2 negatives or more; pass the number of "
    with pytest.raises(UserError, match=message):
        diagnose(distances=D_, tau=1.0, n=4, generated=generated)


def test_one_positive_is_too_few():
    with pytest.raises(UserError, match=r"^n is 1; must be at least 2 with generated; use more positives$"):
        diagnose(distances=D_, tau=1.0, n=1, generated=8)


def test_weights_do_not_determine_the_push():
    message = "^generated is 8 with weights, which do not determine the push of the field; needs distances, or queries"
    with pytest.raises(UserError, match=message):
        diagnose(weights=torch.full((2, 4), 0.25), generated=8)
