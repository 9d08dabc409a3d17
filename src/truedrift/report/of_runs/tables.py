"""Tables of runs: where they ended, and in which options they differ."""

from __future__ import annotations

from collections.abc import Sequence

from truedrift.report.page.chosen import are_many, differing, drawn, which_drawn
from truedrift.report.page.configuration import dotted, written
from truedrift.report.page.distance import ends, judging
from truedrift.report.page.final import AT_THE_END, final_rows
from truedrift.report.page.overview import told_in_rows
from truedrift.report.page.run_files import Run
from truedrift.report.page.verdicts import told
from truedrift.report.table import Table

_UNKNOWN = "the protocol is not known, and the distance cannot be compared"


def final(runs: Sequence[Run]) -> Table | None:
    """A row a number and a column a run, or of many a row a run; None where nothing was logged."""
    if are_many(runs):
        return told_in_rows(runs) if any(run.telemetry or ends(run) for run in runs) else None
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
        last = judging(run)
        if last:
            by.setdefault(told(last.protocol) if last.protocol else _UNKNOWN, []).append(run.name)
    return [f"{', '.join(names)}: {protocol}." for protocol, names in by.items()]


def differences(runs: Sequence[Run]) -> Table | None:
    """A row an option and a column a run, of many those that are drawn; None where all are the same."""
    paths, few = differing(runs), drawn(runs)
    if not paths:
        return None
    trees = [dotted(run.config.tree()) for run in few]
    return Table(
        caption="Options in which the configurations of the runs differ.",
        label="tab:differences",
        header=("option", *(run.name for run in few)),
        groups=[[(path, *(written(tree, path) for tree in trees)) for path in paths]],
        notes=[which_drawn(runs)] if are_many(runs) else [],
    )
