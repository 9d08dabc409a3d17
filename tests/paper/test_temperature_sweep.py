"""The item `temperature-sweep`, rendered from handmade grids."""

import pytest
from matplotlib.container import ErrorbarContainer
from oracles.image_grids import grid, run

from truedrift.paper import temperature_sweep
from truedrift.report import cell_text
from truedrift.report import figure as style


def rows(record):
    return [[cell_text(cell) for cell in row] for row in temperature_sweep.table(record).rows]


def sweep(standard, abc):
    """Return a grid from the last-5 averages of each factor, one per seed."""
    return grid(
        "temperature-sweep",
        [
            run(f"{name}/{factor}", 8, seed, [value])
            for name, cells in (("standard", standard), ("abc", abc))
            for factor, values in cells.items()
            for seed, value in enumerate(values)
        ],
    )


SHIFTED = sweep(
    {"0.5": [6.0, 6.5], "2": [4.0, 4.5], "4": [5.0, 4.75]},
    {"0.5": [2.0, 3.0], "2": [3.5, 3.25], "4": [7.0, 9.0]},
)


def test_factors_are_sorted_and_the_best_has_the_smallest_mean():
    assert temperature_sweep.factors(SHIFTED) == [0.5, 2, 4]
    assert temperature_sweep.best_by_mean(SHIFTED, "standard") == 2
    assert temperature_sweep.best_by_mean(SHIFTED, "abc") == 0.5
    assert temperature_sweep.best_factor_by_seed(SHIFTED, "standard") == {0: 2, 1: 2}
    found = rows(SHIFTED)
    assert found[0][0:3] == ["0.5", "6.25 ± 0.25", "2.50 ± 0.50"]
    assert found[0][4:] == ["0/2", "2/2"]
    assert found[1][4:] == ["2/2", "0/2"]
    bold = [[cell.bold for cell in row[1:3]] for row in temperature_sweep.table(SHIFTED).rows]
    assert bold == [[False, True], [True, False], [False, False]]


def test_shift_needs_all_seeds():
    first, second, *_ = temperature_sweep.findings(SHIFTED)
    assert first == (
        "the best f shifts from 2 (standard) to 0.5 (ABC); per seed, the best f is smaller with ABC in 2, the same in "
        "0 and larger in 0 of 2 seeds; the best f of ABC is at the edge of the sweep"
    )
    assert second.startswith(
        "standard and ABC each at its best f (selected on the same runs): no significant difference (ABC − sta"
    )
    assert "is −1.75" in second


@pytest.mark.parametrize(
    ("abc", "start"),
    [
        (
            {"1": [3.0, 3.0], "2": [5.0, 2.9], "4": [9.0, 9.0]},
            "no shift: the best f by mean is 1 for both; per seed, the best f is smaller with ABC in 0, the same in 1 "
            "and larger in 1 of 2 seeds",
        ),
        (
            {"1": [3.0, 9.0], "2": [5.0, 2.0], "4": [9.0, 9.0]},
            "no clear shift: the best f by mean changes from 1 (standard) to 2 (ABC); per seed, the best f is smaller "
            "with ABC in 0, the same in 1 and larger in 1 of 2 seeds",
        ),
    ],
)
def test_no_shift_and_no_clear_shift(abc, start):
    standard = {"1": [1.0, 1.0], "2": [2.0, 2.0], "4": [3.0, 3.0]}
    assert temperature_sweep.findings(sweep(standard, abc))[0].startswith(start)


def test_a_seed_that_lacks_a_factor_has_no_best():
    record = sweep({"1": [1.0, 2.0], "2": [3.0]}, {"1": [1.0], "2": [2.0]})
    assert temperature_sweep.best_factor_by_seed(record, "standard") == {0: 1}


def test_the_figure_shows_means_deviations_and_the_best():
    (axes,) = temperature_sweep.draw(SHIFTED).axes
    bars = [each for each in axes.containers if isinstance(each, ErrorbarContainer)]
    assert [bar.get_label() for bar in bars] == ["standard", "ABC"]
    assert list(bars[1].lines[0].get_ydata()) == [2.5, 3.375, 8.0]
    assert list(bars[0].lines[0].get_xdata()) == pytest.approx([0.5, 2, 4], rel=0.02)
    low, high = (bars[0].lines[1][k].get_ydata() for k in (0, 1))
    assert (list(low), list(high)) == ([6.0, 4.0, 4.75], [6.5, 4.5, 5.0])
    rings = [line for line in axes.get_lines() if line.get_markerfacecolor() == "none"]
    assert [(ring.get_color(), list(ring.get_ydata())) for ring in rings] == [
        (style.STANDARD, [4.25]),
        (style.ABC, [2.5]),
    ]
    assert axes.get_ylabel() == "FID, last-5 average"


def test_files_are_written(tmp_path):
    paths = temperature_sweep.ITEM.save(SHIFTED, tmp_path)
    assert [path.suffix for path in paths] == [".png", ".pdf", ".md", ".tex", ".csv"]
    assert paths[3].read_text(encoding="utf-8").isascii()
    assert temperature_sweep.ITEM.summary(SHIFTED).startswith("temperature-sweep: Factor f of all temperatures, n = 8")


def test_runs_at_other_factors_are_not_shown():
    record = sweep({"1": [1.0], "3": [0.5]}, {"1": [1.0]})
    assert temperature_sweep.factors(record) == [1]
