"""`tab:main_results` and `tab:cifar100` rendered from handmade grids; the printed values against lines of the paper."""

import csv
import re
from dataclasses import replace

import pytest
from oracles.image_grids import PROTOCOL, grid, run

from truedrift.paper import tab_cifar100, tab_main_results
from truedrift.report import cell_text

# Lines of the paper's tables, as it prints them.
MAIN_RESULTS = r"""
  8 & $6.24$\,M & 4\,000 & $7.31 \pm 0.94$ & $\mathbf{6.40 \pm 0.36}$\,\dnred{0.91} & $6.83 \pm 0.95$ & $\mathbf{5.81 \pm 0.34}$\,\dnred{1.02} \\
 16 & $6.24$\,M & 2\,000 & $4.79 \pm 1.04$ & $\mathbf{4.66 \pm 0.66}$\,\dnred{0.13} & $4.46 \pm 1.00$ & $\mathbf{4.30 \pm 0.50}$\,\dnred{0.17} \\
 32 & $6.24$\,M & 1\,000 & $4.34 \pm 0.60$ & $\mathbf{3.89 \pm 0.73}$\,\dnred{0.45} & $4.02 \pm 0.50$ & $\mathbf{3.71 \pm 0.69}$\,\dnred{0.31} \\
 64 & $6.24$\,M &   500 & $3.77 \pm 0.89$ & $\mathbf{3.52 \pm 0.14}$\,\dnred{0.24} & $\mathbf{3.24 \pm 0.03}$ & $3.40 \pm 0.08$\,\upred{0.16} \\
"""  # noqa: E501
CIFAR100 = r"""
$8$  & $1\,000$ & $4.17$ & $\mathbf{4.05}$\,\dnred{0.12} & $4.06$ & $\mathbf{3.74}$\,\dnred{0.32} \\
$16$         & $2\,000$ & $2.64$ & $\mathbf{2.52}$\,\dnred{0.12} & $2.52$ & $\mathbf{2.40}$\,\dnred{0.12} \\
$32$ & $500$    & $6.72$ & $\mathbf{2.75}$\,\dnred{3.97} & $4.36$ & $\mathbf{2.36}$\,\dnred{2.00} \\
"""


def printed(lines):
    """n → standard, abc and difference → (last-5, best), each a mean and a deviation or None."""
    found = {}
    for line in lines.strip().splitlines():
        first, *_, last_standard, last_abc, best_standard, best_abc = line.rstrip("\\ ").split("&")
        signs = [-1 if r"\dnred" in cell else 1 for cell in (last_abc, best_abc)]
        cells = [
            [float(number) for number in re.findall(r"\d+\.\d+", cell)]
            for cell in (last_standard, last_abc, best_standard, best_abc)
        ]
        changes = [(sign * cell[-1], None) for sign, cell in zip(signs, (cells[1], cells[3]), strict=True)]
        values = [(cell[0], cell[1] if r"\pm" in line else None) for cell in cells]
        found[int(re.search(r"\d+", first)[0])] = {
            "standard": (values[0], values[2]),
            "abc": (values[1], values[3]),
            "difference": tuple(changes),
        }
    return found


def test_printed_values_match_the_lines_of_the_paper():
    assert printed(MAIN_RESULTS) == tab_main_results.PAPER
    assert printed(CIFAR100) == tab_cifar100.PAPER


STANDARD = {0: [50, 5, 13, 9, 9, 9], 1: [60, 4, 12, 8, 8, 8], 2: [40, 6, 14, 10, 10, 10]}
ABC = {0: [50, 1, 13, 7, 7, 7], 1: [45, 3, 8.5, 7, 7, 7], 2: [30, 2, 10, 6, 6, 6]}
RUNS = [
    *(run("standard", 8, seed, [float(each) for each in of]) for seed, of in STANDARD.items()),
    *(run("abc", 8, seed, [float(each) for each in of]) for seed, of in ABC.items()),
    run("standard", 5, 0, [3.0]),
    run("standard", 5, 4, [8.0]),
    run("abc", 5, 4, [8.5, 8.25]),
]
RECORD = grid("tab:main_results", RUNS)


def literal(values):
    mean = sum(values) / len(values)
    return f"{mean:.2f} ± {max(abs(value - mean) for value in values):.2f}"


def rows(module, record):
    return [[cell_text(cell) for cell in row] for row in module.table(record).rows]


def test_rows_match_a_literal_computation():
    found = rows(tab_main_results, RECORD)
    last = {name: [sum(of[-5:]) / 5 for of in runs.values()] for name, runs in (("s", STANDARD), ("a", ABC))}
    assert found[3] == ["8", "standard", "3", "2,400", "60", literal(last["s"]), "7.31 ± 0.94",
                        literal([5, 4, 6]), "6.83 ± 0.95"]  # fmt: skip
    assert found[4] == ["8", "ABC", "3", "2,400", "60", literal(last["a"]), "6.40 ± 0.36",
                        literal([1, 3, 2]), "5.81 ± 0.34"]  # fmt: skip
    bold = [[cell.bold for cell in row[5::2]] for row in tab_main_results.table(RECORD).rows[3:5]]
    assert bold == [[False, False], [True, True]]


def test_differences_are_paired_by_seed_with_their_interval():
    differences = [sum(ABC[seed][-5:]) / 5 - sum(STANDARD[seed][-5:]) / 5 for seed in STANDARD]
    mean = sum(differences) / 3
    deviation = (sum((each - mean) ** 2 for each in differences) / 2) ** 0.5
    half = 4.302652729911275 * deviation / 3**0.5
    cell = tab_main_results.table(RECORD).rows[5][5]
    assert (cell.mean, cell.low, cell.high) == pytest.approx((mean, mean - half, mean + half))
    assert cell.pairs == 3
    assert cell_text(tab_main_results.table(RECORD).rows[5][6]) == "−0.91"


def test_missing_pairs_short_runs_and_other_n():
    found = rows(tab_main_results, RECORD)
    assert found[0] == ["5", "standard", "2", "250, 500", "10, 20", "5.50 ± 2.50", "–", "5.50 ± 2.50", "–"]
    assert found[2] == ["5", "ABC − standard", "1", "", "", "0.38", "–", "0.25", "–"]  # seed 4 alone; no interval
    notes = " ".join(tab_main_results.table(RECORD).notes)
    assert "3 of 9 runs have fewer than 5 evaluations (the fewest: 1)" in notes
    assert "comparisons: 2, without a correction" in notes


def test_findings_name_the_lower_estimator():
    apart = {seed: [each + 0.01 * seed for each in (9.0, 4.0)] for seed in (1, 2, 3)}
    lower, higher = (
        grid("tab:main_results", [run(name, 8, seed, of) for name, shift in pair for seed, of in moved(apart, shift)])
        for pair in ((("standard", 0.5), ("abc", 0.0)), (("standard", 0.0), ("abc", 0.5)))
    )
    assert tab_main_results.findings(lower)[0].startswith("n = 8: ABC lower by 0.50 (95 % interval 0.50 to 0.50, 3 p")
    assert tab_main_results.findings(higher)[0].startswith("n = 8: standard lower by 0.50 (95 % interval")
    five, eight = tab_main_results.findings(RECORD)
    assert five == "n = 5: standard lower by 0.38 in a single pair of seeds (no interval)"
    assert eight.startswith("n = 8: ")
    unpaired = grid("tab:main_results", [run("standard", 8, 0, [3.0]), run("abc", 8, 1, [2.0])])
    assert tab_main_results.findings(unpaired) == ["n = 8: no seed has both ABC and standard"]
    noisy = grid("tab:main_results", [run("standard", 8, k, [5.0]) for k in range(3)]
                 + [run("abc", 8, k, [5.0 + (k - 1.1) * 2]) for k in range(3)])  # fmt: skip
    (sentence,) = tab_main_results.findings(noisy)
    assert sentence.startswith(
        "n = 8: no significant difference (ABC − standard is −0.20, 95 % interval −5.17 to 4.77, 3 pa"
    )


def moved(runs, shift):
    return [(seed, [each + shift for each in of]) for seed, of in runs.items()]


def test_caption_names_protocol_and_distance():
    caption = tab_main_results.table(RECORD).caption
    assert (
        "FID by inception (sha256 0123456789ab), 1,234 samples against 4,321 images of shapes, split train; "
        "evaluated every 10 epochs." in caption
    )
    other = replace(RECORD, protocol=replace(PROTOCOL, extractor="digits"))
    assert tab_main_results.table(other).header[5] == "last-5 average FD (digits)"
    assert "FID by" not in tab_main_results.table(other).caption


def test_csv_contains_all_digits(tmp_path):
    *_, path = tab_main_results.ITEM.save(RECORD, tmp_path)
    with path.open(encoding="utf-8", newline="") as file:
        found = [row for row in csv.DictReader(file) if row["n"] == "8"]
    assert [float(row["best FID"]) for row in found] == [5.0, 2.0, -3.0]
    assert float(found[0]["best FID deviation"]) == 1.0
    exact = sum(sum(of[-5:]) / 5 for of in ABC.values()) / 3
    assert float(found[1]["last-5 average FID"]) == pytest.approx(exact, rel=1e-15)
    assert [row["last-5 average, paper"] for row in found] == ["7.31", "6.4", "-0.91"]


def test_files_and_summary_agree(tmp_path):
    markdown, latex, _ = (path.read_text(encoding="utf-8") for path in tab_main_results.ITEM.save(RECORD, tmp_path))
    assert latex.isascii()
    assert latex.count("{") == latex.count("}")
    body = latex[latex.index(r"\toprule") : latex.index(r"\bottomrule")]
    assert {line.count(" & ") for line in body.splitlines() if line.endswith(r"\\")} == {8}
    summary = tab_main_results.ITEM.summary(RECORD)
    assert all(finding in summary for finding in tab_main_results.findings(RECORD))
    assert summary.startswith("tab:main_results: FID on shapes")
    assert "**2.00 ± 1.00**" in markdown
    assert r"\textbf{2.00 $\pm$ 1.00}" in latex


def test_no_bold_cell_for_a_tie():
    tie = grid("tab:main_results", [run("standard", 8, 0, [3.0]), run("abc", 8, 0, [3.0])])
    assert not any(cell.bold for row in tab_main_results.table(tie).rows for cell in row[5::2])
    assert tab_main_results.findings(tie)[0] == "n = 8: no difference in a single pair of seeds (no interval)"


def test_small_distances_keep_three_digits():
    small = grid("tab:main_results", [run("standard", 8, 0, [0.01234]), run("abc", 8, 0, [0.5])])
    assert rows(tab_main_results, small)[0][5] == "0.0123"


def test_cifar100_with_one_seed_has_no_interval():
    record = grid("tab:cifar100", [run("standard", 16, 42, [3.0, 2.0]), run("abc", 16, 42, [3.5, 1.0])])
    table = tab_cifar100.table(record)
    assert "a single seed, so there is no interval" in table.caption
    assert "There are no intervals" in " ".join(table.notes)
    found = rows(tab_cifar100, record)
    assert found[0] == ["16", "standard", "1", "20", "2.50", "2.64", "2.00", "2.52"]
    assert found[1] == ["16", "ABC", "1", "20", "2.25", "2.52", "1.00", "2.40"]
    assert found[2] == ["16", "ABC − standard", "1", "", "−0.25", "−0.12", "−1.00", "−0.12"]
    assert tab_cifar100.findings(record) == ["n = 16: ABC lower by 0.25 in a single pair of seeds (no interval)"]
