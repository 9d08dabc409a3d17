"""`tab:samples_to_fid`: first hits, thresholds, and the printed values compared with lines of the paper."""

import re
from dataclasses import replace

import pytest
from oracles.image_grids import PROTOCOL, grid, run

from truedrift.paper import tab_samples_to_fid as item
from truedrift.report import cell_text

# Lines of the paper's table, as it prints them.
LINES = r"""
$8$  & $8.19\pm4.29$ & $\mathbf{3.38\pm0.52}$\,\dnred{4.81} & $26.52$ (1/3) & $\mathbf{21.84\pm12.48}$ (3/3)\,\dnred{4.68} \\
$16$ & $4.94\pm1.04$ & $\mathbf{4.42\pm0.52}$\,\dnred{0.52} & $11.44\pm7.28$ & $\mathbf{7.80\pm4.68}$\,\dnred{3.64} \\
$32$ & $8.84\pm3.64$ & $8.84\pm3.64$ & $13.52\pm5.20$ & $\mathbf{10.92\pm3.12}$\,\dnred{2.60} \\
$64$ & $16.64\pm10.40$ & $\mathbf{13.52\pm8.32}$\,\dnred{3.12} & $30.16\pm4.16$ & $\mathbf{27.04\pm11.44}$\,\dnred{3.12} \\
"""  # noqa: E501


def test_printed_values_match_the_lines_of_the_paper():
    seen = set()
    for line in LINES.strip().splitlines():
        first, *cells = line.rstrip("\\ ").split("&")
        n = int(re.search(r"\d+", first)[0])
        for place, cell in enumerate(cells):
            variant, threshold = ("standard", "abc")[place % 2], place // 2
            numbers = [float(number) for number in re.findall(r"\d+\.\d+", cell)]
            attained = re.search(r"\(\d/\d\)", cell)
            deviation = numbers[1] if r"\pm" in cell else None
            assert item.PAPER[n, variant][threshold] == (numbers[0], deviation, attained[0] if attained else "")
            if variant == "abc":
                change = -numbers[-1] if r"\dnred" in cell else 0.0
                assert item.PAPER[n, "difference"][threshold] == (change, None, "")
                seen.add((n, "difference"))
            seen.add((n, variant))
    assert seen == item.PAPER.keys()


#            hits 10 at evaluation 2, 4, never; 7 at 3, never, never      10: 1, 2, 2; 7: 1, 4, never
RUNS = [
    run("standard", 8, 0, [12.0, 10.0, 7.0, 8.0], steps=5000),
    run("standard", 8, 1, [30.0, 20.0, 11.0, 9.0], steps=5000),
    run("standard", 8, 2, [30.0, 20.0, 11.0, 10.5], steps=5000),
    run("abc", 8, 0, [6.0, 8.0, 9.0, 9.0], steps=5000),
    run("abc", 8, 1, [11.0, 9.5, 8.0, 6.5], steps=5000),
    run("abc", 8, 2, [15.0, 10.0, 9.0, 7.5], steps=5000),
]
RECORD = grid("tab:samples_to_fid", RUNS)
UNIT = 5000 * 8 * 10 / 1e6  # an evaluation, millions over ten classes


def test_positives_until_counts_all_classes():
    assert item.thresholds(RECORD) == (10.0, 7.0)
    assert item.positives_until(RECORD, "standard", 8, 10.0) == pytest.approx({0: 2 * UNIT, 1: 4 * UNIT})
    assert item.positives_until(RECORD, "abc", 8, 10.0) == pytest.approx({0: UNIT, 1: 2 * UNIT, 2: 2 * UNIT})
    assert item.positives_until(RECORD, "standard", 8, 7.0) == pytest.approx({0: 3 * UNIT})
    assert item.positives_until(RECORD, "abc", 8, 7.0) == pytest.approx({0: UNIT, 1: 4 * UNIT})


def test_rows_show_share_of_seeds_and_the_paper():
    table = item.table(RECORD)
    rows = [[cell_text(cell) for cell in row] for row in table.rows]
    assert table.header == (
        "n",
        "estimator",
        "FID ≤ 10, millions",
        "FID ≤ 10, paper, millions",
        "FID ≤ 7, millions",
        "FID ≤ 7, paper, millions",
    )
    assert rows[0] == ["8", "standard", "1.20 ± 0.40 (2/3)", "8.19 ± 4.29", "1.20 (1/3)", "26.52 (1/3)"]
    assert rows[1] == ["8", "ABC", "0.67 ± 0.27 (3/3)", "3.38 ± 0.52", "1.00 ± 0.60 (2/3)", "21.84 ± 12.48 (3/3)"]
    assert rows[2][2].startswith("−0.60 [−3.14, 1.94]")  # seeds 0 and 1: −0.4 and −0.8; t(0.975; 1) = 12.706
    assert rows[2][4] == "−0.80"  # seed 0 alone
    assert [row[2].bold for row in table.rows[:2]] == [False, True]


@pytest.mark.parametrize(
    ("standard", "abc", "winner"),
    [
        ([[5.0], [5.0]], [[5.0], [8.0]], "standard"),  # more seeds, though not sooner
        ([[8.0, 5.0], [8.0, 5.0]], [[5.0], [8.0]], "standard"),
        ([[8.0, 5.0], [8.0, 5.0]], [[5.0], [8.0, 5.0]], "abc"),  # as many, sooner
        ([[5.0]], [[5.0]], None),
        ([[9.0]], [[8.0]], None),
    ],
)
def test_more_seeds_rank_before_fewer_samples(standard, abc, winner):
    runs = [run("standard", 8, s, of) for s, of in enumerate(standard)] + [
        run("abc", 8, s, of) for s, of in enumerate(abc)
    ]
    assert item.sooner_by(grid("tab:samples_to_fid", runs), 8, 7.0) == winner


def test_thresholds_of_other_features_are_proportional():
    runs = [
        run("standard", 8, 0, [60.0, 50.0, 40.0]),
        run("standard", 8, 1, [40.0, 30.0, 20.0]),
        run("standard", 16, 0, [1.0]),
        run("abc", 8, 0, [10.0]),
        run("abc", 16, 0, [1.0]),
    ]
    record = grid("tab:samples_to_fid", runs, protocol=replace(PROTOCOL, extractor="digits"))
    assert item.thresholds(record) == pytest.approx((10 / 7.31 * 40, 7 / 7.31 * 40))
    table = item.table(record)
    assert table.header[2] == "FD (digits) ≤ 54.72, thousands"
    assert "Thresholds are standard's last-5 average at n = 8 times 10/7.31 and 7/7.31" in table.caption
    assert cell_text(table.rows[0][2]) == "6.00 ± 2.00 (2/2)"  # evaluations 2 and 1 of 50·8·10 positives
    assert "Thresholds" not in item.table(RECORD).caption


def test_published_code_has_the_papers_thresholds():
    record = grid("tab:samples_to_fid", RUNS, protocol=replace(PROTOCOL, extractor="abc-release"))
    assert item.thresholds(record) == (10.0, 7.0)
    table = item.table(record)
    assert table.header[2] == "FD (abc-release) ≤ 10, millions"
    assert "Thresholds" not in table.caption


def test_findings_state_seeds_and_difference():
    first, second = item.findings(RECORD)
    assert first == (
        "n = 8, FID ≤ 10: reached by standard in 2 of 3 seeds and ABC in 3 of 3 seeds; no significant difference "
        "(ABC − standard is −0.60 million, 95 % interval −3.14 to 1.94, 2 pairs)"
    )
    assert second.endswith("ABC sooner by 0.80 million in a single pair of seeds (no interval)")
    never = grid("tab:samples_to_fid", [run("standard", 8, 0, [50.0]), run("abc", 8, 0, [5.0])])
    assert item.findings(never)[0] == "n = 8, FID ≤ 10: reached by standard in 0 of 1 seeds and ABC in 1 of 1 seeds"


def test_files_contain_the_table(tmp_path):
    markdown, latex, comma_separated = (path.read_text(encoding="utf-8") for path in item.ITEM.save(RECORD, tmp_path))
    assert "| **0.67 ± 0.27 (3/3)** |" in markdown
    assert latex.isascii()
    assert "FID $\\leq$ 10" in latex
    assert "0.6666666666666" in comma_separated
    assert item.ITEM.summary(RECORD).count("n = 8, FID") == 2
