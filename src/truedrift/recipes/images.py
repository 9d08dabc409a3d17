"""Real images on a CPU: Fashion-MNIST by its pixels; CIFAR-10 and folders of the user's with a pretrained encoder."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from truedrift.encoders import EfficientNetLite0Options, PixelsOptions
from truedrift.generators import DriftDiTOptions, MLPOptions
from truedrift.training.config import (
    BatchOptions,
    CadenceOptions,
    ConditionOptions,
    DataOptions,
    Estimator,
    EvaluationOptions,
    ObjectiveOptions,
    OptimizerOptions,
    RunConfig,
)

SMALLER_THAN_TINY = DriftDiTOptions(width=128, depth=4, heads=4, registers=4, style_draws=8, noise=64)
"""A DriftDiT of 1.7 million parameters, for CPUs."""

FEW = EvaluationOptions(samples=2000, reference=5000)
"""For `truedrift evaluate` on a CPU, where the FID network takes a tenth of a second an image; not on the way."""

HOURS = CadenceOptions(epochs=30, steps_per_epoch=100, log_every=20, checkpoint_every=100, grid_every=100)


def fashion_mnist(*, n: int = 32, seed: int = 0, estimator: Estimator = "abc", data: str | None = None) -> RunConfig:
    """Fashion-MNIST (28×28, gray) by an MLP, features are the pixels: minutes on two cores."""
    return RunConfig(
        recipe="fashion-mnist",
        seed=seed,
        data=DataOptions(name="fashion-mnist", root=data),
        generator=MLPOptions(width=768),
        encoder=PixelsOptions(),
        batch=BatchOptions(n=n),
        objective=_objective(estimator),
        condition=ConditionOptions(strength_high=1.0),
        optimizer=OptimizerOptions(learning_rate=1e-3, warmup_steps=200, ema=0.998),
        cadence=CadenceOptions(epochs=60, steps_per_epoch=100, log_every=50, checkpoint_every=500, grid_every=500),
        evaluation=FEW,
    )


def cifar10_cpu(*, n: int = 32, seed: int = 0, estimator: Estimator = "abc", data: str | None = None) -> RunConfig:
    """Real CIFAR-10 on a CPU: a small DriftDiT, features of a pretrained EfficientNet-Lite0 and pixels."""
    options = DataOptions(name="cifar10", root=data)
    return _small("cifar10-cpu", options, BatchOptions(n=n, generated=8), seed, estimator)


def folder(*, n: int = 16, seed: int = 0, estimator: Estimator = "abc", data: str | None = None) -> RunConfig:
    """Images of your own, 32×32: a folder a class below DIR, or all of one class in DIR itself."""
    place = None if data is None else str(Path(data).absolute())
    options = DataOptions(name="folder", root=place, image_size=32)
    return _small("folder", options, BatchOptions(n=n, generated=16), seed, estimator)


def _small(recipe: str, data: DataOptions, batch: BatchOptions, seed: int, estimator: Estimator) -> RunConfig:
    """Positives cost little, since their features are kept: there may be more of them than of generated samples."""
    return RunConfig(
        recipe=recipe,
        seed=seed,
        data=data,
        generator=SMALLER_THAN_TINY,
        encoder=EfficientNetLite0Options(),
        batch=batch,
        objective=dataclasses.replace(_objective(estimator), pixels=True),
        condition=ConditionOptions(strength_high=1.0),
        optimizer=OptimizerOptions(learning_rate=1e-3, warmup_steps=100, ema=0.995),
        cadence=HOURS,
        evaluation=FEW,
    )


def _objective(estimator: Estimator) -> ObjectiveOptions:
    """Pixels are compared by their own contrast, which unit features would take away."""
    return ObjectiveOptions(estimator_pos=estimator, estimator_neg=estimator, feature_scale="mean-distance")
