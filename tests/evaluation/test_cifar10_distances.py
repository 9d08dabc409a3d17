"""Metrics on real CIFAR-10 in the features of the standard network, which are cached (an hour on one core).

Needs `truedrift data fetch cifar10 inception`.
"""

import dataclasses

import numpy as np
import pytest
import scipy.linalg
import torch

from truedrift.data import load
from truedrift.evaluation import (
    batch_moments,
    build_extractor,
    compute_reference,
    frechet_distance,
    kernel_distance,
    precision_recall,
)
from truedrift.storage import cache_directory

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (cache_directory("inception") / "default_1.pt").exists()
        or not (cache_directory("cifar10") / "test_batch.bin").exists(),
        reason="CIFAR-10 or the FID network is not in the cache: truedrift data fetch cifar10 inception",
    ),
]
COUNT = 5000


@pytest.fixture(scope="module")
def features():
    """Features of the first 5 000 images of both splits, in their order."""
    extractor = build_extractor("inception", sample_shape=(3, 32, 32), device=torch.device("cpu"))

    def compute(split):
        whole = load("cifar10", split=split)
        first = dataclasses.replace(whole, values=whole.values[:COUNT], labels=whole.labels[:COUNT])
        return compute_reference(first, extractor, split=split).features

    return {split: compute(split) for split in ("train", "test")}


def distance(a, b):
    return frechet_distance(batch_moments(a), batch_moments(b))


def literal_distance(a, b):
    """‖μ − ν‖² + tr(Σ + Τ − 2 (ΣΤ)^½) with scipy's root."""
    a, b = a.double().numpy(), b.double().numpy()
    cov_a, cov_b = np.cov(a.T), np.cov(b.T)
    root = scipy.linalg.sqrtm(cov_a @ cov_b).real
    return ((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(cov_a) + np.trace(cov_b) - 2 * np.trace(root)


def test_train_and_test_images_are_near_each_other(features):
    """FID of 5 000 against 5 000 real images, by the literal formula; nearly all of it is the bias of few images."""
    found = distance(features["train"], features["test"])
    assert found == pytest.approx(10.3194, abs=2e-3)  # tolerance for the convolutions of another machine
    assert found == pytest.approx(literal_distance(features["train"], features["test"]), rel=1e-9)


def test_half_as_many_images_are_twice_as_far_apart(features):
    """The bias falls as one over the number of images; the rest is almost nothing."""
    found = distance(*features["train"].split(COUNT // 2))
    assert found == pytest.approx(20.2080, abs=4e-3)
    assert found == pytest.approx(2 * distance(features["train"], features["test"]), rel=0.03)


def test_agrees_with_torchmetrics(features):
    fid = pytest.importorskip("torchmetrics.image.fid", reason="run pip install torchmetrics")

    class AsIs(torch.nn.Module):
        num_features = 2048

        def forward(self, values):
            return values

    theirs = fid.FrechetInceptionDistance(feature=AsIs(), normalize=True).set_dtype(torch.float64)
    for name, real in (("train", True), ("test", False)):
        for rows in features[name].double().split(500):
            theirs.update(rows, real=real)
    assert distance(features["train"], features["test"]) == pytest.approx(float(theirs.compute()), rel=1e-9)


def test_real_against_real_has_precision_recall_and_no_kid(features):
    train, test = features["train"][:2000], features["test"][:2000]
    precision, recall = precision_recall(train, test)
    assert (precision, recall) == (pytest.approx(0.7075, abs=0.002), pytest.approx(0.7, abs=0.002))
    kid, error = kernel_distance(train, test)
    assert abs(kid) < 2 * error < 2e-4


def test_a_collapse_of_real_images_has_high_precision_and_low_recall(features):
    """Ten images, each two hundred times with a little noise: hardly any other image lies in their balls."""
    noise = torch.randn(2000, 2048, generator=torch.Generator().manual_seed(0))
    collapsed = features["train"][:10].repeat(200, 1) + 1e-3 * noise
    precision, recall = precision_recall(features["train"], collapsed)
    assert precision == 1
    assert recall <= 10 / COUNT * 3
