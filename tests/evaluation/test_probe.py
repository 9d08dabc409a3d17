"""k nearest neighbors and the linear probe, against a literal loop and data with a known answer."""

import dataclasses
from collections import Counter

import pytest
import torch

from truedrift.data import load
from truedrift.data.samples import Samples
from truedrift.encoders import ConvNetOptions, PixelsOptions, build
from truedrift.evaluation.probe import (
    ProbeResult,
    choose_samples,
    classify_by_neighbors,
    probe_encoder,
    standardize_features,
)


def gaussian(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def literal_neighbors(features, labels, query, k):
    """Sort by cosine; the class with most votes wins, and of equal ones that with the largest sum of cosines."""
    cosines = [float(query @ f / (query.norm() * f.norm())) for f in features]
    nearest = sorted(range(len(features)), key=lambda i: -cosines[i])[:k]
    votes = Counter(int(labels[i]) for i in nearest)
    return max(votes, key=lambda c: (votes[c], sum(cosines[i] for i in nearest if labels[i] == c)))


@pytest.mark.parametrize("k", [1, 2, 4, 10])
def test_neighbors_agree_with_a_loop(k):
    features, queries = gaussian(60, 5), gaussian(40, 5, seed=1)
    labels = torch.randint(4, (60,), generator=torch.Generator().manual_seed(2))
    expected = [literal_neighbors(features, labels, query, k) for query in queries]
    assert classify_by_neighbors(features, labels, queries, k).tolist() == expected
    assert len(set(expected)) >= 3


def test_neighbors_depend_on_directions_only():
    features, labels, queries = gaussian(30, 4), torch.arange(30) % 3, gaussian(20, 4, seed=1)
    found = classify_by_neighbors(features, labels, queries, 5)
    assert torch.equal(classify_by_neighbors(features * 7, labels, queries * 0.1, 5), found)
    assert not torch.equal(classify_by_neighbors(features + 3, labels, queries, 5), found)


def test_ties_go_to_the_closer_class():
    features = torch.tensor([[1.0, 0.1], [1.0, 0.9]])
    assert classify_by_neighbors(features, torch.tensor([1, 0]), torch.tensor([[1.0, 0.0]]), 2).tolist() == [1]
    assert classify_by_neighbors(features, torch.tensor([0, 1]), torch.tensor([[1.0, 0.0]]), 2).tolist() == [0]


def test_standardized_features_have_mean_0_and_deviation_1():
    train, test = gaussian(50, 3) * torch.tensor([1.0, 5.0, 0.0]) + 4, gaussian(10, 3, seed=1)
    a, b = standardize_features(train, test)
    torch.testing.assert_close(a.mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(a.std(0, correction=0)[:2], torch.ones(2))
    assert torch.isfinite(b).all()
    torch.testing.assert_close(b[:, 1], (test[:, 1] - train[:, 1].mean()) / train[:, 1].std(correction=0))


def make_samples(count, seed, distance):
    """Return points of two classes whose means differ in one of eight coordinates."""
    labels = torch.arange(count) % 2
    points = gaussian(count, 8, seed=seed)
    points[:, 3] += distance * (labels * 2 - 1)
    return Samples(points, labels, ("a", "b"), "two", flips=False)


def test_accuracies_are_those_of_the_optimal_rule():
    """With means ±1.5 apart from the middle, the best rule is right with probability Φ(1.5) = 0.933.

    The standard error of 1000 test points is 0.008; the bound below it is four of them, and that of k-NN leaves room
    for the seven coordinates that say nothing.
    """
    pixels = build(PixelsOptions(), sample_shape=(8,))
    result = probe_encoder(pixels, make_samples(2000, 1, 1.5), make_samples(1000, 2, 1.5))
    assert abs(result.probe - 0.933) < 0.032
    assert 0.85 < result.neighbors < 0.96
    assert (result.dimensions, result.train, result.test) == (8, 2000, 1000)
    assert result.error(result.probe) == pytest.approx((result.probe * (1 - result.probe) / 1000) ** 0.5)


def test_features_without_classes_are_at_chance():
    """Negative control: four standard errors of 1000 test points around ½."""
    pixels = build(PixelsOptions(), sample_shape=(8,))
    result = probe_encoder(pixels, make_samples(1000, 1, 0.0), make_samples(1000, 2, 0.0))
    assert abs(result.probe - 0.5) < 0.064
    assert abs(result.neighbors - 0.5) < 0.064


def test_the_batch_size_changes_nothing_and_progress_is_reported():
    train, test = (choose_samples(load("digits", split=split), 60) for split in ("train", "test"))
    encoder = build(ConvNetOptions(channels=(8,)), sample_shape=(1, 8, 8))
    calls = []
    a = probe_encoder(encoder, train, test, batch=7, progress=lambda *call: calls.append(call))
    assert a == probe_encoder(encoder, train, test, batch=100)
    assert isinstance(a, ProbeResult)
    assert (calls[0], calls[-1]) == (("features", 7, 120), ("features", 120, 120))


def test_the_choice_of_samples_is_a_function_of_the_seed():
    digits = load("digits")
    a, b, c = (choose_samples(digits, 50, seed) for seed in (0, 0, 1))
    assert torch.equal(a.values, b.values)
    assert not torch.equal(a.values, c.values)
    assert len({bytes(image.numpy().tobytes()) for image in a.values}) == 50
    assert len(choose_samples(digits, 10**6)) == len(digits)


def test_wrong_samples_are_refused():
    pixels = build(PixelsOptions(), sample_shape=(8,))
    train = make_samples(20, 1, 1.0)
    with pytest.raises(ValueError, match="neighbors is 30 and there are 20 training samples"):
        probe_encoder(pixels, train, train, neighbors=30)
    one_class = dataclasses.replace(train, labels=torch.zeros(20, dtype=torch.int64))
    with pytest.raises(ValueError, match="the training samples of two have 1 class; must have two or more"):
        probe_encoder(pixels, one_class, train)
    with pytest.raises(ValueError, match="count is 0"):
        choose_samples(train, 0)
