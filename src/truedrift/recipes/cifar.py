"""The paper's runs (`tab:hyperparams`): DriftDiT-Small, frozen DINOv2, bidirectional normalization, 195 steps an epoch.

Training is the longer the smaller n is, so that every run on CIFAR-10 sees 6.24 million positives of each class. The
estimator stands for both sides; `--set objective.estimator_neg=standard` and the like give the paper's ablation.
"""

from __future__ import annotations

from truedrift.encoders import DINOv2Options
from truedrift.generators import DriftDiTOptions
from truedrift.training.config import (
    BatchOptions,
    CadenceOptions,
    DataOptions,
    EngineOptions,
    Estimator,
    EvaluationOptions,
    ObjectiveOptions,
    OptimizerOptions,
    RunConfig,
)
from truedrift.validation import mistake

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
        raise mistake(f"n is {n}", f"the paper's {name} has {allowed}", "choose one, then --set batch.n and epochs")
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
