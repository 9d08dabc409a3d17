"""How near samples of a generator are to data, as a record: every number with the protocol that made it."""

from __future__ import annotations

from dataclasses import dataclass

from truedrift.records.provenance import Provenance

EVALUATIONS = "evaluations.jsonl"
"""What `truedrift evaluate` appends to, in the directory of what it judged."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How samples were drawn, what they were compared with, and in which features."""

    extractor: str
    """inception, abc-release, digits or encoder:NAME."""
    extractor_sha256: str
    """Of its weights and of what is done to an image before them."""
    prepared: str
    """What is done to an image: "uint8, bilinear as in TF1 to 299×299", say."""
    dimensions: int
    samples: int
    labels: str
    """"balanced": sample i is of class i mod C."""
    seed: int
    strength: float
    weights: str
    """"ema" or "model"."""
    reference: str
    """Name of the data set."""
    split: str
    reference_count: int
    reference_sha256: str
    neighbors: int
    """k of precision and recall."""
    compared: int
    """Features of each side, at most, in KID and in precision and recall."""

    @property
    def distance_name(self) -> str:
        """FID is the distance in the standard network's features; anything else is a Fréchet distance by its name."""
        return "FID" if self.extractor == "inception" else f"FD ({self.extractor})"


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Distances are the smaller the better, the others the larger.

    None is what cannot be had: precision and recall of k samples or fewer, a score without a classifier.
    """

    fid: float
    kid: float | None
    kid_deviation: float | None
    """Its standard error."""
    precision: float | None
    recall: float | None
    inception_score: float | None
    inception_score_deviation: float | None
    """Over splits."""


@dataclass(frozen=True, kw_only=True)
class EvaluationRecord:
    """A run's generator after `step` steps, or saved weights (step None)."""

    KIND = "Evaluated"

    run: str
    step: int | None
    metrics: Metrics
    protocol: Protocol
    seconds: float
    provenance: Provenance
