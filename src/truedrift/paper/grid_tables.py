"""The runs of a grid as its items read them: by variant, n and seed; and the sentences that all their captions need.

Variants of a grid against a base one, as rows of a table.

A variant's row has mean ± largest deviation over seeds of the last-5 average and of the best distance; a row of a
difference has the mean of the paired differences to the base, with its 95 % interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from truedrift.errors import UserError
from truedrift.grids.results import ImageGrid, ImageRun
from truedrift.paper.seeds import LAST, Paired, best, difference_sentence, last_average, mean_and_deviation, paired
from truedrift.report.table import Cell, Interval, MeanCell, Number, Row


def evaluated_runs(record: ImageGrid) -> list[ImageRun]:
    """The runs with at least one evaluation; a ValueError where there is none."""
    runs = [run for run in record.runs if run.evaluations]
    if not runs:
        raise UserError(
            f"the record of {record.item} has {len(record.runs)} runs and no evaluation",
            "allowed is a grid with one evaluated run or more",
            f"run {record.provenance.command!r} to its end",
        )
    return runs


def sizes(record: ImageGrid) -> list[int]:
    """Every n, from the smallest."""
    return sorted({run.n for run in evaluated_runs(record)})


def by_seed(record: ImageGrid, variant: str, n: int) -> dict[int, ImageRun]:
    """The evaluated runs of a variant at an n, from the smallest seed."""
    runs = (run for run in evaluated_runs(record) if run.variant == variant and run.n == n)
    return {run.seed: run for run in sorted(runs, key=lambda run: run.seed)}


def values_by_seed(record: ImageGrid, variant: str, n: int, of: Callable[[ImageRun], float]) -> dict[int, float]:
    """A number of each of these runs, by seed."""
    return {seed: of(run) for seed, run in by_seed(record, variant, n).items()}


def total_positives(record: ImageGrid, positives: float) -> float:
    """Positives over all classes, from those of each."""
    return positives * record.classes


def one_or_all(values: Iterable[int]) -> Cell:
    """The number that all runs share, or the different ones."""
    first, *others = sorted(set(values))
    return ", ".join(f"{value:,}" for value in (first, *others)) if others else Number(first, ",d")


def decimals(values: Iterable[float]) -> str:
    """The format that shows at least two decimals, and three digits of the smallest number."""
    smallest = min((abs(value) for value in values if value), default=1.0)
    return f".{min(6, max(2, 2 - math.floor(math.log10(smallest))))}f"


def protocol_line(record: ImageGrid) -> str:
    """How the distance was measured, in one sentence."""
    of = record.protocol
    return (
        f"{of.distance_name} by {of.extractor} (sha256 {of.extractor_sha256[:12]}), {of.samples:,} samples against "
        f"{of.reference_count:,} images of {of.reference}, split {of.split}; evaluated every "
        f"{record.evaluate_every_epochs} epochs."
    )


def coverage_notes(record: ImageGrid) -> list[str]:
    """What the reader of averages has to know of this grid: runs without an evaluation, and runs with few."""
    runs = evaluated_runs(record)
    short = [len(run.evaluations) for run in runs if len(run.evaluations) < LAST]
    few = (
        f"{len(short)} of {len(runs)} runs have fewer than {LAST} evaluations (the fewest: {min(short, default=0)}); "
        f"their last-{LAST} average is that of all they have."
    )
    return [*unevaluated_note(record), *([few] if short else [])]


def unevaluated_note(record: ImageGrid) -> list[str]:
    """How many runs have no evaluation at all, if there are any."""
    missing = len(record.runs) - len(evaluated_runs(record))
    return [f"Runs without an evaluation, left out: {missing}."] if missing else []


MEASURES = {"last-5 average": last_average, "best": best}
Printed = tuple[float, float | None]
"""Mean and deviation as the paper prints them; a single number has no deviation."""
Paper = Mapping[str, Sequence[Printed]]
"""For a variant, or for "difference", what the paper prints of each measure."""


@dataclass(frozen=True, kw_only=True)
class VariantComparison:
    """A variant and the base that it is compared with, both with their names for people."""

    variant: str
    name: str
    base: str
    base_name: str

    def difference(self, record: ImageGrid, n: int, measure: str = "last-5 average") -> Paired:
        """Variant − base over the seeds of both."""
        of = MEASURES[measure]
        return paired(values_by_seed(record, self.base, n, of), values_by_seed(record, self.variant, n, of))

    def differences(self, record: ImageGrid, n: int) -> list[Paired]:
        """Of every measure."""
        return [self.difference(record, n, measure) for measure in MEASURES]

    def verdict(self, record: ImageGrid, n: int) -> str:
        """What the last-5 averages say."""
        return difference_sentence(
            self.difference(record, n), self.name, self.base_name, number_format(record, "last-5 average")
        )


ABC_AGAINST_STANDARD = VariantComparison(variant="abc", name="ABC", base="standard", base_name="standard")


def number_format(record: ImageGrid, measure: str) -> str:
    """How numbers of this measure are shown in this grid."""
    return decimals(MEASURES[measure](run) for run in evaluated_runs(record))


def mean_cell(values: Sequence[float], spec: str, *, bold: bool = False, note: str = "") -> MeanCell:
    """Mean ± largest deviation; a dash where there is nothing, and no deviation of a single value."""
    if not values:
        return MeanCell(None, None, 0, spec, note=note)
    mean, deviation = mean_and_deviation(values)
    return MeanCell(mean, deviation if len(values) > 1 else None, len(values), spec, bold, note)


def interval_cell(found: Paired, spec: str) -> Interval:
    """Mean difference and its limits."""
    return Interval(found.mean, found.low, found.high, found.pairs, spec)


def printed_cell(printed: Printed | None, note: str = "") -> MeanCell:
    """What the paper prints, or a dash."""
    mean, deviation = printed or (None, None)
    return MeanCell(mean, deviation, None, note=note)


def measure_cells(record: ImageGrid, variants: Sequence[str], n: int, measure: str) -> dict[str, MeanCell]:
    """A cell for each variant, with the smallest mean in bold."""
    values = {variant: list(values_by_seed(record, variant, n, MEASURES[measure]).values()) for variant in variants}
    winner = smallest_mean({variant: mean_and_deviation(each)[0] for variant, each in values.items() if each})
    spec = number_format(record, measure)
    return {variant: mean_cell(each, spec, bold=variant == winner) for variant, each in values.items()}


def smallest_mean(means: Mapping[str, float]) -> str | None:
    """The name of the smallest of two or more; None where two share it."""
    least = [name for name, mean in means.items() if mean == min(means.values())]
    return least[0] if len(means) > 1 and len(least) == 1 else None


def comparison_rows(
    record: ImageGrid, against: VariantComparison, n: int, paper: Paper, beside: Sequence[Cell] = ()
) -> list[Row]:
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
    intervals = [
        interval_cell(each, number_format(record, measure)) for each, measure in zip(found, MEASURES, strict=True)
    ]
    return [*rows, _row(start, intervals, paper.get("difference"))]


def _row(start: Sequence[Cell], cells: Sequence[Cell], paper: Sequence[Printed] | None) -> Row:
    printed = [printed_cell(each) for each in paper] if paper else [printed_cell(None) for _ in cells]
    return (*start, *(each for pair in zip(cells, printed, strict=True) for each in pair))
