"""Every metric against its literal definition or closed form, and streamed statistics against those of all features."""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from truedrift.evaluation import Moments, batch_moments, frechet_distance, kernel_distance, metrics, precision_recall

# ---- Moments and the Fréchet distance ----


def features(count, dimensions, seed, offset=0.0):
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(dimensions, dimensions, generator=generator, dtype=torch.float64)
    return torch.randn(count, dimensions, generator=generator, dtype=torch.float64) @ mixing + offset


def stream_moments(x, batch):
    moments = metrics.empty_moments(x.shape[1])
    for rows in x.split(batch):
        moments = moments.merge(batch_moments(rows))
    return moments


@pytest.mark.parametrize("batch", [1, 7, 64, 1000])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_streamed_moments_equal_the_moments_of_all_features(batch, offset):
    x = features(100, 5, 0, offset)
    moments = stream_moments(x, batch)
    assert_close(moments.mean, x.mean(0), rtol=1e-14, atol=1e-13)
    # At an offset of 10⁶ the input itself is rounded to 1e-10; a sum of squares would have lost 1e-4.
    assert_close(moments.covariance, torch.cov(x.T), rtol=1e-9, atol=1e-9)
    assert float(moments.count) == 100


def test_float32_features_are_added_in_float64():
    x = torch.full((3000, 1), 0.1) + torch.arange(3000).view(-1, 1) * 1e-4
    assert_close(stream_moments(x, 8).mean, x.double().mean(0), rtol=1e-14, atol=0)


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
def test_frechet_agrees_with_scipy(count):
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


def test_frechet_of_samples_converges_to_the_closed_form():
    """Gaussian pair, N = 40 000, D = 3: the deviation of d² is about 0.03 over seeds; the seed is fixed, 5σ allowed."""
    generator = torch.Generator().manual_seed(0)
    scales = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    x = torch.randn(40_000, 3, generator=generator, dtype=torch.float64) * scales
    y = torch.randn(40_000, 3, generator=generator, dtype=torch.float64) * scales.flip(0) + 1.0
    expected = 3 + (1 - 0.5) ** 2 * 0 + float((scales - scales.flip(0)).square().sum())
    assert frechet_distance(stream_moments(x, 512), stream_moments(y, 300)) == pytest.approx(expected, abs=0.15)


def test_agrees_with_torchmetrics():
    """The same features, through its own streaming."""
    fid = pytest.importorskip("torchmetrics.image.fid", reason="no torchmetrics: pip install torchmetrics")

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


# ---- KID, precision, recall and the Inception Score ----


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    """Use blocks that do not divide the sets."""
    monkeypatch.setattr(metrics, "BLOCK_ROWS", 4)


def feature_sets(n=9, m=7, D=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, D, generator=generator), 1.5 * torch.randn(m, D, generator=generator) + 0.7


def literal_kid(f, g):
    def k(a, b):
        return (sum(x * y for x, y in zip(a, b, strict=True)) / len(a) + 1) ** 3

    f, g = f.tolist(), g.tolist()
    own = [sum(k(a, b) for a, b in itertools.permutations(each, 2)) / (len(each) * (len(each) - 1)) for each in (f, g)]
    return own[0] + own[1] - 2 * sum(k(a, b) for a in f for b in g) / (len(f) * len(g))


def test_kid_is_the_unbiased_mmd_over_all_pairs():
    f, g = feature_sets()
    assert kernel_distance(f, g)[0] == pytest.approx(literal_kid(f, g), rel=1e-12)


def test_the_standard_error_of_kid_is_its_deviation_over_draws():
    """400 draws of 60 and 40: the mean error is within 15 % of the deviation, whose own error is 3.5 %."""
    generator = torch.Generator().manual_seed(1)
    draws = [
        kernel_distance(torch.randn(60, 2, generator=generator), torch.randn(40, 2, generator=generator) + 1)
        for _ in range(400)
    ]
    distances, errors = torch.tensor(draws, dtype=torch.float64).unbind(1)
    assert float(errors.mean()) == pytest.approx(float(distances.std()), rel=0.15)


def test_kid_of_equal_distributions_is_zero_on_average():
    generator = torch.Generator().manual_seed(2)
    distances = torch.tensor(
        [kernel_distance(*torch.randn(2, 30, 2, generator=generator))[0] for _ in range(400)], dtype=torch.float64
    )
    assert abs(float(distances.mean())) < 4 * float(distances.std()) / 20  # 4σ: false alarm once in 16 000


def literal_share(points, centers, k):
    inside = 0
    for point in points.tolist():
        for i, center in enumerate(centers.tolist()):
            others = sorted(math.dist(center, other) for j, other in enumerate(centers.tolist()) if j != i)
            if math.dist(point, center) <= others[k - 1]:
                inside += 1
                break
    return inside / len(points)


@pytest.mark.parametrize("k", [1, 3])
def test_precision_and_recall_are_shares_inside_balls(k):
    data, generated = (each.double() for each in feature_sets(23, 17))
    expected = literal_share(generated, data, k), literal_share(data, generated, k)
    assert expected[0] != expected[1]
    assert precision_recall(data, generated, k=k) == pytest.approx(expected)


def test_a_collapse_has_precision_and_no_recall():
    data, _ = feature_sets(200, 1)
    collapsed = data[:1].expand(100, -1) + 1e-3 * torch.randn(100, 3, generator=torch.Generator().manual_seed(3))
    precision, recall = precision_recall(data, collapsed)
    assert precision > 0.95
    assert recall < 0.05
    precision, recall = precision_recall(collapsed, data)  # with swapped arguments
    assert precision < 0.05
    assert recall > 0.95


def test_duplicates_are_neighbors_too():
    data = torch.zeros(5, 2)
    assert precision_recall(data, data.clone()) == (1.0, 1.0)
    assert precision_recall(data, data + 1) == (0.0, 0.0)


def test_too_few_features_give_none():
    f, g = feature_sets(3, 9)
    assert precision_recall(f, g, k=3) == (None, None)
    assert kernel_distance(f[:1], g) == (None, None)


def literal_score(p):
    marginal = p.mean(0)
    return math.exp(sum(float((row * (row / marginal).log()).sum()) for row in p) / len(p))


@pytest.mark.parametrize("batch", [1, 6, 40])
def test_inception_score_is_the_mean_over_parts(batch):
    generator = torch.Generator().manual_seed(4)
    p = torch.randn(40, 3, generator=generator, dtype=torch.float64).mul(2).softmax(1)
    sums = metrics.ScoreSums(3, metrics.PARTS)
    for ids in torch.arange(40).split(batch):
        sums.add(ids, 40, p[ids])
    scores = torch.tensor([literal_score(part) for part in p.split(40 // metrics.PARTS)])
    mean, deviation = sums.score()
    assert mean == pytest.approx(float(scores.mean()), rel=1e-6)
    assert deviation == pytest.approx(float(scores.std(correction=0)), rel=1e-5)


def test_inception_score_ranges_from_one_to_the_number_of_classes():
    ids = torch.arange(50)
    certain, uniform = torch.eye(5, dtype=torch.float64)[ids % 5], torch.full((50, 5), 0.2)
    assert inception_score(certain, metrics.PARTS) == pytest.approx((5.0, 0.0))
    assert inception_score(uniform, metrics.PARTS) == pytest.approx((1.0, 0.0), abs=1e-6)


def inception_score(probabilities, parts):
    count, classes = probabilities.shape
    sums = metrics.ScoreSums(classes, parts)
    sums.add(torch.arange(count), count, probabilities)
    return sums.score()


def test_few_samples_are_one_part():
    """Ten parts of five samples could not score more than five."""
    assert (metrics.split_count(999), metrics.split_count(1000)) == (1, 10)
    ids = torch.arange(50)
    certain = torch.eye(10, dtype=torch.float64)[ids % 10]
    assert inception_score(certain, metrics.split_count(50)) == pytest.approx((10.0, 0.0))
