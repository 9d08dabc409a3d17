"""`diagnose` against literal loops and the exact engine, its properties, and its results where they are known."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
import torch

from truedrift.bias import (
    RequiredN,
    diagnose,
    exact_moments,
    exact_moments_by_estimator,
    expected_weights,
    smallest_n,
    uncertainty,
)
from truedrift.errors import UserError
from truedrift.kernels import KERNELS
from truedrift.report import screens

NAMES = ("standard", "abc", "abc2")


def features(seed=0, Q=5, N=600, D=2):
    """An asymmetric population."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(rows, D, generator=generator).double().square() for rows in (Q, N)]


def only(diagnosis):
    (at,) = diagnosis.temperatures
    return at


def as_json(diagnosis):
    """Read what `to_json` writes, with tuples for the lists of JSON; `to_json` rejects NaN and infinities."""
    written = json.loads(diagnosis.to_json())
    for at in written["temperatures"]:
        at["biases"], at["pushes"] = tuple(at["biases"]), tuple(at["pushes"])
    return written | {"temperatures": tuple(written["temperatures"])}


def norms(diagnosis):
    return [bias.norm for bias in only(diagnosis).biases]


def test_weights_match_a_literal_loop():
    alpha = torch.rand(5, 4, 9, generator=torch.Generator().manual_seed(1)).double().pow(6)
    alpha = alpha / alpha.sum(-1, keepdim=True)
    rows = alpha.reshape(20, 9).tolist()
    n_eff = [1 / sum(a * a for a in row) for row in rows]
    weights = only(diagnose(weights=alpha)).weights
    assert (weights.rows, weights.n) == (20, 9)
    shares = (0.05, 0.25, 0.5, 0.75, 0.95)
    for found, values in (
        (weights.n_eff, n_eff),
        (weights.dominance, [max(row) for row in rows]),
        (weights.sum_of_squares, [1 / value for value in n_eff]),
    ):
        expected = np.quantile(values, shares)
        assert [found.p05, found.p25, found.p50, found.p75, found.p95] == pytest.approx(expected)
    assert weights.dominated == pytest.approx(sum(max(row) > 0.5 for row in rows) / 20)
    assert 0 < weights.dominated < 1


def test_one_row_of_weights():
    assert only(diagnose(weights=torch.tensor([0.25, 0.75]))).weights.n_eff.p50 == pytest.approx(1.6)


def test_features_match_the_exact_moments():
    x, y = features()
    at = only(diagnose(queries=x, references=y, tau=0.1, n=16, wanted=None))
    moments = exact_moments_by_estimator(x, y, tau=0.1, n=16)
    spread = float((y - moments["abc"].T_star.unsqueeze(1)).square().sum(-1).mean(-1).sqrt().mean())
    assert at.spread == pytest.approx(spread)
    for bias in at.biases:
        each = moments[bias.estimator].bias[:, 0].norm(dim=-1)
        assert bias.norm == pytest.approx(float(each.mean()), rel=1e-5)
        assert bias.quantiles.p50 == pytest.approx(float(each.median()), rel=1e-5)
        assert bias.of_spread == pytest.approx(bias.norm / at.spread)
        assert bias.low < bias.norm < bias.high
        assert (bias.needed_n, bias.needed_is_extrapolated) == (None, False)
    # 256 minibatches, shared by the queries: the variance is known to about √(2/256) = 9 %, its root to half of that.
    assert at.noise == pytest.approx(math.sqrt(float(moments["standard"].variance.mean())), rel=0.25)


@pytest.mark.parametrize("kernel", ["laplace", "gaussian"])
def test_distances_are_a_centroid_of_one_dimension(kernel):
    x, y = features(1, N=300)
    d = torch.cdist(x, y)
    found = norms(diagnose(distances=d, tau=0.5, n=8, wanted=None, kernel=kernel))
    zero = torch.zeros(1, 1).double()
    for k, name in enumerate(NAMES):
        rows = [exact_moments(zero, row[:, None], tau=0.5, n=8, estimator=name, kernel=kernel).bias for row in d]
        assert found[k] == pytest.approx(float(torch.stack(rows).abs().mean()), rel=1e-4, abs=1e-6 * float(d.std()))


def test_a_kernel_given_as_a_function():
    x, y = features(2, N=100)

    def squared(a, b, tau):
        return -torch.cdist(a, b).square() / (2 * tau * tau)

    found = norms(diagnose(queries=x, references=y, tau=0.5, n=8, wanted=None, kernel=squared))
    assert found == pytest.approx(
        norms(diagnose(queries=x, references=y, tau=0.5, n=8, wanted=None, kernel="gaussian"))
    )


def test_invariance_to_permutation_translation_and_rotation():
    x, y = features(3, N=200)
    options = {"tau": 0.1, "n": 8, "wanted": None}
    expected = norms(diagnose(queries=x, references=y, **options))
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    rotation = torch.linalg.qr(torch.randn(2, 2, generator=torch.Generator().manual_seed(1)).double()).Q
    for a, b in ((x, y[order]), (x + 7, y + 7), (x @ rotation, y @ rotation)):
        assert norms(diagnose(queries=a, references=b, **options)) == pytest.approx(expected, rel=1e-6)


def test_results_scale_with_the_unit_of_length():
    x, y = features(4, N=200)
    small = only(diagnose(queries=x, references=y, tau=0.1, n=8))
    large = only(diagnose(queries=1000 * x, references=1000 * y, tau=100, n=8))
    for a, b in zip(small.biases, large.biases, strict=True):
        assert (1000 * a.norm, 1000 * a.low, 1000 * a.high) == pytest.approx((b.norm, b.low, b.high))
        assert (a.of_spread, a.of_noise, a.needed_n) == pytest.approx((b.of_spread, b.of_noise, b.needed_n))
    assert small.weights == large.weights or small.weights.dominated == large.weights.dominated
    assert small.confidence.level == large.confidence.level


def test_float32_and_several_temperatures():
    x, y = (each.float() for each in features(5, N=100))
    both = diagnose(queries=x, references=y, tau=(0.2, 2.0), n=8)
    assert [at.tau for at in both.temperatures] == [0.2, 2.0]
    assert both.temperatures[0].weights.n_eff.p50 < both.temperatures[1].weights.n_eff.p50


def test_the_needed_n_is_where_the_bias_crosses_the_wanted_one():
    x, y = features(6, N=600)
    wanted = 0.01
    at = only(diagnose(queries=x, references=y, tau=0.1, n=16, wanted=wanted))
    for bias in at.biases:
        n = bias.needed_n
        assert not bias.needed_is_extrapolated
        moments = exact_moments(x, y, tau=0.1, n=(n, round(0.9 * n)), estimator=bias.estimator)
        here, before = (moments.bias.norm(dim=-1).mean(0) / at.spread).tolist()
        assert here <= wanted < before
    standard, abc, abc2 = (bias.needed_n for bias in at.biases)
    assert abc2 < abc < standard


def test_the_needed_n_beyond_the_references_is_marked_as_extrapolated():
    x, y = features(7, N=100)
    at = only(diagnose(queries=x, references=y, tau=0.1, n=16, wanted=1e-3))
    standard = at.biases[0]
    assert standard.needed_is_extrapolated
    assert standard.needed_n > 100
    n = exact_moments(x, y, tau=0.1, n=standard.needed_n, estimator="standard")
    assert float(n.bias.norm(dim=-1).mean()) / at.spread == pytest.approx(1e-3, rel=0.2)
    far = only(diagnose(queries=x, references=y, tau=0.1, n=16, wanted=1e-12)).biases[0]
    assert (far.needed_n, far.needed_is_extrapolated) == (None, True)


def test_the_last_crossing_counts():
    rising_first = {1: 0.1, 2: 0.3, 4: 0.5, 8: 0.3, 16: 0.1, 32: 0.05}
    asked = []

    def more(n):
        asked.extend(n)
        return [2.4 / size for size in n]

    found = smallest_n(list(rising_first), list(rising_first.values()), 0.2, 1, more)
    assert found == RequiredN(12, False)  # 2.4/12 = 0.2
    assert all(8 < n < 16 for n in asked)
    assert smallest_n([1, 8], [0.1, 0.01], 0.2, 1, more) == RequiredN(1, False)


def test_temperatures_that_are_too_cold_or_too_warm():
    x, y = features(8, N=300)
    cold, alive, warm = diagnose(queries=x, references=y, tau=(1e-3, 0.1, 1e4), n=8, wanted=None).temperatures
    assert (cold.dead, alive.dead, warm.dead) == ("too cold", None, "too warm")
    assert cold.weights.n_eff.p50 == pytest.approx(1)
    assert warm.weights.n_eff.p50 == pytest.approx(8)
    assert warm.pull < 0.01 < alive.pull
    assert only(diagnose(weights=torch.eye(4))).dead == "too cold"


def test_the_confidence_of_each_case():
    x, y = features(9, Q=8, N=4000)
    cold, warm = diagnose(queries=x, references=y, tau=(0.01, 0.5), n=16, wanted=None).temperatures
    assert (cold.confidence.level, warm.confidence.level) == ("medium", "high")
    assert "the expansion in 1/n is wrong" in cold.confidence.reason
    few = only(diagnose(queries=x, references=y[:9], tau=0.1, n=8, wanted=None))
    assert few.confidence.level == "low"
    assert few.confidence.reason.startswith("too few references")


@pytest.mark.parametrize("tau", [1e-30, 1e-9, 1e30])
def test_extreme_temperatures_give_finite_numbers(tau):
    x, y = features(10, Q=2, N=50)
    found = diagnose(queries=x, references=y, tau=tau, n=4)
    assert as_json(found) == asdict(found)


def test_equal_references_have_no_bias():
    x, y = torch.zeros(2, 3), torch.ones(20, 3)
    found = diagnose(queries=x, references=y, tau=0.5, n=4)
    assert as_json(found) == asdict(found)
    assert norms(found) == pytest.approx([0, 0, 0], abs=1e-12)
    confidence = only(found).confidence
    assert confidence.level == "low"  # one reference, twenty times
    assert confidence.reason.startswith("too few distinct references: 1")
    assert not any(bias.resolved for bias in only(found).biases)


def test_copies_of_a_reference_are_in_the_same_group():
    _, y = features(12, N=20)
    once, copied = (uncertainty.distinct_index(each) for each in (y, y.repeat(100, 1)))
    assert torch.equal(once, torch.arange(20))
    assert torch.equal(copied, once.repeat(100))
    labels, of_copies = (
        uncertainty.jackknife_groups(each, torch.Generator().manual_seed(0)) for each in (once, copied)
    )
    assert torch.equal(labels, uncertainty.random_groups(20, torch.Generator().manual_seed(0)))
    assert torch.equal(of_copies, labels.repeat(100))
    assert uncertainty.distinct_index(torch.tensor([[0.0, 1.0], [1.0, 0.0], [-0.0, 1.0]])).tolist() == [0, 1, 0]
    d = torch.tensor([[1.0, 5.0, 1.0 + 1e-9, 5.0], [2.0, 2.0, 2.0, 3.0]]).double()
    assert uncertainty.merge_close_values(d, 1e-8).tolist() == [[0, 1, 0, 1], [0, 0, 0, 1]]
    assert uncertainty.distinct_index(uncertainty.merge_close_values(d, 1e-8).mT).tolist() == [0, 1, 0, 2]


def test_copies_have_the_interval_of_the_distinct_references():
    x, y = features(12, N=20)
    found = []
    for references in (y, y.repeat(100, 1)):
        at = expected_weights.References.from_log_weights(
            -torch.cdist(x, references) / 0.1, references, per_query=False
        )
        labels = uncertainty.jackknife_groups(uncertainty.distinct_index(references), torch.Generator().manual_seed(0))
        estimates, _ = uncertainty.jackknife_estimates(at, 64, labels)
        found.append([bound for each in estimates for bound in each.interval(len(x), 0.0)])
    assert found[1] == pytest.approx(found[0], rel=0.02)


@pytest.mark.parametrize("source", ["features", "distances"])
def test_copies_are_rated_like_the_distinct_references(source):
    x, y = (each.float() for each in features(12, N=20))
    for times in (1, 100):
        many = y.repeat(times, 1)
        given = {"distances": torch.cdist(x, many)} if source == "distances" else {"queries": x, "references": many}
        found = diagnose(**given, tau=0.1, n=64, wanted=1e-6)
        assert (found.references, found.references_distinct) == (20 * times, 20)
        assert only(found).confidence.level == "low"
        assert only(found).references_eff.p95 <= 20
        assert only(found).biases[0].high > 1.5 * only(found).biases[0].norm
        assert only(found).biases[0].needed_is_extrapolated  # beyond 20


def test_fewer_distinct_references_than_groups_are_too_few():
    x, y = features(13, N=7)
    for references in (y, y.repeat(30, 1)):
        confidence = only(diagnose(queries=x, references=references, tau=10.0, n=8, wanted=None)).confidence
        assert (confidence.level, confidence.noise) == ("low", None)
        assert confidence.reason.startswith("too few distinct references: 7")


def test_a_bias_that_is_not_resolved_is_reported_as_below_the_floor():
    x, y = features(14, Q=4, N=2000)
    found = diagnose(queries=x, references=y, tau=1.0, n=100_000, wanted=1e-12)
    at = only(found)
    standard, *others = at.biases
    assert standard.resolved
    assert standard.low > 0
    for bias in others:
        assert (bias.resolved, bias.low, bias.high) == (False, 0.0, pytest.approx(expected_weights.FLOOR * at.spread))
        assert (bias.needed_n > 2000, bias.needed_is_extrapolated) == (True, True)
    assert (at.confidence.level, at.confidence.noise, at.confidence.agreement) == ("high", None, None)
    assert at.confidence.reason == "negligible: the bias of ABC is less than 1e-09 of the spread"
    (line,) = (line for line in screens.diagnosis_summary(found, "").splitlines() if line.startswith("bias ABC-2"))
    assert line.split(maxsplit=2)[2] == f"< {expected_weights.FLOOR * at.spread:.2g}"
    assert as_json(found) == asdict(found)


def test_few_references_that_every_minibatch_holds_are_red():
    x, y = features(15, Q=4, N=12)
    at = only(diagnose(queries=x, references=y, tau=0.01, n=200_000, wanted=None))
    assert not at.biases[1].resolved
    assert at.confidence.level == "low"
    assert at.confidence.reason.startswith("too few references: effectively 1 per query")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("n", [3, 100, 3000])
def test_the_tolerance_of_sums_depends_on_the_dtype(dtype, n):
    exact = (4 * torch.rand(50, n, generator=torch.Generator().manual_seed(n))).softmax(-1)
    weights = only(diagnose(weights=exact.to(dtype))).weights
    assert weights.n_eff.p50 == pytest.approx(only(diagnose(weights=exact)).weights.n_eff.p50, rel=0.02)
    for wrong in (1.05 * exact.to(dtype), 1.005 * exact):
        with pytest.raises(ValueError, match="rows of weights have a negative entry or do not sum to 1"):
            diagnose(weights=wrong)


def test_equal_weights_of_float16():
    alpha = torch.full((2, 100_000), 1e-5).half()  # each is rounded up, to a sum of 1.0014
    assert only(diagnose(weights=alpha)).weights.n_eff.p50 == pytest.approx(100_000)


def test_large_inputs_are_sampled():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(1000, 2, generator=generator), torch.rand(300, 2, generator=generator)
    found = diagnose(queries=x, references=y, tau=1.0, n=8, wanted=None)
    assert (found.queries, found.queries_used, found.references_used) == (1000, 48, 300)
    again = diagnose(queries=x, references=y, tau=1.0, n=8, wanted=None)
    assert found == again
    other = diagnose(queries=x, references=y, tau=1.0, n=8, wanted=None, seed=1)
    assert norms(other) != norms(found)
    low, high = only(other).biases[0].low, only(other).biases[0].high
    assert low < norms(found)[0] < high


@pytest.mark.parametrize("source", ["weights", "distances", "features"])
def test_json_has_every_field(source):
    x, y = features(11, N=60)
    d = torch.cdist(x, y)
    given = {
        "weights": {"weights": (-d).softmax(-1)},
        "distances": {"distances": d, "tau": 0.5, "n": 4},
        "features": {"queries": x, "references": y, "tau": (0.5, 1.0), "n": 4},
    }[source]
    found = diagnose(**given)
    assert found.source == source
    assert as_json(found) == asdict(found)


X, Y = torch.zeros(2, 3), torch.ones(5, 3)
D_ = torch.ones(2, 5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "the input has no arrays; must have weights, or distances, or queries and references; "),
        ({"queries": X}, "the input has queries; must have weights, or distances, or queries and references; "),
        ({"references": Y}, "the input has references; must have weights"),
        ({"weights": D_, "distances": D_}, "the input has distances, weights; must have"),
        (
            {"weights": D_},
            r"2 of 2 rows of weights have a negative entry or do not .* softmax first: .*, or divide",
        ),
        ({"weights": torch.tensor([[1.5, -0.5], [0.5, 0.5]])}, "1 of 2 rows of weights"),
        ({"weights": -torch.cdist(X, Y)}, r"2 of 2 rows .*; apply a softmax first: weights = logits.softmax\(-1\)$"),
        ({"weights": torch.tensor([math.nan, 1.0])}, "weights has 1 entries that are NaN"),
        ({"weights": torch.ones(2, 0)}, "weights has shape"),
        ({"distances": D_, "n": 4}, "tau is missing; must be 1 to 16 temperatures; "),
        ({"distances": D_, "tau": 1.0}, "n is missing; must be an integer from 1 to 1000000; "),
        ({"distances": D_, "tau": (), "n": 4}, "tau has 0 temperatures"),
        ({"distances": D_, "tau": -1.0, "n": 4}, "tau is -1.0; must be a positive finite number"),
        ({"distances": D_, "tau": 1.0, "n": 0}, "n is 0; must be an integer"),
        ({"distances": D_, "tau": 1.0, "n": 4.5}, "n is 4.5; must be an integer"),
        ({"distances": D_, "tau": 1.0, "n": 4, "wanted": 0.0}, "wanted is 0.0; must be a positive fraction"),
        ({"distances": D_, "tau": 1.0, "n": 4, "kernel": "cauchy"}, "kernel is 'cauchy'; must be one of 'laplace'"),
        ({"distances": D_, "tau": 1.0, "n": 4, "kernel": max}, "kernel needs features; "),
        ({"distances": D_, "tau": 1.0, "n": 4, "seed": -1}, "seed is -1; must be an integer from 0"),
        ({"distances": -D_, "tau": 1.0, "n": 4}, "distances has an entry of -1.0; all entries must be ≥ 0"),
        ({"distances": D_[:, :1], "tau": 1.0, "n": 4}, r"distances has shape \[2, 1\]; .* 2 references or more; "),
        ({"distances": D_[None], "tau": 1.0, "n": 4}, r"distances has shape \[1, 2, 5\]; must have two dimensions"),
        ({"queries": X, "references": Y[:, :2], "tau": 1.0, "n": 4}, "queries has D = 3 and references has D = 2"),
        ({"queries": X[0], "references": Y, "tau": 1.0, "n": 4}, "queries has shape"),
        ({"queries": X, "references": Y * math.inf, "tau": 1.0, "n": 4}, "references has 15 entries that are NaN"),
        ({"queries": X, "references": Y.double() * 1e200, "tau": 1.0, "n": 4}, r"entry of 1e\+200; .*; rescale it"),
        ({"queries": X.long(), "references": Y, "tau": 1.0, "n": 4}, "queries has dtype torch.int64"),
    ],
)
def test_bad_arguments_are_one_line_of_three_parts(given, message):
    with pytest.raises(ValueError, match=f"^{message}|{message}") as caught:
        diagnose(**given)
    assert str(caught.value).count("; ") >= 2
    assert "\n" not in str(caught.value)


def test_registered_kernel_is_used_by_name(monkeypatch):
    def cauchy(x, y, tau):
        return -torch.log1p((torch.cdist(x, y) / tau).square())

    monkeypatch.setitem(KERNELS, "cauchy", cauchy)
    generator = torch.Generator().manual_seed(0)
    given = {"queries": torch.randn(4, 2, generator=generator), "references": torch.randn(40, 2, generator=generator)}
    by_name = diagnose(**given, tau=0.5, n=8, kernel="cauchy")
    assert as_json(by_name) | {"kernel": 0} == as_json(diagnose(**given, tau=0.5, n=8, kernel=cauchy)) | {"kernel": 0}
    with pytest.raises(UserError, match="kernel needs features; must be 'laplace' or 'gaussian' for distances; "):
        diagnose(distances=torch.cdist(*given.values()), tau=0.5, n=8, kernel="cauchy")
