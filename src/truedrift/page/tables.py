"""Tables of runs: numbers at the end, and options that differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from truedrift.page.charts import images_per_second
from truedrift.page.findings import describe_protocol, runs_table
from truedrift.page.markup import Content, Markup, element, table
from truedrift.page.run_data import (
    Run,
    best_evaluation,
    describe_drawn,
    differing_options,
    final_distances,
    flatten,
    format_value,
    is_overview,
    last_evaluation,
    number,
    runs_to_draw,
)
from truedrift.report.table import DASH, Cell, MeanCell, Number, Row, Table, cell_text

AT_THE_END = "at the end"
"""Heads the names of the numbers."""


def final_numbers(runs: Sequence[Run]) -> Markup:
    """The rows as HTML."""
    header: list[Content] = [AT_THE_END, *(element("bdi", run.name) for run in runs)]
    return table(header, [[cell_text(cell) for cell in row] for row in final_rows(runs)])


def final_rows(runs: Sequence[Run]) -> list[Row]:
    """A row a number, a column a run; a number that no run has is left out."""
    ends = {name: _distance(name) for name in _distances(runs)}
    rows = [[name, *map(value, runs)] for name, value in (ends | _ROWS).items()]
    return [row for row in rows if any(cell_text(cell) != DASH for cell in row[1:])]


def _distances(runs: Sequence[Run]) -> list[str]:
    """The names of the distances that the runs ended with, each once."""
    return list(dict.fromkeys(last.distance_name for last in map(last_evaluation, runs) if last))


def _distance(name: str) -> Callable[[Run], Cell]:
    def cell(run: Run) -> Cell:
        last = last_evaluation(run)
        return Number(last.distance if last and last.distance_name == name else None, ".4g")

    return cell


def _best(run: Run) -> Cell:
    least = best_evaluation(run)
    return (
        Number(None) if least is None else MeanCell(least.distance, None, None, ".4g", note=f"at step {least.step:,}")
    )


def _metric(name: str, digits: str, deviation: str = "") -> Callable[[Run], Cell]:
    def cell(run: Run) -> Cell:
        last = last_evaluation(run)
        value = number(last.metrics.get(name)) if last else None
        spread = number(last.metrics.get(deviation)) if last else None
        return Number(None) if value is None else MeanCell(value, spread, None, digits)

    return cell


def _telemetry(name: str, digits: str) -> Callable[[Run], Cell]:
    return lambda run: Number(number(run.last.get(name)), digits)


def _speed(run: Run) -> Cell:
    return Number(number(images_per_second(run.last)), ",.0f")


_ROWS: dict[str, Callable[[Run], Cell]] = {
    "best distance": _best,
    "KID": _metric("kid", ".3g", "kid_deviation"),
    "precision": _metric("precision", ".3f"),
    "recall": _metric("recall", ".3f"),
    "Inception Score": _metric("inception_score", ".3g", "inception_score_deviation"),
    "positives of a class seen": _telemetry("positives_seen", ",.0f"),
    "spread": _telemetry("spread", ".3f"),
    "gradient norm": _telemetry("gradient_norm", ".3g"),
    "generated images a second": _speed,
}

_UNKNOWN = "the protocol is not known, and the distance cannot be compared"


def final(runs: Sequence[Run]) -> Table | None:
    """A row a number and a column a run, or of many a row a run; None where nothing was logged."""
    if is_overview(runs):
        return runs_table(runs) if any(run.telemetry or final_distances(run) for run in runs) else None
    rows = final_rows(runs)
    if not rows:
        return None
    return Table(
        caption="Runs where their training ended; the best distance is the least on the way, by the same protocol.",
        label="tab:runs",
        header=(AT_THE_END, *(run.name for run in runs)),
        groups=[rows],
        notes=_protocols(runs),
    )


def _protocols(runs: Sequence[Run]) -> list[str]:
    """Every protocol once, after the runs that it judged."""
    by: dict[str, list[str]] = {}
    for run in runs:
        last = last_evaluation(run)
        if last:
            by.setdefault(describe_protocol(last.protocol) if last.protocol else _UNKNOWN, []).append(run.name)
    return [f"{', '.join(names)}: {protocol}." for protocol, names in by.items()]


def differences(runs: Sequence[Run]) -> Table | None:
    """A row an option and a column a run, of many those that are drawn; None where all are the same."""
    paths, few = differing_options(runs), runs_to_draw(runs)
    if not paths:
        return None
    trees = [flatten(run.config.tree()) for run in few]
    return Table(
        caption="Options in which the configurations of the runs differ.",
        label="tab:differences",
        header=("option", *(run.name for run in few)),
        groups=[[(path, *(format_value(tree, path) for tree in trees)) for path in paths]],
        notes=[describe_drawn(runs)] if is_overview(runs) else [],
    )
