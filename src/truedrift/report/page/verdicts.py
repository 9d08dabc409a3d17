"""What comes first: a sentence a finding, of every item and every run, and of two runs beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from truedrift.records import Evaluated, Protocol
from truedrift.report.catalog import item_of
from truedrift.report.evaluated import share
from truedrift.report.page.compared import between
from truedrift.report.page.distance import best, judging
from truedrift.report.page.items import anchor
from truedrift.report.page.run_files import Run, number, step_of
from truedrift.report.page.verdict import Tone, Verdict


def of_records(records: Sequence[Any]) -> list[Verdict]:
    """What the items say of their records."""
    items = [(item_of(record), record) for record in records]
    return [
        Verdict(subject=item.label, sentence=sentence, anchor=anchor(item))
        for item, record in items
        for sentence in item.verdicts(record)
    ]


def of_runs(runs: Sequence[Run]) -> list[Verdict]:
    """One a run, and what of it cannot be read; where two are compared, first what stands between them."""
    own = [verdict for run in runs for verdict in (of_run(run), *_judged(run), *_unread(run))]
    return [between(*runs), *own] if len(runs) == 2 else own


def _judged(run: Run) -> list[Verdict]:
    """The last word of `truedrift evaluate` by every protocol."""
    last = {told(each.protocol): each for each in run.judged}
    return [Verdict(subject=run.name, sentence=_sentence(each), about=about) for about, each in last.items()]


def _sentence(of: Evaluated) -> str:
    at = "" if of.step is None else f" at step {of.step:,}"
    return (
        f"{of.protocol.distance_name} {of.metrics.fid:.3g}, precision {share(of.metrics.precision)}, "
        f"recall {share(of.metrics.recall)}{at}, by truedrift evaluate."
    )


def _unread(run: Run) -> list[Verdict]:
    return [Verdict(subject=run.name, sentence=problem, tone="note") for problem in run.problems]


def of_run(run: Run) -> Verdict:
    """How far it is, how near its samples are to the data, and whether it collapsed."""
    state, tone = standing(run)
    collapsed = run.last.get("collapsed") is True
    skipped = number(run.last.get("skipped")) or 0
    spread = number(run.last.get("spread"))
    said = [
        *distances(run),
        f"collapsed (spread {spread:.2f})" if collapsed and spread is not None else "collapsed" if collapsed else "",
        "" if collapsed or spread is None else f"not collapsed (spread {spread:.2f})",
        f"{skipped:,.0f} steps skipped, as they were not finite" if skipped else "",
        state,
    ]
    judged = judging(run)
    about = told(judged.protocol) if judged and judged.protocol else ""
    return Verdict(
        subject=run.name, sentence="; ".join(filter(None, said)) + ".", tone="bad" if collapsed else tone, about=about
    )


def standing(run: Run) -> tuple[str, Tone]:
    """Complete, interrupted, or neither, from the last line of the history that says so."""
    steps = run.config.cadence.steps
    events = [entry for entry in run.history if entry.get("event") in ("started", "resumed", "interrupted", "complete")]
    last = events[-1] if events else {}
    at = step_of(last) or 0
    if last.get("event") == "complete" and at >= steps:
        return f"complete after {steps:,} steps", "good"
    if last.get("event") in ("complete", "interrupted"):
        return f"stopped at step {at:,} of {steps:,}: the same command goes on", "note"
    logged = step_of(run.last) or 0
    return f"not complete: {logged:,} of {steps:,} steps are logged", "note"


def distances(run: Run) -> list[str]:
    """The last and the best distance of the training."""
    last, least = judging(run), best(run)
    if last is None:
        return [] if run.judged else ["not evaluated"]
    said = f"{last.distance_name} {last.distance:.3g} at step {last.step:,}"
    return [said if least in (None, last) else f"{said}, best {least.distance:.3g} at step {least.step:,}"]


def told(protocol: Protocol) -> str:
    """The protocol in a line."""
    return (
        f"{protocol.distance_name} in {protocol.dimensions} features of {protocol.extractor} "
        f"({protocol.extractor_sha256[:12]}; {protocol.prepared}); {protocol.samples:,} samples, "
        f"labels {protocol.labels}, seed {protocol.seed}, {protocol.weights} weights, "
        f"against {protocol.reference_count:,} of {protocol.reference} ({protocol.split})"
    )
