"""Real images on a CPU: Fashion-MNIST, CIFAR-10 with a pretrained encoder, and folders of the user's own."""

from __future__ import annotations

from pathlib import Path

from truedrift.encoders import ConvNetOptions, EfficientNetLite0Options
from truedrift.generators import DriftDiTOptions
from truedrift.training.config import (
    BatchOptions,
    CadenceOptions,
    ConditionOptions,
    DataOptions,
    Estimator,
    ObjectiveOptions,
    OptimizerOptions,
    RunConfig,
)

SMALLER_THAN_TINY = DriftDiTOptions(width=128, depth=4, heads=4, registers=4, style_draws=8)
"""A DriftDiT of 1.3 million parameters, for CPUs."""

HOURS = CadenceOptions(epochs=30, steps_per_epoch=100, log_every=20, checkpoint_every=100, grid_every=100)


def fashion_mnist(*, n: int = 8, seed: int = 0, estimator: Estimator = "abc", data: str | None = None) -> RunConfig:
    """Fashion-MNIST (28×28, gray) by a small DriftDiT, features of a fixed convolutional network."""
    return RunConfig(
        recipe="fashion-mnist",
        seed=seed,
        data=DataOptions(name="fashion-mnist", root=data),
        generator=SMALLER_THAN_TINY,
        encoder=ConvNetOptions(),
        batch=BatchOptions(n=n),
        objective=_objective(estimator),
        condition=ConditionOptions(strength_high=1.0),
        optimizer=_faster(),
        cadence=HOURS,
    )


def cifar10_cpu(*, n: int = 8, seed: int = 0, estimator: Estimator = "abc", data: str | None = None) -> RunConfig:
    """Real CIFAR-10 on a CPU: a small DriftDiT, features of EfficientNet-Lite0 (ImageNet) at 64 pixels."""
    return RunConfig(
        recipe="cifar10-cpu",
        seed=seed,
        data=DataOptions(name="cifar10", root=data),
        generator=SMALLER_THAN_TINY,
        encoder=EfficientNetLite0Options(),
        batch=BatchOptions(n=n),
        objective=_objective(estimator),
        condition=ConditionOptions(strength_high=1.0),
        optimizer=_faster(),
        cadence=HOURS,
    )


def folder(*, n: int = 8, seed: int = 0, estimator: Estimator = "abc", data: str | None = None) -> RunConfig:
    """Images of your own, 32×32: a folder a class below DIR, or all of one class in DIR itself."""
    return RunConfig(
        recipe="folder",
        seed=seed,
        data=DataOptions(name="folder", root=None if data is None else str(Path(data).absolute()), image_size=32),
        generator=SMALLER_THAN_TINY,
        encoder=ConvNetOptions(),
        batch=BatchOptions(n=n),
        objective=_objective(estimator),
        condition=ConditionOptions(strength_high=1.0),
        optimizer=_faster(),
        cadence=HOURS,
    )


def _objective(estimator: Estimator) -> ObjectiveOptions:
    return ObjectiveOptions(estimator_pos=estimator, estimator_neg=estimator, feature_scale="mean-distance")


def _faster() -> OptimizerOptions:
    return OptimizerOptions(learning_rate=5e-4, warmup_steps=200)
