"""Text for the terminal: the metrics of an evaluation with their protocol, advice on a run, and a diagnosis."""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence

from truedrift.bias.advice import NAMES, advise_on_n_eff
from truedrift.bias.confidence import CALIBRATION
from truedrift.bias.diagnosis import Bias, Diagnosis, Push, Quantiles, TemperatureDiagnosis
from truedrift.evaluation.metrics import split_count
from truedrift.evaluation.record import FEW_SAMPLES, EvaluationRecord, Metrics, Protocol
from truedrift.report.table import align_columns, format_number
from truedrift.training.config import RunConfig

NOT_AVAILABLE = "not available"


def evaluation_summary(record: EvaluationRecord) -> str:
    """Return one line per metric with its settings, then what every metric depends on, and the time."""
    # Metrics
    metrics, of = record.metrics, record.protocol
    pairs = f"{min(of.compared, of.samples)} samples and {min(of.compared, of.reference_count)} of the data"
    kid = NOT_AVAILABLE
    if metrics.kid is not None:
        kid = f"{format_number(metrics.kid, '.3g')} ± {metrics.kid_deviation:.2g}"
    rows = (
        (of.distance_name, f"{metrics.fid:.4g}", f"{of.samples} samples"),
        ("KID", kid, f"unbiased, all pairs of {pairs}"),
        ("precision", share(metrics.precision), f"k = {of.neighbors}, {pairs}"),
        ("recall", share(metrics.recall), f"k = {of.neighbors}, {pairs}"),
        ("Inception Score", *_score(metrics, of)),
    )
    lines = [f"{name:22}{value:20}{how}" for name, value, how in rows]
    # Protocol and time
    lines += [
        f"features: {of.extractor}, sha256 {of.extractor_sha256[:12]}, {of.prepared}, {of.dimensions} dimensions",
        f"data:     {of.reference}, split {of.split}, {of.reference_count} samples, sha256 {of.reference_sha256[:12]}",
        f"samples:  {of.samples}, labels {of.labels}, seed {of.seed}, strength {of.strength:g}, {of.weights} weights",
        f"time:     {record.seconds:.0f} s",
    ]
    if of.few_samples:
        lines.append(f"warning:  {describe_few_samples(of)}")
    return "\n".join(lines)


def describe_few_samples(protocol: Protocol) -> str:
    """Return what a distance of few samples is worth."""
    least = min(protocol.samples, protocol.reference_count)
    return f"Distances of {least} samples say little; compare runs with at least {FEW_SAMPLES}, better thousands"


def share(value: float | None) -> str:
    """Format a share with three digits, if there is one."""
    return NOT_AVAILABLE if value is None else f"{value:.3f}"


def _score(metrics: Metrics, protocol: Protocol) -> tuple[str, str]:
    if metrics.inception_score is None:
        return NOT_AVAILABLE, f"{protocol.extractor} has no classifier"
    parts = split_count(protocol.samples)
    if parts == 1:
        return f"{metrics.inception_score:.3f}", "all samples at once"
    score = f"{metrics.inception_score:.3f} ± {metrics.inception_score_deviation:.2g}"
    return score, f"mean and deviation of {parts} parts"


def advise_on_run(config: RunConfig, n_eff: Mapping[str, Sequence[float | None]]) -> list[str]:
    """Say at which temperatures a centroid of the run is mostly the nearest reference, and what to do about it.

    Args:
        config: The configuration of the run.
        n_eff: The sides "positive" and "negative" → the effective number of references at each temperature.

    Returns:
        One text per side that has such a temperature.
    """
    batch, matched = config.batch, config.objective.matched
    advice = []
    for side, values in n_eff.items():
        # The windows of matched references have the size of the smaller side.
        positives = batch.n == config.references("positive") if matched else side == "positive"
        option = "batch.n" if positives else "batch.fresh_negatives" if batch.fresh_negatives else "batch.generated"
        more = f"more {OPTION_NOUNS[option]} ({option})"
        advice.append(advise_on_n_eff(config.objective.temperatures, values, side, more=more, matched=matched))
    return list(filter(None, advice))


OPTION_NOUNS = {
    "batch.n": "positives",
    "batch.generated": "generated samples",
    "batch.fresh_negatives": "fresh negatives",
}

COLUMNS = 3
LINE_LENGTH = 100


def diagnosis_summary(diagnosis: Diagnosis, title: str) -> str:
    """Return the diagnosis as text, three temperatures side by side.

    The advice follows the table. Up to three temperatures take at most 34 lines, and at most 46 with the push of the
    field.
    """
    lines = [title, _describe_input(diagnosis)]
    for first in range(0, len(diagnosis.temperatures), COLUMNS):
        lines += ["", *align_columns(_rows(diagnosis, diagnosis.temperatures[first : first + COLUMNS]))]
    advice = (*(at.advice for at in diagnosis.temperatures), diagnosis.push_advice or "")
    for sentence in (*advice, *_describe_confidence(diagnosis)):
        lines += textwrap.wrap(sentence, LINE_LENGTH)
    return "\n".join(lines)


def _describe_input(diagnosis: Diagnosis) -> str:
    if diagnosis.source == "weights":
        return f"{diagnosis.queries:,} rows of n = {diagnosis.n:,} weights"
    # How many queries and references are used, and how many references are distinct, where the number is smaller
    queries = f"{diagnosis.queries:,} queries"
    if diagnosis.queries_used < diagnosis.queries:
        queries += f" ({diagnosis.queries_used:,} used)"
    total, used, distinct = diagnosis.references, diagnosis.references_used, diagnosis.references_distinct
    counts = [f"{used:,} used"] if used < total else []
    counts += [f"{distinct:,} distinct"] if distinct < used else []
    references = f"{total:,} references" + (f" ({', '.join(counts)})" if counts else "")
    what = "distances" if diagnosis.source == "distances" else f"D = {diagnosis.dimension}"
    return f"{queries}, {references}, {what}, {diagnosis.kernel} kernel, n = {diagnosis.n:,}, seed {diagnosis.seed}"


def _rows(diagnosis: Diagnosis, columns: tuple[TemperatureDiagnosis, ...]) -> list[list[str]]:
    """Return the rows of the table: a label, then one cell per temperature."""
    rows: list[list[str]] = []

    def add(label: str, cell: Callable[[TemperatureDiagnosis], str]) -> None:
        rows.append([label, *map(cell, columns)])

    # Weights
    if diagnosis.source != "weights":
        add("", lambda at: f"τ = {at.tau:g}")
    add("n_eff = 1/Σα²   5 50 95 %", lambda at: _format_quantiles(at.weights.n_eff))
    add("largest α       5 50 95 %", lambda at: _format_quantiles(at.weights.dominance))
    add("Σα²             5 50 95 %", lambda at: _format_quantiles(at.weights.sum_of_squares))
    add("dominated (largest α > ½)", lambda at: f"{at.weights.dominated:.1%}")
    if diagnosis.source == "weights":
        add("temperature", lambda at: at.dead or "ok")
        return rows
    # Bias of every estimator
    add("spread √E‖y−T*‖²", lambda at: f"{at.spread:.3g}")
    add("noise √tr Var T_n", lambda at: f"{at.noise:.3g}")
    for name, biases in _by_estimator(columns):
        rows.append([f"bias {name}", *map(_format_bias, biases)])
        rows.append(["  95 % interval", *(f"{bias.low:.2g} to {bias.high:.2g}" for bias in biases)])
        rows.append(["  of spread, of noise", *(f"{bias.of_spread:.2%}, {bias.of_noise:.2%}" for bias in biases)])
    # Number of references for the wanted bias
    if diagnosis.wanted is not None:
        rows.append([f"n for {diagnosis.wanted:.3%} of spread", *("" for _ in columns)])
        for name, biases in _by_estimator(columns):
            rows.append([f"  {name}", *(_format_required_n(bias, diagnosis.references_distinct) for bias in biases)])
    # Push of the field
    if diagnosis.generated is not None:
        rows += _push_rows(diagnosis, columns)
    add("temperature", lambda at: at.dead or "ok")
    add("confidence", lambda at: at.confidence.level if at.confidence else "")
    return rows


def _push_rows(diagnosis: Diagnosis, columns: Sequence[TemperatureDiagnosis]) -> Iterator[list[str]]:
    """Yield the push of each estimator, and what matched references make of it."""
    yield [f"push at q = p, g = {diagnosis.generated:,}", *("" for _ in columns)]
    for pushes in zip(*(at.pushes for at in columns), strict=True):
        yield [f"  {NAMES[pushes[0].estimator]}", *map(_format_push, pushes)]
        yield ["    of spread, of noise", *(f"{push.of_spread:.2%}, {push.of_noise:.2%}" for push in pushes)]
        yield ["    outward", *(f"{push.outward:.3g}" for push in pushes)]
    yield [f"  matched, windows of {diagnosis.window:,}", *("0" for _ in columns)]
    yield ["    noise of V / unmatched", *(_format_noise_ratios(at.pushes) for at in columns)]


def _format_push(push: Push) -> str:
    """Return the push, or its upper limit if it is not resolved; equal sizes have none at all."""
    return f"{push.norm:.3g}" if push.resolved or push.norm == 0 else "not resolved"


def _format_noise_ratios(pushes: Sequence[Push]) -> str:
    """Return the ratio of each estimator. Whether it is available depends on the sizes alone."""
    ratios = [f"{push.matched_noise_ratio:.3f}" for push in pushes if push.matched_noise_ratio is not None]
    return ", ".join(ratios) or NOT_AVAILABLE


def _by_estimator(columns: Sequence[TemperatureDiagnosis]) -> Iterator[tuple[str, tuple[Bias, ...]]]:
    """Yield the name of each estimator with its bias at every temperature."""
    for biases in zip(*(at.biases for at in columns), strict=True):
        yield NAMES[biases[0].estimator], biases


def _format_bias(bias: Bias) -> str:
    """Return the bias, or its upper limit if it is not resolved."""
    return f"{bias.norm:.3g}" if bias.resolved or bias.high == 0 else f"< {bias.high:.2g}"


def _format_quantiles(quantiles: Quantiles) -> str:
    return " ".join(f"{value:6.3g}" for value in (quantiles.p05, quantiles.p50, quantiles.p95))


def _format_required_n(bias: Bias, references: int) -> str:
    if not bias.needed_is_extrapolated:
        return f"{bias.needed_n:,}"
    more = f"> {references:,}"
    return f"{more} (~{bias.needed_n:,})" if bias.needed_n is not None else more


def _describe_confidence(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield what medium and high confidence mean. The advice gives the reason of low confidence."""
    levels = {at.tau: at.confidence.level for at in diagnosis.temperatures if at.confidence is not None}
    medium = ", ".join(f"{tau:g}" for tau, level in levels.items() if level == "medium")
    if medium:
        yield f"Medium confidence (τ = {medium}): the bias at this n is known, its expansion in 1/n is wrong."
    if levels:
        yield (
            f"High confidence was wrong by more than a factor of 2 in {CALIBRATION.false_high:.1%} of such cases, and "
            f"{CALIBRATION.coverage[1]:.0%} of the ABC intervals contained the bias, in {CALIBRATION.cases} simulated "
            "populations (docs/diagnosis.md)."
        )
