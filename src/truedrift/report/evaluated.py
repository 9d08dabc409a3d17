"""An evaluation for the screen: a line a number, and the protocol that all of them share."""

from __future__ import annotations

from truedrift.evaluation.inception_score import parts_of
from truedrift.records.evaluated import Evaluated, Metrics, Protocol
from truedrift.report.cell import shown

NOT_AVAILABLE = "not available"


def summary(record: Evaluated) -> str:
    """Numbers first."""
    return "\n".join((*lines(record.metrics, record.protocol), f"time:     {record.seconds:.0f} s"))


def lines(metrics: Metrics, protocol: Protocol) -> tuple[str, ...]:
    """The numbers, each by its name, and how they were made."""
    pairs = min(protocol.compared, protocol.samples), min(protocol.compared, protocol.reference_count)
    return (
        _line(protocol.distance_name, f"{metrics.fid:.4g}", f"{protocol.samples} samples"),
        _line("KID", _with_error(metrics.kid, metrics.kid_deviation), f"unbiased, all pairs of {_of(pairs)}"),
        _line("precision", share(metrics.precision), f"k = {protocol.neighbors}, {_of(pairs)}"),
        _line("recall", share(metrics.recall), f"k = {protocol.neighbors}, {_of(pairs)}"),
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
    return NOT_AVAILABLE if value is None else f"{shown(value, '.3g')} ± {error:.2g}"


def share(value: float | None) -> str:
    """Three digits, if there is one."""
    return NOT_AVAILABLE if value is None else f"{value:.3f}"


def _of(pairs: tuple[int, int]) -> str:
    return f"{pairs[0]} samples and {pairs[1]} of the data"


def _score(metrics: Metrics, protocol: Protocol) -> tuple[str, str]:
    if metrics.inception_score is None:
        return NOT_AVAILABLE, f"{protocol.extractor} has no classifier"
    parts = parts_of(protocol.samples)
    if parts == 1:
        return f"{metrics.inception_score:.3f}", "all samples at once"
    score = f"{metrics.inception_score:.3f} ± {metrics.inception_score_deviation:.2g}"
    return score, f"mean and deviation of {parts} parts"
