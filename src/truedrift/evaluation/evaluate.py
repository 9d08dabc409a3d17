"""generator, reference → metrics with their protocol.

Samples are drawn, rounded to bytes, turned into features and forgotten, batch by batch; several processes share them.
"""

from __future__ import annotations

from truedrift.evaluation.collected import COMPARED, Collected, first_ids
from truedrift.evaluation.draw import LABELS, drawn
from truedrift.evaluation.extractors.base import Extractor
from truedrift.evaluation.frechet import frechet_distance
from truedrift.evaluation.kernel_distance import kernel_distance
from truedrift.evaluation.moments import Moments
from truedrift.evaluation.precision_recall import NEIGHBORS, precision_recall
from truedrift.evaluation.reference import Reference
from truedrift.generators.base import Generator
from truedrift.progress import Progress, silent
from truedrift.records.evaluated import Metrics, Protocol
from truedrift.validation import require_whole


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
    progress: Progress = silent,
) -> tuple[Metrics, Protocol]:
    """Metrics of `samples` samples against the reference, by the extractor that made it, and how they were made.

    The generator computes where it is, and the extractor where it is; `weights` only tells which ones were loaded.
    """
    require_whole("samples", samples, 2, 50_000)
    require_whole("batch", batch, 1, 256)
    collected = Collected.begin(
        samples, first_ids(samples), extractor.dimensions, classes=extractor.classes, device=extractor.device
    )
    for ids, values in drawn(generator, samples, seed=seed, strength=strength, batch=batch):
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
    return compared(collected.over_processes(), reference), protocol


def compared(collected: Collected, reference: Reference) -> Metrics:
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
