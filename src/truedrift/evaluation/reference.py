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
from truedrift.axes import Float, Tensor
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
    digest = _hash_values(samples)
    path = _cache_path(extractor, digest, str(COMPARED))

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


def compute_features(
    samples: Samples,
    extractor: Extractor,
    *,
    batch: int = 64,
    cached: bool = True,
    progress: Progress = no_progress,
) -> Float[Tensor, "N D"]:
    """Compute the features of all samples in one process, or read them from the cache.

    Args:
        samples: The data. Their features must fit into memory.
        extractor: The network that gives the features.
        batch: Samples per batch.
        cached: Read and write the cache.
        progress: A callback for long computations.

    Returns:
        float32 features on the CPU, in the order of the samples.
    """
    extractor.load(progress)
    path = _cache_path(extractor, _hash_values(samples), "features")
    tensors = read_tensors(path) if cached else None
    if tensors is not None:
        return tensors["features"]
    # Continue where an earlier process stopped, and save every minute.
    partial = path.with_name(f"{path.stem}.part.safetensors")
    saved = read_tensors(partial) if cached else None
    parts = [torch.empty(0, extractor.dimensions) if saved is None else saved["features"]]
    last_save = time.monotonic()
    for start in range(sum(map(len, parts)), len(samples), batch):
        values = samples.values[start : start + batch]
        parts.append(extractor(values).features.float().cpu())
        progress(f"features of {samples.name}", start + len(values), len(samples))
        if cached and time.monotonic() - last_save > SAVE_EVERY_SECONDS:
            cache_tensors(partial, {"features": torch.cat(parts)})
            last_save = time.monotonic()
    features = torch.cat(parts)
    if cached:
        cache_tensors(path, {"features": features})
        remove_tensors(partial)
    return features


def _cache_path(extractor: Extractor, digest: str, content: str) -> Path:
    """Return the file in the cache for the values with this hash and what is stored about them."""
    key = "/".join((FORMAT, extractor.name, extractor.prepared, extractor.sha256, digest, content))
    return cache_directory("references") / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.safetensors"


def _hash_values(samples: Samples) -> str:
    """Return the sha256 of shape and values. Names and labels do not change a distance."""
    sha256 = hashlib.sha256(repr((list(samples.values.shape), str(samples.values.dtype))).encode())
    sha256.update(samples.values.contiguous().numpy().data)
    return sha256.hexdigest()


def _collect(samples: Samples, extractor: Extractor, path: Path, batch: int, progress: Progress) -> FeatureStatistics:
    """Compute the statistics of this process's part of the samples."""
    first, end = distributed.row_range(len(samples))
    # Features to store are chosen at random, because data may be sorted by class.
    feature_ids = torch.randperm(len(samples), generator=stream(0, "reference"))[:COMPARED].sort().values
    statistics = FeatureStatistics(len(samples), feature_ids, extractor.dimensions, None, extractor.device)
    # Continue where an earlier process stopped.
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
