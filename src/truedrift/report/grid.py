"""The runs of a grid as its items read them: by variant, n and seed; and the sentences that all their captions need."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from truedrift.records import ImageGrid, ImageRun
from truedrift.report.cell import Cell, Number
from truedrift.report.over_seeds import LAST
from truedrift.validation import mistake


def evaluated(record: ImageGrid) -> list[ImageRun]:
    """The runs with at least one evaluation; a ValueError where there is none."""
    runs = [run for run in record.runs if run.evaluations]
    if not runs:
        raise mistake(
            f"the record of {record.item} has {len(record.runs)} runs and no evaluation",
            "allowed is a grid with one evaluated run or more",
            f"run {record.provenance.command!r} to its end",
        )
    return runs


def sizes(record: ImageGrid) -> list[int]:
    """Every n, from the smallest."""
    return sorted({run.n for run in evaluated(record)})


def by_seed(record: ImageGrid, variant: str, n: int) -> dict[int, ImageRun]:
    """The evaluated runs of a variant at an n, from the smallest seed."""
    runs = (run for run in evaluated(record) if run.variant == variant and run.n == n)
    return {run.seed: run for run in sorted(runs, key=lambda run: run.seed)}


def measured(record: ImageGrid, variant: str, n: int, of: Callable[[ImageRun], float]) -> dict[int, float]:
    """A number of each of these runs, by seed."""
    return {seed: of(run) for seed, run in by_seed(record, variant, n).items()}


def seen(record: ImageGrid, positives: float) -> float:
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


def shortcomings(record: ImageGrid) -> list[str]:
    """What the reader of averages has to know of this grid: runs without an evaluation, and runs with few."""
    runs = evaluated(record)
    short = [len(run.evaluations) for run in runs if len(run.evaluations) < LAST]
    few = (
        f"{len(short)} of {len(runs)} runs have fewer than {LAST} evaluations (the fewest: {min(short, default=0)}); "
        f"their last-{LAST} average is that of all they have."
    )
    return [*left_out(record), *([few] if short else [])]


def left_out(record: ImageGrid) -> list[str]:
    """How many runs have no evaluation at all, if there are any."""
    missing = len(record.runs) - len(evaluated(record))
    return [f"Runs without an evaluation, left out: {missing}."] if missing else []
