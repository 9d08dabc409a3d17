"""Charts: points, gaps, marks, limits and ticks of axes, colors, and texts that do not overlap."""

import math
import re
from itertools import combinations
from xml.etree.ElementTree import fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from oracles.handmade_run import METRICS, evaluation, telemetry, write_run

from truedrift.page import (
    Chart,
    Series,
    energy_charts,
    evaluation_charts,
    figure_svgs,
    gauge_charts,
    plot_charts,
    read_run,
    read_runs,
    training_charts,
)
from truedrift.page import charts as charts_module
from truedrift.report import figure as style

SVG = "{http://www.w3.org/2000/svg}"
VALUES = st.floats(min_value=-1e100, max_value=1e100, allow_subnormal=False).map(lambda value: round(value, 6))


@pytest.fixture
def run(tmp_path):
    return read_run(write_run(tmp_path / "mine"), "mine")


@pytest.fixture
def pair(tmp_path):
    """Two runs that end at 13.25 and 15 and differ in their estimators and seeds."""
    other = (*METRICS, evaluation(300, 15.0, kid=-0.5, kid_deviation=None, inception_score=9.5))
    write_run(tmp_path / "mine")
    write_run(tmp_path / "other", estimator="standard", seed=1, metrics=other)
    return read_runs([tmp_path / "mine", tmp_path / "other"])


def curve_charts(runs):
    return [*energy_charts(runs), *evaluation_charts(runs), *training_charts(runs)]


def by_title(charts):
    return {chart.title: chart for chart in charts}


def panels(figure):
    return {axes.get_title(): axes for axes in figure.axes}


def plot_metrics(path, metrics):
    """The panels of the curves of one run with these metrics."""
    runs = [read_run(write_run(path, metrics=metrics), "mine")]
    return panels(plot_charts(runs, curve_charts(runs)))


# Data


def test_curves_are_drawn_over_positives_seen(run):
    charts = by_title(evaluation_charts([run]))
    assert charts["FID, smaller is better"].series[0].points == [(800, 40.0), (1600, 12.5), (2400, 13.25)]
    assert "Inception Score, larger is better" not in charts  # it has no values
    trained = by_title(training_charts([run]))
    assert trained["Gradient norm"].series[0].points == [
        (400, 2.0),
        (800, 1.0),
        (1600, 0.5),
        (2400, pytest.approx(1 / 3)),
    ]
    assert trained["Force at τ = 0.05"].series[0].points[0] == (400, pytest.approx(0.3))  # mean of 0.2 and 0.4
    assert trained["Generated images per second"].series[0].points[-1] == (2400, 4321.0)


def test_energy_is_the_mean_over_scales_and_its_noise_is_two_standard_errors(pair):
    (chart,) = energy_charts(pair)
    assert [series.name for series in chart.series] == ["mine", "other"]
    points = [(400, 0.4), (800, 0.2), (1600, 0.1), (2400, 20 / 300)]
    assert chart.series[0].points == [(seen, pytest.approx(energy)) for seen, energy in points]
    assert chart.level == pytest.approx(0.04)
    (axes,) = plot_charts(pair, [chart]).axes
    assert list(axes.lines[0].get_ydata()) == [chart.level] * 2
    assert axes.lines[0].get_linestyle() == ":"


def test_energy_of_an_older_run_has_no_chart_and_a_missing_scale_is_a_gap(tmp_path, run):
    lines = [{name: value for name, value in each.items() if not name.startswith("energy")} for each in METRICS]
    assert energy_charts([read_run(write_run(tmp_path / "older", metrics=lines), "older")]) == []
    assert charts_module.mean_over_scales("energy", run, {"energy": [0.5, None]}) is None
    assert charts_module.mean_over_scales("energy", run, {"energy": []}) is None
    assert charts_module.mean_over_scales("energy", run, {"energy": [0.5, -0.25]}) == 0.125
    once = telemetry(50, energy=[0.5, 0.25], energy_error=[None, None])  # one step since the last log
    (chart,) = energy_charts([read_run(write_run(tmp_path / "once", metrics=[once]), "once")])
    assert chart.level is None


def test_both_sides_of_every_temperature_are_in_the_gauge(run):
    charts = by_title(gauge_charts([run]))
    assert len(charts) == 9
    positive, negative = charts["Weight moved, τ = 0.2"].series
    assert (positive.points[0], negative.points[0]) == ((400, 0.01), (400, 0.02))
    assert (positive.negative, negative.negative) == (False, True)
    assert charts["Effective references, τ = 0.02"].level == 8


def test_a_force_with_a_missing_scale_is_a_gap(run):
    first, second = run.config.objective.temperatures[:2]
    assert charts_module.mean_force(first, run, {"force": [[1.0], [None]]}) is None
    assert charts_module.mean_force(first, run, {"force": [[1.0], [2.0]]}) == 1.5
    assert charts_module.mean_force(second, run, {"force": [[1.0]]}) is None
    assert charts_module.mean_force(first, run, {"force": 3}) is None


def test_estimators_have_the_colors_of_the_paper_and_other_runs_a_free_color(tmp_path):
    names = ("abc", "standard", "abc", "abc", "standard", "abc")
    runs = [read_run(write_run(tmp_path / str(k), estimator=name), str(k)) for k, name in enumerate(names)]
    colors = [color for color, _ in charts_module.line_styles(runs)]
    assert colors[:2] == [style.ABC, style.STANDARD]
    assert len(set(colors)) == 6


def test_long_series_are_thinned_and_keep_both_ends():
    points = [(float(k), float(k)) for k in range(10 * charts_module.MOST_POINTS + 3)]
    thinned = charts_module.thin_points(points)
    assert len(thinned) <= charts_module.MOST_POINTS + 1
    assert (thinned[0], thinned[-1]) == (points[0], points[-1])
    assert thinned == sorted(thinned)
    assert charts_module.thin_points(points[: charts_module.MOST_POINTS]) == points[: charts_module.MOST_POINTS]


# Axes


@given(st.lists(VALUES, min_size=1, max_size=6), st.booleans())
def test_every_value_is_inside_the_limits(values, from_zero):
    low, high, is_log = charts_module.axis_limits(values, from_zero=from_zero)
    assert low < high
    assert all(low <= value <= high for value in values)
    assert not is_log or low > 0
    assert not from_zero or low <= 0 <= high


@pytest.mark.parametrize(
    ("values", "from_zero", "limits"),
    [
        ([1.0, 21.0], False, (1 / 1.2, 21 * 1.2, True)),
        ([1.0, 21.0], True, (0.0, 22.05, False)),
        ([0.0, 30.0], False, (-1.5, 31.5, False)),
        ([10.0, 20.0], False, (9.5, 20.5, False)),
        ([4.0], False, (2.0, 6.0, False)),
        ([0.0], True, (0.0, 1.0, False)),
    ],
)
def test_limits_of_simple_axes(values, from_zero, limits):
    assert charts_module.axis_limits(values, from_zero=from_zero) == pytest.approx(limits)


def test_labels_of_ticks():
    numbers = (0, 0.25, 1200, 24_000, 6_240_000, 2e-5, -3, 1e100, 1e-100)
    labels = ["0", "0.25", "1,200", "24k", "6.24M", "2e−5", "−3", "1e100", "1e−100"]
    assert list(map(charts_module.format_tick, numbers)) == labels


def test_an_axis_is_logarithmic_where_values_differ_by_a_large_factor(tmp_path):
    metrics = (evaluation(100, 100.0), evaluation(200, 10.0), evaluation(300, 1.0, precision=0.001))
    found = plot_metrics(tmp_path / "mine", metrics)
    scales = {title.split(",")[0]: axes.get_yscale() for title, axes in found.items()}
    assert scales == {"FID": "log", "KID": "linear", "Precision": "linear", "Recall": "linear"}
    axes = found["FID, smaller is better"]
    low, high = axes.get_ylim()
    labels = [axes.yaxis.get_major_formatter()(tick) for tick in axes.get_yticks() if low <= tick <= high]
    assert labels == ["1", "2", "5", "10", "20", "50", "100"]


# Lines


def plot_points(run, points, **options):
    """The line of a figure with one chart and one series."""
    series = Series(name="run", style=(style.ABC, "s"), points=points, **options)
    (line,) = plot_charts([run], [Chart(title="T", series=[series])]).axes[0].lines
    return line


def test_a_line_goes_through_its_points(run):
    line = plot_points(run, [(0, 0.0), (50, 5.0), (100, 10.0)])
    assert line.get_xydata().tolist() == [[0, 0], [50, 5], [100, 10]]
    assert (line.get_color(), line.get_marker(), line.get_markevery()) == (style.ABC, "s", [2])


def test_a_missing_value_is_a_gap_and_a_point_between_two_gaps_is_marked(tmp_path):
    ratios = (0.5, 0.6, None, 0.7, None, 0.8, 0.9)
    metrics = [telemetry(100 * (k + 1), spread=ratio) for k, ratio in enumerate(ratios)]
    (line,) = plot_metrics(tmp_path / "mine", metrics)["Distance ratio"].lines
    assert [math.isnan(value) for value in line.get_ydata()] == [ratio is None for ratio in ratios]
    assert line.get_markevery() == [3, 6]


def test_the_negative_side_is_dashed_and_evaluations_are_marked(run):
    assert plot_points(run, [(0, 1.0), (1, 2.0)], negative=True).get_linestyle() == "--"
    assert plot_points(run, [(0, 1.0), (1, 2.0), (2, 3.0)], mark_every_point=True).get_markevery() == [0, 1, 2]


# Figures


def test_curves_have_the_panels_the_lines_and_the_axes_of_the_runs(pair):
    found = panels(plot_charts(pair, curve_charts(pair)))
    evaluated = ["FID", "KID", "Precision", "Recall", "Inception Score"]
    assert [title.split(",")[0] for title in found] == [
        "Energy distance to the data",
        *evaluated,
        *(f"Force at τ = {tau}" for tau in ("0.02", "0.05", "0.2")),
        *("Distance ratio", "Gradient norm", "Generated images per second"),
    ]
    counts = {title: len(axes.lines) for title, axes in found.items()}
    assert counts.pop("Inception Score, larger is better") == 1  # the other run has none
    assert counts.pop("Energy distance to the data") == 3  # two runs and the noise
    assert set(counts.values()) == {2}
    first, second = found["FID, smaller is better"].lines
    assert first.get_xydata().tolist() == [[800, 40.0], [1600, 12.5], [2400, 13.25]]
    assert second.get_xydata()[-1].tolist() == [2400, 15.0]
    styles = [(line.get_color(), line.get_marker(), line.get_markevery()) for line in (first, second)]
    assert styles == [(style.ABC, "s", [0, 1, 2]), (style.STANDARD, "o", [0, 1, 2, 3])]
    assert [line.get_markevery() for line in found["Distance ratio"].lines] == [[3], [3]]
    assert found["Distance ratio"].get_ylim()[0] == 0


def test_the_gauge_has_both_sides_of_every_temperature_and_its_level(pair):
    figure = plot_charts(pair, gauge_charts(pair))
    found = panels(figure)
    assert len(found) == 9
    assert {len(axes.lines) for title, axes in found.items() if "Effective" not in title} == {4}
    level, positive, negative, *_ = found["Effective references, τ = 0.05"].lines
    assert list(level.get_ydata()) == [8, 8]
    assert [line.get_ydata()[0] for line in (positive, negative)] == [4.0, 3.0]
    assert positive.get_linestyle() == "-"
    assert negative.get_linestyle() == "--"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["mine", "other", "positive side", "negative side", "n"]


@pytest.fixture(scope="module")
def varied(tmp_path_factory):
    """Two runs whose numbers need ticks of all kinds: small, large and logarithmic."""
    directory = tmp_path_factory.mktemp("runs")
    metrics = (*METRICS, telemetry(300_000, gradient_norm=1e-7, spread=1.1), evaluation(300_000, 0.02, kid=-12_345.0))
    return read_runs([write_run(directory / name, estimator=name, metrics=metrics) for name in ("abc", "standard")])


@pytest.mark.parametrize("make_charts", [curve_charts, energy_charts, evaluation_charts, training_charts, gauge_charts])
def test_no_text_of_a_figure_overlaps_another(varied, make_charts):
    figure = plot_charts(varied, make_charts(varied))
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for legend in figure.legends for text in legend.get_texts()]
    for axes in figure.axes:
        boxes.append(axes.title.get_window_extent())
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            inside = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            boxes += [tick.label1.get_window_extent() for tick in inside]
    assert len(boxes) > 4 * len(figure.axes)
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]


def test_the_dark_version_has_the_same_text_and_other_colors(varied):
    light, dark = (svg.decode() for svg in figure_svgs(plot_charts(varied, evaluation_charts(varied))))
    texts = [[text.text for text in fromstring(svg).iter("{http://www.w3.org/2000/svg}text")] for svg in (light, dark)]
    assert texts[0] == texts[1]
    assert {"abc", "standard", "FID, smaller is better"} <= set(texts[0])
    for color in (style.ABC, style.STANDARD):
        assert to_hex(color) in light
        assert to_hex(color) not in dark
        assert charts_module.DARK[color] in dark
        assert charts_module.DARK[color] not in light
    assert "script" not in light


def test_every_text_and_line_has_a_dark_color_and_names_are_kept(tmp_path):
    names = ("x #0077cc", 'style="fill: #222222"', "<a #d5dae0>")
    runs = [read_run(write_run(tmp_path / str(k)), name) for k, name in enumerate(names)]
    light, dark = (svg.decode() for svg in figure_svgs(plot_charts(runs, gauge_charts(runs))))
    shown = [[text.text for text in fromstring(svg).iter(f"{SVG}text")] for svg in (light, dark)]
    assert shown[0] == shown[1]
    assert set(names) <= set(shown[0])
    assert all("fill: #c9d0d8" in text.get("style") for text in fromstring(dark).iter(f"{SVG}text"))
    styles = " ".join(each.get("style", "") for each in fromstring(dark).iter())
    dark_colors = {charts_module.DARK_INK, charts_module.DARK_FRAME, *charts_module.DARK.values()}
    assert set(re.findall("#[0-9a-f]{6}", styles)) <= {*dark_colors, "#ffffff"}  # the backgrounds are transparent


def test_a_dollar_sign_is_no_formula(tmp_path):
    runs = [read_run(write_run(tmp_path / "run"), "$x_1$ and $")]
    light, _ = figure_svgs(plot_charts(runs, gauge_charts(runs)))
    assert "$x_1$ and $" in [text.text for text in fromstring(light.decode()).iter(f"{SVG}text")]


def test_every_color_has_a_dark_version():
    assert {light for light, _, _ in charts_module.PALETTE.values()} == set(charts_module.DARK)
    assert len(set(charts_module.DARK.values())) == len(charts_module.PALETTE)


def test_long_names_keep_both_ends_and_long_titles_are_wrapped():
    name = "a" * 40 + "b" * 40
    assert charts_module.shorten_name(name).startswith("aaa")
    assert charts_module.shorten_name(name).endswith("bbb")
    assert len(charts_module.shorten_name(name)) == charts_module.LONGEST_NAME - 1
    assert charts_module.shorten_name("a" * charts_module.LONGEST_NAME) == "a" * charts_module.LONGEST_NAME
    assert charts_module.wrap_title("FD (encoder:efficientnet-lite0), smaller is better").splitlines() == [
        "FD (encoder:efficientnet-lite0),",
        "smaller is better",
    ]
    assert charts_module.replace_unknown_letters("Größe τ 数\t") == "Größe τ ??"
