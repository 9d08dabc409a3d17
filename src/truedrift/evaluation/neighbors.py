r"""Nearest training images of samples: a check whether a generator copies its training data.

    d(x) = min_i ‖φ(x) − φ(y_i)‖     for training images y_i and features φ of a frozen network

is computed for samples of the generator and for held-out images, which the generator has not seen. Let t be the 1st
percentile of d over the held-out images. A generator that copies has many samples with d ≤ t.

How many are too many? If samples and held-out images come from one distribution and do not depend on the training
images, all orders of their N + M distances have the same probability. Let k held-out images have d ≤ t. The samples
with d ≤ t are among the B samples that come before the held-out image number k + 1, and

    P(B = b) = C(b + k, b) C(N − b + M − k − 1, N − b) / C(N + M, N)     (negative hypergeometric).

The probability that B is at least the observed number is a p-value that holds for any network, any distribution of the
images, and distances that are equal. A small p-value says that samples are closer to training images than new images
are. Copies are one reason. Samples with little detail, such as blurred ones, are another: they lie close to many
images. So the nearest images must be looked at.

An expensive network is not applied to all training images but to a random part of them. A copy of an image outside of
that part would not be found. Therefore the part also contains the nearest image in pixels, among all training images,
of every sample and of every held-out image. Both are treated in the same way, so the p-value holds.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import torch

from truedrift.axes import Float, Int, Tensor
from truedrift.data.samples import Samples
from truedrift.errors import UserError, require_integer
from truedrift.evaluation.extractors import Extractor
from truedrift.evaluation.reference import compute_features
from truedrift.kernels.distance import squared_distance
from truedrift.options import NonEmpty, Within
from truedrift.progress import Progress, no_progress
from truedrift.records.provenance import Provenance
from truedrift.seeding import stream

SHOWN = 3
"""Nearest training images per sample that are kept."""
PERCENTILE = 0.01
"""The share of held-out images that defines what is close."""
LEVEL = 0.01
"""A smaller p-value is a warning."""
QUANTILES = 101
"""Quantiles of each distribution in a record, from the smallest distance to the largest."""
HELD_OUT_SHARE = 5
"""Without a test split, at most one of this many images per class is held out."""
CHEAP = ("digits", "encoder:pixels", "encoder:convnet")
"""Extractors that are applied to all training images by default."""
FEW = 2000
"""Training images that other extractors are applied to by default."""
BLOCK_ELEMENTS = 1 << 24
"""Largest number of float64 values per block: of references, and of distances."""


# ---- Records ----


@dataclass(frozen=True, kw_only=True)
class NeighborsProtocol:
    """How samples were generated, what they were compared with, and in which features."""

    extractor: str
    """inception, abc-release, digits or encoder:NAME."""
    extractor_sha256: str
    """The hash of the extractor's weights."""
    prepared: str
    dimensions: int
    independent: bool
    """Whether the run was trained on other features than these."""
    samples: Annotated[int, Within(1)]
    seed: int
    strength: float
    weights: str
    """"ema" or "model"."""
    data: str
    """The name of the data set."""
    train: int
    """Number of training images, without those that are held out."""
    compared: int
    """Number of training images that were compared in the features of the extractor."""
    held_out: Annotated[int, Within(1)]
    held_out_split: Literal["train", "test"]
    """"test", or "train" if the data have no test split: then the generator has seen the held-out images."""


@dataclass(frozen=True, kw_only=True)
class NeighborsRecord:
    """Distances of samples and of held-out images to the nearest training image, in the features of a network."""

    KIND = "Neighbors"

    run: str
    step: int | None
    protocol: NeighborsProtocol
    threshold: float
    """The 1st percentile t of the distances of held-out images."""
    close: int
    """Samples with a distance of at most t."""
    close_held_out: int
    """Held-out images with a distance of at most t."""
    p_value: float
    """The probability of at least so many close samples, for samples that are distributed like held-out images."""
    quantiles: Annotated[tuple[float, ...], NonEmpty()]
    """Quantiles of the distances of samples, at equal steps from 0 to 1."""
    held_out_quantiles: Annotated[tuple[float, ...], NonEmpty()]
    """The same of held-out images."""
    seconds: float
    provenance: Provenance

    @property
    def share(self) -> float:
        """Share of samples with a distance of at most t."""
        return self.close / self.protocol.samples

    @property
    def median(self) -> float:
        """Median distance of samples."""
        return self.quantiles[len(self.quantiles) // 2]

    @property
    def held_out_median(self) -> float:
        """Median distance of held-out images."""
        return self.held_out_quantiles[len(self.held_out_quantiles) // 2]

    @property
    def is_suspicious(self) -> bool:
        """Whether more samples are close to a training image than chance explains."""
        return self.p_value < LEVEL


# ---- The data ----


def hold_out(train: Samples, test: Samples | None, count: int) -> tuple[Samples, Samples]:
    """Choose the training images and the held-out images, as a fixed function of the data.

    Held-out images are chosen at random with equally many per class, as long as a class has enough: the samples that
    they are compared with are balanced too.

    Args:
        train: The training images.
        test: The test split; None: the data have none, and at most a fifth of the training images of every class is
            held out. These are not training images of the comparison then.
        count: Number of held-out images; fewer if there are not enough.

    Returns:
        The training images and the held-out images.

    Raises:
        UserError: If there are fewer than 2 held-out images.

    Example:
        >>> values, labels = torch.zeros(50, 1, 2, 2, dtype=torch.uint8), torch.arange(50) % 2
        >>> train, held_out = hold_out(Samples(values, labels, ("a", "b"), "folder", flips=False), None, 8)
        >>> len(train), len(held_out), held_out.labels.bincount().tolist()
        (42, 8, [4, 4])
    """
    require_integer("held_out", count, 2, 500)
    source = train if test is None else test
    order = torch.randperm(len(source), generator=stream(0, "held-out images"))
    # The r-th image of each class in that order comes before the (r + 1)-th of any class.
    candidates = []
    for label in range(len(source.classes)):
        ids = order[source.labels[order] == label]
        ids = ids[: len(ids) // HELD_OUT_SHARE] if test is None else ids
        candidates += [(r, label, i) for r, i in enumerate(ids.tolist())]
    chosen = torch.tensor(sorted(i for _, _, i in sorted(candidates)[:count]), dtype=torch.long)
    if len(chosen) < 2:
        problem = f"{source.name} has {len(source)} images to hold out from"
        raise UserError(problem, "must have at least 2, or 5 per class without a test split", "use more images")
    if test is not None:
        return train, test.take(chosen)
    kept = torch.ones(len(train), dtype=torch.bool)
    kept[chosen] = False
    return train.take(kept.nonzero().flatten()), train.take(chosen)


# ---- Distances ----


@dataclass(frozen=True, kw_only=True)
class Neighbors:
    """The nearest training images of samples, and the distances that they are compared with."""

    ids: Int[Tensor, "N shown"]
    """Positions of the nearest training images of every sample, the nearest first."""
    distances: Float[Tensor, "N shown"]
    """Their distances."""
    held_out: Float[Tensor, " M"]
    """Distance of every held-out image to its nearest training image."""
    compared: int
    """Number of training images that were compared in features."""


def find_neighbors(
    generated: Tensor,
    train: Samples,
    held_out: Samples,
    extractor: Extractor,
    *,
    reference: int | None = None,
    batch: int = 64,
    progress: Progress = no_progress,
) -> Neighbors:
    """Find the nearest training images of samples and of held-out images, in the features of an extractor.

    If training mirrors images (`train.flips`), so does the comparison: the distance of an image is the smaller one of
    itself and of its mirror image.

    Args:
        generated: Samples as bytes [N, C, H, W].
        train: The training images.
        held_out: Images that are not training images.
        extractor: The network that gives the features.
        reference: Number of training images to compute features of, chosen by a fixed seed, in addition to the nearest
            one in pixels of every sample and every held-out image; None: all for a cheap extractor, else 2 000.
        batch: Images per batch.
        progress: A callback for long computations.

    Returns:
        Nearest training images and distances, on the CPU.

    Raises:
        UserError: If there are too few training images.

    Example:
        >>> from truedrift.data import load
        >>> from truedrift.evaluation import build_extractor
        >>> train, test = load("digits"), load("digits", split="test")
        >>> extractor = build_extractor("encoder:pixels", sample_shape=(1, 8, 8), device=torch.device("cpu"))
        >>> found = find_neighbors(train.values[:2], train, test, extractor)  # a generator that copies
        >>> found.ids[:, 0], found.distances[:, 0]
        (tensor([0, 1]), tensor([0., 0.]))
    """
    if len(train) < SHOWN:
        problem = f"{train.name} has {len(train)} training images"
        raise UserError(problem, f"must have at least {SHOWN}", "use more images")
    if reference is None:
        reference = len(train) if extractor.name in CHEAP else FEW
    reference = require_integer("reference", reference, 1, FEW)
    samples = Samples(generated, torch.zeros(len(generated), dtype=torch.long), ("samples",), "samples", flips=False)
    held_out_views, views = _views(held_out, mirrored=train.flips), _views(samples, mirrored=train.flips)
    parts = _choose_references(train, reference, [held_out_views, views], progress)
    extractor.load(progress)
    # Features that depend on the samples are not worth a file in the cache.
    images = [*map(train.take, parts), *held_out_views, *views]
    cached = [True, True, False][: len(parts)] + [True] * len(held_out_views) + [False] * len(views)
    features = _features_of_all(images, cached, extractor, batch, progress)
    ids, train_features = torch.cat(parts), torch.cat(features[: len(parts)])
    held_out_features, sample_features = features[len(parts) : -len(views)], features[-len(views) :]
    _, held_out_distances = _nearest_of_views(held_out_features, train_features, 1)
    nearest, distances = _nearest_of_views(sample_features, train_features, SHOWN)
    return Neighbors(ids=ids[nearest], distances=distances, held_out=held_out_distances.flatten(), compared=len(ids))


def _choose_references(
    train: Samples, count: int, queries: Sequence[Sequence[Samples]], progress: Progress
) -> list[Int[Tensor, " part"]]:
    """Choose training images: a random part, then for each set of queries its nearest images in pixels."""
    order = torch.randperm(len(train), generator=stream(0, "training images"))
    parts = [order[:count].sort().values]
    if count < len(train):
        for views in queries:
            pixels = torch.cat([view.values.flatten(1) for view in views])
            nearest, _ = search_nearest(pixels, train.values.flatten(1), 1, progress=progress)
            known = torch.cat(parts)
            parts.append(torch.tensor(sorted(set(nearest.flatten().tolist()) - set(known.tolist())), dtype=torch.long))
    return parts


def _features_of_all(
    images: Sequence[Samples], cached: Sequence[bool], extractor: Extractor, batch: int, progress: Progress
) -> list[Float[Tensor, "N D"]]:
    """Compute the features of several sets of images, with one progress for all."""
    total, done, features = sum(map(len, images)), 0, []
    for each, is_cached in zip(images, cached, strict=True):
        report = partial(_report_part, progress, done, total)
        features.append(compute_features(each, extractor, batch=batch, cached=is_cached, progress=report))
        done += len(each)
    return features


def _views(samples: Samples, *, mirrored: bool) -> list[Samples]:
    """Return the images, and their mirror images if `mirrored`."""
    if not mirrored:
        return [samples]
    return [samples, dataclasses.replace(samples, values=samples.values.flip(-1))]


def _nearest_of_views(
    views: Sequence[Float[Tensor, "N D"]], references: Float[Tensor, "R D"], k: int
) -> tuple[Int[Tensor, "N k"], Float[Tensor, "N k"]]:
    """Search the k nearest references of every query by the smallest distance of its views."""
    found = [search_nearest(view, references, k) for view in views]
    ids, distances = (torch.cat(each, 1) for each in zip(*found, strict=True))
    distances, order = distances.sort(dim=1, stable=True)
    ids = ids.gather(1, order)
    # A reference may be near in several views: keep the first place of each.
    repeated = (ids.unsqueeze(2) == ids.unsqueeze(1)).tril(-1).any(2)
    kept = repeated.sort(dim=1, stable=True).indices[:, :k]
    return ids.gather(1, kept), distances.gather(1, kept)


def _report_part(progress: Progress, before: int, total: int, what: str, done: float, _: float) -> None:
    """Report the progress of one part of the images as that of all."""
    progress("features", before + done, total)


def search_nearest(
    queries: Tensor, references: Tensor, k: int, *, progress: Progress = no_progress
) -> tuple[Int[Tensor, "N k"], Float[Tensor, "N k"]]:
    """Search the k nearest references of every query.

    Args:
        queries: [N, D], of any dtype.
        references: [R, D]. They are converted to float64 block by block.
        k: Number of references per query, at most R.
        progress: A callback for long computations.

    Returns:
        Positions and float32 distances, the nearest first. Distances are computed from differences, so that those of
        equal vectors are exactly 0.

    Example:
        >>> ids, distances = search_nearest(torch.tensor([[1.0], [9.0]]), torch.tensor([[0.0], [3.0], [9.0]]), 2)
        >>> ids.tolist(), distances.tolist()
        ([[0, 1], [2, 1]], [[1.0, 2.0], [0.0, 6.0]])
    """
    queries = queries.double()
    squared = torch.empty(len(queries), 0, dtype=torch.float64)
    ids = torch.empty(len(queries), 0, dtype=torch.long)
    rows = max(1, BLOCK_ELEMENTS // max(len(queries), references.shape[1]))
    for start in range(0, len(references), rows):
        block = references[start : start + rows].double()
        squared = torch.cat((squared, squared_distance(queries, block)), 1)
        ids = torch.cat((ids, torch.arange(start, start + len(block)).expand(len(queries), -1)), 1)
        squared, places = squared.topk(min(k, squared.shape[1]), largest=False)
        ids = ids.gather(1, places)
        progress("nearest images in pixels", start + len(block), len(references))
    # Expanded squares have a rounding error; differences have none for a copy.
    exact = torch.stack([(queries - references[column].double()).square().sum(1) for column in ids.T], 1).sqrt()
    distances, places = exact.sort(dim=1, stable=True)
    return ids.gather(1, places), distances.float()


# ---- The result ----


def summarize_neighbors(
    found: Neighbors, *, run: str, step: int | None, protocol: NeighborsProtocol, seconds: float, provenance: Provenance
) -> NeighborsRecord:
    """Compare the distances of samples with those of held-out images.

    Args:
        found: The distances.
        run: The name of the run.
        step: The step of its weights.
        protocol: How the distances were computed.
        seconds: How long it took.
        provenance: Where and when.

    Returns:
        The record.
    """
    nearest = found.distances[:, 0]
    threshold = close_threshold(found.held_out)
    close, close_held_out = int((nearest <= threshold).sum()), int((found.held_out <= threshold).sum())
    levels = torch.linspace(0, 1, QUANTILES, dtype=torch.float64)
    quantiles, held_out_quantiles = (
        tuple(float(f"{value:.6g}") for value in each.double().quantile(levels).tolist())
        for each in (nearest, found.held_out)
    )
    return NeighborsRecord(
        run=run,
        step=step,
        protocol=protocol,
        threshold=threshold,
        close=close,
        close_held_out=close_held_out,
        p_value=close_probability(close, len(nearest), close_held_out, len(found.held_out)),
        quantiles=quantiles,
        held_out_quantiles=held_out_quantiles,
        seconds=seconds,
        provenance=provenance,
    )


def close_threshold(held_out: Float[Tensor, " M"]) -> float:
    """Return the 1st percentile: the ⌈M/100⌉-th smallest distance."""
    return float(held_out.kthvalue(math.ceil(PERCENTILE * len(held_out))).values)


def close_probability(close: int, samples: int, close_held_out: int, held_out: int) -> float:
    """Compute the p-value P(B ≥ close) of the negative hypergeometric distribution.

    Args:
        close: Number of samples with d ≤ t.
        samples: N.
        close_held_out: k, the number of held-out images with d ≤ t.
        held_out: M.

    Returns:
        The probability; 1 if all held-out images have d ≤ t.

    Example:
        >>> round(close_probability(2, 2, 0, 2), 6)  # both samples come before both held-out images: 1 of 6 orders
        0.166667
    """
    if close_held_out >= held_out:
        return 1.0
    rest = held_out - close_held_out - 1
    orders = sum(
        math.comb(b + close_held_out, b) * math.comb(samples - b + rest, rest) for b in range(close, samples + 1)
    )
    return orders / math.comb(samples + held_out, samples)
