"""Where samples come from."""

from truedrift.cache import cache_directory
from truedrift.data.arrays import read_arrays
from truedrift.data.catalog import NAMES, load
from truedrift.data.class_batches import Batch, ClassBatches, gathered
from truedrift.data.samples import Samples, to_model, to_uint8
from truedrift.data.toy import EIGHT_GAUSSIANS, FOUR_MODES, THREE_CLUSTERS, GaussianMixture

__all__ = [
    "EIGHT_GAUSSIANS",
    "FOUR_MODES",
    "NAMES",
    "THREE_CLUSTERS",
    "Batch",
    "ClassBatches",
    "GaussianMixture",
    "Samples",
    "cache_directory",
    "gathered",
    "load",
    "read_arrays",
    "to_model",
    "to_uint8",
]
