"""Samples to be judged: id i is of class i mod C, its noise and style are a function of (seed, i) alone.

Any count is balanced to within one sample a class, the first m of them are the same whatever the count, and neither
batch size nor the number of processes changes them. Images are rounded to bytes, as a viewer of the file would see
them; points stay as they are.

generator, reference → metrics with their protocol.

Samples are drawn, rounded to bytes, turned into features and forgotten, batch by batch; several processes share them.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from truedrift import distributed
from truedrift.axes import Tensor
from truedrift.data.samples import to_uint8
from truedrift.errors import UserError, require_integer
from truedrift.evaluation.extractors import Extractor
from truedrift.evaluation.metrics import (
    COMPARED,
    NEIGHBORS,
    FeatureStatistics,
    Moments,
    first_ids,
    frechet_distance,
    kernel_distance,
    precision_recall,
)
from truedrift.evaluation.record import Metrics, Protocol
from truedrift.evaluation.reference import Reference
from truedrift.generators.base import Generator
from truedrift.generators.sampling import sample
from truedrift.progress import Progress, no_progress

LABELS = "balanced"


def generate_batches(
    generator: Generator, count: int, *, seed: int, strength: float, batch: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """(ids, values) of this process's part of the samples, batch by batch; uint8 images or float32 points."""
    first, end = distributed.row_range(count)
    for start in range(first, end, batch):
        ids = torch.arange(start, min(start + batch, end))
        values = sample(generator, ids % generator.classes, seed=seed, strength=strength, batch=batch, first_id=start)
        _require_finite(values, start)
        yield ids, to_uint8(values) if values.ndim == 4 else values


def _require_finite(values: Tensor, first: int) -> None:
    """What is not a number would become a black pixel, and be judged as one."""
    bad = ~torch.isfinite(values).flatten(1).all(1)
    if bad.any():
        number = first + int(bad.nonzero()[0])
        raise UserError(f"sample {number} is not finite", "allowed are numbers", "take weights that have not diverged")


def evaluate(
    generator: Generator,
    reference: Reference,
    extractor: Extractor,
    *,
    samples: int = 50_000,
    seed: int = 0,
    strength: float = 1.0,
    batch: int = 256,
    weights: str = "ema",
    progress: Progress = no_progress,
) -> tuple[Metrics, Protocol]:
    """Metrics of `samples` samples against the reference, by the extractor that made it, and how they were made.

    The generator computes where it is, and the extractor where it is; `weights` only tells which ones were loaded.
    """
    require_integer("samples", samples, 2, 50_000)
    require_integer("batch", batch, 1, 256)
    collected = FeatureStatistics.begin(
        samples, first_ids(samples), extractor.dimensions, classes=extractor.classes, device=extractor.device
    )
    for ids, values in generate_batches(generator, samples, seed=seed, strength=strength, batch=batch):
        collected.add(ids, extractor(values))
        progress("samples judged", int(ids[-1]) + 1, samples)
    protocol = Protocol(
        extractor=extractor.name,
        extractor_sha256=extractor.sha256,
        prepared=extractor.prepared,
        dimensions=extractor.dimensions,
        samples=samples,
        labels=LABELS,
        seed=seed,
        strength=strength,
        weights=weights,
        reference=reference.name,
        split=reference.split,
        reference_count=reference.count,
        reference_sha256=reference.sha256,
        neighbors=NEIGHBORS,
        compared=COMPARED,
    )
    return compute_metrics(collected.over_processes(), reference), protocol


def compute_metrics(collected: FeatureStatistics, reference: Reference) -> Metrics:
    """The numbers of what was collected."""
    kept = collected.kept.cpu()
    moments = Moments(*(part.cpu() for part in vars(collected.moments).values()))
    kid, kid_deviation = kernel_distance(reference.kept, kept)
    precision, recall = precision_recall(reference.kept, kept)
    score, score_deviation = (None, None) if collected.scores is None else collected.scores.score()
    return Metrics(
        fid=frechet_distance(reference.moments, moments),
        kid=kid,
        kid_deviation=kid_deviation,
        precision=precision,
        recall=recall,
        inception_score=score,
        inception_score_deviation=score_deviation,
    )
