"""`matching`: the plan of the study, its numbers against literal ones, and its sentences."""

from collections import Counter

import pytest
from oracles.image_grids import grid, run

from truedrift.errors import UserError
from truedrift.grids import StudyOptions
from truedrift.paper import matching
from truedrift.paper.catalog import plan_grid


def seconds(each, value):
    return type(each)(**{**vars(each), "seconds": value})


BASE = "8/8 bidirectional abc"


def record():
    """Three variants with two seeds, evaluated after 50, 100 and 150 steps."""
    runs = [
        seconds(run(BASE, 8, 0, [0.9, 0.5, 0.42]), 30.0),
        seconds(run(BASE, 8, 1, [0.9, 0.5, 0.40]), 30.0),
        seconds(run("126/8 row abc", 126, 0, [1.5, 1.2, 1.04]), 45.0),
        seconds(run("126/8 row abc", 126, 1, [1.5, 1.2, 1.00]), 45.0),
        seconds(run("126/8 row abc matched", 126, 0, [0.7, 0.30, 0.24]), 60.0),
        seconds(run("126/8 row abc matched", 126, 1, [0.7, 0.36, 0.29]), 60.0),
    ]
    return grid("matching", runs)


def test_plan_of_the_digits():
    plan = plan_grid("matching", StudyOptions(scale="cpu"))
    compared = {name for pair in matching.COMPARISONS for name in pair}
    seeds = {each.name: 5 if each.name in compared | {matching.RECIPE} else 2 for each in matching.DIGITS}
    assert Counter(task.variant for task in plan.tasks) == seeds
    by_name = {task.variant: task.config for task in plan.tasks if task.config.seed == 1}
    config = by_name["128/8 + 64 row abc matched"]
    assert (config.batch.n, config.generated, config.batch.fresh_negatives) == (128, 8, 64)
    objective = config.objective
    assert (objective.normalization, objective.form, objective.matched) == ("row", "separate", True)
    assert {each.cadence.steps for each in by_name.values()} == {2560}
    assert compared <= set(by_name)


def test_short_plan_keeps_the_baseline_and_one_pair():
    names = {task.variant for task in plan_grid("matching", StudyOptions(scale="smoke")).tasks}
    assert names == {matching.BASELINE, *matching.MATCHING[0], *matching.MATCHING[-1]}


def test_the_study_has_no_paper_scale():
    message = r"scale is 'paper' for matching; must be one of smoke, cpu; choose another scale"
    with pytest.raises(UserError, match=message):
        plan_grid("matching", StudyOptions(scale="paper"))


def test_numbers_of_a_run():
    one = record().runs[4]
    assert matching.end(one) == 0.24
    assert matching.seconds_per_step([one, seconds(one, 75.0)]) == pytest.approx(0.4)
    timed = type(one)(**{**vars(one), "step_seconds": 0.3})
    assert matching.seconds_per_step([one, timed]) == 0.3
    assert matching.steps_to(one, 0.30) == 100
    assert matching.steps_to(one, 0.10) is None
    assert matching.distance_at(one, 75.0) == pytest.approx(0.5)  # between 0.7 and 0.3
    assert matching.distance_at(one, 1.0) == 0.7
    assert matching.distance_at(one, 1000.0) == 0.24


def test_table_rows():
    text = matching.table(record()).markdown()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    by_name = {tuple(row[:4]): row[4:] for row in rows}
    assert by_name["126/8", "row", "abc", "yes"] == ["**0.265 ± 0.025**", "0.515 ± 0.015", "125 (2/2)", "50", "400.0"]
    assert by_name["126/8", "row", "abc", "no"] == ["1.020 ± 0.020", "1.200 ± 0.000", "– (0/2)", "–", "300.0"]


def test_findings():
    found = matching.findings(record())
    assert found[0] == "best: 126/8 row abc matched with 0.265; 8/8 bidirectional abc has 0.410"
    assert [each.split(":")[0] for each in found[1:]] == [
        "126/8 row abc matched against 126/8 row abc",
        f"126/8 row abc matched against {BASE}",
    ]
    assert "corrected for 2 comparisons" in found[1]


def test_figure_has_one_block_per_field_and_one_row_per_variant():
    figure = matching.draw(record())
    axes = figure.axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["126/8   ABC, matched", "126/8   ABC", "row", "8/8   ABC", "bidirectional"]
    assert [text.get_text() for text in figure.texts] == [
        "n/g + r: n positives and g generated samples per class, r fresh negatives; dotted: bidirectional 8/8 ABC"
    ]
    filled = [line.get_markerfacecolor() != "white" for line in axes.get_lines() if line.get_marker() == "o"]
    assert filled == [True, False, False]


@pytest.mark.parametrize(
    ("variant", "equal"),
    [
        ("8/8 row abc", False),
        ("8/8 row abc matched", True),
        ("64/8 + 64 row abc", True),
        ("128/8 + 64 row abc", False),
        ("128/8 + 64 row abc matched", True),
    ],
)
def test_as_many_fresh_negatives_as_positives_are_equal_sides(variant, equal):
    assert matching.has_equal_sides(variant) is equal
