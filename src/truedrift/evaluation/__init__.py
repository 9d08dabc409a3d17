"""Evaluation: samples → features of a frozen network → statistics → FID, KID, precision, recall, Inception Score.

`build_extractor` makes the network, `compute_reference` the statistics of the data, and `evaluate` compares a generator
with them.
"""

from truedrift.evaluation.catalog import EXTRACTORS, build_extractor, default_extractor
from truedrift.evaluation.evaluate import evaluate, generate_batches
from truedrift.evaluation.extractors import ExtractedFeatures, Extractor
from truedrift.evaluation.metrics import (
    FeatureStatistics,
    Moments,
    batch_moments,
    frechet_distance,
    kernel_distance,
    precision_recall,
)
from truedrift.evaluation.record import EvaluationRecord, Metrics, Protocol
from truedrift.evaluation.reference import Reference, compute_reference

__all__ = [
    "EXTRACTORS",
    "EvaluationRecord",
    "ExtractedFeatures",
    "Extractor",
    "FeatureStatistics",
    "Metrics",
    "Moments",
    "Protocol",
    "Reference",
    "batch_moments",
    "build_extractor",
    "compute_reference",
    "default_extractor",
    "evaluate",
    "frechet_distance",
    "generate_batches",
    "kernel_distance",
    "precision_recall",
]
