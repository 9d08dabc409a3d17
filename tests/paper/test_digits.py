"""The digits study: real images, one image per class, and noise under the classifier; the table; a training run."""

import json

import pytest
import torch

from truedrift.cli import main
from truedrift.data import load, to_model_range
from truedrift.paper import digits
from truedrift.records import provenance, read


class Replayed(torch.nn.Module):
    """A generator that returns real images of the requested class, chosen by the noise."""

    noise_shape, sample_shape, classes, style_draws, style_entries = (1,), (1, 8, 8), 10, 0, 0

    def __init__(self, data, shown):
        super().__init__()
        self.images = [to_model_range(data.values[data.labels == label])[:shown] for label in range(10)]

    def forward(self, z, labels, strength, style_ids):
        uniform = torch.special.ndtr(z[:, 0])
        picked = [self.images[c][int(u * len(self.images[c]))] for c, u in zip(labels.tolist(), uniform, strict=True)]
        return torch.stack(picked)


@pytest.fixture(scope="module")
def data():
    return load("digits")


@pytest.fixture(scope="module")
def classifier(data):
    return digits.train_classifier(data)


def test_real_images_are_recognized_and_as_diverse_as_the_data(data, classifier):
    recognized, ratio = digits.recognized_share(Replayed(load("digits", split="test"), shown=1000), data, classifier)
    assert recognized > 0.96
    assert ratio == pytest.approx(1, abs=0.06)  # about 36 held-out images a class


def test_one_image_per_class_is_recognized_but_not_diverse(data, classifier):
    recognized, ratio = digits.recognized_share(Replayed(data, shown=1), data, classifier)
    assert recognized == 1
    assert ratio == 0


def test_noise_is_not_recognized(data, classifier):
    class Noise(Replayed):
        def forward(self, z, labels, strength, style_ids):
            return torch.randn(len(z), 1, 8, 8, generator=torch.Generator().manual_seed(0))

    recognized, _ = digits.recognized_share(Noise(data, shown=1), data, classifier)
    assert recognized < 0.35


def test_distance_ratio_is_the_mean_distance_within_classes():
    images = torch.tensor([[0.0, 0.0], [3.0, 4.0], [1.0, 1.0], [1.0, 2.0], [0.0, 6.0]])
    labels = torch.tensor([0, 0, 1, 1, 0])
    distances = [(5 + 6 + (9 + 4) ** 0.5) / 3, 1]
    assert digits.distance_ratio(images, labels, 2) == pytest.approx(sum(distances) / 2)


def test_table_shows_mean_and_largest_deviation():
    runs = [("standard", 0, 0.95, 0.8), ("standard", 1, 0.98, 0.9), ("abc", 0, 0.97, 0.7)]
    record = digits.TrainedDigits(
        n=8,
        steps=2500,
        samples=1000,
        accuracy=0.98,
        threads=2,
        runs=tuple(
            digits.DigitsRun(estimator=e, seed=s, recognized=r, distance_ratio=d, seconds=40.0 * s)
            for e, s, r, d in runs
        ),
        provenance=provenance(seed=0, wall_seconds=1.0),
    )
    standard, abc = digits.table(record).groups[0]
    assert standard == ("standard", "96.5% ± 1.5%", "0.85 ± 0.05", "40", "0, 1")
    assert abc == ("abc", "97.0% ± 0.0%", "0.70 ± 0.00", "–", "0")
    assert "accuracy on held-out digits is 98.0%" in digits.ITEM.summary(record)


def test_findings_give_mean_and_largest_deviation_of_each_estimator():
    shares = {"standard": (0.9, 0.92, 0.97), "abc": (0.95, 0.96)}
    runs = tuple(
        digits.DigitsRun(estimator=name, seed=seed, recognized=share, distance_ratio=0.7, seconds=1.0)
        for name, values in shares.items()
        for seed, share in enumerate(values)
    )
    here = provenance(seed=0, wall_seconds=1.0)
    record = digits.TrainedDigits(n=8, steps=2, samples=10, accuracy=0.98, threads=1, runs=runs, provenance=here)
    assert digits.findings(record) == [
        "standard: 93.0% ± 4.0% of the samples are recognized",
        "abc: 95.5% ± 0.5% of the samples are recognized",
    ]


@pytest.mark.slow
def test_both_estimators_learn_the_digits(tmp_path):
    """At least 90 % are recognized, and the distance ratio is at least 0.65."""
    assert main(["reproduce", "digits", "--out", str(tmp_path)]) == 0
    (record,) = read(tmp_path / "records.jsonl", digits.TrainedDigits)
    assert [(run.estimator, run.seed) for run in record.runs] == [(e, s) for e in ("standard", "abc") for s in range(3)]
    assert all(run.recognized >= 0.9 and run.distance_ratio >= 0.65 for run in record.runs)
    config = json.loads((tmp_path / "abc-seed0" / "config.json").read_text())["config"]
    assert (config["batch"]["n"], config["objective"]["estimator_neg"]) == (8, "abc")
