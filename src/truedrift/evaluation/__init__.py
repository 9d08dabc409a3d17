"""samples → numbers: features of a frozen extractor, streamed statistics, and distances to those of data.

generator → `draw` → values → `extractors` → features → `collected` → `frechet`, `kernel_distance`, `precision_recall`,
`inception_score` → `evaluate`, with the `reference` of the data beside.
"""

from truedrift.evaluation.catalog import EXTRACTORS, build_extractor
from truedrift.evaluation.evaluate import evaluate
from truedrift.evaluation.extractors import Extractor
from truedrift.evaluation.reference import Reference, compute_reference, is_cached

__all__ = ["EXTRACTORS", "Extractor", "Reference", "build_extractor", "compute_reference", "evaluate", "is_cached"]
