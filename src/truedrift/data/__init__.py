"""Where samples come from."""

from truedrift.data.array_files import read_arrays
from truedrift.data.class_batches import Batch, ClassBatches, gathered
from truedrift.data.load import NAMES, load
from truedrift.data.samples import Samples, to_model, to_uint8
from truedrift.data.toys import EIGHT_GAUSSIANS, FOUR_MODES, THREE_CLUSTERS, GaussianMixture
from truedrift.storage import cache_directory

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
