"""`arithmetic` and `temperature-sweep` from grids made by hand."""

import pytest
from matplotlib.container import ErrorbarContainer
from oracles.image_grids import grid, run

from truedrift.paper import arithmetic, temperature_sweep
from truedrift.report.figure import ABC, STANDARD
from truedrift.report.table import cell_text

T_TWO = 4.302652729911275  # t(0.975; 2)


def rows(module, record):
    return [[cell_text(cell) for cell in row] for row in module.table(record).rows]


ROW = {"standard": [5.0, 6.0, 7.0], "abc": [4.0, 4.5, 6.5], "abc2": [6.0, 7.5, 7.5]}
LOO = {"standard": [13.0, 13.0, 13.0], "abc": [11.0, 11.0, 11.1]}
ARITHMETIC = grid(
    "arithmetic",
    [
        run(f"{name}/{estimator}", 8, seed, [value + 1, value - 1])  # average: value; best: value − 1
        for name, cells in (("row", ROW), ("bidirectional-loo", LOO))
        for estimator, values in cells.items()
        for seed, value in enumerate(values)
    ],
)


def test_arithmetic_has_a_row_a_cell_and_a_dash_where_there_is_no_run():
    found = rows(arithmetic, ARITHMETIC)
    assert [row[:2] for row in found] == [
        [name, estimator]
        for name in ("abc-release", "bidirectional", "bidirectional-loo", "row")
        for estimator in ("standard", "ABC", "ABC-2")
    ]
    assert found[0][2:] == ["0", "–", "", "–", ""]
    assert found[8][2:] == ["0", "–", "–", "–", "–"]
    assert found[9][2:] == ["3", "6.00 ± 1.00", "", "5.00 ± 1.00", ""]
    assert found[10][3] == "5.00 ± 1.50"
    assert [row[3].bold for row in arithmetic.table(ARITHMETIC).rows[9:]] == [False, True, False]


def test_arithmetic_compares_with_standard_in_the_same_row():
    cell = arithmetic.table(ARITHMETIC).rows[10][4]
    differences = [-1.0, -1.5, -0.5]
    half = T_TWO * 0.5 / 3**0.5
    assert (cell.mean, cell.low, cell.high) == pytest.approx((sum(differences) / 3, -1 - half, -1 + half))
    assert "Comparisons: 6," in " ".join(arithmetic.table(ARITHMETIC).notes)
    said = arithmetic.verdicts(ARITHMETIC)
    assert len(said) == 3  # one for each comparison with pairs
    assert said[0].startswith("bidirectional-loo: ABC lower by 1.97 (95 % interval 1.82 to 2.11, 3 pairs)")
    assert said[1].startswith("row: no significant difference (ABC − standard is −1.00,")
    assert said[2].startswith("row: no significant difference (ABC-2 − standard is 1.00,")


def test_arithmetic_is_written(tmp_path):
    paths = arithmetic.ITEM.save(ARITHMETIC, tmp_path)
    assert [path.name for path in paths] == ["arithmetic.md", "arithmetic.tex", "arithmetic.csv"]
    assert paths[1].read_text(encoding="utf-8").isascii()
    assert arithmetic.ITEM.summary(ARITHMETIC).startswith("arithmetic: Arithmetic of the weights, n = 8: FID on shapes")


def sweep(standard, abc):
    """Factor → last averages of the seeds, for both."""
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
    {"0.5": [6.0, 6.5], "2": [4.0, 4.5], "10": [5.0, 4.75]},
    {"0.5": [2.0, 3.0], "2": [3.5, 3.25], "10": [7.0, 9.0]},
)


def test_factors_are_in_the_order_of_numbers_and_best_is_the_smallest():
    assert temperature_sweep.factors(SHIFTED) == ["0.5", "2", "10"]
    assert temperature_sweep.best_by_mean(SHIFTED, "standard") == "2"
    assert temperature_sweep.best_by_mean(SHIFTED, "abc") == "0.5"
    assert temperature_sweep.best_factor_by_seed(SHIFTED, "standard") == {0: "2", 1: "2"}
    found = rows(temperature_sweep, SHIFTED)
    assert found[0][0:3] == ["0.5", "6.25 ± 0.25", "2.50 ± 0.50"]
    assert found[0][4:] == ["0/2", "2/2"]
    assert found[1][4:] == ["2/2", "0/2"]
    bold = [[cell.bold for cell in row[1:3]] for row in temperature_sweep.table(SHIFTED).rows]
    assert bold == [[False, True], [True, False], [False, False]]


def test_a_shift_is_one_that_all_seeds_show():
    first, second, *_ = temperature_sweep.verdicts(SHIFTED)
    assert first == (
        "the best f shifts from 2 (standard) to 0.5 (ABC); by seed it is smaller with ABC in 2, the same in 0 and "
        "larger in 0 of 2 seeds; that of ABC is at the edge of the sweep"
    )
    assert second.startswith(
        "each at its own best f, chosen from these same runs: no significant difference (ABC − sta"
    )
    assert "is −1.75" in second


@pytest.mark.parametrize(
    ("abc", "start"),
    [
        (
            {"1": [3.0, 3.0], "2": [5.0, 2.9], "4": [9.0, 9.0]},
            "no shift: the best f by mean is 1 for both; by seed it is smaller with ABC in 0, the same in 1 and larger "
            "in 1 of 2 seeds",
        ),
        (
            {"1": [3.0, 9.0], "2": [5.0, 2.0], "4": [9.0, 9.0]},
            "no clear shift: the best f by mean goes from 1 (standard) to 2 (ABC); by seed it is smaller with ABC in "
            "0, the same in 1 and larger in 1 of 2 seeds",
        ),
    ],
)
def test_other_shifts_are_told_as_what_they_are(abc, start):
    standard = {"1": [1.0, 1.0], "2": [2.0, 2.0], "4": [3.0, 3.0]}
    assert temperature_sweep.verdicts(sweep(standard, abc))[0].startswith(start)


def test_a_seed_that_lacks_a_factor_has_no_best():
    record = sweep({"1": [1.0, 2.0], "2": [3.0]}, {"1": [1.0]})
    assert temperature_sweep.best_factor_by_seed(record, "standard") == {0: "1"}
    alone = sweep({"1": [1.0]}, {})
    assert temperature_sweep.verdicts(alone) == ["standard and ABC have not both been run: nothing is known of a shift"]
    assert rows(temperature_sweep, alone) == [["1", "1.00", "–", "–", "1/1", "0/0"]]


def test_the_figure_shows_means_deviations_and_the_best():
    (axes,) = temperature_sweep.draw(SHIFTED).axes
    bars = [each for each in axes.containers if isinstance(each, ErrorbarContainer)]
    assert [bar.get_label() for bar in bars] == ["standard", "ABC"]
    assert list(bars[1].lines[0].get_ydata()) == [2.5, 3.375, 8.0]
    assert list(bars[0].lines[0].get_xdata()) == pytest.approx([0.5, 2, 10], rel=0.02)
    low, high = (bars[0].lines[1][k].get_ydata() for k in (0, 1))
    assert (list(low), list(high)) == ([6.0, 4.0, 4.75], [6.5, 4.5, 5.0])
    rings = [line for line in axes.get_lines() if line.get_markerfacecolor() == "none"]
    assert [(ring.get_color(), list(ring.get_ydata())) for ring in rings] == [(STANDARD, [4.25]), (ABC, [2.5])]
    assert axes.get_ylabel() == "FID, last-5 average"


def test_the_sweep_is_written(tmp_path):
    paths = temperature_sweep.ITEM.save(SHIFTED, tmp_path)
    assert [path.suffix for path in paths] == [".png", ".pdf", ".md", ".tex", ".csv"]
    assert paths[3].read_text(encoding="utf-8").isascii()
    assert temperature_sweep.ITEM.summary(SHIFTED).startswith("temperature-sweep: Factor f of all temperatures, n = 8")


@pytest.mark.parametrize("variant", ["abc", "abc/", "abc/x", "abc/-1", "abc/nan"])
def test_a_variant_without_a_factor_is_a_mistake(variant):
    record = grid("temperature-sweep", [run(variant, 8, 0, [1.0])])
    with pytest.raises(ValueError, match=rf"has a variant '{variant}'; must be an estimator and a factor"):
        temperature_sweep.table(record)
