"""An evaluation for the screen: a line a number, and the protocol that all of them share.

A diagnosis as one screen of text: a column for each temperature, three beside each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from truedrift.bias.diagnose import CALIBRATION
from truedrift.bias.diagnosis import Bias, Diagnosis, Quantiles, TemperatureDiagnosis
from truedrift.evaluation.metrics import split_count
from truedrift.evaluation.record import EvaluationRecord, Metrics, Protocol
from truedrift.report.table import format_number

NOT_AVAILABLE = "not available"


def evaluation_summary(record: EvaluationRecord) -> str:
    """Numbers first."""
    return "\n".join((*lines(record.metrics, record.protocol), f"time:     {record.seconds:.0f} s"))


def lines(metrics: Metrics, protocol: Protocol) -> tuple[str, ...]:
    """The numbers, each by its name, and how they were made."""
    pairs = min(protocol.compared, protocol.samples), min(protocol.compared, protocol.reference_count)
    return (
        _line(protocol.distance_name, f"{metrics.fid:.4g}", f"{protocol.samples} samples"),
        _line("KID", _with_error(metrics.kid, metrics.kid_deviation), f"unbiased, all pairs of {_of_reference(pairs)}"),
        _line("precision", share(metrics.precision), f"k = {protocol.neighbors}, {_of_reference(pairs)}"),
        _line("recall", share(metrics.recall), f"k = {protocol.neighbors}, {_of_reference(pairs)}"),
        _line("Inception Score", *_score(metrics, protocol)),
        *protocol_lines(protocol),
    )


def protocol_lines(protocol: Protocol) -> tuple[str, ...]:
    """What every number depends on."""
    return (
        f"features: {protocol.extractor}, sha256 {protocol.extractor_sha256[:12]}, {protocol.prepared}, "
        f"{protocol.dimensions} dimensions",
        f"data:     {protocol.reference}, split {protocol.split}, {protocol.reference_count} samples, "
        f"sha256 {protocol.reference_sha256[:12]}",
        f"samples:  {protocol.samples}, labels {protocol.labels}, seed {protocol.seed}, "
        f"strength {protocol.strength:g}, {protocol.weights} weights",
    )


def _line(name: str, value: str, how: str) -> str:
    return f"{name:22}{value:20}{how}"


def _with_error(value: float | None, error: float | None) -> str:
    return NOT_AVAILABLE if value is None else f"{format_number(value, '.3g')} ± {error:.2g}"


def share(value: float | None) -> str:
    """Three digits, if there is one."""
    return NOT_AVAILABLE if value is None else f"{value:.3f}"


def _of_reference(pairs: tuple[int, int]) -> str:
    return f"{pairs[0]} samples and {pairs[1]} of the data"


def _score(metrics: Metrics, protocol: Protocol) -> tuple[str, str]:
    if metrics.inception_score is None:
        return NOT_AVAILABLE, f"{protocol.extractor} has no classifier"
    parts = split_count(protocol.samples)
    if parts == 1:
        return f"{metrics.inception_score:.3f}", "all samples at once"
    score = f"{metrics.inception_score:.3f} ± {metrics.inception_score_deviation:.2g}"
    return score, f"mean and deviation of {parts} parts"


COLUMNS = 3
_LABEL, _WIDTH = 28, 24
NAMES = {"standard": "standard", "abc": "ABC", "abc2": "ABC-2"}


def diagnosis_summary(diagnosis: Diagnosis, title: str) -> str:
    """At most 30 lines for up to three temperatures."""
    lines = [title, _input(diagnosis)]
    all_of_them = diagnosis.temperatures
    for first in range(0, len(all_of_them), COLUMNS):
        lines += ["", *_table(diagnosis, all_of_them[first : first + COLUMNS])]
    return "\n".join((*lines, *_reliability_lines(diagnosis)))


def _input(of: Diagnosis) -> str:
    if of.source == "weights":
        return f"{of.queries:,} rows of n = {of.n:,} weights"
    used = f" ({of.queries_used:,} used)" if of.queries_used < of.queries else ""
    some = f" ({_references(of)})" if of.references_distinct < of.references else ""
    what = "distances" if of.source == "distances" else f"D = {of.dimension}"
    return (
        f"{of.queries:,} queries{used}, {of.references:,} references{some}, {what}, {of.kernel} kernel, "
        f"n = {of.n:,}, seed {of.seed}"
    )


def _references(of: Diagnosis) -> str:
    """How many are used, and how many of them are distinct, where that is fewer."""
    used = f"{of.references_used:,} used" if of.references_used < of.references else ""
    distinct = f"{of.references_distinct:,} distinct" if of.references_distinct < of.references_used else ""
    return ", ".join(filter(None, (used, distinct)))


def _table(of: Diagnosis, columns: tuple[TemperatureDiagnosis, ...]) -> Iterator[str]:
    def row(label: str, cell: Callable[[TemperatureDiagnosis], str]) -> str:
        return _row(label, [cell(each) for each in columns])

    if of.source != "weights":
        yield row("", lambda at: f"τ = {at.tau:g}")
    yield row("n_eff = 1/Σα²   5 50 95 %", lambda at: _format_three(at.weights.n_eff))
    yield row("largest α       5 50 95 %", lambda at: _format_three(at.weights.dominance))
    yield row("Σα²             5 50 95 %", lambda at: _format_three(at.weights.sum_of_squares))
    yield row("dominated (largest α > ½)", lambda at: f"{at.weights.dominated:.1%}")
    if of.source == "weights":
        yield row("temperature", lambda at: at.dead or "alive")
        return
    yield row("spread √E‖y−T*‖²", lambda at: f"{at.spread:.3g}")
    yield row("noise √tr Var T_n", lambda at: f"{at.noise:.3g}")
    for name, biases in _by_estimator(columns):
        yield _row(f"bias {name}", [_norm(bias) for bias in biases])
        yield _row("  interval of 95 %", [f"{bias.low:.2g} to {bias.high:.2g}" for bias in biases])
        yield _row("  of spread, of noise", [f"{bias.of_spread:.2%}, {bias.of_noise:.2%}" for bias in biases])
    if of.wanted is not None:
        yield f"n for a bias of {of.wanted:.3%} of the spread"
        for name, biases in _by_estimator(columns):
            yield _row(f"  {name}", [_required_n_lines(bias, of.references_distinct) for bias in biases])
    yield row("temperature", lambda at: at.dead or "alive")
    yield row("light", lambda at: at.light.color.upper() if at.light else "")


def _norm(bias: Bias) -> str:
    """The bias, or what it is below where it is not resolved."""
    return f"{bias.norm:.3g}" if bias.resolved or bias.high == 0 else f"< {bias.high:.2g}"


def _row(label: str, cells: Sequence[str]) -> str:
    return f"{label:{_LABEL}}" + "".join(f"{cell:>{_WIDTH}}" for cell in cells)


def _by_estimator(columns: Sequence[TemperatureDiagnosis]) -> Iterator[tuple[str, tuple[Bias, ...]]]:
    """The name of an estimator and its bias at every temperature."""
    for biases in zip(*(at.biases for at in columns), strict=True):
        yield NAMES[biases[0].estimator], biases


def _reliability_lines(of: Diagnosis) -> Iterator[str]:
    if of.source == "weights":
        yield "The bias needs more than weights: save distances, or queries and references."
        return
    for at in of.temperatures:
        if at.light is not None:
            yield f"τ = {at.tau:g}: {at.light.reason}"
    yield (
        f"In {CALIBRATION.cases} simulated populations {CALIBRATION.false_green:.1%} of the greens were off by more "
        "than a factor of 2,"
    )
    yield (
        f"{CALIBRATION.usable_called_green:.0%} of the usable cases were green, and intervals held ABC's bias in "
        f"{CALIBRATION.coverage[1]:.0%} (docs/gauge.md)."
    )


def _format_three(of: Quantiles) -> str:
    return " ".join(f"{value:6.3g}" for value in (of.p05, of.p50, of.p95))


def _required_n_lines(bias: Bias, references: int) -> str:
    if not bias.needed_is_extrapolated:
        return f"{bias.needed_n:,}"
    more = f"> {references:,}"
    return f"{more} (~{bias.needed_n:,})" if bias.needed_n is not None else more
