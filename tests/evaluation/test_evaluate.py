"""`evaluate` does not depend on the batch size, and references are computed once."""

import dataclasses

import pytest
import torch
from torch.testing import assert_close

from truedrift.data import Samples, load, to_model_range
from truedrift.evaluation import (
    ExtractedFeatures,
    Extractor,
    FeatureStatistics,
    batch_moments,
    build_extractor,
    compute_reference,
    evaluate,
    frechet_distance,
    generate_batches,
    kernel_distance,
    precision_recall,
)
from truedrift.evaluation import reference as reference_module
from truedrift.generators import Generator, MLPOptions, build

CPU = torch.device("cpu")


class Projection(Extractor):
    """A fixed linear map of the pixels, which counts its samples."""

    name, prepared, sha256, dimensions, device = "encoder:test", "uint8", "0" * 64, 5, CPU

    def __init__(self, shape=(1, 8, 8), fails_after=None):
        count = int(torch.tensor(shape).prod())
        self.matrix = torch.randn(count, 5, generator=torch.Generator().manual_seed(9))
        self.calls, self.fails_after = 0, fails_after

    def extract(self, values):
        if self.fails_after is not None and self.calls >= self.fails_after:
            raise KeyboardInterrupt
        self.calls += len(values)
        return ExtractedFeatures(to_model_range(values).flatten(1) @ self.matrix)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    return tmp_path / "references"


@pytest.fixture
def generator():
    return build(MLPOptions(width=16, depth=1), sample_shape=(1, 8, 8), classes=10, seed=0).eval()


def test_labels_are_balanced_and_samples_do_not_depend_on_batches(generator):
    def whole(count, batch):
        ids, values = zip(*generate_batches(generator, count, seed=3, strength=1.0, batch=batch), strict=True)
        return torch.cat(ids), torch.cat(values)

    ids, values = whole(103, 16)
    assert ids.equal(torch.arange(103))
    assert values.dtype == torch.uint8
    # Rounding in products of other sizes may change a byte by one.
    assert int((whole(103, 103)[1].int() - values.int()).abs().max()) <= 1
    assert int((whole(40, 7)[1].int() - values[:40].int()).abs().max()) <= 1

    class Named(Generator):
        """The class as the sample."""

        architecture = "named"

        def __init__(self):
            super().__init__(MLPOptions(), noise_shape=(1,), sample_shape=(1,), classes=10)

        def generate(self, z, labels, strength, style_ids):
            return labels.float()[:, None]

    labels = torch.cat([values for _, values in generate_batches(Named(), 103, seed=0, strength=1.0, batch=10)])
    counts = labels.flatten().long().bincount()
    assert counts.tolist() == [11, 11, 11, 10, 10, 10, 10, 10, 10, 10]


def test_metrics_agree_with_the_features_and_have_a_protocol(generator):
    data, extractor = load("digits", split="test"), Projection()
    reference = compute_reference(data, extractor, split="test")
    stages = []
    metrics, protocol = evaluate(
        generator, reference, extractor, samples=150, seed=4, batch=32, progress=lambda *stage: stages.append(stage)
    )
    assert stages[-5:] == [("samples evaluated", 150, 150), *(("metrics", done, 3) for done in range(4))]
    values = torch.cat([values for _, values in generate_batches(generator, 150, seed=4, strength=1.0, batch=32)])
    real, fake = extractor(data.values).features, extractor(values).features
    assert metrics.fid == pytest.approx(frechet_distance(batch_moments(real), batch_moments(fake)), rel=1e-9)
    assert (metrics.kid, metrics.kid_deviation) == pytest.approx(kernel_distance(real, fake), rel=1e-6)
    assert (metrics.precision, metrics.recall) == pytest.approx(precision_recall(real, fake))
    assert metrics.inception_score is None
    assert (protocol.extractor, protocol.samples, protocol.seed) == ("encoder:test", 150, 4)
    assert (protocol.reference, protocol.split, protocol.reference_count) == ("digits", "test", len(data))
    assert protocol.distance_name == "FD (encoder:test)"


@pytest.mark.parametrize("batch", [1, 64, 150])
def test_batch_size_does_not_matter(generator, batch):
    extractor = Projection()
    reference = compute_reference(load("digits", split="test"), extractor, split="test")
    one, _ = evaluate(generator, reference, extractor, samples=150, batch=48)
    other, _ = evaluate(generator, reference, extractor, samples=150, batch=batch)
    # Rounding may change a byte by one of 255.
    assert dataclasses.astuple(other)[:2] == pytest.approx(dataclasses.astuple(one)[:2], rel=1e-4)


def test_a_reference_is_computed_once(cache, generator):
    data, extractor = load("digits", split="test"), Projection()
    first = compute_reference(data, extractor, split="test", batch=50)
    assert extractor.calls == len(data)
    again = compute_reference(data, extractor, split="test", batch=7)
    assert extractor.calls == len(data)
    assert again.features.equal(first.features)
    assert_close(again.moments.covariance, first.moments.covariance, rtol=0, atol=0)
    other = Samples(data.values.flip(0), data.labels.flip(0), data.classes, data.name, data.flips)
    compute_reference(other, extractor, split="test")
    assert extractor.calls == 2 * len(data)
    assert len(list(cache.glob("*.safetensors"))) == 2


def test_a_damaged_reference_is_computed_again(cache):
    data, extractor = load("digits", split="test"), Projection()
    first = compute_reference(data, extractor, split="test")
    (file,) = cache.glob("*.safetensors")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    again = compute_reference(data, extractor, split="test")
    assert extractor.calls == 2 * len(data)
    assert again.features.equal(first.features)


def test_an_interrupted_reference_is_resumed(cache, monkeypatch):
    monkeypatch.setattr(reference_module, "SAVE_EVERY_SECONDS", 0.0)
    data = load("digits", split="test")
    whole = compute_reference(data, Projection(), split="test", batch=20)
    for file in cache.iterdir():
        file.unlink()
    with pytest.raises(KeyboardInterrupt):
        compute_reference(data, Projection(fails_after=100), split="test", batch=20)
    rest = Projection()
    resumed = compute_reference(data, rest, split="test", batch=20)
    assert rest.calls == len(data) - 100
    assert resumed.features.equal(whole.features)
    assert resumed.moments.scatter.equal(whole.moments.scatter)
    assert len(list(cache.iterdir())) == 2  # the file and its hash; the partial file is removed


def test_features_of_the_given_ids_are_stored():
    ids_to_store = torch.tensor([1, 2, 5, 8])
    statistics = FeatureStatistics(10, ids_to_store, 1, None, CPU)
    for ids in (torch.arange(0, 3), torch.arange(3, 5), torch.arange(5, 10)):
        statistics.add(ids, ExtractedFeatures(ids[:, None].float() * 10))
    assert statistics.features.flatten().tolist() == [10, 20, 50, 80]
    assert float(statistics.moments.mean) == 45


def test_a_collapse_on_real_digits_has_high_precision_and_low_recall():
    """One real image per class, compared with the test split as a good generator."""
    data = load("digits")
    extractor = build_extractor("digits", sample_shape=(1, 8, 8), device=CPU)
    reference = compute_reference(data, extractor, split="train")

    class Shown(Generator):
        """Real images: always the same one of a class, or any of the test split."""

        architecture = "shown"

        def __init__(self, collapsed):
            super().__init__(MLPOptions(), noise_shape=(1,), sample_shape=(1, 8, 8), classes=10)
            self.collapsed, self.test = collapsed, load("digits", split="test")

        def generate(self, z, labels, strength, style_ids):
            if self.collapsed:
                first = torch.stack([data.values[data.labels == label][0] for label in range(10)])
                return to_model_range(first[labels])
            ids = (z.flatten().abs() * 1e4).long() % len(self.test)
            return to_model_range(self.test.values[ids])

    collapsed, _ = evaluate(Shown(True), reference, extractor, samples=300)
    honest, _ = evaluate(Shown(False), reference, extractor, samples=300)
    assert collapsed.precision > 0.95
    assert collapsed.recall < 0.1
    assert honest.precision > 0.6
    assert honest.recall > 0.5
    assert collapsed.fid > 3 * honest.fid
    assert collapsed.inception_score == pytest.approx(10, abs=0.5)  # this score does not see the collapse


def test_samples_that_are_not_finite_are_rejected(generator):
    """NaN would be evaluated as a black image."""
    extractor = Projection()
    reference = compute_reference(load("digits", split="test"), extractor, split="test")
    with torch.no_grad():
        next(iter(generator.parameters())).fill_(torch.nan)
    with pytest.raises(ValueError, match=r"sample 0 is not finite; must be finite; use weights"):
        evaluate(generator, reference, extractor, samples=20)


def test_few_samples_have_a_distance_and_no_neighbors(generator):
    extractor = Projection()
    reference = compute_reference(load("digits", split="test"), extractor, split="test")
    metrics, _ = evaluate(generator, reference, extractor, samples=3)
    assert metrics.fid > 0
    assert metrics.kid is not None
    assert (metrics.precision, metrics.recall) == (None, None)
