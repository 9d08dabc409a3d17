"""The studies of the laboratory, made small: their records agree with the engines and with each other."""

import math

import pytest

from truedrift.grids.options import StudyOptions
from truedrift.paper import fig_bias_loglog, normalization, tab_baselines

SMOKE = StudyOptions(scale="smoke")


@pytest.fixture(scope="module")
def patch():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fig_bias_loglog, "POOL_POINTS", 3000)
        patch.setattr(fig_bias_loglog, "QUERIES", 20)
        patch.setattr(tab_baselines, "SMOKE_TRIALS", 1000)
        patch.setattr(normalization, "POOL_POINTS", 500)
        yield patch


@pytest.fixture(scope="module")
def curves(patch):
    return fig_bias_loglog.study(SMOKE)


@pytest.fixture(scope="module")
def table(patch):
    return tab_baselines.study(SMOKE)


def test_monte_carlo_agrees_with_the_exact_curves(curves):
    """48 correlated points (three estimators see the same draws): 38 within two errors but for one seed in 500."""
    assert len(curves.within_two_errors) == 48
    assert sum(curves.within_two_errors) >= 38
    for curve in curves.curves:
        assert curve.exact[0] == pytest.approx(curve.points.bias[0], rel=0.05)
        assert max(curve.exact_error) < 1e-6


def test_slopes_have_the_order_of_their_estimator(curves):
    for curve in curves.curves:
        assert curves.slope(curve) == pytest.approx({"standard": -1, "abc": -2, "abc2": -3}[curve.estimator], abs=0.25)


def test_at_two_tenths_every_bias_leads_to_the_global_mean_and_abc_is_always_the_smaller(curves):
    wide = next(each for each in curves.contractions if each.tau == 0.2)
    assert min(wide.toward_mean) == 1
    assert max(wide.abc_exceeds) == 0


def test_one_query_in_some_is_more_biased_with_abc_at_n_8(curves):
    """The paper's "never" is about the mean over queries."""
    narrow = next(each for each in curves.contractions if each.tau == 0.1)
    assert 0 < narrow.abc_exceeds[1] < 1
    by_name = {curve.estimator: curve for curve in curves.curves if curve.tau == 0.1}
    assert all(a < s for a, s in zip(by_name["abc"].exact, by_name["standard"].exact, strict=True))


def test_a_table_that_was_made_is_not_computed_again(tmp_path, patch):
    here = StudyOptions(scale="smoke", directory=tmp_path)
    first = tab_baselines.study(here)
    (kept,) = tmp_path.iterdir()
    before = kept.read_bytes()
    again = tab_baselines.study(here)
    assert kept.read_bytes() == before
    assert [row.bias for row in again.rows] == [row.bias for row in first.rows]
    tab_baselines.study(StudyOptions(scale="smoke", seed=1, directory=tmp_path))
    assert len(list(tmp_path.iterdir())) == 2


def test_the_naive_norm_holds_the_noise_in_quadrature(table):
    """Where the bias is twice the noise or more, the naive norm is √(exact² + noise²) within a fifth, at 10 queries."""
    for row in table.rows:
        assert row.microseconds > 0
        assert row.references == (10 * (row.n - 1) + 1 if row.estimator == "br-snis" else row.n)
        if row.exact_bias is None:
            assert row.estimator == "bootstrap"
            continue
        if row.exact_bias > 2 * row.noise:
            assert row.bias == pytest.approx(math.hypot(row.exact_bias, row.noise), rel=0.2), (row.n, row.estimator)
        assert (row.exact_variance is None) == (row.estimator in ("jackknife", "br-snis"))
        if row.exact_variance is not None:
            assert row.variance == pytest.approx(row.exact_variance, rel=0.1)


def test_br_snis_is_the_least_biased_at_ten_times_the_references(table):
    for n in (8, 32):
        of_n = {row.estimator: row for row in table.rows if row.n == n}
        assert min(of_n.values(), key=lambda row: row.bias).estimator == "br-snis"


def test_the_row_normalization_has_its_exact_bias(patch):
    """18 mean squares within four standard errors: exceeded by one seed in 800."""
    record = normalization.study(SMOKE)
    for each in record.biases:
        assert (each.exact is None) == (each.normalization != "row")
        if each.exact is not None:
            for square, error, exact in zip(each.square, each.square_error, each.exact, strict=True):
                assert abs(square - exact**2) < 4 * error
