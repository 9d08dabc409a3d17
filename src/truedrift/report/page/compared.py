"""Two runs beside each other: which ended nearer to the data, or why that cannot be said."""

from __future__ import annotations

from truedrift.report.page.distance import End, ends
from truedrift.report.page.run_files import Run
from truedrift.report.page.verdict import Verdict

SUBJECT = "Compared"
_CHANCE = "One run of each: this says nothing of chance. Take several seeds."


def between(a: Run, b: Run) -> Verdict:
    """By the training's own evaluations, or else by those of `truedrift evaluate` with one protocol."""
    both = [(own, other) for own in ends(a) for other in ends(b) if own.protocol and own.protocol == other.protocol]
    if not both:
        return Verdict(subject=SUBJECT, sentence=f"the runs are not compared: {_why_not(a, b)}.", tone="note")
    first, second = both[0]
    how = "" if first.in_training and second.in_training else _afterwards(first, second)
    if first.distance == second.distance:
        return Verdict(subject=SUBJECT, sentence=f"both runs end at the same {first.distance_name}{how}.")
    nearer, other = (a, b) if first.distance < second.distance else (b, a)
    difference = abs(first.distance - second.distance)
    said = f"{nearer.name} ends {difference:.3g} lower in {first.distance_name} than {other.name}{how}."
    return Verdict(subject=SUBJECT, sentence=said, about=_CHANCE)


def _afterwards(*found: End) -> str:
    """Which of the numbers are not the training's own."""
    steps = dict.fromkeys("saved weights" if each.step is None else f"step {each.step:,}" for each in found)
    return f", by truedrift evaluate at {' and '.join(steps)}"


def _why_not(a: Run, b: Run) -> str:
    names = [run.config.data.name for run in (a, b)]
    if names[0] != names[1]:
        return f"they are of different data, {names[0]} and {names[1]}"
    without = [run.name for run in (a, b) if not ends(run)]
    if without:
        were = "was" if len(without) == 1 else "were"
        return f"{' and '.join(without)} {were} not evaluated; truedrift evaluate judges a run after its training"
    if any(all(each.protocol is None for each in ends(run)) for run in (a, b)):
        return "the protocol of an evaluation is not known; truedrift evaluate states it"
    return "they are judged by different protocols; truedrift evaluate judges both by one"
