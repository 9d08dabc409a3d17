"""`tab:hyperparams`: read off the recipe objects that `truedrift train` runs, not written a second time."""

from __future__ import annotations

import time

from truedrift.experiments.study import Setting
from truedrift.generators import build
from truedrift.recipes.cifar import CIFAR10_EPOCHS, CIFAR10_SEEDS, cifar10
from truedrift.records import Epochs, Hyperparameters, provenance

SAMPLE_SHAPE, CLASSES = (3, 32, 32), 10


def study(setting: Setting) -> Hyperparameters:
    """The recipe cifar10 at every n of the paper; scale and seed change nothing."""
    started = time.monotonic()
    runs = {n: cifar10(n=n) for n in CIFAR10_EPOCHS}
    any_run = runs[8]
    optimizer, condition = any_run.optimizer, any_run.condition
    generator = build(any_run.generator, sample_shape=SAMPLE_SHAPE, classes=CLASSES, seed=0)
    return Hyperparameters(
        recipe=any_run.recipe,
        parameters=sum(parameter.numel() for parameter in generator.parameters()),
        learning_rate=optimizer.learning_rate,
        beta1=optimizer.beta1,
        beta2=optimizer.beta2,
        weight_decay=optimizer.weight_decay,
        warmup_steps=optimizer.warmup_steps,
        ema=optimizer.ema,
        clip=optimizer.clip or 0.0,
        label_dropout=condition.label_dropout,
        strength_low=condition.strength_low,
        strength_high=condition.strength_high,
        temperatures=any_run.objective.temperatures,
        normalization=any_run.objective.normalization,
        steps_per_epoch=any_run.cadence.steps_per_epoch,
        lengths=tuple(
            Epochs(n=n, epochs=run.cadence.epochs, positives_seen=run.positives_seen(run.cadence.steps))
            for n, run in sorted(runs.items(), reverse=True)
        ),
        seeds=CIFAR10_SEEDS,
        evaluate_every_epochs=any_run.cadence.evaluate_every_epochs,
        provenance=provenance(seed=setting.seed, wall_seconds=time.monotonic() - started),
    )
