"""`digits`, our own study: does training work? The digits with standard and ABC at n = 8, in the paper's field.

A support vector machine is trained on the real training images and classifies 1 000 samples of each run, generated with
the averaged weights at strength 1. The mean distance between two samples of the same class is compared with that of the
data, because samples of a generator that produces one picture per class could all be recognized.
"""

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from truedrift.axes import Tensor
from truedrift.data.load import load
from truedrift.data.samples import Samples, to_model_range, to_uint8
from truedrift.generators.base import Generator
from truedrift.generators.sampling import sample
from truedrift.grids.options import StudyOptions
from truedrift.recipes.overrides import recipe
from truedrift.recipes.recipes import PAPER_FIELD
from truedrift.records.provenance import Provenance, provenance
from truedrift.report.item import Item
from truedrift.report.statistics import mean_and_deviation
from truedrift.report.table import DASH, Table
from truedrift.training.config import RunConfig
from truedrift.training.load import load_generator
from truedrift.training.train import train


@dataclass(frozen=True, kw_only=True)
class DigitsRun:
    """One run.

    `recognized` is the share of samples that the classifier assigns to their class. `distance_ratio` is the mean
    distance between two samples of the same class, divided by that between two images of the data.
    """

    estimator: str
    seed: int
    recognized: float
    distance_ratio: float
    seconds: float
    """Seconds of training; 0 if the run existed already."""


@dataclass(frozen=True, kw_only=True)
class TrainedDigits:
    """All runs at one n. The classifier was trained on the training images; `accuracy` is on held-out images."""

    n: int
    steps: int
    samples: int
    accuracy: float
    threads: int
    runs: tuple[DigitsRun, ...]
    provenance: Provenance


N = 8
ESTIMATORS = ("standard", "abc")
SEEDS = {"smoke": 1, "cpu": 3, "paper": 5}
SAMPLES = 1000


def study(setting: StudyOptions) -> TrainedDigits:
    """Train every estimator with every seed; complete runs are not repeated."""
    # Load the data and train the classifier.
    started = time.monotonic()
    training, held_out = load("digits"), load("digits", split="test")
    classifier = train_classifier(training)
    # Train and evaluate every run.
    settings = ("cadence.epochs=3",) if setting.scale == "smoke" else ()
    configs = [
        recipe("digits", given={"n": N, "estimator": estimator, "seed": seed}, tree=PAPER_FIELD, settings=settings)
        for estimator in ESTIMATORS
        for seed in range(setting.seed, setting.seed + SEEDS[setting.scale])
    ]
    with tempfile.TemporaryDirectory() as scratch:
        directory = setting.directory or Path(scratch)
        runs = tuple(_run(config, directory, training, classifier, setting) for config in configs)
    return TrainedDigits(
        n=N,
        steps=configs[0].cadence.steps,
        samples=SAMPLES,
        accuracy=_share(classifier, to_model_range(held_out.values), held_out.labels),
        threads=torch.get_num_threads(),
        runs=runs,
        provenance=provenance(seed=setting.seed, wall_seconds=time.monotonic() - started),
    )


def _run(config: RunConfig, directory: Path, data: Samples, classifier: Any, setting: StudyOptions) -> DigitsRun:
    """Train, or load the existing run, and evaluate its samples."""
    started, name, seed = time.monotonic(), config.objective.estimator_pos, config.seed
    out = directory / f"{name}-seed{seed}"
    existing = (out / "config.json").exists()

    def progress(_: str, done: float, total: float) -> None:
        setting.progress(f"{name}, seed {seed}", done, total)

    for _report in train(config, out=out, device="cpu", progress=progress):
        pass
    seconds = 0.0 if existing else time.monotonic() - started
    recognized, ratio = recognized_share(load_generator(out).generator, data, classifier)
    return DigitsRun(estimator=name, seed=seed, recognized=recognized, distance_ratio=ratio, seconds=seconds)


def recognized_share(generator: Generator, data: Samples, classifier: Any) -> tuple[float, float]:
    """Return (share recognized, distance ratio) of 1 000 samples, the same number per class."""
    classes = len(data.classes)
    labels = torch.arange(SAMPLES) % classes
    images = to_model_range(to_uint8(sample(generator, labels, seed=0)))  # what a viewer of the PNG sees
    ratio = distance_ratio(images, labels, classes) / distance_ratio(to_model_range(data.values), data.labels, classes)
    return _share(classifier, images, labels), ratio


def distance_ratio(images: Tensor, labels: Tensor, classes: int) -> float:
    """Return the mean distance between two images of a class, averaged over classes."""
    distances = [torch.pdist(images[labels == label].flatten(1)).mean() for label in range(classes)]
    return float(torch.stack(distances).mean())


def train_classifier(data: Samples) -> Any:
    """Train a support vector machine on the images."""
    from sklearn.svm import SVC  # noqa: PLC0415  an extra

    return SVC(gamma="scale", C=10.0).fit(to_model_range(data.values).flatten(1).numpy(), data.labels.numpy())


def _share(classifier: Any, images: Tensor, labels: Tensor) -> float:
    predicted = torch.from_numpy(classifier.predict(images.flatten(1).numpy()))
    return float((predicted == labels).double().mean())


def _by_estimator(record: TrainedDigits) -> dict[str, list[DigitsRun]]:
    names = dict.fromkeys(run.estimator for run in record.runs)
    return {name: [run for run in record.runs if run.estimator == name] for name in names}


def _format_mean(values: Sequence[float], spec: str) -> str:
    mean, deviation = mean_and_deviation(values)
    return f"{mean:{spec}} ± {deviation:{spec}}"


def table(record: TrainedDigits) -> Table:
    """Return one row per estimator: mean and largest deviation over seeds."""
    # One row per estimator
    rows = []
    for estimator, runs in _by_estimator(record).items():
        timed = [run.seconds for run in runs if run.seconds > 0]
        rows.append(
            (
                estimator,
                _format_mean([run.recognized for run in runs], ".1%"),
                _format_mean([run.distance_ratio for run in runs], ".2f"),
                f"{statistics.fmean(timed):.0f}" if timed else DASH,
                ", ".join(str(run.seed) for run in runs),
            )
        )
    # Caption
    caption = (
        f"Digits, n = {record.n}, {record.steps} steps. Recognized: share of {record.samples} samples that a "
        f"classifier assigns to their class; its accuracy on held-out digits is {record.accuracy:.1%}. "
        "Distance ratio: mean distance between samples of the same class, divided by that of the data. "
        f"Mean ± largest deviation over seeds; {record.threads} threads."
    )
    header = ("estimator", "recognized", "distance ratio", "seconds per run", "seeds")
    return Table(caption=caption, label="trained-digits", header=header, groups=[rows])


def findings(record: TrainedDigits) -> list[str]:
    """Return one sentence per estimator: the share of recognized samples."""
    return [
        f"{name}: {_format_mean([run.recognized for run in runs], '.1%')} of the samples are recognized"
        for name, runs in _by_estimator(record).items()
    ]


ITEM = Item(
    "digits",
    TrainedDigits,
    "Digits trained with standard and ABC: share of samples recognized as their class, and diversity of the samples.",
    table=table,
    findings=findings,
    filename="trained_digits",
)
