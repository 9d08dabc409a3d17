"""Streamed moments equal those of all features, and Fréchet distances equal their closed forms."""

import pytest
import torch
from torch.testing import assert_close

from truedrift.evaluation.metrics import Moments, batch_moments, empty_moments, frechet_distance


def features(count, dimensions, seed, offset=0.0):
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(dimensions, dimensions, generator=generator, dtype=torch.float64)
    return torch.randn(count, dimensions, generator=generator, dtype=torch.float64) @ mixing + offset


def streamed(x, batch):
    moments = empty_moments(x.shape[1])
    for rows in x.split(batch):
        moments = moments.merge(batch_moments(rows))
    return moments


@pytest.mark.parametrize("batch", [1, 7, 64, 1000])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_streamed_moments_are_those_of_the_whole(batch, offset):
    x = features(100, 5, 0, offset)
    moments = streamed(x, batch)
    assert_close(moments.mean, x.mean(0), rtol=1e-14, atol=1e-13)
    # At an offset of 10⁶ the input itself is rounded to 1e-10; a sum of squares would have lost 1e-4.
    assert_close(moments.covariance, torch.cov(x.T), rtol=1e-9, atol=1e-9)
    assert float(moments.count) == 100


def test_float32_features_are_added_in_float64():
    x = torch.full((3000, 1), 0.1) + torch.arange(3000).view(-1, 1) * 1e-4
    assert_close(streamed(x, 8).mean, x.double().mean(0), rtol=1e-14, atol=0)


def gaussian(mean, covariance):
    mean, covariance = torch.as_tensor(mean, dtype=torch.float64), torch.as_tensor(covariance, dtype=torch.float64)
    return Moments(torch.tensor(2.0, dtype=torch.float64), mean, covariance)  # N − 1 = 1: scatter is the covariance


def test_frechet_of_one_dimension():
    # d² = (μ_1 − μ_2)² + (σ_1 − σ_2)²
    assert frechet_distance(gaussian([1.0], [[4.0]]), gaussian([3.5], [[9.0]])) == pytest.approx(6.25 + 1.0, rel=1e-14)


def test_frechet_of_diagonal_covariances_is_a_sum():
    a, b = gaussian([0, 1, 2], torch.diag(torch.tensor([1.0, 4.0, 0.0]))), gaussian([1, 1, 0], torch.eye(3) * 9)
    assert frechet_distance(a, b) == pytest.approx((1 + 0 + 4) + (2**2 + 1**2 + 3**2), rel=1e-13)


@pytest.mark.parametrize("count", [200, 4])
def test_frechet_by_the_matrix_root_of_scipy(count):
    """Covariances that do not commute; singular ones too (4 features in 6 dimensions)."""
    from scipy.linalg import sqrtm

    a, b = features(count, 6, 1), features(300, 6, 2, offset=0.5)
    sigma_a, sigma_b = torch.cov(a.T), torch.cov(b.T)
    root = sqrtm((sigma_a @ sigma_b).numpy()).real.trace()
    expected = float((a.mean(0) - b.mean(0)).square().sum() + sigma_a.trace() + sigma_b.trace()) - 2 * root
    # scipy's root of a singular matrix is accurate to the root of the rounding error.
    tolerance = 1e-10 if count > 6 else 1e-6
    assert frechet_distance(batch_moments(a), batch_moments(b)) == pytest.approx(expected, rel=tolerance)


def test_frechet_is_symmetric_and_invariant_to_rotations():
    a, b = features(50, 4, 3), features(40, 4, 4, offset=1.0)
    rotation = torch.linalg.qr(features(4, 4, 5)).Q
    forward, backward = (
        frechet_distance(batch_moments(a), batch_moments(b)),
        frechet_distance(batch_moments(b), batch_moments(a)),
    )
    assert forward == pytest.approx(backward, rel=1e-12)
    rotated = frechet_distance(batch_moments(a @ rotation), batch_moments(b @ rotation))
    assert rotated == pytest.approx(forward, rel=1e-12)
    assert frechet_distance(batch_moments(a), batch_moments(a)) == pytest.approx(0, abs=1e-12)


def test_frechet_of_samples_comes_to_the_closed_form():
    """Gaussian pair, N = 40 000, D = 3: the deviation of d² is about 0.03 over seeds; the seed is fixed, 5σ allowed."""
    generator = torch.Generator().manual_seed(0)
    scales = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    x = torch.randn(40_000, 3, generator=generator, dtype=torch.float64) * scales
    y = torch.randn(40_000, 3, generator=generator, dtype=torch.float64) * scales.flip(0) + 1.0
    expected = 3 + (1 - 0.5) ** 2 * 0 + float((scales - scales.flip(0)).square().sum())
    assert frechet_distance(streamed(x, 512), streamed(y, 300)) == pytest.approx(expected, abs=0.15)


def test_agrees_with_torchmetrics():
    """The same features, through its own streaming."""
    fid = pytest.importorskip("torchmetrics.image.fid", reason="run pip install torchmetrics")

    class Flat(torch.nn.Module):
        num_features = 12

        def forward(self, images):
            return images.flatten(1).double() / 255

    generator = torch.Generator().manual_seed(0)
    real = torch.randint(0, 200, (300, 3, 2, 2), generator=generator, dtype=torch.uint8)
    fake = torch.randint(30, 256, (250, 3, 2, 2), generator=generator, dtype=torch.uint8)
    theirs = fid.FrechetInceptionDistance(feature=Flat(), input_img_size=(3, 2, 2)).set_dtype(torch.float64)
    theirs.update(real, real=True)
    theirs.update(fake, real=False)
    ours = frechet_distance(batch_moments(Flat()(real)), batch_moments(Flat()(fake)))
    assert ours == pytest.approx(float(theirs.compute()), rel=1e-6)
