"""What the tables of image grids share: runs by variant, n and seed, rows that compare variants, and caption sentences.

The row of a variant has mean ± largest deviation over seeds of the last-5 average and of the best distance; the row of
a difference has the mean of the paired differences to the base, with its 95 % interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from truedrift.errors import UserError
from truedrift.grids.results import ImageGrid, ImageRun
from truedrift.paper.seeds import LAST, Paired, best, difference_sentence, last_average, mean_and_deviation, paired
from truedrift.report.table import Cell, Interval, MeanCell, Number, Row


def runs_with_evaluations(record: ImageGrid) -> list[ImageRun]:
    """Return the runs with at least one evaluation.

    Raises:
        UserError: There is none.
    """
    runs = [run for run in record.runs if run.evaluations]
    if not runs:
        raise UserError(
            f"the record of {record.item} has {len(record.runs)} runs and no evaluation",
            "must have one evaluated run or more",
            f"run {record.provenance.command!r} to its end",
        )
    return runs


def sizes(record: ImageGrid) -> list[int]:
    """Return every n, from the smallest."""
    return sorted({run.n for run in runs_with_evaluations(record)})


def by_seed(record: ImageGrid, variant: str, n: int) -> dict[int, ImageRun]:
    """Return the evaluated runs of a variant at an n, by seed."""
    runs = (run for run in runs_with_evaluations(record) if run.variant == variant and run.n == n)
    return {run.seed: run for run in sorted(runs, key=lambda run: run.seed)}


def values_by_seed(record: ImageGrid, variant: str, n: int, of: Callable[[ImageRun], float]) -> dict[int, float]:
    """Return a number of each of these runs, by seed."""
    return {seed: of(run) for seed, run in by_seed(record, variant, n).items()}


def total_positives(record: ImageGrid, positives: float) -> float:
    """Return the positives over all classes from those per class."""
    return positives * record.classes


def one_or_all(values: Iterable[int]) -> Cell:
    """Return a cell with the number that all runs share, or with the different ones."""
    first, *others = sorted(set(values))
    return ", ".join(f"{value:,}" for value in (first, *others)) if others else Number(first, ",d")


def decimals(values: Iterable[float]) -> str:
    """Return the format that shows at least two decimals, and three digits of the smallest number."""
    smallest = min((abs(value) for value in values if value), default=1.0)
    return f".{min(6, max(2, 2 - math.floor(math.log10(smallest))))}f"


def protocol_line(record: ImageGrid) -> str:
    """Return one sentence on how the distance was measured."""
    of = record.protocol
    return (
        f"{of.distance_name} by {of.extractor} (sha256 {of.extractor_sha256[:12]}), {of.samples:,} samples against "
        f"{of.reference_count:,} images of {of.reference}, split {of.split}; evaluated every "
        f"{record.evaluate_every_epochs} epochs."
    )


def coverage_notes(record: ImageGrid) -> list[str]:
    """Return notes on runs without an evaluation and on runs with few."""
    runs = runs_with_evaluations(record)
    short = [len(run.evaluations) for run in runs if len(run.evaluations) < LAST]
    few = (
        f"{len(short)} of {len(runs)} runs have fewer than {LAST} evaluations (the fewest: {min(short, default=0)}); "
        f"their last-{LAST} average is that of all they have."
    )
    return [*unevaluated_note(record), *([few] if short else [])]


def unevaluated_note(record: ImageGrid) -> list[str]:
    """Return a note on runs without any evaluation, if there are some."""
    missing = len(record.runs) - len(runs_with_evaluations(record))
    return [f"Runs without an evaluation, left out: {missing}."] if missing else []


MEASURES = {"last-5 average": last_average, "best": best}
Printed = tuple[float, float | None]
"""Mean and deviation as the paper prints them; a single number has no deviation."""
Paper = Mapping[str, Sequence[Printed]]
"""Variant, or "difference" → printed value of each measure."""


@dataclass(frozen=True, kw_only=True)
class VariantComparison:
    """A variant and the base that it is compared with, both with their display names."""

    variant: str
    name: str
    base: str
    base_name: str

    def difference(self, record: ImageGrid, n: int, measure: str = "last-5 average") -> Paired:
        """Return variant − base over the seeds that both have."""
        of = MEASURES[measure]
        return paired(values_by_seed(record, self.base, n, of), values_by_seed(record, self.variant, n, of))

    def differences(self, record: ImageGrid, n: int) -> list[Paired]:
        """Return the difference of every measure."""
        return [self.difference(record, n, measure) for measure in MEASURES]

    def verdict(self, record: ImageGrid, n: int) -> str:
        """Return a sentence on the last-5 averages."""
        return difference_sentence(
            self.difference(record, n), self.name, self.base_name, number_format(record, "last-5 average")
        )


ABC_AGAINST_STANDARD = VariantComparison(variant="abc", name="ABC", base="standard", base_name="standard")


def number_format(record: ImageGrid, measure: str) -> str:
    """Return the number format of a measure in this grid."""
    return decimals(MEASURES[measure](run) for run in runs_with_evaluations(record))


def mean_cell(values: Sequence[float], spec: str, *, bold: bool = False, note: str = "") -> MeanCell:
    """Return the mean ± largest deviation; no value is a dash, and a single value has no deviation."""
    if not values:
        return MeanCell(None, None, 0, spec, note=note)
    mean, deviation = mean_and_deviation(values)
    return MeanCell(mean, deviation if len(values) > 1 else None, len(values), spec, bold, note)


def interval_cell(found: Paired, spec: str) -> Interval:
    """Return a cell with the mean difference and its limits."""
    return Interval(found.mean, found.low, found.high, found.pairs, spec)


def printed_cell(printed: Printed | None, note: str = "") -> MeanCell:
    """Return a cell with the printed value, or a dash."""
    mean, deviation = printed or (None, None)
    return MeanCell(mean, deviation, None, note=note)


def measure_cells(record: ImageGrid, variants: Sequence[str], n: int, measure: str) -> dict[str, MeanCell]:
    """Return one cell per variant, with the smallest mean in bold."""
    values = {variant: list(values_by_seed(record, variant, n, MEASURES[measure]).values()) for variant in variants}
    winner = smallest_mean({variant: mean_and_deviation(each)[0] for variant, each in values.items() if each})
    spec = number_format(record, measure)
    return {variant: mean_cell(each, spec, bold=variant == winner) for variant, each in values.items()}


def smallest_mean(means: Mapping[str, float]) -> str | None:
    """Return the name of the smallest of two or more means; None for a tie."""
    least = [name for name, mean in means.items() if mean == min(means.values())]
    return least[0] if len(means) > 1 and len(least) == 1 else None


def comparison_rows(
    record: ImageGrid, against: VariantComparison, n: int, paper: Paper, extra: Sequence[Cell] = ()
) -> list[Row]:
    """Return rows of base, variant and difference: n, name, seeds, `extra`, and each measure next to the paper's."""
    variants = {against.base: against.base_name, against.variant: against.name}
    cells = {measure: measure_cells(record, tuple(variants), n, measure) for measure in MEASURES}
    rows: list[Row] = [
        _row(
            (str(n), name, str(len(by_seed(record, variant, n))), *extra),
            [cells[measure][variant] for measure in MEASURES],
            paper.get(variant),
        )
        for variant, name in variants.items()
    ]
    found = against.differences(record, n)
    start = (str(n), f"{against.name} − {against.base_name}", str(found[0].pairs), *("" for _ in extra))
    intervals = [
        interval_cell(each, number_format(record, measure)) for each, measure in zip(found, MEASURES, strict=True)
    ]
    return [*rows, _row(start, intervals, paper.get("difference"))]


def _row(start: Sequence[Cell], cells: Sequence[Cell], paper: Sequence[Printed] | None) -> Row:
    printed = [printed_cell(each) for each in paper] if paper else [printed_cell(None) for _ in cells]
    return (*start, *(each for pair in zip(cells, printed, strict=True) for each in pair))
