"""Evaluations as records: every number with the protocol that gave it."""

from dataclasses import dataclass

from truedrift.records.provenance import Provenance

EVALUATIONS = "evaluations.jsonl"
"""The file that `truedrift evaluate` appends to, in the directory of the evaluated run."""

FEW_SAMPLES = 300
"""Distances of fewer samples say little: their bias and their noise are larger than most differences between runs."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How samples were generated, what they were compared with, and in which features."""

    extractor: str
    """inception, abc-release, digits or encoder:NAME."""
    extractor_sha256: str
    """The hash of the extractor's weights."""
    prepared: str
    """The preprocessing of images, such as "uint8, bilinear as in TF1 to 299×299"."""
    dimensions: int
    samples: int
    labels: str
    """"balanced": sample i has class i mod C."""
    seed: int
    strength: float
    weights: str
    """"ema", "ema 0.99" for another average of the run, or "model"."""
    reference: str
    """The name of the data set."""
    split: str
    reference_count: int
    reference_sha256: str
    neighbors: int
    """k of precision and recall."""
    compared: int
    """The largest number of features per side in KID, precision and recall."""

    @property
    def few_samples(self) -> bool:
        """Whether there are so few samples, or so few of the data, that a distance says little."""
        return min(self.samples, self.reference_count) < FEW_SAMPLES

    @property
    def distance_name(self) -> str:
        """ "FID" for the standard network; other Fréchet distances are named after their extractor."""
        return "FID" if self.extractor == "inception" else f"FD ({self.extractor})"


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Metrics of samples. Smaller is better for `fid` and `kid`, larger for the others.

    None means not defined: precision and recall of k samples or fewer, or a score without a classifier.
    """

    fid: float
    kid: float | None
    kid_deviation: float | None
    """The standard error of `kid`."""
    precision: float | None
    recall: float | None
    inception_score: float | None
    inception_score_deviation: float | None
    """The standard deviation over the parts."""


@dataclass(frozen=True, kw_only=True)
class EvaluationRecord:
    """The evaluation of a run's generator after `step` steps, or of saved weights (step None)."""

    KIND = "Evaluated"

    run: str
    step: int | None
    metrics: Metrics
    protocol: Protocol
    seconds: float
    provenance: Provenance
    few_samples: bool = False
    """Whether the distances say little, because there were fewer than `FEW_SAMPLES` samples or samples of the data."""
