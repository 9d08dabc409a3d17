"""Points in the plane: seconds to a picture, and the place to try an idea.

The strength is always 1. Without unconditional negatives it has no meaning, but a network that is told one learns to
depend on it a little, and 1, where samples are drawn, would be the edge of what it was told.

The embedded handwritten digits (8×8, ten classes) by an MLP, features are the pixels: minutes on two cores.

Real images on a CPU: Fashion-MNIST by its pixels; CIFAR-10 and folders of the user's with a pretrained encoder.

The paper's runs (`tab:hyperparams`): DriftDiT-Small, frozen DINOv2, bidirectional normalization, 195 steps an epoch.

Training is the longer the smaller n is, so that every run on CIFAR-10 sees 6.24 million positives of each class. The
estimator stands for both sides; `--set objective.estimator_neg=standard` and the like give the paper's ablation.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from truedrift.data.load import TOYS
from truedrift.encoders.base import PixelsOptions
from truedrift.encoders.dinov2 import DINOv2Options
from truedrift.encoders.efficientnet_lite0 import EfficientNetLite0Options
from truedrift.errors import UserError, require_choice
from truedrift.generators.drift_dit import DriftDiTOptions
from truedrift.generators.mlp import MLPOptions
from truedrift.training.config import (
    BatchOptions,
    CadenceOptions,
    ConditionOptions,
    DataOptions,
    EngineOptions,
    Estimator,
    EvaluationOptions,
    ObjectiveOptions,
    OptimizerOptions,
    RunConfig,
)

POINTS_A_STEP = 256


def toy(
    *, n: int | None = None, seed: int = 0, estimator: Estimator = "abc", data: str = "eight-gaussians"
) -> RunConfig:
    """2-D toys by an MLP, features are the points themselves; `data` is the name of a toy."""
    require_choice("the toy", data, TOYS)
    _, parts = TOYS[data]
    return RunConfig(
        recipe="toy",
        seed=seed,
        data=DataOptions(name=data),
        generator=MLPOptions(width=128, depth=3, noise=8, embedding=16),
        encoder=PixelsOptions(),
        batch=BatchOptions(n=POINTS_A_STEP // len(parts) if n is None else n),
        objective=ObjectiveOptions(
            temperatures=(0.05, 0.2, 1.0),
            estimator_pos=estimator,
            estimator_neg=estimator,
            feature_scale="mean-distance",
        ),
        condition=ConditionOptions(label_dropout=0.0, strength_high=1.0),
        optimizer=OptimizerOptions(learning_rate=1e-3, warmup_steps=100, ema=0.995),
        cadence=CadenceOptions(epochs=20, steps_per_epoch=100, log_every=100, checkpoint_every=500, grid_every=500),
    )


def digits(*, n: int = 8, seed: int = 0, estimator: Estimator = "abc") -> RunConfig:
    """scikit-learn's digits; nothing to fetch."""
    return RunConfig(
        recipe="digits",
        seed=seed,
        data=DataOptions(name="digits"),
        generator=MLPOptions(),
        encoder=PixelsOptions(),
        batch=BatchOptions(n=n),
        objective=ObjectiveOptions(
            estimator_pos=estimator,
            estimator_neg=estimator,
            feature_scale="mean-distance",  # unit features have no contrast: gray would be as good as white
        ),
        condition=ConditionOptions(strength_high=1.0),
        optimizer=OptimizerOptions(learning_rate=1e-3, warmup_steps=100, ema=0.998),
        cadence=CadenceOptions(
            epochs=25,
            steps_per_epoch=100,
            log_every=50,
            checkpoint_every=250,
            grid_every=500,
            evaluate_every_epochs=5,
        ),
        evaluation=EvaluationOptions(extractor="digits", samples=2000),
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


STEPS_PER_EPOCH = 195
CIFAR10_EPOCHS = {8: 4000, 16: 2000, 32: 1000, 64: 500}
CIFAR100_EPOCHS = {8: 1000, 16: 2000, 32: 500}
CIFAR10_SEEDS = (42, 43, 44)
CIFAR100_SEEDS = (42,)


def cifar10(*, n: int = 8, seed: int = 42, estimator: Estimator = "abc", data: str | None = None) -> RunConfig:
    """CIFAR-10 as in the paper; n = 8, 16, 32, 64. For a GPU."""
    return _paper("cifar10", CIFAR10_EPOCHS, n, seed, estimator, data)


def cifar100(*, n: int = 8, seed: int = 42, estimator: Estimator = "abc", data: str | None = None) -> RunConfig:
    """CIFAR-100 as in the paper; n = 8, 16, 32. For a GPU."""
    return _paper("cifar100", CIFAR100_EPOCHS, n, seed, estimator, data)


def _paper(name: str, epochs: dict[int, int], n: int, seed: int, estimator: Estimator, data: str | None) -> RunConfig:
    if n not in epochs:
        allowed = ", ".join(map(str, epochs))
        raise UserError(f"n is {n}", f"the paper's {name} has {allowed}", "choose one, then --set batch.n and epochs")
    return RunConfig(
        recipe=name,
        seed=seed,
        data=DataOptions(name=name, root=data),
        generator=DriftDiTOptions(),
        encoder=DINOv2Options(),
        batch=BatchOptions(n=n),
        objective=ObjectiveOptions(
            temperatures=(0.02, 0.05, 0.2),
            estimator_pos=estimator,
            estimator_neg=estimator,
            normalization="bidirectional",
        ),
        optimizer=OptimizerOptions(
            learning_rate=2e-4, beta1=0.9, beta2=0.95, weight_decay=0.01, warmup_steps=2000, clip=2.0, ema=0.999
        ),
        engine=EngineOptions(precision="float32"),
        cadence=CadenceOptions(
            epochs=epochs[n],
            steps_per_epoch=STEPS_PER_EPOCH,
            log_every=STEPS_PER_EPOCH,
            checkpoint_every=5 * STEPS_PER_EPOCH,
            grid_every=25 * STEPS_PER_EPOCH,
            evaluate_every_epochs=25,
        ),
        evaluation=EvaluationOptions(extractor="inception", samples=50_000),
    )
