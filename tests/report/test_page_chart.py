"""Charts: limits and ticks of axes, gaps, marks, colors, and texts that do not overlap."""

import math
from itertools import combinations
from xml.etree.ElementTree import fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from oracles.handmade_run import METRICS, evaluation, telemetry, write_run

from truedrift.page.charts import (
    DARK,
    MOST_POINTS,
    PALETTE,
    Chart,
    Charts,
    LineStyle,
    Series,
    axis_limits,
    figure_svgs,
    format_tick,
    plot_curves,
    plot_evaluation,
    plot_figure,
    plot_gauge,
    plot_training,
    run_legend,
    thin_points,
)
from truedrift.page.run_data import read_runs
from truedrift.report.figure import ABC, STANDARD

STYLE = LineStyle(color=ABC, marker="s")
VALUES = st.floats(min_value=-1e100, max_value=1e100, allow_subnormal=False).map(lambda value: round(value, 6))


@given(st.lists(VALUES, min_size=1, max_size=6), st.booleans())
def test_every_value_is_inside_the_limits(values, from_zero):
    low, high, is_log = axis_limits(values, from_zero=from_zero)
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
    assert axis_limits(values, from_zero=from_zero) == pytest.approx(limits)


def test_labels_of_ticks():
    numbers = (0, 0.25, 1200, 24_000, 6_240_000, 2e-5, -3, 1e100, 1e-100)
    labels = ["0", "0.25", "1,200", "24k", "6.24M", "2e−5", "−3", "1e100", "1e−100"]
    assert list(map(format_tick, numbers)) == labels


def plot(points, **options):
    """The lines of a figure with one chart and one series."""
    chart = Chart(title="T", series=[Series(name="run", style=STYLE, points=points, **options)])
    legend = run_legend(Charts(runs=(), styles=(), evaluation=(), training=(), gauge=()))
    figure = plot_figure([chart], legend or [plot_legend_line()])
    return figure and figure.axes[0].lines


def plot_legend_line():
    from matplotlib.lines import Line2D

    return Line2D([], [], label="run", color=ABC)


def test_a_line_goes_through_its_points():
    (line,) = plot([(0, 0.0), (50, 5.0), (100, 10.0)])
    assert line.get_xydata().tolist() == [[0, 0], [50, 5], [100, 10]]
    assert (line.get_color(), line.get_marker(), line.get_markevery()) == (ABC, "s", [2])


def test_a_missing_value_is_a_gap_and_a_lone_point_a_mark():
    (line,) = plot([(0, 1.0), (1, 2.0), (2, None), (3, 3.0), (4, None), (5, 4.0), (6, 5.0)])
    assert [math.isnan(y) for y in line.get_ydata()] == [False, False, True, False, True, False, False]
    assert line.get_markevery() == [3, 6]


def test_the_negative_side_is_dashed_and_evaluations_are_marked():
    assert plot([(0, 1.0), (1, 2.0)], negative=True)[0].get_linestyle() == "--"
    assert plot([(0, 1.0), (1, 2.0), (2, 3.0)], mark_every_point=True)[0].get_markevery() == [0, 1, 2]


def test_a_chart_without_values_is_not_drawn():
    assert plot([(0, None)]) is None


def test_long_series_are_thinned_and_keep_both_ends():
    points = [(float(k), float(k)) for k in range(10 * MOST_POINTS + 3)]
    thinned = thin_points(points[::-1])
    assert len(thinned) <= MOST_POINTS + 1
    assert (thinned[0], thinned[-1]) == (points[0], points[-1])
    assert thinned == sorted(thinned)
    assert thin_points(points[:MOST_POINTS]) == points[:MOST_POINTS]


@pytest.fixture(scope="module")
def charts(tmp_path_factory):
    """Two runs whose numbers need ticks of all kinds: small, large and logarithmic."""
    directory = tmp_path_factory.mktemp("runs")
    metrics = (*METRICS, telemetry(300_000, gradient_norm=1e-7, spread=1.1), evaluation(300_000, 0.02, kid=-12_345.0))
    paths = [write_run(directory / name, estimator=name, metrics=metrics) for name in ("abc", "standard")]
    return Charts.from_runs(read_runs(paths))


@pytest.mark.parametrize("plot_charts", [plot_curves, plot_evaluation, plot_training, plot_gauge])
def test_no_text_of_a_figure_lies_on_another(charts, plot_charts):
    figure = plot_charts(charts)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for legend in figure.legends for text in legend.get_texts()]
    for axes in figure.axes:
        boxes.append(axes.title.get_window_extent())
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            inside = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            boxes += [tick.label1.get_window_extent() for tick in inside]
    assert len(boxes) > 4 * len(figure.axes)
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]


def test_the_dark_version_has_the_same_text_and_other_colors(charts):
    light, dark = (svg.decode() for svg in figure_svgs(plot_evaluation(charts)))
    texts = [[text.text for text in fromstring(svg).iter("{http://www.w3.org/2000/svg}text")] for svg in (light, dark)]
    assert texts[0] == texts[1]
    assert {"abc", "standard", "FID, smaller is better"} <= set(texts[0])
    for color in (ABC, STANDARD):
        assert to_hex(color) in light
        assert to_hex(color) not in dark
        assert DARK[color] in dark
        assert DARK[color] not in light
    assert "script" not in light


def test_every_color_has_a_dark_version():
    assert {light for light, _, _ in PALETTE.values()} == set(DARK)
    assert len(set(DARK.values())) == len(PALETTE)
