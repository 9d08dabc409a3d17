"""Variants of a grid against a base one, as rows of a table.

A variant's row has mean ± largest deviation over seeds of the last-5 average and of the best distance; a row of a
difference has the mean of the paired differences to the base, with its 95 % interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from truedrift.records import ImageGrid
from truedrift.report.cell import Cell, Interval, Row, Spread
from truedrift.report.grid import by_seed, decimals, evaluated, measured
from truedrift.report.over_seeds import Paired, best, last_average, mean_and_deviation, paired
from truedrift.report.verdict import sentence

MEASURES = {"last-5 average": last_average, "best": best}
Printed = tuple[float, float | None]
"""Mean and deviation as the paper prints them; a single number has no deviation."""
Paper = Mapping[str, Sequence[Printed]]
"""For a variant, or for "difference", what the paper prints of each measure."""


@dataclass(frozen=True, kw_only=True)
class Against:
    """A variant and the base that it is compared with, both with their names for people."""

    variant: str
    name: str
    base: str
    base_name: str

    def difference(self, record: ImageGrid, n: int, measure: str = "last-5 average") -> Paired:
        """Variant − base over the seeds of both."""
        of = MEASURES[measure]
        return paired(measured(record, self.base, n, of), measured(record, self.variant, n, of))

    def differences(self, record: ImageGrid, n: int) -> list[Paired]:
        """Of every measure."""
        return [self.difference(record, n, measure) for measure in MEASURES]

    def verdict(self, record: ImageGrid, n: int) -> str:
        """What the last-5 averages say."""
        return sentence(self.difference(record, n), self.name, self.base_name, spec_of(record, "last-5 average"))


ABC_AGAINST_STANDARD = Against(variant="abc", name="ABC", base="standard", base_name="standard")


def spec_of(record: ImageGrid, measure: str) -> str:
    """How numbers of this measure are shown in this grid."""
    return decimals(MEASURES[measure](run) for run in evaluated(record))


def spread_cell(values: Sequence[float], spec: str, *, bold: bool = False, note: str = "") -> Spread:
    """Mean ± largest deviation; a dash where there is nothing, and no deviation of a single value."""
    if not values:
        return Spread(None, None, 0, spec, note=note)
    mean, deviation = mean_and_deviation(values)
    return Spread(mean, deviation if len(values) > 1 else None, len(values), spec, bold, note)


def interval_cell(found: Paired, spec: str) -> Interval:
    """Mean difference and its limits."""
    return Interval(found.mean, found.low, found.high, found.pairs, spec)


def printed_cell(printed: Printed | None, note: str = "") -> Spread:
    """What the paper prints, or a dash."""
    mean, deviation = printed or (None, None)
    return Spread(mean, deviation, None, note=note)


def measure_cells(record: ImageGrid, variants: Sequence[str], n: int, measure: str) -> dict[str, Spread]:
    """A cell for each variant, with the smallest mean in bold."""
    values = {variant: list(measured(record, variant, n, MEASURES[measure]).values()) for variant in variants}
    winner = smallest({variant: mean_and_deviation(each)[0] for variant, each in values.items() if each})
    spec = spec_of(record, measure)
    return {variant: spread_cell(each, spec, bold=variant == winner) for variant, each in values.items()}


def smallest(means: Mapping[str, float]) -> str | None:
    """The name of the smallest of two or more; None where two share it."""
    least = [name for name, mean in means.items() if mean == min(means.values())]
    return least[0] if len(means) > 1 and len(least) == 1 else None


def triple(record: ImageGrid, against: Against, n: int, paper: Paper, beside: Sequence[Cell] = ()) -> list[Row]:
    """Rows of base, variant and difference: n, name, seeds, `beside`, and each measure next to the paper's."""
    variants = {against.base: against.base_name, against.variant: against.name}
    cells = {measure: measure_cells(record, tuple(variants), n, measure) for measure in MEASURES}
    rows: list[Row] = [
        _row(
            (str(n), name, str(len(by_seed(record, variant, n))), *beside),
            [cells[measure][variant] for measure in MEASURES],
            paper.get(variant),
        )
        for variant, name in variants.items()
    ]
    found = against.differences(record, n)
    start = (str(n), f"{against.name} − {against.base_name}", str(found[0].pairs), *("" for _ in beside))
    intervals = [interval_cell(each, spec_of(record, measure)) for each, measure in zip(found, MEASURES, strict=True)]
    return [*rows, _row(start, intervals, paper.get("difference"))]


def _row(start: Sequence[Cell], cells: Sequence[Cell], paper: Sequence[Printed] | None) -> Row:
    printed = [printed_cell(each) for each in paper] if paper else [printed_cell(None) for _ in cells]
    return (*start, *(each for pair in zip(cells, printed, strict=True) for each in pair))
