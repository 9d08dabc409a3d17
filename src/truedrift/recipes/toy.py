"""Points in the plane: seconds to a picture, and the place to try an idea.

The strength is always 1. Without unconditional negatives it has no meaning, but a network that is told one learns to
depend on it a little, and 1, where samples are drawn, would be the edge of what it was told.
"""

from __future__ import annotations

from truedrift.encoders import PixelsOptions
from truedrift.generators import MLPOptions
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


def toy(*, n: int = 32, seed: int = 0, estimator: Estimator = "abc", data: str = "eight-gaussians") -> RunConfig:
    """2-D toys by an MLP, features are the points themselves; `data` is the name of a toy."""
    return RunConfig(
        recipe="toy",
        seed=seed,
        data=DataOptions(name=data),
        generator=MLPOptions(width=128, depth=3, noise=8, embedding=16),
        encoder=PixelsOptions(),
        batch=BatchOptions(n=n),
        objective=ObjectiveOptions(
            temperatures=(0.3, 1.0),
            estimator_pos=estimator,
            estimator_neg=estimator,
            feature_scale="mean-distance",
        ),
        condition=ConditionOptions(label_dropout=0.0, strength_high=1.0),
        optimizer=OptimizerOptions(learning_rate=1e-3, warmup_steps=100, ema=0.995),
        cadence=CadenceOptions(epochs=20, steps_per_epoch=100, log_every=100, checkpoint_every=500, grid_every=500),
    )
