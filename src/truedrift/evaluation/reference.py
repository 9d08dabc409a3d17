"""Statistics of the data that samples are compared with, computed once and cached.

The key in the cache is a hash of the extractor, the values and the format of the file. The features of some images,
chosen by a fixed seed, are stored for the metrics that compare pairs. Unfinished work is saved every minute, so that a
process that is killed continues there when it is started again. Several processes share the work.
"""

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from truedrift import distributed
from truedrift.axes import Float, Int, Tensor
from truedrift.data.samples import Samples
from truedrift.errors import UserError
from truedrift.evaluation.extractors import Extractor
from truedrift.evaluation.metrics import COMPARED, FeatureStatistics, Moments
from truedrift.progress import Progress, no_progress
from truedrift.seeding import stream
from truedrift.storage import cache_directory, cache_tensors, read_tensors, remove_tensors

FORMAT = "1"
SAVE_EVERY_SECONDS = 60.0


@dataclass(frozen=True)
class Reference:
    """Statistics of the data: the fixed side of every comparison."""

    name: str
    split: str
    count: int
    sha256: str
    """The hash of the values."""
    moments: Moments
    features: Float[Tensor, "K D"]
    """Features for the metrics that compare pairs."""


def compute_reference(
    samples: Samples, extractor: Extractor, *, split: str, batch: int = 64, progress: Progress = no_progress
) -> Reference:
    """Compute the statistics of these samples, or read them from the cache.

    Args:
        samples: The data.
        extractor: The network that gives the features.
        split: The name of the split, for the protocol.
        batch: Samples per batch.
        progress: A callback for long computations.

    Returns:
        The statistics, on the CPU.

    Raises:
        UserError: If there are fewer than 2 samples.
    """
    if len(samples) < 2:
        problem = f"{samples.name} ({split}) has {len(samples)} samples"
        raise UserError(problem, "must have at least 2", "choose another split")
    extractor.load(progress)
    digest = hash_values(samples)
    path = _cache_path(extractor, digest)

    # All processes read the cache, or all compute.
    tensors = read_tensors(path)
    missing = distributed.any_process(tensors is None)
    if tensors is None or missing:
        statistics = _collect(samples, extractor, path, batch, progress)
        statistics.all_reduce()
        tensors = _to_tensors(statistics)
        if distributed.rank() == 0:
            cache_tensors(path, tensors)
    moments = Moments(tensors["count"], tensors["mean"], tensors["scatter"]).to("cpu")
    return Reference(samples.name, split, len(samples), digest, moments, tensors["kept"].cpu())


def hash_values(samples: Samples) -> str:
    """Return the sha256 of shape and values. Names and labels do not change a distance."""
    sha256 = hashlib.sha256(repr((list(samples.values.shape), str(samples.values.dtype))).encode())
    sha256.update(samples.values.contiguous().numpy().data)
    return sha256.hexdigest()


def choose_ids(total: int) -> Int[Tensor, " K"]:
    """Choose the ids of the features to store, at random with a fixed seed, because data may be sorted by class."""
    return torch.randperm(total, generator=stream(0, "reference"))[:COMPARED].sort().values


def _cache_path(extractor: Extractor, digest: str) -> Path:
    name = "/".join((FORMAT, extractor.name, extractor.prepared, extractor.sha256, digest, str(COMPARED)))
    return cache_directory("references") / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.safetensors"


def _collect(samples: Samples, extractor: Extractor, path: Path, batch: int, progress: Progress) -> FeatureStatistics:
    """Compute the statistics of this process's part of the samples."""
    first, end = distributed.row_range(len(samples))
    # Continue where an earlier process stopped.
    feature_ids = choose_ids(len(samples))
    statistics = FeatureStatistics(len(samples), feature_ids, extractor.dimensions, None, extractor.device)
    partial = path.with_name(f"{path.stem}.part-{distributed.rank()}-of-{distributed.size()}.safetensors")
    saved = read_tensors(partial)
    if saved is not None:
        device = statistics.features.device
        statistics.moments = Moments(saved["count"], saved["mean"], saved["scatter"]).to(device)
        statistics.features = saved["kept"].to(device)
    # Compute the rest, and save it every minute.
    last_save = time.monotonic()
    for start in range(first + int(statistics.moments.count), end, batch):
        ids = torch.arange(start, min(start + batch, end))
        statistics.add(ids, extractor(samples.values[start : start + len(ids)]))
        progress(f"features of {samples.name}", start + len(ids) - first, end - first)
        if time.monotonic() - last_save > SAVE_EVERY_SECONDS:
            cache_tensors(partial, _to_tensors(statistics))
            last_save = time.monotonic()
    remove_tensors(partial)
    return statistics


def _to_tensors(statistics: FeatureStatistics) -> dict[str, Tensor]:
    """Return the statistics by their names in the cached file."""
    return {**vars(statistics.moments), "kept": statistics.features}
