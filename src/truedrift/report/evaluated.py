"""An evaluation for the screen: a line a number, and the protocol that all of them share."""

from __future__ import annotations

from truedrift.records.evaluated import Evaluated, Metrics, Protocol


def summary(record: Evaluated) -> str:
    """Numbers first."""
    return "\n".join((*lines(record.metrics, record.protocol), f"time:     {record.seconds:.0f} s"))


def lines(metrics: Metrics, protocol: Protocol) -> tuple[str, ...]:
    """The numbers, each by its name, and how they were made."""
    pairs = min(protocol.compared, protocol.samples), min(protocol.compared, protocol.reference_count)
    return (
        _line(protocol.distance_name, f"{metrics.fid:.4g}", f"{protocol.samples} samples"),
        _line("KID", f"{metrics.kid:.3g} ± {metrics.kid_deviation:.2g}", f"unbiased, all pairs of {_of(pairs)}"),
        _line("precision", f"{metrics.precision:.3f}", f"k = {protocol.neighbors}, {_of(pairs)}"),
        _line("recall", f"{metrics.recall:.3f}", f"k = {protocol.neighbors}, {_of(pairs)}"),
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


def _of(pairs: tuple[int, int]) -> str:
    return f"{pairs[0]} samples and {pairs[1]} of the data"


def _score(metrics: Metrics, protocol: Protocol) -> tuple[str, str]:
    if metrics.inception_score is None:
        return "not available", f"{protocol.extractor} has no classifier"
    return f"{metrics.inception_score:.3f} ± {metrics.inception_score_deviation:.2g}", "mean and deviation of 10 parts"
