"""Figures and tables of the laboratory from records made by hand: what is drawn and said is what the record holds."""

from dataclasses import replace

import pytest

from truedrift.paper import fig_bias_loglog, normalization, tab_baselines
from truedrift.paper.fig_bias_loglog import BiasCurve, BiasCurves, Contraction, SampledPoints
from truedrift.paper.normalization import FieldBias, FieldBiases
from truedrift.paper.tab_baselines import Baseline, Baselines
from truedrift.records.provenance import provenance

HERE = provenance(seed=7, wall_seconds=1.0)


def curve(estimator, tau, order):
    exact = tuple(0.5 * n**-order for n in (4, 8, 16))
    points = SampledPoints(
        bias=exact,
        error=tuple(0.1 * b for b in exact),
        noise=(0.0, 0.0, 1.0),
        square=tuple(b * b for b in exact),
        square_error=tuple(0.1 * b * b for b in exact),
        exact_square=(exact[0] ** 2, 1.19 * exact[1] ** 2, 1.21 * exact[2] ** 2),
    )
    return BiasCurve(tau=tau, estimator=estimator, exact=exact, exact_error=(0.0,) * 3, points=points)


CURVES = BiasCurves(
    pool_points=10,
    queries=3,
    trials=50,
    n=(4, 8, 16),
    curves=tuple(
        curve(name, tau, order) for tau in (0.1, 0.2) for name, order in (("standard", 1), ("abc", 2), ("abc2", 3))
    ),
    contractions=tuple(
        Contraction(
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
    provenance=HERE,
)


def test_slopes_are_those_of_the_powers_and_shares_are_counted():
    assert [CURVES.slope(each) for each in CURVES.curves] == pytest.approx([-1, -2, -3] * 2)
    assert CURVES.within_two_errors == (True, True, False) * 6
    text = fig_bias_loglog.ITEM.summary(CURVES)
    assert "12 of 18 mean squares are within two standard errors" in text
    assert "−1.000" in text
    assert "−3.000" in text
    assert all(share in text for share in ("25%", "30%", "60%", "90%"))


def test_verdicts_tell_the_slopes_and_where_abc_is_the_more_biased():
    assert fig_bias_loglog.verdicts(CURVES)[1] == (
        "τ = 0.2: slopes of the exact bias −1.00 (standard), −2.00 (ABC), −3.00 (ABC-2); the bias of ABC is the "
        "smaller one at every n"
    )
    standard, abc, *rest = CURVES.curves
    worse = replace(CURVES, curves=(standard, replace(abc, exact=(0.2, 0.01, 0.04)), *rest))
    assert fig_bias_loglog.verdicts(worse)[0].endswith("; the bias of ABC is the larger one at n = 4, 16")


def test_lines_are_the_exact_values_and_hollow_points_those_below_their_noise():
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


def test_baselines_stand_beside_the_paper_s_values():
    row = Baseline(
        n=128, estimator="abc", references=128, bias=1.1e-3, noise=6.5e-4, corrected=9e-4, variance=2e-3,
        exact_bias=9.2e-4, exact_variance=None, microseconds=12.34,
    )  # fmt: skip
    others = (replace(row, estimator="abc2"), replace(row, n=4), replace(row, estimator="bootstrap", exact_bias=None))
    record = Baselines(
        pool_points=10, queries=2, trials=5, timed=3, tau=0.1, rows=(row, *others), provenance=HERE
    )  # fmt: skip
    lines = tab_baselines.table(record).markdown().splitlines()
    assert lines[4] == (
        "| 128 | ABC | 1.10e-03 | 6.50e-04 | 9.20e-04 | 1.03e-03 | 2.00e-03 | – | 2.10e-03 | 12.3 | 57.0 | 128 |"
    )
    assert "| 128 | ABC-2 | 1.10e-03 | 6.50e-04 | 9.20e-04 | – | 2.00e-03 | – | – | 12.3 | – | 128 |" in lines
    assert "1.03e-03" in tab_baselines.ITEM.summary(record)
    assert "bias" in tab_baselines.table(record).latex()
    assert tab_baselines.verdicts(record) == []
    standard = replace(row, estimator="standard", bias=2.2e-3, variance=1e-3, microseconds=6.17)
    assert tab_baselines.verdicts(replace(record, rows=(row, standard, replace(row, n=4), replace(standard, n=4)))) == [
        "n = 128: ABC as a multiple of standard: |bias| 0.50 (paper 0.28), variance 2.00 (paper 1.06), "
        "time 2.00 (paper 2.68)",
        "n = 4: ABC as a multiple of standard: |bias| 0.50, variance 2.00, time 2.00",
    ]


def test_what_the_paper_prints_is_complete():
    assert len(tab_baselines.PAPER) == 15
    assert {n for n, _ in tab_baselines.PAPER} == {8, 32, 128}
    for n in (8, 32, 128):  # its claims: standard is the fastest, BR-SNIS the least biased
        of_n = {name: tab_baselines.PAPER[n, name] for _, name in tab_baselines.PAPER}
        assert min(of_n, key=lambda name: of_n[name][2]) == "standard"
        assert min(of_n, key=lambda name: of_n[name][0]) == "br-snis"


def test_normalization_tells_what_was_resolved(tmp_path):
    def bias(kind, estimator, side):
        exact = (0.1, 0.05) if kind == "row" else None
        return FieldBias(
            normalization=kind,
            estimator=estimator,
            side=side,
            square=(0.01, -1e-4),
            square_error=(1e-3, 1e-4),
            exact=exact,
        )

    record = FieldBiases(
        pool_points=10,
        queries=2,
        trials=5,
        tau=0.2,
        n=(8, 16),
        biases=tuple(
            bias(kind, estimator, side)
            for kind in normalization.NORMALIZATION_NAMES
            for estimator in ("standard", "abc", "abc2")
            for side in ("T_pos", "T_neg", "V")
        ),
        provenance=HERE,
    )
    one = record.of("row", "abc", "V")
    assert one.root == (0.1, 0.0)
    assert one.resolved == (True, False)
    assert one.root_error == pytest.approx((5e-3, 2e-4**0.5))
    assert "| row | ABC | V | 1.00e-01 | – |" in normalization.table(record).markdown()
    assert "<1.4e-02" in normalization.ITEM.summary(record)
    assert all(path.exists() for path in normalization.ITEM.save(record, tmp_path))
    assert normalization.verdicts(record)[0] == "row: the noise hides the bias of V at n = 16"
    clear = tuple(replace(b, square=(0.01, 0.04 if b.estimator == "standard" else 0.0025)) for b in record.biases)
    assert normalization.verdicts(replace(record, biases=clear))[1] == (
        "bidirectional: ABC leaves 25.0% of the standard bias of V at n = 16"
    )
