"""The item `arithmetic`, rendered from a handmade grid."""

import pytest
from oracles.image_grids import grid, run

from truedrift.paper import arithmetic
from truedrift.report import cell_text

T_TWO = 4.302652729911275  # t(0.975; 2)


def rows(record):
    return [[cell_text(cell) for cell in row] for row in arithmetic.table(record).rows]


ROW = {"standard": [5.0, 6.0, 7.0], "abc": [4.0, 4.5, 6.5], "abc2": [6.0, 7.5, 7.5]}
LOO = {"standard": [13.0, 13.0, 13.0], "abc": [11.0, 11.0, 11.1], "abc2": [12.0, 12.0, 12.1]}
OTHER = {"standard": [9.0, 9.5, 10.0], "abc": [9.0, 9.5, 10.0], "abc2": [9.0, 9.5, 10.0]}
CELLS = {"abc-release": OTHER, "bidirectional": OTHER, "bidirectional-loo": LOO, "row": ROW}
ARITHMETIC = grid(
    "arithmetic",
    [
        run(f"{name}/{estimator}", 8, seed, [value + 1, value - 1])  # average: value; best: value − 1
        for name, cells in CELLS.items()
        for estimator, values in cells.items()
        for seed, value in enumerate(values)
    ],
)


def test_one_row_per_cell():
    found = rows(ARITHMETIC)
    assert [row[:2] for row in found] == [
        [name, estimator]
        for name in ("abc-release", "bidirectional", "bidirectional-loo", "row")
        for estimator in ("standard", "ABC", "ABC-2")
    ]
    assert found[9][2:] == ["3", "6.00 ± 1.00", "", "5.00 ± 1.00", ""]
    assert found[10][3] == "5.00 ± 1.50"
    assert [row[3].bold for row in arithmetic.table(ARITHMETIC).rows[9:]] == [False, True, False]


def test_comparison_with_standard_in_the_same_arithmetic():
    cell = arithmetic.table(ARITHMETIC).rows[10][4]
    differences = [-1.0, -1.5, -0.5]
    half = T_TWO * 0.5 / 3**0.5
    assert (cell.mean, cell.low, cell.high) == pytest.approx((sum(differences) / 3, -1 - half, -1 + half))
    assert "comparisons: 16," in " ".join(arithmetic.table(ARITHMETIC).notes)
    sentences = arithmetic.findings(ARITHMETIC)
    assert len(sentences) == 8
    assert sentences[4].startswith("bidirectional-loo: ABC lower by 1.97 (95 % interval 1.82 to 2.11, 3 pairs)")
    assert sentences[6].startswith("row: no significant difference (ABC − standard is −1.00,")
    assert sentences[7].startswith("row: no significant difference (ABC-2 − standard is 1.00,")


def test_files_are_written(tmp_path):
    paths = arithmetic.ITEM.save(ARITHMETIC, tmp_path)
    assert [path.name for path in paths] == ["arithmetic.md", "arithmetic.tex", "arithmetic.csv"]
    assert paths[1].read_text(encoding="utf-8").isascii()
    assert arithmetic.ITEM.summary(ARITHMETIC).startswith("arithmetic: Arithmetic of the weights, n = 8: FID on shapes")
