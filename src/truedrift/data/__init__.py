"""Data sets: loading them, batches per class, and arrays from files."""

from truedrift.data.array_files import read_arrays
from truedrift.data.class_batches import Batch, ClassBatches, gather_samples
from truedrift.data.fetch import fetch
from truedrift.data.folder import read_folder
from truedrift.data.load import NAMES, load
from truedrift.data.registry import REMOTE_ASSETS, PinnedFile, RemoteAsset, Source
from truedrift.data.samples import Samples, to_model_range, to_uint8
from truedrift.data.toys import (
    EIGHT_GAUSSIANS,
    FOUR_MODES,
    THREE_CLUSTERS,
    GaussianMixture,
    checkerboard,
    swiss_roll,
    two_moons,
)
from truedrift.storage import cache_directory

__all__ = [
    "EIGHT_GAUSSIANS",
    "FOUR_MODES",
    "NAMES",
    "REMOTE_ASSETS",
    "THREE_CLUSTERS",
    "Batch",
    "ClassBatches",
    "GaussianMixture",
    "PinnedFile",
    "RemoteAsset",
    "Samples",
    "Source",
    "cache_directory",
    "checkerboard",
    "fetch",
    "gather_samples",
    "load",
    "read_arrays",
    "read_folder",
    "swiss_roll",
    "to_model_range",
    "to_uint8",
    "two_moons",
]
