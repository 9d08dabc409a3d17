"""Networks that judge, by name."""

from truedrift.evaluation.extractors.base import Extracted, Extractor
from truedrift.evaluation.extractors.catalog import EXTRACTORS, build_extractor

__all__ = ["EXTRACTORS", "Extracted", "Extractor", "build_extractor"]
