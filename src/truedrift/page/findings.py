"""A finding as a sentence on a card.

Two runs beside each other: which ended nearer to the data, or why that cannot be said.

What comes first: a sentence a finding, of every item and every run, and of two runs beside each other.

Many runs at a glance: a card for all of them, and a table with a row a run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from truedrift.evaluation.record import EvaluationRecord, Protocol
from truedrift.page.markup import Content, Markup, element, table
from truedrift.page.run_data import (
    FinalDistance,
    Run,
    best_evaluation,
    differing_options,
    final_distances,
    flatten,
    format_value,
    last_evaluation,
    number,
    pluralize,
    step_of,
)
from truedrift.paper.catalog import find_item
from truedrift.report.item import Item
from truedrift.report.screens import share
from truedrift.report.table import DASH, Number, Row, Table, cell_text

Tone: TypeAlias = Literal["plain", "good", "note", "bad"]
TONES = ("plain", "good", "note", "bad")
"""From the least to the most urgent."""


UNREAD = "Not all can be read"
"""The subject of sentences on what is left out of the page."""


def anchor(item: Item) -> str:
    """The name of its section in addresses of the page."""
    return "item-" + re.sub(r"[^a-z0-9]+", "-", item.label.lower())


@dataclass(frozen=True, kw_only=True)
class Finding:
    """`subject` is an item's label or a run's name; `about` says by which protocol."""

    subject: str
    sentence: str
    tone: Tone = "plain"
    about: str = ""
    anchor: str | None = None
    """Where on the page the rest of it is."""


def findings_list(verdicts: Sequence[Finding]) -> Markup:
    """A card a subject, in their order."""
    subjects = dict.fromkeys(verdict.subject for verdict in verdicts)
    cards = ([verdict for verdict in verdicts if verdict.subject == subject] for subject in subjects)
    return element("ul", (_card(card) for card in cards), class_="verdicts")


def _card(verdicts: Sequence[Finding]) -> Markup:
    """What is said of one subject, in the color of the worst of it."""
    tone = max((verdict.tone for verdict in verdicts), key=TONES.index)
    name, anchor = element("bdi", verdicts[0].subject), verdicts[0].anchor
    subject = element("strong", element("a", name, href=f"#{anchor}") if anchor else name)
    if len(verdicts) == 1:
        return element("li", subject, ": ", _said(verdicts[0]), class_=tone)
    return element("li", subject, element("ul", (element("li", _said(each)) for each in verdicts)), class_=tone)


def _said(verdict: Finding) -> list[Content]:
    return [verdict.sentence, element("span", verdict.about, class_="about") if verdict.about else None]


SUBJECT = "Compared"
_CHANCE = "One run of each: this says nothing of chance. Take several seeds."


def compare_two(a: Run, b: Run) -> Finding:
    """By the training's own evaluations, or else by those of `truedrift evaluate` with one protocol."""
    both = [
        (own, other)
        for own in final_distances(a)
        for other in final_distances(b)
        if own.protocol and own.protocol == other.protocol
    ]
    if not both:
        return Finding(subject=SUBJECT, sentence=f"the runs are not compared: {_why_not(a, b)}.", tone="note")
    first, second = both[0]
    how = "" if first.in_training and second.in_training else _afterwards(first, second)
    if first.distance == second.distance:
        return Finding(subject=SUBJECT, sentence=f"both runs end at the same {first.distance_name}{how}.")
    nearer, other = (a, b) if first.distance < second.distance else (b, a)
    difference = abs(first.distance - second.distance)
    said = f"{nearer.name} ends {difference:.3g} lower in {first.distance_name} than {other.name}{how}."
    return Finding(subject=SUBJECT, sentence=said, about=_CHANCE)


def _afterwards(*found: FinalDistance) -> str:
    """Which of the numbers are not the training's own."""
    steps = dict.fromkeys("saved weights" if each.step is None else f"step {each.step:,}" for each in found)
    return f", by truedrift evaluate at {' and '.join(steps)}"


def _why_not(a: Run, b: Run) -> str:
    names = [run.config.data.name for run in (a, b)]
    if names[0] != names[1]:
        return f"they are of different data, {names[0]} and {names[1]}"
    without = [run.name for run in (a, b) if not final_distances(run)]
    if without:
        were = "was" if len(without) == 1 else "were"
        return f"{' and '.join(without)} {were} not evaluated; truedrift evaluate judges a run after its training"
    if any(all(each.protocol is None for each in final_distances(run)) for run in (a, b)):
        return "the protocol of an evaluation is not known; truedrift evaluate states it"
    return "they are judged by different protocols; truedrift evaluate judges both by one"


def findings_of_records(records: Sequence[Any]) -> list[Finding]:
    """What the items say of their records."""
    items = [(find_item(record), record) for record in records]
    return [
        Finding(subject=item.label, sentence=sentence, anchor=anchor(item))
        for item, record in items
        for sentence in item.findings(record)
    ]


def findings_of_runs(runs: Sequence[Run]) -> list[Finding]:
    """One a run, and what of it cannot be read; where two are compared, first what stands between them."""
    own = [verdict for run in runs for verdict in (findings_of_run(run), *_evaluated_finding(run), *_unread(run))]
    return [compare_two(*runs), *own] if len(runs) == 2 else own


def _evaluated_finding(run: Run) -> list[Finding]:
    """The last word of `truedrift evaluate` by every protocol."""
    last = {describe_protocol(each.protocol): each for each in run.judged}
    return [Finding(subject=run.name, sentence=_sentence(each), about=about) for about, each in last.items()]


def _sentence(of: EvaluationRecord) -> str:
    at = "" if of.step is None else f" at step {of.step:,}"
    return (
        f"{of.protocol.distance_name} {of.metrics.fid:.3g}, precision {share(of.metrics.precision)}, "
        f"recall {share(of.metrics.recall)}{at}, by truedrift evaluate."
    )


def _unread(run: Run) -> list[Finding]:
    return [Finding(subject=run.name, sentence=problem, tone="note") for problem in run.problems]


def findings_of_run(run: Run) -> Finding:
    """How far it is, how near its samples are to the data, and whether it collapsed."""
    state, tone = run_status(run)
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
    judged = last_evaluation(run)
    about = describe_protocol(judged.protocol) if judged and judged.protocol else ""
    return Finding(
        subject=run.name, sentence="; ".join(filter(None, said)) + ".", tone="bad" if collapsed else tone, about=about
    )


def run_status(run: Run) -> tuple[str, Tone]:
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
    last, least = last_evaluation(run), best_evaluation(run)
    if last is None:
        return [] if run.judged else ["not evaluated"]
    said = f"{last.distance_name} {last.distance:.3g} at step {last.step:,}"
    return [said if least in (None, last) else f"{said}, best {least.distance:.3g} at step {least.step:,}"]


def describe_protocol(protocol: Protocol) -> str:
    """The protocol in a line."""
    return (
        f"{protocol.distance_name} in {protocol.dimensions} features of {protocol.extractor} "
        f"({protocol.extractor_sha256[:12]}; {protocol.prepared}); {protocol.samples:,} samples, "
        f"labels {protocol.labels}, seed {protocol.seed}, {protocol.weights} weights, "
        f"against {protocol.reference_count:,} of {protocol.reference} ({protocol.split})"
    )


OPTIONS = 8
"""Columns for what differs."""
NAMED = 5
"""Runs and problems that are told by name."""


def findings_of_many(runs: Sequence[Run]) -> list[Finding]:
    """How many are complete and collapsed, and from where to where their distances reach, by every protocol."""
    subject = pluralize(len(runs), "run")
    complete = sum(_is_complete(run) for run in runs)
    collapsed = [run.name for run in runs if _has_collapsed(run)]
    state = f"{complete} of {len(runs)} complete; {_names(collapsed)} collapsed."
    whole = complete == len(runs)
    own = Finding(subject=subject, sentence=state, tone="bad" if collapsed else "good" if whole else "note")
    return [own, *_reaches(runs, subject), *_unread_of_many(runs)]


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{len(names)} ({', '.join(names[:NAMED])}{more})" if names else "none"


def _reaches(runs: Sequence[Run], subject: str) -> Iterator[Finding]:
    """A sentence a protocol: the least and the largest distance at the end."""
    last, protocols = {run.name: _end(run) for run in runs}, _protocols(runs)
    for protocol in protocols:
        found = {name: end for name, end in last.items() if end and end.protocol == protocol}
        low, high = (choose(found, key=lambda name: found[name].distance) for choose in (min, max))
        said = (
            f"{_number(protocol, protocols)}{protocol.distance_name} at the end from {found[low].distance:.3g} ({low}) "
            f"to {found[high].distance:.3g} ({high}), {pluralize(len(found), 'run')}."
        )
        yield Finding(subject=subject, sentence=said, about=describe_protocol(protocol))
    missing = sum(end is None for end in last.values())
    if missing:
        yield Finding(subject=subject, sentence=f"{missing} of {len(runs)} not evaluated.", tone="note")


def _unread_of_many(runs: Sequence[Run]) -> Iterator[Finding]:
    problems = [f"{run.name}: {problem}" for run in runs for problem in run.problems]
    left = len(problems) - NAMED
    listed = [*problems[:NAMED], *([f"{left} more like these."] if left > 0 else [])]
    return (Finding(subject=UNREAD, sentence=each, tone="note") for each in listed)


def overview_section(runs: Sequence[Run]) -> list[Content]:
    """The table, whose distances are by the protocols that the card numbers, and below it what has no column."""
    source = runs_table(runs)
    rows: list[list[Content]] = [[element("bdi", cell_text(row[0])), *map(cell_text, row[1:])] for row in source.rows]
    return [
        table(source.header, rows),
        [element("p", more, class_="soft small") for more in _more(differing_options(runs))],
    ]


def runs_table(runs: Sequence[Run]) -> Table:
    """A row a run: what differs, its distance at the end and its best, and how it stands; the protocols as notes."""
    paths, protocols = differing_options(runs), _protocols(runs)
    common = len(protocols) == 1 and all(end.protocol for end in map(_end, runs) if end)
    distance = [f"{protocols[0].distance_name} at the end"] if common else ["judged by", "distance at the end"]
    return Table(
        caption=f"{pluralize(len(runs), 'run')}: what differs in their configurations, and where their training ended.",
        label="tab:runs",
        header=["run", *_short(paths[:OPTIONS]), *distance, "best in training", "state", "collapsed"],
        groups=[[_row(run, paths[:OPTIONS], protocols, common=common) for run in runs]],
        notes=[*(f"{_number(each, protocols)}{describe_protocol(each)}." for each in protocols), *_more(paths)],
    )


def _more(paths: Sequence[str]) -> list[str]:
    """What has no column."""
    return [f"They differ in {', '.join(paths[OPTIONS:])} too."] if paths[OPTIONS:] else []


def _short(paths: Sequence[str]) -> list[str]:
    """The last word of each path, where only one path ends in it."""
    last = Counter(path.rpartition(".")[2] for path in paths)
    return [path if last[path.rpartition(".")[2]] > 1 else path.rpartition(".")[2] for path in paths]


def _row(run: Run, paths: Sequence[str], protocols: Sequence[Protocol], *, common: bool) -> Row:
    tree: Mapping[str, object] = flatten(run.config.tree())
    end, least = _end(run), best_evaluation(run)
    return [
        run.name,
        *(format_value(tree, path) for path in paths),
        *([] if common else [_evaluated_by(end, protocols)]),
        Number(end.distance if end else None, ".4g"),
        Number(least.distance if least else None, ".4g"),
        "complete" if _is_complete(run) else run_status(run)[0].partition(":")[0],
        "yes" if _has_collapsed(run) else "no" if run.telemetry else "–",
    ]


def _evaluated_by(end: FinalDistance | None, protocols: Sequence[Protocol]) -> str:
    if end is None:
        return DASH
    return f"{_number(end.protocol, protocols) if end.protocol else ''}{end.distance_name}"


def _number(protocol: Protocol, protocols: Sequence[Protocol]) -> str:
    """Which of several, from 1."""
    return f"[{protocols.index(protocol) + 1}] " if len(protocols) > 1 else ""


def _end(run: Run) -> FinalDistance | None:
    return next(iter(final_distances(run)), None)


def _protocols(runs: Sequence[Run]) -> list[Protocol]:
    """Of the ends, each once."""
    found = (_end(run) for run in runs)
    return list(dict.fromkeys(end.protocol for end in found if end and end.protocol))


def _is_complete(run: Run) -> bool:
    return run_status(run)[1] == "good"


def _has_collapsed(run: Run) -> bool:
    return run.last.get("collapsed") is True
