"""Axes and lines: every place against the formula, and gaps that stay gaps."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truedrift.page.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    MOST_POINTS,
    RIGHT,
    TOP,
    WIDTH,
    Chart,
    LineStyle,
    Series,
    figure,
    fitting,
    legend,
    linear,
    logarithmic,
    progress,
    short,
    stretches,
    svg,
    thin,
)

LOOK = LineStyle(color="abc", shape="square")
VALUES = st.floats(min_value=-1e12, max_value=1e12, allow_subnormal=False).map(lambda value: round(value, 6))


def test_ticks_of_simple_axes():
    assert linear([0.3, 9.2]).ticks == (0, 2, 4, 6, 8, 10)
    assert linear([42.0, 58.0]).ticks == (40, 45, 50, 55, 60)
    assert linear([3.0], from_zero=True).ticks[0] == 0
    assert progress([80.0, 2400.0]).ticks == (0, 1000, 2000)
    assert logarithmic([3e-6, 0.2]).ticks == pytest.approx((1e-5, 1e-4, 1e-3, 1e-2, 1e-1))
    assert fitting([1.0, 30.0]).logarithmic
    assert not fitting([1.0, 30.0], from_zero=True).logarithmic
    assert not fitting([0.0, 30.0]).logarithmic


@given(st.lists(VALUES, max_size=6))
def test_every_value_is_on_a_linear_axis(values):
    scale = linear(values)
    assert scale.low < scale.high
    assert 2 <= len(scale.ticks) <= 12
    assert all(-1e-6 <= scale.at(value) <= 1 + 1e-6 for value in values)
    assert scale.at(scale.low) == 0
    assert scale.at(scale.high) == 1


@given(st.lists(st.floats(min_value=1e-30, max_value=1e30), min_size=1, max_size=6))
def test_every_value_is_on_a_logarithmic_axis(values):
    scale = logarithmic(values)
    assert all(0 < scale.at(value) < 1 for value in values)
    assert len(scale.ticks) <= 12


def test_labels_of_ticks():
    numbers = (0, 0.25, 1200, 24_000, 6_240_000, 2e-5, -3)
    assert list(map(short, numbers)) == ["0", "0.25", "1,200", "24k", "6.24M", "2e−5", "−3"]


def drawn(points, **options):
    chart = Chart(title="T", about="A", series=[Series(name="run", look=LOOK, points=points, **options)])
    return svg(chart).html


def paths(html):
    found = re.findall(r'<path class="([^"]*)" d="M([^"]*)"', html)
    return [(name, [tuple(map(float, place.split())) for place in line.split(" L")]) for name, line in found]


def test_a_line_goes_through_its_places():
    (name, places), *others = paths(drawn([(0, 0.0), (50, 5.0), (100, 10.0)]))
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    assert name == "line abc"
    assert not others
    assert places == [(LEFT, TOP + height), (LEFT + width / 2, TOP + height / 2), (LEFT + width, TOP)]


def test_what_is_missing_is_a_gap_and_a_lone_point_a_mark():
    points = [(0, 1.0), (1, 2.0), (2, None), (3, 3.0), (4, None), (5, 4.0), (6, 5.0)]
    html = drawn(points)
    assert [len(places) for _, places in paths(html)] == [2, 2]
    assert html.count("<polygon") == 2  # the lone point and the end
    assert "<title>run: 3 at 3</title>" in html
    assert stretches([(0, None)]) == []


def test_the_negative_side_is_dashed_and_evaluations_are_marked():
    assert paths(drawn([(0, 1.0), (1, 2.0)], negative=True))[0][0] == "line abc negative"
    assert drawn([(0, 1.0), (1, 2.0), (2, 3.0)], dotted=True).count("<polygon") == 3


def test_a_chart_says_what_it_shows():
    html = drawn([(0, 1.0), (1, 40.0), (2, None)])
    assert "<title>T</title><desc>A. run: 40 at the end. Logarithmic axis.</desc>" in html
    assert 'role="img"' in html


def test_a_chart_without_values_is_none():
    series = [Series(name="run", look=LOOK, points=[(0, None)])]
    assert figure(Chart(title="T", about="A", series=series)) is None


def test_long_series_are_thinned_and_keep_both_ends():
    points = [(float(k), float(k)) for k in range(10 * MOST_POINTS + 3)]
    kept = thin(points)
    assert len(kept) <= MOST_POINTS + 1
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert thin(points[:MOST_POINTS]) == points[:MOST_POINTS]


def test_the_legend_names_every_run():
    html = legend(["a<b", "c"], [LOOK, LineStyle(color="standard", shape="circle")], sides=True).html
    assert "a&lt;b" in html
    assert html.count("<li>") == 4
    assert "<circle" in html
    assert "line muted negative" in html
