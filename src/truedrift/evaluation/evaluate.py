"""generator, reference → metrics and their protocol.

Sample i has class i mod C, and its noise and style are a function of (seed, i). Class counts therefore differ by at
most one, and a sample does not depend on the total number of samples, the batch size or the number of processes. Images
are rounded to bytes, as in an image file; points stay as they are.

Samples are generated and turned into features batch by batch, and are not stored. Several processes share the work.
"""

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
    """Compare samples of a generator with data.

    Args:
        generator: The generator. It computes on its own device.
        reference: The statistics of the data, from `compute_reference` with the same extractor.
        extractor: The network that gives the features. It computes on its own device.
        samples: How many samples are generated.
        seed: The seed of noise and styles.
        strength: The guidance strength that the generator is given.
        batch: Samples per batch.
        weights: Which weights the generator has, "ema" or "model"; only written to the protocol.
        progress: A callback for long computations.

    Returns:
        The metrics, and the protocol that describes how they were computed.

    Raises:
        UserError: If a number is out of range, or a sample is not finite.
    """
    samples = require_integer("samples", samples, 2, 50_000)
    batch = require_integer("batch", batch, 1, 256)

    # Features of the samples
    feature_ids = torch.arange(min(samples, COMPARED))
    statistics = FeatureStatistics(samples, feature_ids, extractor.dimensions, extractor.classes, extractor.device)
    for ids, values in generate_batches(generator, samples, seed=seed, strength=strength, batch=batch):
        statistics.add(ids, extractor(values))
        progress("samples evaluated", int(ids[-1]) + 1, samples)
    statistics.all_reduce()

    # Metrics and their protocol
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
    return _compute_metrics(statistics, reference, progress), protocol


def generate_batches(
    generator: Generator, count: int, *, seed: int, strength: float, batch: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Generate this process's part of the samples, batch by batch.

    Args:
        generator: The generator. Sample i has class i mod C.
        count: Number of samples of all processes together.
        seed: The seed of noise and styles. The noise of a sample depends only on this seed and its id.
        strength: The guidance strength that the generator is given.
        batch: Samples per batch.

    Yields:
        Ids [b] and values [b, *sample_shape]: uint8 images or float32 points.

    Raises:
        UserError: If a sample is not finite.
    """
    first, end = distributed.row_range(count)
    for start in range(first, end, batch):
        ids = torch.arange(start, min(start + batch, end))
        values = sample(generator, ids % generator.classes, seed=seed, strength=strength, batch=batch, first_id=start)
        # NaN and infinity would be evaluated as black pixels.
        bad = ~torch.isfinite(values).flatten(1).all(1)
        if bad.any():
            number = start + int(bad.nonzero()[0])
            raise UserError(f"sample {number} is not finite", "must be finite", "use weights that have not diverged")
        yield ids, to_uint8(values) if values.ndim == 4 else values


def _compute_metrics(statistics: FeatureStatistics, reference: Reference, progress: Progress) -> Metrics:
    """Compute the metrics from the statistics of the samples and of the data."""
    features = statistics.features.cpu()
    progress("metrics", 0, 3)
    kid, kid_deviation = kernel_distance(reference.features, features)
    progress("metrics", 1, 3)
    precision, recall = precision_recall(reference.features, features)
    progress("metrics", 2, 3)
    fid = frechet_distance(reference.moments, statistics.moments.to("cpu"))
    score, score_deviation = (None, None) if statistics.scores is None else statistics.scores.score()
    progress("metrics", 3, 3)
    return Metrics(
        fid=fid,
        kid=kid,
        kid_deviation=kid_deviation,
        precision=precision,
        recall=recall,
        inception_score=score,
        inception_score_deviation=score_deviation,
    )
