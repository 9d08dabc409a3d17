"""The answer of `truedrift bias`: bias, noise and what they are a share of."""

from __future__ import annotations

from pathlib import Path

from truedrift.records import BiasAt, PoolBias
from truedrift.report.table import Scientific, Table

NAME = "bias"


def save(record: PoolBias, directory: Path) -> list[Path]:
    """The table as Markdown, LaTeX and CSV."""
    return table(record).save(directory, NAME)


def table(record: PoolBias) -> Table:
    """One row for each estimator and n."""
    by_estimator = dict.fromkeys(row.estimator for row in record.rows)
    return Table(
        caption=_head(record).replace("\n", " "),
        label="tab:bias",
        header=("estimator", "n", "bias", "error", "noise"),
        groups=[
            [
                (row.estimator, str(row.n), Scientific(row.bias), Scientific(row.error), Scientific(row.noise))
                for row in record.rows
                if row.estimator == estimator
            ]
            for estimator in by_estimator
        ],
    )


def summary(record: PoolBias) -> str:
    """The same for the screen, with the bias as a share of the spread and of the noise."""
    exact = record.trials is None
    lines = [
        _head(record),
        f"means over queries: spread of the pool around T* {record.spread:.4g}, n_eff {record.n_eff_share:.1%} of n",
        "",
        f"{'estimator':12}{'n':>8}{'bias':>11}{'± error' if exact else '± std.err':>11}{'of spread':>11}"
        f"{'noise':>11}{'bias/noise':>12}",
    ]
    lines += [_line(row, record.spread) for row in record.rows]
    if exact:
        note = "Exact: error is the numerical one. Noise is √(tr Var T), the size of a single minibatch's error."
    else:
        note = "Bias is the variance-corrected norm; where noise/√trials is as large, it is an upper limit."
    return "\n".join((*lines, "", note))


def _head(record: PoolBias) -> str:
    how = "exact" if record.trials is None else f"{record.trials:,} trials, seed {record.provenance.seed}"
    draws = "with" if record.replacement else "without"
    return (
        f"bias of the centroid of n references, drawn {draws} replacement from {record.pool} "
        f"({record.pool_points:,} × {record.dimensions}):\n{record.kernel} kernel, τ = {record.tau:g}, "
        f"{record.queries} queries, {how}"
    )


def _line(row: BiasAt, spread: float) -> str:
    noise = f"{'–':>11}{'–':>12}" if row.noise is None else f"{row.noise:11.3e}{_ratio(row.bias, row.noise):>12}"
    return f"{row.estimator:12}{row.n:8d}{row.bias:11.3e}{row.error:11.1e}{_ratio(row.bias, spread):>11}{noise}"


def _ratio(value: float, of: float) -> str:
    return f"{value / of:.2%}" if of > 0 else "–"
