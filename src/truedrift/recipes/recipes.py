"""The recipes.

`toy` trains points in the plane in seconds, to try an idea. `digits` and `fashion-mnist-pixels` train small images by
their pixels in minutes on two cores. `fashion-mnist`, `cifar10-cpu` and `folder` train a convolutional generator on a
CPU by the feature maps of a pretrained encoder. `cifar10` and `cifar100` are the paper's runs (`tab:hyperparams`):
DriftDiT-Small, frozen DINOv2, bidirectional normalization, 195 steps per epoch. They train longer when n is smaller, so
that every run on CIFAR-10 sees 6.24 million positives per class.

`toy`, `digits` and `fashion-mnist-pixels` use matched references: n positives are a multiple of g − 1 and form windows
of g − 1, the number of negatives of a generated sample, so that the expected field is 0 at equal distributions
(`truedrift reproduce matching` measures what this brings). `PAPER_FIELD` is what the paper does instead. The recipes
with feature maps have its normalization too: far from the data, where short runs of photographs end, matching made no
difference (study `images`), and it cannot be combined with guidance.

`estimator` sets both sides. Options such as `--set objective.estimator_neg=standard` give the paper's ablation.

The recipes with feature maps are guided if there are several classes. The other recipes of our own have no
unconditional negatives and train at strength 1 only, since the strength has no effect on their loss. A network that is
trained with several strengths would still learn a weak dependence on them, and strength 1, at which samples are drawn,
would be at the edge of the range.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from truedrift.choices import Estimator
from truedrift.data.folder import count_class_folders
from truedrift.data.load import TOYS
from truedrift.encoders.base import PixelsOptions
from truedrift.encoders.dinov2 import DINOv2Options
from truedrift.encoders.efficientnet_lite0 import EfficientNetLite0Options
from truedrift.encoders.resnet import OwnEncoderOptions
from truedrift.errors import UserError, require_choice
from truedrift.generators.conv import ConvOptions
from truedrift.generators.drift_dit import DriftDiTOptions
from truedrift.generators.mlp import MLPOptions
from truedrift.training.config import (
    BatchOptions,
    CadenceOptions,
    ConditionOptions,
    DataOptions,
    EngineOptions,
    EvaluationOptions,
    ObjectiveOptions,
    OptimizerOptions,
    RunConfig,
)

PAPER_FIELD: Mapping[str, Mapping[str, Any]] = {
    "batch": {"generated": None, "fresh_negatives": 0, "labels": None, "unconditional": 0},
    "objective": {"normalization": "bidirectional", "form": "product", "matched": False},
}
"""Options of the paper's field, for `recipe(…, tree=PAPER_FIELD)`: equally many samples on both sides, no windows, all
classes in every step."""

POINTS_PER_STEP, TOY_WINDOWS = 256, 2


def toy(
    *, n: int | None = None, seed: int = 0, estimator: Estimator = "abc", data: str = "eight-gaussians"
) -> RunConfig:
    """Return the recipe of 2-D toys: an MLP, and the points themselves as features. `data` is the name of a toy."""
    require_choice("data", data, TOYS)
    _, parts = TOYS[data]
    generated = POINTS_PER_STEP // len(parts)
    return RunConfig(
        recipe="toy",
        seed=seed,
        data=DataOptions(name=data),
        generator=MLPOptions(width=128, depth=3, noise=8, embedding=16),
        encoder=PixelsOptions(),
        batch=BatchOptions(n=TOY_WINDOWS * (generated - 1) if n is None else n, generated=generated),
        objective=dataclasses.replace(_objective(estimator), temperatures=(0.05, 0.2, 1.0)),
        condition=ConditionOptions(label_dropout=0.0, strength_high=1.0),
        optimizer=OptimizerOptions(learning_rate=1e-3, warmup_steps=100, ema=0.995),
        cadence=CadenceOptions(epochs=20, steps_per_epoch=100, log_every=100, checkpoint_every=500, grid_every=500),
    )


def digits(*, n: int = 120, seed: int = 0, estimator: Estimator = "abc") -> RunConfig:
    """Return the recipe of scikit-learn's digits (8×8, ten classes): an MLP, and the pixels as features."""
    return RunConfig(
        recipe="digits",
        seed=seed,
        data=DataOptions(name="digits"),
        generator=MLPOptions(),
        encoder=PixelsOptions(),
        batch=BatchOptions(n=n, generated=16),
        objective=_objective(estimator),
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

POOLED_FEATURES: Mapping[str, Any] = {
    "generator": dataclasses.asdict(SMALLER_THAN_TINY),
    "encoder": dataclasses.asdict(EfficientNetLite0Options()),
    "encoders": (),
    "objective": {"feature_scale": "mean-distance", "pixels": True, "share_normalization": "group", "locations": None},
}
"""Options of a small DriftDiT with globally pooled features and pixels, for `recipe("cifar10-cpu", tree=…)`. The
studies of the paper on a CPU use them. Its images are mosaics of tiles."""

FEW = EvaluationOptions(samples=2000, reference=5000)
"""For `truedrift evaluate` on a CPU, where the FID network takes 0.1 s per image. There is none during training."""

MAPS = EfficientNetLite0Options(image_size=96, taps=(2, 4, 10, 15), pooling="pyramid")
"""Feature maps at 1/4, 1/8, 1/16 and 1/32 of 96 pixels, with all statistics of the official set."""


def fashion_mnist_pixels(
    *, n: int = 496, seed: int = 0, estimator: Estimator = "abc", data: str | None = None
) -> RunConfig:
    """Return a recipe of Fashion-MNIST (28×28, gray) that needs no encoder: an MLP, and the pixels as features."""
    return RunConfig(
        recipe="fashion-mnist-pixels",
        seed=seed,
        data=DataOptions(name="fashion-mnist", root=data),
        generator=MLPOptions(width=768),
        encoder=PixelsOptions(),
        batch=BatchOptions(n=n, generated=32),
        objective=_objective(estimator),
        condition=ConditionOptions(strength_high=1.0),
        optimizer=OptimizerOptions(learning_rate=1e-3, warmup_steps=200, ema=0.998),
        cadence=CadenceOptions(epochs=60, steps_per_epoch=100, log_every=50, checkpoint_every=500, grid_every=500),
        evaluation=FEW,
    )


def fashion_mnist(
    *,
    n: int = 96,
    seed: int = 0,
    estimator: Estimator = "abc",
    data: str | None = None,
    classes: tuple[str, ...] = (),
) -> RunConfig:
    """Return the recipe of Fashion-MNIST (28×28, gray): a convolutional generator, feature maps, pixels."""
    options = DataOptions(name="fashion-mnist", root=data, classes=classes)
    config = _feature_maps("fashion-mnist", options, n, seed, estimator, epochs=50)
    return dataclasses.replace(
        config if len(classes) == 1 else _guide(config),
        generator=ConvOptions(widths=(128, 64, 48, 24)),
        encoder=dataclasses.replace(MAPS, image_size=64),
    )


def cifar10_cpu(
    *,
    n: int = 96,
    seed: int = 0,
    estimator: Estimator = "abc",
    data: str | None = None,
    classes: tuple[str, ...] = (),
) -> RunConfig:
    """Return the recipe of CIFAR-10 on a CPU: a convolutional generator, feature maps, pixels."""
    options = DataOptions(name="cifar10", root=data, classes=classes)
    return _photographs("cifar10-cpu", options, n, seed, estimator, classes=len(classes) or 10)


def cifar10_own(
    *,
    n: int = 96,
    seed: int = 0,
    estimator: Estimator = "abc",
    data: str | None = None,
    classes: tuple[str, ...] = (),
) -> RunConfig:
    """Return `cifar10_cpu` with an encoder of one's own: nothing pretrained. `encoder.run` has to be set."""
    config = cifar10_cpu(n=n, seed=seed, estimator=estimator, data=data, classes=classes)
    return dataclasses.replace(config, recipe="cifar10-own", encoder=OwnEncoderOptions(pooling="pyramid"))


def folder(
    *,
    n: int = 60,
    seed: int = 0,
    estimator: Estimator = "abc",
    data: str | None = None,
    classes: tuple[str, ...] = (),
) -> RunConfig:
    """Return the recipe of the user's images, 32×32: one folder per class in `data`, or one class."""
    root = None if data is None else Path(data).absolute()
    options = DataOptions(name="folder", root=None if root is None else str(root), image_size=32, classes=classes)
    count = len(classes) or (1 if root is None else count_class_folders(root))
    return _photographs("folder", options, n, seed, estimator, classes=count)


EPOCHS_PER_CLASS, MOST_CLASSES = 15, 20
UNCONDITIONAL = 16


def _photographs(recipe: str, data: DataOptions, n: int, seed: int, estimator: Estimator, *, classes: int) -> RunConfig:
    """Return a recipe for photographs of some classes, 32×32.

    The run has 1,500 steps, and 1,500 more per class up to 20 classes. With several classes it is guided (study
    `images`).
    """
    epochs = EPOCHS_PER_CLASS * (1 + min(classes, MOST_CLASSES))
    config = _feature_maps(recipe, data, n, seed, estimator, epochs=epochs)
    return config if classes == 1 else _guide(config)


def _guide(config: RunConfig) -> RunConfig:
    """Return the recipe with guidance: images of all classes repel, and samples look more like their class.

    The strength is an input of the generator, from 1 (no guidance) to 3; samples have 2 if nothing else is asked for.
    """
    return dataclasses.replace(
        config,
        batch=dataclasses.replace(config.batch, unconditional=UNCONDITIONAL),
        condition=dataclasses.replace(config.condition, strength_low=1.0, strength_high=3.0),
        evaluation=dataclasses.replace(config.evaluation, strength=2.0),
    )


def _feature_maps(recipe: str, data: DataOptions, n: int, seed: int, estimator: Estimator, *, epochs: int) -> RunConfig:
    """Return a recipe for CPUs with a convolutional generator and the maps of EfficientNet-Lite0.

    Positives cost little, because their features are cached: there may be many of them. A step has one class, since
    many small steps learn faster than few large ones.
    """
    return RunConfig(
        recipe=recipe,
        seed=seed,
        data=data,
        generator=ConvOptions(),
        encoder=MAPS,
        encoders=(PixelsOptions(pooling="pyramid"),),
        batch=BatchOptions(n=n, generated=16, labels=1),
        objective=ObjectiveOptions(
            estimator_pos=estimator,
            estimator_neg=estimator,
            feature_scale="mean-distance",
            share_normalization="map",
            locations=16,
        ),
        condition=ConditionOptions(label_dropout=0.0, strength_high=1.0),
        optimizer=OptimizerOptions(
            learning_rate=1.5e-3, warmup_steps=50, schedule="cosine", ema=0.998, ema_warmup=True
        ),
        cadence=CadenceOptions(epochs=epochs, steps_per_epoch=100, log_every=20, checkpoint_every=100, grid_every=250),
        evaluation=FEW,
    )


def _objective(estimator: Estimator) -> ObjectiveOptions:
    """Return a matched objective for pixels and points. Unit features have no contrast: gray would equal white."""
    return ObjectiveOptions(
        estimator_pos=estimator,
        estimator_neg=estimator,
        normalization="row",
        form="separate",
        matched=True,
        feature_scale="mean-distance",
    )


STEPS_PER_EPOCH = 195
CIFAR10_EPOCHS = {8: 4000, 16: 2000, 32: 1000, 64: 500}
CIFAR100_EPOCHS = {8: 1000, 16: 2000, 32: 500}
CIFAR10_SEEDS = (42, 43, 44)
CIFAR100_SEEDS = (42,)


def cifar10(*, n: int = 8, seed: int = 42, estimator: Estimator = "abc", data: str | None = None) -> RunConfig:
    """Return the paper's recipe of CIFAR-10; n is 8, 16, 32 or 64."""
    return _paper("cifar10", CIFAR10_EPOCHS, n, seed, estimator, data)


def cifar100(*, n: int = 8, seed: int = 42, estimator: Estimator = "abc", data: str | None = None) -> RunConfig:
    """Return the paper's recipe of CIFAR-100; n is 8, 16 or 32."""
    return _paper("cifar100", CIFAR100_EPOCHS, n, seed, estimator, data)


def _paper(name: str, epochs: dict[int, int], n: int, seed: int, estimator: Estimator, data: str | None) -> RunConfig:
    if n not in epochs:
        raise UserError(
            f"is {n}",
            f"must be one of {', '.join(map(str, epochs))}, as in the paper",
            "choose one of these, then override it with --set batch.n and --set cadence.epochs",
            field="n",
        )
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
