"""`tab:overhead` rendered from handmade costs, and the printed values compared with lines of the paper."""

import re
from dataclasses import replace

import pytest

from truedrift.paper import tab_overhead
from truedrift.records import provenance
from truedrift.report import cell_text

# Lines of the paper's table, as it prints them.
LINES = r"""
Peak GPU memory ($\downarrow$) & 4\,729\,MB & 4\,731\,MB\,\upred{2MB} \\
Epoch, no fusion ($\downarrow$) & 37.1\,s & 42.8\,s\,\upred{5.7s} \\
Epoch, fused ($\downarrow$) & 38.0\,s & 37.0\,s\,\dnred{1.0s} \\
Parameters & 26.6\,M & 26.6\,M \\
"""


def cost(estimator, compiled, seconds, megabytes, parameters=1_234_567):
    return tab_overhead.Cost(
        estimator=estimator,
        compiled=compiled,
        epoch_seconds=seconds,
        memory_megabytes=megabytes,
        parameters=parameters,
    )


RECORD = tab_overhead.Overhead(
    scale="cpu",
    data="digits",
    recipe="digits",
    n=8,
    steps_per_epoch=20,
    device="cpu",
    threads=2,
    costs=(
        cost("abc", True, (0.3, 0.5), 61.0),
        cost("standard", False, (0.5, 0.7, 0.9), 40.25),
        cost("abc", False, (1.0, 1.1, 1.5), 43.5),
        cost("standard", True, (0.4, 0.6), 62.5),
    ),
    provenance=provenance(seed=0, wall_seconds=1.0, command="truedrift reproduce tab:overhead"),
)


def rows(record):
    return [[cell_text(cell) for cell in row] for row in tab_overhead.table(record).rows]


def test_printed_values_match_the_lines_of_the_paper():
    printed = []
    for line in LINES.strip().splitlines():
        _, standard, abc = line.rstrip("\\ ").replace(r"\,", "").split("&")
        value, change = (re.findall(r"\d+\.?\d*", part) for part in (abc.split("\\")[0], abc))
        sign = -1 if r"\dnred" in abc else 1
        difference = sign * float(change[1]) if len(change) > 1 else None
        printed.append((float(re.search(r"\d+\.?\d*", standard)[0]), float(value[0]), difference))
    assert list(tab_overhead.PAPER.values()) == printed


def test_rows_show_standard_abc_difference_and_the_paper():
    assert rows(RECORD) == [
        ["memory, eager, MB", "40.2", "43.5", "3.2", "4729", "4731", "2"],
        ["memory, compiled, MB", "62.5", "61.0", "−1.5", "–", "–", "–"],
        ["epoch, eager, s", "0.700 ± 0.200", "1.200 ± 0.300", "0.500", "37.1", "42.8", "5.7"],
        ["epoch, compiled, s", "0.500 ± 0.100", "0.400 ± 0.100", "−0.100", "38.0", "37.0", "−1.0"],
        ["parameters (paper: millions)", "1,234,567", "1,234,567", "0", "26.6", "26.6", "–"],
    ]
    caption = tab_overhead.table(RECORD).caption
    assert "n = 8, cpu, 2 threads, 20 steps per epoch" in caption
    assert "over 2, 3 epochs after the first" in caption
    assert "growth of the process's resident memory" in caption
    assert "peak memory of the device" in tab_overhead.table(replace(RECORD, device="A100")).caption
    assert "the largest driver allocation" in tab_overhead.table(replace(RECORD, device="mps")).caption


def test_findings_state_whether_epochs_overlap():
    assert tab_overhead.findings(RECORD) == [
        "eager: an epoch takes 1.200 s with ABC and 0.700 s with standard (+71.4%), and the epochs of both "
        "do not overlap",
        "eager: memory is 43.5 MB with ABC and 40.2 MB with standard",
        "compiled: an epoch takes 0.400 s with ABC and 0.500 s with standard (−20.0%), and the epochs of both overlap: "
        "the difference is within the timing noise",
        "compiled: memory is 61.0 MB with ABC and 62.5 MB with standard",
    ]


@pytest.mark.parametrize(
    ("seconds", "apart"),
    [((0.45, 0.9), False), ((0.1, 0.45), False), ((0.2, 0.3), True), ((0.7, 0.8), True), ((0.45, 0.5), False)],
)
def test_epochs_overlap_where_their_ranges_do(seconds, apart):
    compiled = (cost("standard", True, (0.4, 0.6), 1.0), cost("abc", True, seconds, 1.0))
    both = replace(RECORD, costs=(*RECORD.costs[1:3], *compiled))
    assert ("do not overlap" in tab_overhead.findings(both)[2]) == apart


def test_long_epochs_have_one_decimal():
    times = {"standard": (37.0, 37.2), "abc": (42.8,)}
    costs = tuple(cost(name, compiled, each, 1.0) for compiled in (False, True) for name, each in times.items())
    long = replace(RECORD, costs=costs)
    assert rows(long)[2][1:4] == ["37.1 ± 0.1", "42.8", "5.7"]


def test_files_contain_the_table(tmp_path):
    markdown, latex, comma_separated = (p.read_text(encoding="utf-8") for p in tab_overhead.ITEM.save(RECORD, tmp_path))
    assert "| epoch, eager, s | 0.700 ± 0.200 | 1.200 ± 0.300 | 0.500 |" in markdown
    assert latex.isascii()
    assert '"memory, eager, MB",40.25,,,43.5,,,3.25,4729.0,4731.0,2.0' in comma_separated
    assert all(finding in tab_overhead.ITEM.summary(RECORD) for finding in tab_overhead.findings(RECORD))
