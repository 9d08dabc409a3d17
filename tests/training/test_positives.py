"""Features of real images: the right ones, in the right place, whether encoded as they come or in parts."""

import pytest
import torch
from oracles.little_run import CPU, little_samples

from truedrift.data.class_batches import Batch, ClassBatches
from truedrift.training.batch import OnTheFlyFeatures, Positives


def encode(values):
    """Two scales that tell an image from its mirror image."""
    weight = torch.arange(64, dtype=values.dtype).view(8, 8)
    return (values.flatten(1)[:, :5], (values * weight).sum((1, 2, 3), keepdim=False).unsqueeze(1))


def literal(samples, index, mirrored):
    image = samples.values[index].float() / 127.5 - 1
    image = image.flip(-1) if mirrored else image
    first, second = (group[0] for group in encode(image[None]))
    return torch.stack((first, torch.nn.functional.pad(second, (0, 4))))


@pytest.fixture
def samples():
    return little_samples()


def positives(samples, at_once=None, unconditional=0, dtype=torch.float32):
    batches = ClassBatches(samples.labels, 3, n=5, seed=2, flips=samples.flips)
    return Positives(
        batches, OnTheFlyFeatures(samples, encode, device=CPU, dtype=dtype, at_once=at_once), unconditional
    )


@pytest.mark.parametrize("at_once", [None, 4])
def test_every_class_has_its_own_images(samples, at_once):
    ours = positives(samples, at_once)
    features, batch = ours.at(3), ours.batches.at(3)
    assert features.shape == (2, 3, 5, 5)
    assert 0 < int(batch.mirrored.sum()) < 15
    for c in range(3):
        for i in range(5):
            index = int(batch.indices[c, i])
            assert int(samples.labels[index]) == c
            expected = literal(samples, index, bool(batch.mirrored[c, i]))
            torch.testing.assert_close(features[:, c, i], expected)


def test_unconditional_ones_are_of_any_class(samples):
    ours = positives(samples, unconditional=9)
    features, batch = ours.unconditional(1), ours.batches.unconditional(1, 9)
    assert features.shape == (2, 9, 5)
    assert len(samples.labels[batch.indices].unique()) == 3
    expected = [literal(samples, int(i), bool(m)) for i, m in zip(batch.indices, batch.mirrored, strict=True)]
    torch.testing.assert_close(features, torch.stack(expected, 1))


def test_features_are_at_least_float32_and_in_the_dtype_of_the_run(samples):
    assert positives(samples, dtype=torch.float64).at(0).dtype == torch.float64
    half = OnTheFlyFeatures(
        samples, lambda v: tuple(f.bfloat16() for f in encode(v)), device=CPU, dtype=torch.float32, at_once=3
    )
    assert half(Batch(torch.arange(4), torch.zeros(4, dtype=torch.bool))).dtype == torch.float32


def test_no_gradient_and_no_rows_is_fine(samples):
    weight = torch.ones(1, requires_grad=True)
    lookup = OnTheFlyFeatures(
        samples, lambda v: (v.flatten(1) * weight,), device=CPU, dtype=torch.float32, at_once=None
    )
    assert not lookup(Batch(torch.arange(2), torch.zeros(2, dtype=torch.bool))).requires_grad
    assert lookup(Batch(torch.arange(0), torch.zeros(0, dtype=torch.bool))).shape == (0, 1, 64)
