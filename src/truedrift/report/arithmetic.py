"""The study `arithmetic`: does what ABC gains depend on how weights are normalized? Four arithmetics, three estimators.

A row each; ABC and ABC-2 are compared with standard in the same arithmetic, at the same seeds.
"""

from __future__ import annotations

from pathlib import Path

from truedrift.records import ImageGrid
from truedrift.report.cell import Cell, Row
from truedrift.report.comparison import MEASURES, Against, interval_cell, measure_cells, spec_of
from truedrift.report.grid import by_seed, protocol_line, shortcomings, sizes
from truedrift.report.palette import LOOKS
from truedrift.report.table import Table
from truedrift.report.verdict import comparisons_note

NAME = "arithmetic"
ARITHMETICS = ("abc-release", "bidirectional", "bidirectional-loo", "row")


def save(record: ImageGrid, directory: Path) -> list[Path]:
    """The table as Markdown, LaTeX and CSV."""
    return table(record).save(directory, NAME)


def against(arithmetic: str, estimator: str) -> Against:
    """An estimator and standard in one arithmetic."""
    base = f"{arithmetic}/standard"
    return Against(
        variant=f"{arithmetic}/{estimator}", name=LOOKS[estimator][0], base=base, base_name=LOOKS["standard"][0]
    )


def _comparisons() -> list[tuple[str, Against]]:
    return [(each, against(each, estimator)) for each in ARITHMETICS for estimator in ("abc", "abc2")]


def table(record: ImageGrid) -> Table:
    """Three rows an arithmetic; a dash where there is no run."""
    n, name = sizes(record)[0], record.protocol.distance_name
    columns = [column for measure in MEASURES for column in (f"{measure} {name}", f"{measure} − standard")]
    found = [each for _, pair in _comparisons() for each in pair.differences(record, n)]
    return Table(
        caption=(
            f"Arithmetic of the weights, n = {n}: {name} on {record.data}, mean ± largest deviation over seeds, the "
            "smallest of each arithmetic in bold, and paired differences to standard in the same arithmetic. "
            f"{protocol_line(record)} The paper has no such comparison."
        ),
        label="tab:arithmetic",
        header=("arithmetic", "estimator", "seeds", *columns),
        groups=[_rows(record, arithmetic, n) for arithmetic in ARITHMETICS],
        notes=(*shortcomings(record), comparisons_note(found)),
    )


def _rows(record: ImageGrid, arithmetic: str, n: int) -> list[Row]:
    variants = {estimator: f"{arithmetic}/{estimator}" for estimator in LOOKS}
    cells = {measure: measure_cells(record, tuple(variants.values()), n, measure) for measure in MEASURES}
    return [
        (
            arithmetic,
            LOOKS[estimator][0],
            str(len(by_seed(record, variant, n))),
            *(
                cell
                for measure in MEASURES
                for cell in (cells[measure][variant], _difference(record, arithmetic, estimator, n, measure))
            ),
        )
        for estimator, variant in variants.items()
    ]


def _difference(record: ImageGrid, arithmetic: str, estimator: str, n: int, measure: str) -> Cell:
    if estimator == "standard":
        return ""
    return interval_cell(against(arithmetic, estimator).difference(record, n, measure), spec_of(record, measure))


def verdicts(record: ImageGrid) -> list[str]:
    """One sentence for each comparison that has a pair, of the last-5 averages."""
    n = sizes(record)[0]
    return [
        f"{arithmetic}: {pair.verdict(record, n)}"
        for arithmetic, pair in _comparisons()
        if pair.difference(record, n).pairs
    ]


def summary(record: ImageGrid) -> str:
    """The table for the screen, and the verdicts."""
    return table(record).screen("arithmetic", verdicts(record))
