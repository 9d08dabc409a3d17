"""Findings: one sentence per result, at the top of the page.

If there are few runs, each has its own findings, and they are also compared. Many runs are summarized together.
The tone of a finding decides its color. It is derived from `RunStatus` and `Run.has_collapsed`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import compress, product

from truedrift.evaluation.record import Protocol
from truedrift.page.run_data import (
    Run,
    best_evaluation,
    final_evaluations,
    group_strengths,
    is_overview,
    pluralize,
)
from truedrift.page.run_log import Evaluation, number_at
from truedrift.report.neighbors import describe_neighbors, describe_neighbors_protocol
from truedrift.report.screens import describe_few_samples, share
from truedrift.report.sweeps import Sweep, describe_best
from truedrift.training.status import RunStatus, last_event

MOST_NAMES = 5
"""Number of runs and problems that are listed."""
COMPARISON = "Comparison"
ONE_RUN_EACH = "With one run each, differences may be due to chance; compare several seeds."
"""Caveat of every comparison of single runs."""
UNREADABLE = "Not readable"
"""Subject of the findings on what is missing from the page."""


class Tone(IntEnum):
    """Urgency of a finding."""

    PLAIN = 0
    GOOD = 1
    NOTE = 2
    BAD = 3


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A sentence about a subject: an item of the paper, a run, or several runs."""

    subject: str
    sentence: str
    tone: Tone = Tone.PLAIN
    about: str = ""
    """How the numbers were obtained, such as the protocol."""
    anchor: str = ""
    """The section of the page with the details."""


def group_by_subject(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    """Group findings by subject.

    Args:
        findings: Findings in the order of the page.

    Returns:
        Subject → its findings. Subjects and findings keep their order.
    """
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.subject, []).append(finding)
    return groups


@dataclass(frozen=True)
class OrderedFindings:
    """Findings by subject: what a reader needs first, and the others, which are folded."""

    first: dict[str, list[Finding]]
    others: dict[str, list[Finding]]


def order_findings(findings: Sequence[Finding]) -> OrderedFindings:
    """Put the first finding at the top, followed by every warning.

    Args:
        findings: Findings in the order of their importance.

    Returns:
        First the finding and the subjects with warnings, then the others.
    """
    groups = group_by_subject(findings[1:])
    urgent = {subject: group for subject, group in groups.items() if max(each.tone for each in group) >= Tone.NOTE}
    others = {subject: group for subject, group in groups.items() if subject not in urgent}
    lead = group_by_subject(findings[:1])
    for subject, group in urgent.items():
        lead[subject] = lead.get(subject, []) + group
    return OrderedFindings(lead, others)


def describe_runs(runs: Sequence[Run]) -> list[Finding]:
    """Describe runs, one by one or together.

    Args:
        runs: The runs of the page.

    Returns:
        Findings for each run if there are at most 6, preceded by a comparison if there are two or more; otherwise the
        summary of `describe_many_runs`.
    """
    if is_overview(runs):
        return describe_many_runs(runs)
    comparison = [compare_runs(*runs)] if len(runs) == 2 else rank_runs(runs) if len(runs) > 2 else []
    return [*comparison, *(finding for run in runs for finding in _describe_one_run(run))]


def describe_problems(problems: Sequence[str], subject: str = UNREADABLE) -> list[Finding]:
    """Return one note per problem."""
    return [Finding(subject=subject, sentence=problem, tone=Tone.NOTE) for problem in problems]


# One run


def _describe_one_run(run: Run) -> list[Finding]:
    """Return the findings of the training, of `truedrift evaluate` and of nearest training images, and the problems."""
    later = [each for each in final_evaluations(run) if not each.in_training]
    return [
        describe_training(run),
        *(_describe_strengths(run, group) for group in group_strengths(later)),
        *_describe_neighbors(run),
        *describe_problems(run.problems, run.name),
    ]


def _describe_strengths(run: Run, sweep: Sweep) -> Finding:
    """Describe an evaluation, or the best one of several strengths."""
    metrics, protocol = sweep.evaluated[sweep.best]
    step = "" if sweep.step is None else f" at step {sweep.step:,}"
    sentence = (
        f"{protocol.distance_name} {metrics.fid:.3g}, precision {share(metrics.precision)}, "
        f"recall {share(metrics.recall)}{step}, by truedrift evaluate."
    )
    if len(sweep.evaluated) > 1:
        sentence += f" {describe_best(sweep)}"
    return Finding(subject=run.name, sentence=sentence, about=describe_protocol(protocol))


def _describe_neighbors(run: Run) -> list[Finding]:
    """Return the finding of the nearest training images, if there is one; a NOTE if samples may be copies."""
    if run.neighbors is None:
        return []
    return [
        Finding(
            subject=run.name,
            sentence=describe_neighbors(run.neighbors),
            tone=Tone.NOTE if run.neighbors.is_suspicious else Tone.PLAIN,
            about=f"{describe_neighbors_protocol(run.neighbors.protocol)}.",
        )
    ]


def describe_training(run: Run) -> Finding:
    """Describe the training of a run.

    Args:
        run: A run as `read_run` returns it.

    Returns:
        One sentence with its last and best distance, distance ratio, skipped steps and status. Its tone is BAD after a
        collapse, GOOD if the run is complete, else NOTE.
    """
    skipped, ratio = number_at(run.last, "skipped"), number_at(run.last, "spread")
    collapsed = "collapsed" if run.has_collapsed else "not collapsed"
    parts = (
        _describe_distance(run),
        "" if ratio is None else f"{collapsed} (distance ratio {ratio:.2f})",
        f"{skipped:,.0f} steps skipped because their loss or gradient was not finite" if skipped else "",
        describe_status(run),
    )
    tone = Tone.GOOD if run.status is RunStatus.COMPLETE else Tone.NOTE
    return Finding(
        subject=run.name,
        sentence="; ".join(filter(None, parts)) + ".",
        tone=Tone.BAD if run.has_collapsed else tone,
        about=describe_protocol(run.evaluations[-1].protocol) if run.evaluations else "",
    )


def _describe_distance(run: Run) -> str:
    """Describe the last and the best distance during training."""
    best = best_evaluation(run)
    if best is None:
        return "" if run.later_evaluations else "not evaluated"
    last = run.evaluations[-1]
    sentence = f"{last.protocol.distance_name} {last.metrics.fid:.3g} at step {last.step:,}"
    return sentence if best is last else f"{sentence}, best {best.metrics.fid:.3g} at step {best.step:,}"


def describe_status(run: Run, *, briefly: bool = False) -> str:
    """Describe the status of a run; `briefly` for a table."""
    steps = run.config.cadence.steps
    stopped, logged = number_at(last_event(run.history), "step") or 0, number_at(run.last, "step") or 0
    status, more = {
        RunStatus.COMPLETE: ("complete", f" after {steps:,} steps"),
        RunStatus.STOPPED: (f"stopped at step {stopped:,.0f} of {steps:,}", " (run the same command to continue)"),
        RunStatus.UNFINISHED: ("not complete", f": {logged:,.0f} of {steps:,} steps are logged"),
    }[run.status]
    return status if briefly else status + more


def describe_protocol(protocol: Protocol) -> str:
    """Describe the protocol in one line."""
    return (
        f"{protocol.distance_name} in {protocol.dimensions} features of {protocol.extractor} "
        f"({protocol.extractor_sha256[:12]}; {protocol.prepared}); {protocol.samples:,} samples, "
        f"labels {protocol.labels}, seed {protocol.seed}, strength {protocol.strength:g}, {protocol.weights} weights, "
        f"against {protocol.reference_count:,} of {protocol.reference} ({protocol.split})"
        f"{'. ' + describe_few_samples(protocol) if protocol.few_samples else ''}"
    )


# Two runs


def compare_runs(a: Run, b: Run) -> Finding:
    """Compare the final distances of two runs.

    Args:
        a: One run.
        b: The other run.

    Returns:
        Which distance is lower and by how much, under the first protocol that both have: that of training, else one of
        `truedrift evaluate`. If there is none, a NOTE with the reason.
    """
    pairs = [
        pair for pair in product(final_evaluations(a), final_evaluations(b)) if pair[0].protocol == pair[1].protocol
    ]
    if not pairs:
        sentence = f"the runs cannot be compared: {_why_not_comparable(a, b)}."
        return Finding(subject=COMPARISON, sentence=sentence, tone=Tone.NOTE)
    first, second = pairs[0]
    # Where the numbers are from.
    steps = dict.fromkeys("saved weights" if each.step is None else f"step {each.step:,}" for each in (first, second))
    in_training = first.in_training and second.in_training
    source = "" if in_training else f", by truedrift evaluate at {' and '.join(steps)}"
    # Which one is smaller.
    name, difference = first.protocol.distance_name, second.metrics.fid - first.metrics.fid
    if difference == 0:
        return Finding(subject=COMPARISON, sentence=f"both runs end at the same {name}{source}.")
    better, worse = (a, b) if difference > 0 else (b, a)
    return Finding(
        subject=COMPARISON,
        sentence=f"{better.name} ends {abs(difference):.3g} lower in {name} than {worse.name}{source}.",
        about=ONE_RUN_EACH,
    )


def rank_runs(runs: Sequence[Run]) -> list[Finding]:
    """Rank the final distances of three runs or more.

    Args:
        runs: The runs.

    Returns:
        One finding, if all runs have the same protocol: the run with the smallest distance, how much lower it is, and
        the others from the smallest to the largest, each with the settings in which the runs differ.
    """
    final = [(each.metrics.fid, run, each.protocol) for run in runs if (each := final_evaluation(run))]
    if len(final) < len(runs) or len({protocol for *_, protocol in final}) > 1:
        return []
    settings = describe_settings(runs)
    (least, best, protocol), *others = sorted(final, key=lambda each: each[0])
    names = {run.name: f"{run.name} ({settings[run.name]})" if settings[run.name] else run.name for run in runs}
    rest = ", ".join(f"{fid:.3g} for {names[run.name]}" for fid, run, _ in others)
    next_fid = others[0][0]
    gain = f", {1 - least / next_fid:.0%} lower than the next" if 0 <= least < next_fid else ""
    return [
        Finding(
            subject=COMPARISON,
            sentence=f"{names[best.name]} ends with the smallest {protocol.distance_name}, {least:.3g}{gain}.",
            about=f"The others: {rest}. {ONE_RUN_EACH}",
        )
    ]


def describe_settings(runs: Sequence[Run]) -> dict[str, str]:
    """Describe the references and the field of every run.

    Args:
        runs: The runs.

    Returns:
        Name of a run → its positives, generated samples, fresh negatives, normalization, estimator and matching, as
        far as the runs differ in them; an empty string if they do not differ.
    """
    parts = {}
    for run in runs:
        batch, objective = run.config.batch, run.config.objective
        sides = dict.fromkeys((objective.estimator_pos, objective.estimator_neg))
        parts[run.name] = (
            pluralize(batch.n, "positive"),
            pluralize(run.config.generated, "generated sample"),
            pluralize(batch.fresh_negatives, "fresh negative"),
            objective.normalization,
            " and ".join(sides),
            "matched" if objective.matched else "not matched",
        )
    differ = [len(set(column)) > 1 for column in zip(*parts.values(), strict=True)]
    return {name: ", ".join(compress(each, differ)) for name, each in parts.items()}


def _why_not_comparable(a: Run, b: Run) -> str:
    if a.config.data.name != b.config.data.name:
        return f"they were trained on different data, {a.config.data.name} and {b.config.data.name}"
    missing = [run.name for run in (a, b) if not final_evaluations(run)]
    if missing:
        return f"{' and '.join(missing)} {'was' if len(missing) == 1 else 'were'} not evaluated; run truedrift evaluate"
    return "they were evaluated under different protocols; run truedrift evaluate on both with the same options"


# Many runs


def describe_many_runs(runs: Sequence[Run]) -> list[Finding]:
    """Summarize many runs.

    Args:
        runs: One or more runs.

    Returns:
        How many are complete and how many collapsed, the range of the final distances per protocol, and at most 5 of
        the problems.
    """
    # Status.
    complete = sum(run.status is RunStatus.COMPLETE for run in runs)
    collapsed = [run.name for run in runs if run.has_collapsed]
    more = f" and {len(collapsed) - MOST_NAMES} more" if len(collapsed) > MOST_NAMES else ""
    listed = f"{len(collapsed)} ({', '.join(collapsed[:MOST_NAMES])}{more})" if collapsed else "none"
    status = Finding(
        subject=pluralize(len(runs), "run"),
        sentence=f"{complete} of {len(runs)} complete; {listed} collapsed.",
        tone=Tone.BAD if collapsed else Tone.GOOD if complete == len(runs) else Tone.NOTE,
    )
    # Problems.
    problems = [f"{run.name}: {problem}" for run in runs for problem in run.problems]
    if len(problems) > MOST_NAMES:
        others = pluralize(len(problems) - MOST_NAMES, "more problem")
        problems = [*problems[:MOST_NAMES], f"{others} like these."]
    return [status, *_distance_ranges(runs, status.subject), *describe_problems(problems)]


def _distance_ranges(runs: Sequence[Run], subject: str) -> Iterator[Finding]:
    """Yield one finding per protocol: the smallest and the largest final distance."""
    final = {run.name: final_evaluation(run) for run in runs}
    protocols = final_protocols(runs)
    for protocol in protocols:
        own = {name: each.metrics.fid for name, each in final.items() if each and each.protocol == protocol}
        low, high = min(own, key=own.__getitem__), max(own, key=own.__getitem__)
        sentence = (
            f"{protocol_number(protocol, protocols)}final {protocol.distance_name} from {own[low]:.3g} ({low})"
            f" to {own[high]:.3g} ({high}), {pluralize(len(own), 'run')}."
        )
        yield Finding(subject=subject, sentence=sentence, about=describe_protocol(protocol))
    missing = list(final.values()).count(None)
    if missing:
        yield Finding(subject=subject, sentence=f"{missing} of {len(runs)} not evaluated.", tone=Tone.NOTE)


def final_evaluation(run: Run) -> Evaluation | None:
    """Return the last evaluation during training, or else one of `truedrift evaluate`."""
    return next(iter(final_evaluations(run)), None)


def final_protocols(runs: Sequence[Run]) -> list[Protocol]:
    """Return the protocols of the final evaluations, each once."""
    return list(dict.fromkeys(each.protocol for each in map(final_evaluation, runs) if each))


def protocol_number(protocol: Protocol, protocols: Sequence[Protocol]) -> str:
    """Return the number of the protocol in brackets, if there are several."""
    return f"[{protocols.index(protocol) + 1}] " if len(protocols) > 1 else ""
