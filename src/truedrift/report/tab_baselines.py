"""`tab:baselines`: what was measured here, the exact values, and those that the paper prints."""

from __future__ import annotations

from pathlib import Path

from truedrift.records import Baseline, Baselines
from truedrift.report.cell import Number, Row, Scientific
from truedrift.report.table import Table

NAME = "tab_baselines"

OF_BIAS = ("noise", "exact", "paper")
NAMES = {
    "standard": "Standard",
    "jackknife": "Jackknife",
    "bootstrap": "Bootstrap",
    "br-snis": "BR-SNIS (i-SIR)",
    "abc": "ABC",
    "abc2": "ABC-2",
}

PAPER = {
    (8, "standard"): (6.24e-2, 7.54e-2, 5.9),
    (8, "jackknife"): (7.02e-2, 1.95e-1, 82.9),
    (8, "bootstrap"): (3.27e-2, 1.08e-1, 996.6),
    (8, "br-snis"): (7.89e-3, 6.68e-3, 1527.6),
    (8, "abc"): (4.99e-2, 8.03e-2, 25.5),
    (32, "standard"): (1.33e-2, 8.07e-3, 11.2),
    (32, "jackknife"): (3.40e-3, 9.85e-3, 136.0),
    (32, "bootstrap"): (7.07e-3, 9.00e-3, 1985.1),
    (32, "br-snis"): (1.09e-3, 1.24e-3, 3521.9),
    (32, "abc"): (7.26e-3, 8.61e-3, 36.9),
    (128, "standard"): (3.63e-3, 1.99e-3, 21.3),
    (128, "jackknife"): (6.20e-4, 2.15e-3, 325.2),
    (128, "bootstrap"): (9.94e-4, 2.12e-3, 3669.7),
    (128, "br-snis"): (2.18e-4, 2.60e-4, 10185.4),
    (128, "abc"): (1.03e-3, 2.10e-3, 57.0),
}
"""(|bias|, variance, microseconds) as the paper prints them."""


def save(record: Baselines, directory: Path) -> list[Path]:
    """The table as Markdown, LaTeX and CSV."""
    return table(record).save(directory, NAME)


def table(record: Baselines) -> Table:
    """Every n, the paper's values beside ours."""
    sizes = dict.fromkeys(row.n for row in record.rows)
    return Table(
        caption=(
            f"Bias, variance and time of an estimate, τ = {record.tau:g}, {record.queries} queries, "
            f"{record.trials:,} trials without replacement from {record.pool_points:,} points. "
            "|bias| is the naive norm, which holds the noise of the trials in quadrature; "
            "exact values are of draws with replacement."
        ),
        label="tab:baselines",
        header=("n", "method", "|bias|", *OF_BIAS, "Var", "exact", "paper", "time, µs", "paper", "references"),
        groups=[[_row(row) for row in record.rows if row.n == n] for n in sizes],
    )


def _row(row: Baseline) -> Row:
    bias, variance, microseconds = PAPER.get((row.n, row.estimator), (None, None, None))
    return (
        str(row.n),
        NAMES[row.estimator],
        Scientific(row.bias),
        Scientific(row.noise),
        Scientific(row.exact_bias),
        Scientific(bias),
        Scientific(row.variance),
        Scientific(row.exact_variance),
        Scientific(variance),
        Number(row.microseconds, ".1f"),
        Number(microseconds, ".1f"),
        str(row.references),
    )


def verdicts(record: Baselines) -> list[str]:
    """One sentence an n: |bias|, variance and time of ABC as multiples of standard's, and the same of the paper."""
    by_place = {(row.n, row.estimator): row for row in record.rows}
    both = [n for n in dict.fromkeys(row.n for row in record.rows) if {(n, "standard"), (n, "abc")} <= by_place.keys()]
    return [_verdict(by_place[n, "standard"], by_place[n, "abc"]) for n in both]


def _verdict(standard: Baseline, abc: Baseline) -> str:
    here = (abc.bias / standard.bias, abc.variance / standard.variance, abc.microseconds / standard.microseconds)
    base, corrected = (PAPER.get((row.n, row.estimator)) for row in (standard, abc))
    told = [f" (paper {a / b:.2f})" for a, b in zip(corrected, base, strict=True)] if base and corrected else [""] * 3
    multiples = zip(("|bias|", "variance", "time"), here, told, strict=True)
    said = ", ".join(f"{name} {ours:.2f}{paper}" for name, ours, paper in multiples)
    return f"n = {abc.n}: ABC as a multiple of standard: {said}"


def summary(record: Baselines) -> str:
    """The table for the screen."""
    lines = [
        f"tab:baselines: N = {record.pool_points:,}, {record.queries} queries N(0, 0.25 I), τ = {record.tau:g}, "
        f"{record.trials:,} trials without replacement, seed {record.provenance.seed}",
    ]
    for n in dict.fromkeys(row.n for row in record.rows):
        columns = ("|bias|", *OF_BIAS, " Var", "exact", "paper", "µs", "paper")
        lines += ["", f"{f'n = {n}':17}" + "".join(f"{column:>9}" for column in columns)]
        lines += [_line(row) for row in record.rows if row.n == n]
    return "\n".join(
        (
            *lines,
            "",
            "|bias| is the paper's naive norm, which holds the noise of the trials in quadrature. Exact values are of",
            "draws with replacement. Paper: what it prints, from another machine, another pool and other queries.",
        )
    )


def _line(row: Baseline) -> str:
    bias, variance, microseconds = PAPER.get((row.n, row.estimator), (None, None, None))
    return (
        f"{NAMES[row.estimator]:17}{_short(row.bias)}{_short(row.noise)}{_short(row.exact_bias)}{_short(bias)}"
        f"{_short(row.variance)}{_short(row.exact_variance)}{_short(variance)}"
        f"{row.microseconds:9.1f}" + ("" if microseconds is None else f"{microseconds:9.1f}")
    )


def _short(value: float | None) -> str:
    return f"{'–':>9}" if value is None else f"{value:9.2e}"
