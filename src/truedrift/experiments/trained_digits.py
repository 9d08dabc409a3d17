"""Does it train? The digits by Standard and ABC at n = 8: samples recognized as their class, and their variety.

A support vector machine learns the real training images and judges 1 000 samples of each run, drawn from the averaged
weights at strength 1. The mean distance between two samples of a class is compared with that of the data, because a
generator that knows one picture a class would be recognized perfectly.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from truedrift.axes import Tensor
from truedrift.data.catalog import load
from truedrift.data.samples import Samples, to_model, to_uint8
from truedrift.experiments.study import Setting
from truedrift.generators.base import Generator
from truedrift.generators.sampling import sample
from truedrift.recipes import recipe
from truedrift.records import DigitsRun, TrainedDigits, provenance
from truedrift.training.config import RunConfig
from truedrift.training.entry import train
from truedrift.training.export import open_generator

ESTIMATORS = ("standard", "abc")
SEEDS = {"smoke": 1, "cpu": 3, "paper": 5}
SAMPLES = 1000


def study(setting: Setting) -> TrainedDigits:
    """Every estimator with every seed; runs that are complete are not done again."""
    started = time.monotonic()
    training, held_out = load("digits"), load("digits", split="test")
    judge = classifier(training)
    settings = ("cadence.epochs=3",) if setting.scale == "smoke" else ()
    with tempfile.TemporaryDirectory() as scratch:
        directory = setting.directory or Path(scratch)
        runs, config = [], recipe("digits", settings=settings)
        for estimator in ESTIMATORS:
            for seed in range(setting.seed, setting.seed + SEEDS[setting.scale]):
                config = recipe("digits", given={"estimator": estimator, "seed": seed}, settings=settings)
                runs.append(_run(config, directory / f"{estimator}-seed{seed}", training, judge, setting))
    return TrainedDigits(
        n=config.batch.n,
        steps=config.cadence.steps,
        samples=SAMPLES,
        accuracy=_share(judge, to_model(held_out.values), held_out.labels),
        threads=torch.get_num_threads(),
        runs=tuple(runs),
        provenance=provenance(seed=setting.seed, wall_seconds=time.monotonic() - started),
    )


def _run(config: RunConfig, out: Path, data: Samples, judge: Any, setting: Setting) -> DigitsRun:
    """Train, or take the run that is there, and judge its samples."""
    started = time.monotonic()
    name = config.objective.estimator_pos
    there = (out / "config.json").exists()
    for _report in train(
        config,
        out=out,
        device="cpu",
        progress=lambda _, done, total: setting.progress(f"{name}, seed {config.seed}", done, total),
    ):
        pass
    seconds = 0.0 if there else time.monotonic() - started
    recognized, ratio = judged(open_generator(out).generator, data, judge)
    return DigitsRun(estimator=name, seed=config.seed, recognized=recognized, distance_ratio=ratio, seconds=seconds)


def judged(generator: Generator, data: Samples, judge: Any) -> tuple[float, float]:
    """(share recognized, distance ratio) of 1 000 samples, as many of each class."""
    classes = len(data.classes)
    labels = torch.arange(SAMPLES) % classes
    images = to_model(to_uint8(sample(generator, labels, seed=0)))  # what a viewer of the PNG sees
    ratio = variety(images, labels, classes) / variety(to_model(data.values), data.labels, classes)
    return _share(judge, images, labels), ratio


def variety(images: Tensor, labels: Tensor, classes: int) -> float:
    """Mean distance between two images of a class, averaged over classes."""
    distances = [torch.pdist(images[labels == label].flatten(1)).mean() for label in range(classes)]
    return float(torch.stack(distances).mean())


def classifier(data: Samples) -> Any:
    """A support vector machine that learned the images."""
    from sklearn.svm import SVC  # noqa: PLC0415  an extra

    return SVC(gamma="scale", C=10.0).fit(to_model(data.values).flatten(1).numpy(), data.labels.numpy())


def _share(judge: Any, images: Tensor, labels: Tensor) -> float:
    said = torch.from_numpy(judge.predict(images.flatten(1).numpy()))
    return float((said == labels).double().mean())
