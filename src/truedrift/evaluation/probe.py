"""How well the features of an encoder tell classes apart: k nearest neighbors and a linear probe.

Features f of a sample are the means of the encoder's maps, of all taps in a row; the values themselves for pixels. They
are standardized with the mean and the deviation of the training features. Then

    k-NN    the class of most of the k training samples with the largest cosine ⟨f, f_i⟩/(|f| |f_i|); of classes with
            equally many, the one with the largest sum of cosines
    probe   ridge regression on the classes, whose penalty is chosen by leave-one-out errors on the training samples

Both accuracies are of the same test samples, so they can be compared between encoders. A difference below two standard
errors √(p (1 − p)/N) of N test samples is noise.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from truedrift.axes import Float, Int, Tensor
from truedrift.data.samples import Samples, to_model_range
from truedrift.encoders.base import Encoder
from truedrift.errors import UserError, import_package, require_integer
from truedrift.progress import Progress, no_progress
from truedrift.seeding import stream

NEIGHBORS = 10
"""k."""
PENALTIES = tuple(10.0**power for power in range(-1, 7))
"""Penalties of the linear probe to choose from."""
EPSILON = 1e-6
"""Smallest deviation of a feature, so that constant features become 0."""


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """The accuracies of the features of an encoder."""

    dimensions: int
    """Features per sample."""
    neighbors: float
    """Accuracy of the k nearest neighbors."""
    probe: float
    """Accuracy of the linear probe."""
    train: int
    """Training samples."""
    test: int
    """Test samples."""

    def error(self, accuracy: float) -> float:
        """Return the standard error √(p (1 − p)/N) of an accuracy."""
        return math.sqrt(accuracy * (1 - accuracy) / self.test)


def choose_samples(samples: Samples, count: int, seed: int = 0) -> Samples:
    """Choose samples at random, as a function of the seed.

    Args:
        samples: A split of a data set.
        count: How many to choose; all if there are fewer.
        seed: The seed of the choice.

    Returns:
        The chosen samples.
    """
    count = require_integer("count", count, 1, 500)
    ids = torch.randperm(len(samples), generator=stream(seed, "probe"))[:count]
    return samples.take(ids)


def probe_encoder(
    encoder: Encoder,
    train: Samples,
    test: Samples,
    *,
    neighbors: int = NEIGHBORS,
    batch: int = 250,
    progress: Progress = no_progress,
) -> ProbeResult:
    """Measure how well the features of an encoder tell classes apart.

    Args:
        encoder: The encoder, with the pooling "mean".
        train: Labeled samples that accuracies are based on.
        test: Labeled samples of the same classes that are classified.
        neighbors: k of the nearest neighbors.
        batch: Samples that pass through the encoder at a time.
        progress: Called with a description, the samples done and their number.

    Returns:
        The accuracies.

    Raises:
        UserError: If the samples have fewer than two classes, or there are fewer than k training samples.

    Example:
        >>> from truedrift.data import load
        >>> from truedrift.encoders import PixelsOptions, build
        >>> train, test = (choose_samples(load("digits", split=split), 200) for split in ("train", "test"))
        >>> result = probe_encoder(build(PixelsOptions(), sample_shape=(1, 8, 8)), train, test)
        >>> result.neighbors > 0.8, result.probe > 0.8
        (True, True)
    """
    classes = int(train.labels.unique().numel())
    if classes < 2:
        problem = f"the training samples of {train.name} have {classes} class"
        raise UserError(problem, "must have two or more", "choose more samples, or a data set with classes")
    if neighbors > len(train):
        problem = f"is {neighbors} and there are {len(train)} training samples"
        raise UserError(problem, "must be at most their number", "choose more samples", field="neighbors")
    total = len(train) + len(test)
    features = _compute_features(encoder, train, batch, lambda done: progress("features", done, total))
    tested = _compute_features(encoder, test, batch, lambda done: progress("features", len(train) + done, total))
    features, tested = standardize_features(features, tested)
    nearest = classify_by_neighbors(features, train.labels, tested, neighbors)
    linear = _classify_by_probe(features, train.labels, tested)
    return ProbeResult(
        dimensions=features.shape[1],
        neighbors=float((nearest == test.labels).double().mean()),
        probe=float((linear == test.labels).double().mean()),
        train=len(train),
        test=len(test),
    )


def _compute_features(
    encoder: Encoder, samples: Samples, batch: int, report: Callable[[int], None]
) -> Float[Tensor, "N D"]:
    """Compute the features of all groups in a row."""
    parts = []
    device = next((each.device for each in encoder.parameters()), torch.device("cpu"))
    with torch.no_grad():
        for values in samples.values.split(batch):
            groups = encoder(to_model_range(values).to(device))
            parts.append(torch.cat([group.flatten(1) for group in groups], 1).cpu())
            report(sum(map(len, parts)))
    return torch.cat(parts).float()


def standardize_features(
    train: Float[Tensor, "N D"], test: Float[Tensor, "M D"]
) -> tuple[Float[Tensor, "N D"], Float[Tensor, "M D"]]:
    """Subtract the mean of the training features and divide by their deviation."""
    deviation, mean = torch.std_mean(train, 0, correction=0)
    scale = deviation.clamp_min(EPSILON)
    return (train - mean) / scale, (test - mean) / scale


def classify_by_neighbors(
    features: Float[Tensor, "N D"], labels: Int[Tensor, " N"], queries: Float[Tensor, "M D"], neighbors: int = NEIGHBORS
) -> Int[Tensor, " M"]:
    """Return the class of most of the nearest neighbors of every query.

    Args:
        features: Features of labeled samples.
        labels: Their classes.
        queries: Features of the samples to classify.
        neighbors: k.

    Returns:
        One class per query.

    Example:
        >>> features, labels = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), torch.tensor([5, 5, 2])
        >>> classify_by_neighbors(features, labels, torch.tensor([[0.8, 0.3], [-1.0, 1.0]]), 1)
        tensor([5, 2])
    """
    cosines = F.normalize(queries, dim=1) @ F.normalize(features, dim=1).T
    nearest = cosines.topk(neighbors, dim=1)
    # A vote is worth 1. Its cosine decides only between classes with equally many votes: k of them differ by < 1.
    votes = 1 + nearest.values / (4 * neighbors)
    counts = votes.new_zeros(len(queries), int(labels.max()) + 1)
    return counts.scatter_add_(1, labels[nearest.indices], votes).argmax(1)


def _classify_by_probe(
    features: Float[Tensor, "N D"], labels: Int[Tensor, " N"], queries: Float[Tensor, "M D"]
) -> Int[Tensor, " M"]:
    """Return the class of every query by ridge regression on the classes."""
    linear_model = import_package("sklearn.linear_model", "the linear probe", "train")
    classifier = linear_model.RidgeClassifierCV(alphas=PENALTIES)
    classifier.fit(features.double().numpy(), labels.numpy())
    return torch.from_numpy(classifier.predict(queries.double().numpy()))
