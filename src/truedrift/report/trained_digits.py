"""The digits as trained here: a row an estimator, mean and spread over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from truedrift.records import DigitsRun, TrainedDigits
from truedrift.report.table import Table

NAME = "trained_digits"


def table(record: TrainedDigits) -> Table:
    """Mean and largest deviation over seeds."""
    rows = []
    for estimator in dict.fromkeys(run.estimator for run in record.runs):
        runs = [run for run in record.runs if run.estimator == estimator]
        rows.append(
            (
                estimator,
                spread([run.recognized for run in runs], "%"),
                spread([run.distance_ratio for run in runs], ""),
                _seconds(runs),
                ", ".join(str(run.seed) for run in runs),
            )
        )
    caption = (
        f"Digits, n = {record.n}, {record.steps} steps: {record.samples} samples judged by a classifier that gets "
        f"{record.accuracy:.1%} of held-out digits right; distance between samples of a class over that of the data. "
        f"Mean ± largest deviation over seeds; {record.threads} threads."
    )
    header = ("estimator", "recognized", "distance ratio", "seconds a run", "seeds")
    return Table(caption=caption, label="trained-digits", header=header, groups=[rows])


def spread(values: Sequence[float], unit: str) -> str:
    """Mean ± largest deviation from it."""
    mean = statistics.fmean(values)
    deviation = max(abs(value - mean) for value in values)
    return f"{mean:.1%} ± {deviation:.1%}" if unit == "%" else f"{mean:.2f} ± {deviation:.2f}"


def _seconds(runs: Sequence[DigitsRun]) -> str:
    timed = [run.seconds for run in runs if run.seconds > 0]
    return f"{statistics.fmean(timed):.0f}" if timed else "–"


def verdicts(record: TrainedDigits) -> list[str]:
    """One sentence an estimator: how many samples are recognized."""
    by_estimator = dict.fromkeys(run.estimator for run in record.runs)
    shares = {name: [run.recognized for run in record.runs if run.estimator == name] for name in by_estimator}
    return [f"{name}: {spread(found, '%')} of the samples are recognized" for name, found in shares.items()]


def save(record: TrainedDigits, directory: Path) -> list[Path]:
    """The table as Markdown, LaTeX and CSV."""
    return table(record).save(directory, NAME)


def summary(record: TrainedDigits) -> str:
    """The table for the screen."""
    rendered = table(record)
    return "\n".join((rendered.caption, "", rendered.aligned()))
