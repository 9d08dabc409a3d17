"""Statistics of the data that samples are compared with, computed once and kept in the cache by content.

The key is a hash of the extractor, the values and this file's format. Features of some images, chosen once by a fixed
seed, are kept in full for what is compared in pairs. On the way the work is saved every minute, so that a process that
is killed goes on where it was; several processes share it, each with its own part.
"""

from __future__ import annotations

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
    """The data's side of every comparison."""

    name: str
    split: str
    count: int
    sha256: str
    """Of the values."""
    moments: Moments
    kept: Float[Tensor, "K D"]


def compute_reference(
    samples: Samples, extractor: Extractor, *, split: str, batch: int = 64, progress: Progress = no_progress
) -> Reference:
    """The statistics of these samples, from the cache if they are there."""
    if len(samples) < 2:
        came = f"{samples.name} ({split}) has {len(samples)} samples"
        raise UserError(came, "allowed are 2 or more", "take another split")
    digest = values_digest(samples)
    path = _path(extractor, digest)
    kept = read_tensors(path)
    if not distributed.any_process(kept is None) and kept is not None:
        return _reference(samples, split, digest, kept)
    collected = _collect(samples, extractor, path, batch, progress).over_processes()
    tensors = _tensors(collected)
    if distributed.rank() == 0:
        cache_tensors(path, tensors)
    return _reference(samples, split, digest, tensors)


def is_cached(samples: Samples, extractor: Extractor) -> bool:
    """Whether the cache has them."""
    return _path(extractor, values_digest(samples)).exists()


def values_digest(samples: Samples) -> str:
    """sha256 of shape and values; names and labels do not matter to a distance."""
    sha256 = hashlib.sha256(repr((list(samples.values.shape), str(samples.values.dtype))).encode())
    sha256.update(samples.values.contiguous().numpy().data)
    return sha256.hexdigest()


def choose_ids(total: int) -> Int[Tensor, " K"]:
    """Of data, which may be sorted by class: any, by a fixed seed, in order."""
    return torch.randperm(total, generator=stream(0, "reference"))[:COMPARED].sort().values


def _path(extractor: Extractor, digest: str) -> Path:
    name = "/".join((FORMAT, extractor.name, extractor.prepared, extractor.sha256, digest, str(COMPARED)))
    return cache_directory("references") / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.safetensors"


def _collect(samples: Samples, extractor: Extractor, path: Path, batch: int, progress: Progress) -> FeatureStatistics:
    """Of this process's part of the samples."""
    first, end = distributed.row_range(len(samples))
    partial = path.with_name(f"{path.stem}.part-{distributed.rank()}-of-{distributed.size()}.safetensors")
    collected = _resume(partial, samples, extractor)
    saved = time.monotonic()
    for start in range(first + collected.seen, end, batch):
        ids = torch.arange(start, min(start + batch, end))
        collected.add(ids, extractor(samples.values[start : start + len(ids)]))
        progress(f"features of {samples.name}", collected.seen, end - first)
        if time.monotonic() - saved > SAVE_EVERY_SECONDS:
            cache_tensors(partial, _tensors(collected))
            saved = time.monotonic()
    remove_tensors(partial)
    return collected


def _resume(partial: Path, samples: Samples, extractor: Extractor) -> FeatureStatistics:
    """Where an earlier process was, or the beginning."""
    begun = FeatureStatistics.begin(
        len(samples), choose_ids(len(samples)), extractor.dimensions, classes=None, device=extractor.device
    )
    there = read_tensors(partial)
    if there is None:
        return begun
    where = begun.kept.device
    moments = Moments(*(there[name].to(where) for name in ("count", "mean", "scatter")))
    return FeatureStatistics(begun.total, begun.chosen, moments, there["kept"].to(where), None, int(there["count"]))


def _tensors(collected: FeatureStatistics) -> dict[str, Tensor]:
    moments = collected.moments
    return {"count": moments.count, "mean": moments.mean, "scatter": moments.scatter, "kept": collected.kept}


def _reference(samples: Samples, split: str, digest: str, tensors: dict[str, Tensor]) -> Reference:
    moments = Moments(*(tensors[name].cpu() for name in ("count", "mean", "scatter")))
    return Reference(samples.name, split, len(samples), digest, moments, tensors["kept"].cpu())
