"""Findings: one sentence per result, at the top of the page.

Few runs have one finding each; two runs are also compared; many runs have findings in common. The tone of a finding,
which decides its color, is derived from `RunStatus` and `Run.has_collapsed`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from truedrift.evaluation.record import EvaluationRecord, Protocol
from truedrift.page.run_data import (
    FinalDistance,
    Run,
    RunStatus,
    best_evaluation,
    final_distances,
    is_overview,
    last_evaluation,
    last_event,
    pluralize,
    run_status,
    step_of,
    to_number,
)
from truedrift.paper.catalog import find_item
from truedrift.report.item import Item
from truedrift.report.screens import share

MOST_NAMES = 5
"""Number of runs and problems that are listed."""
COMPARISON = "Comparison"
UNREADABLE = "Not readable"
"""Subject of the findings on what is missing from the page."""


class Tone(IntEnum):
    """Urgency of a finding."""

    PLAIN = 0
    GOOD = 1
    NOTE = 2
    BAD = 3


STATUS_TONES = {RunStatus.COMPLETE: Tone.GOOD, RunStatus.STOPPED: Tone.NOTE, RunStatus.UNFINISHED: Tone.NOTE}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A sentence about a subject: an item of the paper, a run, or several runs."""

    subject: str
    sentence: str
    tone: Tone = Tone.PLAIN
    about: str = ""
    """How the numbers were obtained, such as the protocol."""
    anchor: str | None = None
    """The section of the page with the details."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """All findings about one subject, in the tone of the most urgent one."""

    subject: str
    findings: Sequence[Finding]
    tone: Tone
    anchor: str | None


def group_findings(findings: Sequence[Finding]) -> list[Card]:
    """One card per subject, in the order of the findings."""
    by_subject: dict[str, list[Finding]] = {}
    for finding in findings:
        by_subject.setdefault(finding.subject, []).append(finding)
    return [
        Card(subject=subject, findings=group, tone=max(each.tone for each in group), anchor=group[0].anchor)
        for subject, group in by_subject.items()
    ]


def item_anchor(item: Item) -> str:
    """The id of the item's section."""
    return "item-" + re.sub(r"[^a-z0-9]+", "-", item.label.lower())


def findings_of_records(records: Sequence[Any]) -> list[Finding]:
    """The findings of the paper's items."""
    items = [(find_item(record), record) for record in records]
    return [
        Finding(subject=item.label, sentence=sentence, anchor=item_anchor(item))
        for item, record in items
        for sentence in item.findings(record)
    ]


def findings_of_runs(runs: Sequence[Run]) -> list[Finding]:
    """The findings of runs: one by one if they are few, preceded by a comparison if they are two."""
    if is_overview(runs):
        return findings_of_many(runs)
    comparison = [compare_runs(*runs)] if len(runs) == 2 else []
    return [*comparison, *(finding for run in runs for finding in _findings_of_run(run))]


def findings_of_problems(problems: Sequence[str], subject: str = UNREADABLE) -> list[Finding]:
    """One note per problem."""
    return [Finding(subject=subject, sentence=problem, tone=Tone.NOTE) for problem in problems]


# One run


def _findings_of_run(run: Run) -> list[Finding]:
    later = {describe_protocol(each.protocol): each for each in run.later_evaluations}  # the last one per protocol
    evaluated = [
        Finding(subject=run.name, sentence=_describe_evaluation(each), about=protocol)
        for protocol, each in later.items()
    ]
    return [describe_run(run), *evaluated, *findings_of_problems(run.problems, run.name)]


def describe_run(run: Run) -> Finding:
    """Distance, collapse, skipped steps and status of a run."""
    skipped = to_number(run.last.get("skipped")) or 0
    last = last_evaluation(run)
    parts = [
        _describe_distance(run),
        _describe_collapse(run),
        f"{skipped:,.0f} steps skipped because their loss or gradient was not finite" if skipped else "",
        describe_status(run),
    ]
    return Finding(
        subject=run.name,
        sentence="; ".join(filter(None, parts)) + ".",
        tone=Tone.BAD if run.has_collapsed else STATUS_TONES[run_status(run)],
        about=describe_protocol(last.protocol) if last and last.protocol else "",
    )


def _describe_distance(run: Run) -> str:
    """The last and the best distance during training."""
    last, best = last_evaluation(run), best_evaluation(run)
    if last is None:
        return "" if run.later_evaluations else "not evaluated"
    sentence = f"{last.distance_name} {last.distance:.3g} at step {last.step:,}"
    return sentence if best in (None, last) else f"{sentence}, best {best.distance:.3g} at step {best.step:,}"


def _describe_collapse(run: Run) -> str:
    ratio = to_number(run.last.get("spread"))
    measured = "" if ratio is None else f" (distance ratio {ratio:.2f})"
    if run.has_collapsed:
        return f"collapsed{measured}"
    return f"not collapsed{measured}" if measured else ""


def describe_status(run: Run) -> str:
    """The status of a run with its steps."""
    steps = run.config.cadence.steps
    match run_status(run):
        case RunStatus.COMPLETE:
            return f"complete after {steps:,} steps"
        case RunStatus.STOPPED:
            return f"{short_status(run)} (run the same command to continue)"
        case RunStatus.UNFINISHED:
            return f"{short_status(run)}: {step_of(run.last) or 0:,} of {steps:,} steps are logged"


def short_status(run: Run) -> str:
    """The status of a run for a table."""
    match run_status(run):
        case RunStatus.COMPLETE:
            return "complete"
        case RunStatus.STOPPED:
            return f"stopped at step {step_of(last_event(run)) or 0:,} of {run.config.cadence.steps:,}"
        case RunStatus.UNFINISHED:
            return "not complete"


def _describe_evaluation(record: EvaluationRecord) -> str:
    step = "" if record.step is None else f" at step {record.step:,}"
    return (
        f"{record.protocol.distance_name} {record.metrics.fid:.3g}, precision {share(record.metrics.precision)}, "
        f"recall {share(record.metrics.recall)}{step}, by truedrift evaluate."
    )


def describe_protocol(protocol: Protocol) -> str:
    """The protocol in one line."""
    return (
        f"{protocol.distance_name} in {protocol.dimensions} features of {protocol.extractor} "
        f"({protocol.extractor_sha256[:12]}; {protocol.prepared}); {protocol.samples:,} samples, "
        f"labels {protocol.labels}, seed {protocol.seed}, {protocol.weights} weights, "
        f"against {protocol.reference_count:,} of {protocol.reference} ({protocol.split})"
    )


# Two runs


def compare_runs(a: Run, b: Run) -> Finding:
    """Compare the final distances of the training, or those of `truedrift evaluate`, under one protocol."""
    pairs = [
        (own, other)
        for own in final_distances(a)
        for other in final_distances(b)
        if own.protocol and own.protocol == other.protocol
    ]
    if not pairs:
        sentence = f"the runs cannot be compared: {_why_not_comparable(a, b)}."
        return Finding(subject=COMPARISON, sentence=sentence, tone=Tone.NOTE)
    first, second = pairs[0]
    source = "" if first.in_training and second.in_training else _describe_source(first, second)
    if first.distance == second.distance:
        return Finding(subject=COMPARISON, sentence=f"both runs end at the same {first.distance_name}{source}.")
    better, worse = (a, b) if first.distance < second.distance else (b, a)
    difference = abs(first.distance - second.distance)
    return Finding(
        subject=COMPARISON,
        sentence=f"{better.name} ends {difference:.3g} lower in {first.distance_name} than {worse.name}{source}.",
        about="With one run each, this difference may be due to chance; compare several seeds.",
    )


def _describe_source(*distances: FinalDistance) -> str:
    steps = dict.fromkeys("saved weights" if each.step is None else f"step {each.step:,}" for each in distances)
    return f", by truedrift evaluate at {' and '.join(steps)}"


def _why_not_comparable(a: Run, b: Run) -> str:
    data = [run.config.data.name for run in (a, b)]
    if data[0] != data[1]:
        return f"they were trained on different data, {data[0]} and {data[1]}"
    missing = [run.name for run in (a, b) if not final_distances(run)]
    if missing:
        verb = "was" if len(missing) == 1 else "were"
        return f"{' and '.join(missing)} {verb} not evaluated; run truedrift evaluate"
    if any(all(each.protocol is None for each in final_distances(run)) for run in (a, b)):
        return "the protocol of an evaluation is unknown; run truedrift evaluate, which states it"
    return "they were evaluated under different protocols; run truedrift evaluate on both with the same options"


# Many runs


def findings_of_many(runs: Sequence[Run]) -> list[Finding]:
    """How many runs are complete or collapsed, and the range of their distances per protocol."""
    complete = sum(run_status(run) is RunStatus.COMPLETE for run in runs)
    collapsed = [run.name for run in runs if run.has_collapsed]
    problems = [f"{run.name}: {problem}" for run in runs for problem in run.problems]
    more = len(problems) - MOST_NAMES
    status = Finding(
        subject=pluralize(len(runs), "run"),
        sentence=f"{complete} of {len(runs)} complete; {_list_names(collapsed)} collapsed.",
        tone=Tone.BAD if collapsed else Tone.GOOD if complete == len(runs) else Tone.NOTE,
    )
    listed = [*problems[:MOST_NAMES], *([f"{pluralize(more, 'more problem')} like these."] if more > 0 else [])]
    return [status, *_distance_ranges(runs, status.subject), *findings_of_problems(listed)]


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{len(names)} ({', '.join(names[:MOST_NAMES])}{more})" if names else "none"


def _distance_ranges(runs: Sequence[Run], subject: str) -> Iterator[Finding]:
    """One sentence per protocol: the smallest and the largest final distance."""
    distances, protocols = {run.name: final_distance(run) for run in runs}, final_protocols(runs)
    for protocol in protocols:
        own = {name: each for name, each in distances.items() if each and each.protocol == protocol}
        low, high = (choose(own, key=lambda name: own[name].distance) for choose in (min, max))
        sentence = (
            f"{protocol_number(protocol, protocols)}final {protocol.distance_name} from {own[low].distance:.3g} ({low})"
            f" to {own[high].distance:.3g} ({high}), {pluralize(len(own), 'run')}."
        )
        yield Finding(subject=subject, sentence=sentence, about=describe_protocol(protocol))
    missing = sum(each is None for each in distances.values())
    if missing:
        yield Finding(subject=subject, sentence=f"{missing} of {len(runs)} not evaluated.", tone=Tone.NOTE)


def final_distance(run: Run) -> FinalDistance | None:
    """The final distance of the training, or else one of `truedrift evaluate`."""
    return next(iter(final_distances(run)), None)


def final_protocols(runs: Sequence[Run]) -> list[Protocol]:
    """The protocols of the final distances, each once."""
    distances = (final_distance(run) for run in runs)
    return list(dict.fromkeys(each.protocol for each in distances if each and each.protocol))


def protocol_number(protocol: Protocol, protocols: Sequence[Protocol]) -> str:
    """The number of the protocol in brackets, if there are several."""
    return f"[{protocols.index(protocol) + 1}] " if len(protocols) > 1 else ""
