"""What comes first: a sentence a finding, of every item and every run, and of two runs beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from truedrift.records import Evaluated, Protocol
from truedrift.report.catalog import item_of
from truedrift.report.evaluated import share
from truedrift.report.page.markup import Content, Markup, element
from truedrift.report.page.run_files import Evaluation, Run, number, step_of

TONES = ("plain", "good", "note", "bad")
"""From the least to the most urgent."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """`subject` is an item's label or a run's name; `about` says by which protocol."""

    subject: str
    sentence: str
    tone: Literal["good", "note", "bad", "plain"] = "plain"
    about: str = ""


def listed(verdicts: Sequence[Verdict]) -> Markup:
    """A card a subject, in their order."""
    subjects = dict.fromkeys(verdict.subject for verdict in verdicts)
    cards = ([verdict for verdict in verdicts if verdict.subject == subject] for subject in subjects)
    return element("ul", (_card(card) for card in cards), class_="verdicts")


def _card(verdicts: Sequence[Verdict]) -> Markup:
    """What is said of one subject, in the color of the worst of it."""
    tone = max((verdict.tone for verdict in verdicts), key=TONES.index)
    subject = element("strong", element("bdi", verdicts[0].subject))
    if len(verdicts) == 1:
        return element("li", subject, ": ", _said(verdicts[0]), class_=tone)
    return element("li", subject, element("ul", (element("li", _said(each)) for each in verdicts)), class_=tone)


def _said(verdict: Verdict) -> list[Content]:
    return [verdict.sentence, element("span", verdict.about, class_="about") if verdict.about else None]


def of_records(records: Sequence[Any]) -> list[Verdict]:
    """What the items say of their records."""
    items = [(item_of(record), record) for record in records]
    return [
        Verdict(subject=item.label, sentence=sentence) for item, record in items for sentence in item.verdicts(record)
    ]


def of_runs(runs: Sequence[Run]) -> list[Verdict]:
    """One a run, and what of it cannot be read; where two are compared, first what stands between them."""
    own = [verdict for run in runs for verdict in (of_run(run), *_judged(run), *_unread(run))]
    compared = between(*runs) if len(runs) == 2 else None
    return [compared, *own] if compared else own


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


def standing(run: Run) -> tuple[str, Literal["good", "note"]]:
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


def judging(run: Run) -> Evaluation | None:
    """The last evaluation that has a distance."""
    return next((each for each in reversed(run.evaluations) if each.distance is not None), None)


def best(run: Run) -> Evaluation | None:
    """The smallest distance of the kind that the run ended with."""
    last = judging(run)
    if last is None:
        return None
    same = [each for each in run.evaluations if each.distance is not None and each.protocol == last.protocol]
    return min(same, key=lambda each: each.distance or 0.0)


def distances(run: Run) -> list[str]:
    """The last and the best distance."""
    last, least = judging(run), best(run)
    if last is None or least is None:
        return ["not evaluated"]
    said = f"{last.distance_name} {last.distance:.3g} at step {last.step:,}"
    return [said if least is last else f"{said}, best {least.distance:.3g} at step {least.step:,}"]


def between(a: Run, b: Run) -> Verdict | None:
    """Which of two runs ended nearer to the data; None where they cannot be compared."""
    ends = judging(a), judging(b)
    if ends[0] is None or ends[1] is None or ends[0].distance is None or ends[1].distance is None:
        return None
    subject = "Compared"
    if ends[0].protocol is None or ends[0].protocol != ends[1].protocol:
        return Verdict(
            subject=subject,
            sentence="the runs are judged by different protocols; their distances do not compare.",
            tone="note",
        )
    difference = ends[0].distance - ends[1].distance
    if difference == 0:
        return Verdict(subject=subject, sentence=f"both runs end at the same {ends[0].distance_name}.")
    nearer, other = (a, b) if difference < 0 else (b, a)
    said = f"{nearer.name} ends {abs(difference):.3g} lower in {ends[0].distance_name} than {other.name}."
    return Verdict(
        subject=subject, sentence=said, about="One run of each: this says nothing of chance. Take several seeds."
    )


def told(protocol: Protocol) -> str:
    """The protocol in a line."""
    return (
        f"{protocol.distance_name} in {protocol.dimensions} features of {protocol.extractor} "
        f"({protocol.extractor_sha256[:12]}; {protocol.prepared}); {protocol.samples:,} samples, "
        f"labels {protocol.labels}, seed {protocol.seed}, {protocol.weights} weights, "
        f"against {protocol.reference_count:,} of {protocol.reference} ({protocol.split})"
    )
