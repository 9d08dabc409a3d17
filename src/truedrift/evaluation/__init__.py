"""Evaluation: samples → features of a frozen network → statistics → FID, KID, precision, recall, Inception Score.

`build_extractor` makes the network, `compute_reference` the statistics of the data, and `evaluate` compares a generator
with them.
"""

from truedrift.evaluation.catalog import EXTRACTORS, build_extractor
from truedrift.evaluation.evaluate import evaluate
from truedrift.evaluation.extractors import Extractor
from truedrift.evaluation.reference import Reference, compute_reference, is_cached

__all__ = ["EXTRACTORS", "Extractor", "Reference", "build_extractor", "compute_reference", "evaluate", "is_cached"]
