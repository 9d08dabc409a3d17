"""Evaluation: samples → features of a frozen network → statistics → FID, KID, precision, recall, Inception Score.

`build_extractor` makes the network, `compute_reference` the statistics of the data, and `evaluate` compares a generator
with them. `find_neighbors` finds the nearest training images of samples.
"""

from truedrift.evaluation.catalog import EXTRACTORS, build_extractor, default_extractor, independent_extractor
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
from truedrift.evaluation.neighbors import (
    Neighbors,
    NeighborsProtocol,
    NeighborsRecord,
    find_neighbors,
    hold_out,
    summarize_neighbors,
)
from truedrift.evaluation.probe import ProbeResult, choose_samples, probe_encoder
from truedrift.evaluation.record import EvaluationRecord, Metrics, Protocol
from truedrift.evaluation.reference import Reference, compute_features, compute_reference

__all__ = [
    "EXTRACTORS",
    "EvaluationRecord",
    "ExtractedFeatures",
    "Extractor",
    "FeatureStatistics",
    "Metrics",
    "Moments",
    "Neighbors",
    "NeighborsProtocol",
    "NeighborsRecord",
    "ProbeResult",
    "Protocol",
    "Reference",
    "batch_moments",
    "build_extractor",
    "choose_samples",
    "compute_features",
    "compute_reference",
    "default_extractor",
    "evaluate",
    "find_neighbors",
    "frechet_distance",
    "generate_batches",
    "hold_out",
    "independent_extractor",
    "kernel_distance",
    "precision_recall",
    "probe_encoder",
    "summarize_neighbors",
]
