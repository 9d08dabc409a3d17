"""`fig:bias_loglog`: a small study agrees with the exact engine, and the item shows the numbers of the record."""

from dataclasses import replace

import pytest

from truedrift.grids import StudyOptions
from truedrift.paper import fig_bias_loglog
from truedrift.records import provenance


@pytest.fixture(scope="module")
def curves():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fig_bias_loglog, "POOL_POINTS", 3000)
        patch.setattr(fig_bias_loglog, "QUERIES", 20)
        return fig_bias_loglog.study(StudyOptions(scale="smoke"))


def test_monte_carlo_agrees_with_the_exact_curves(curves):
    """Of 48 correlated points (three estimators see the same draws), 38 are within two errors for 499 of 500 seeds."""
    assert len(curves.within_two_errors) == 48
    assert sum(curves.within_two_errors) >= 38
    for curve in curves.curves:
        assert curve.exact[0] == pytest.approx(curve.points.bias[0], rel=0.05)
        assert max(curve.exact_error) < 1e-6


def test_slopes_have_the_order_of_their_estimator(curves):
    for curve in curves.curves:
        assert curves.slope(curve) == pytest.approx({"standard": -1, "abc": -2, "abc2": -3}[curve.estimator], abs=0.25)


def test_at_tau_02_every_bias_points_to_the_global_mean_and_abc_is_smaller(curves):
    wide = next(each for each in curves.contractions if each.tau == 0.2)
    assert min(wide.toward_mean) == 1
    assert max(wide.abc_exceeds) == 0


def test_some_queries_are_more_biased_with_abc_at_n_8(curves):
    """The paper's claim that ABC is never more biased holds for the mean over queries."""
    narrow = next(each for each in curves.contractions if each.tau == 0.1)
    assert 0 < narrow.abc_exceeds[1] < 1
    by_name = {curve.estimator: curve for curve in curves.curves if curve.tau == 0.1}
    assert all(a < s for a, s in zip(by_name["abc"].exact, by_name["standard"].exact, strict=True))


def curve(estimator, tau, order):
    exact = tuple(0.5 * n**-order for n in (4, 8, 16))
    points = fig_bias_loglog.SampledPoints(
        bias=exact,
        error=tuple(0.1 * b for b in exact),
        noise=(0.0, 0.0, 1.0),
        square=tuple(b * b for b in exact),
        square_error=tuple(0.1 * b * b for b in exact),
        exact_square=(exact[0] ** 2, 1.19 * exact[1] ** 2, 1.21 * exact[2] ** 2),
    )
    return fig_bias_loglog.BiasCurve(tau=tau, estimator=estimator, exact=exact, exact_error=(0.0,) * 3, points=points)


CURVES = fig_bias_loglog.BiasCurves(
    pool_points=10,
    queries=3,
    trials=50,
    n=(4, 8, 16),
    curves=tuple(
        curve(name, tau, order) for tau in (0.1, 0.2) for name, order in (("standard", 1), ("abc", 2), ("abc2", 3))
    ),
    contractions=tuple(
        fig_bias_loglog.Contraction(
            tau=tau,
            away_from_query=(0.1, 0.2, 0.3),
            away_from_mode=(0.4, 0.5, 0.6),
            toward_mean=(0.7, 0.8, 0.9),
            abc_exceeds=(0.0, 0.25, 0.01),
        )
        for tau in (0.1, 0.2)
    ),
    exact_seconds=1.0,
    sampled_seconds=2.0,
    provenance=provenance(seed=7, wall_seconds=1.0),
)


def test_summary_shows_slopes_and_shares():
    assert [CURVES.slope(each) for each in CURVES.curves] == pytest.approx([-1, -2, -3] * 2)
    assert CURVES.within_two_errors == (True, True, False) * 6
    text = fig_bias_loglog.ITEM.summary(CURVES)
    assert "12 of 18 mean squared biases are within two standard errors" in text
    assert "−1.000" in text
    assert "−3.000" in text
    assert all(share in text for share in ("25%", "30%", "60%", "90%"))


def test_findings_state_slopes_and_where_abc_is_more_biased():
    assert fig_bias_loglog.findings(CURVES)[1] == (
        "τ = 0.2: slopes of the exact bias −1.00 (standard), −2.00 (ABC), −3.00 (ABC-2); the bias of ABC is "
        "smaller than that of standard at every n"
    )
    standard, abc, *rest = CURVES.curves
    worse = replace(CURVES, curves=(standard, replace(abc, exact=(0.2, 0.01, 0.04)), *rest))
    assert fig_bias_loglog.findings(worse)[0].endswith("; the bias of ABC is larger than that of standard at n = 4, 16")


def test_lines_are_exact_and_points_below_their_noise_are_hollow():
    figure = fig_bias_loglog.draw(CURVES)
    for axes, tau in zip(figure.axes, CURVES.temperatures, strict=True):
        lines = [line for line in axes.get_lines() if len(line.get_xdata()) == 3 and line.get_linestyle() == "-"]
        expected = [each.exact for each in CURVES.curves if each.tau == tau]
        assert [tuple(line.get_ydata()) for line in lines] == expected
        hollow = [line for line in axes.get_lines() if line.get_markerfacecolor() == "white"]
        assert [tuple(line.get_xdata()) for line in hollow] == [(16,)] * 3


def test_curves_without_trials_can_be_drawn(tmp_path):
    bare = replace(CURVES, trials=0, curves=tuple(replace(each, points=None) for each in CURVES.curves))
    assert all(path.exists() for path in fig_bias_loglog.ITEM.save(bare, tmp_path))
    assert "trials" not in fig_bias_loglog.ITEM.summary(bare)
