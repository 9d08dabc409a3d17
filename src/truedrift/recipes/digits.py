"""The embedded handwritten digits (8×8, ten classes) by an MLP, features are the pixels: minutes on two cores."""

from __future__ import annotations

from truedrift.encoders import PixelsOptions
from truedrift.generators import MLPOptions
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
