"""Training on the digits as a record: how many samples are what they should be, and how different they are."""

from __future__ import annotations

from dataclasses import dataclass

from truedrift.records.origin import Provenance


@dataclass(frozen=True, kw_only=True)
class DigitsRun:
    """One run.

    `recognized` is the share of samples that the classifier takes for their class; `distance_ratio` the mean distance
    between two samples of a class over that between two images of the data.
    """

    estimator: str
    seed: int
    recognized: float
    distance_ratio: float
    seconds: float
    """Of training alone; 0 where the run was there already."""


@dataclass(frozen=True, kw_only=True)
class TrainedDigits:
    """All runs at one n. The classifier was trained on the training images; `accuracy` is on the others."""

    n: int
    steps: int
    samples: int
    accuracy: float
    threads: int
    runs: tuple[DigitsRun, ...]
    provenance: Provenance
