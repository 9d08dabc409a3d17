"""Points in the plane: seconds to a picture, and the place to try an idea.

The strength is always 1. Without unconditional negatives it has no meaning, but a network that is told one learns to
depend on it a little, and 1, where samples are drawn, would be the edge of what it was told.
"""

from __future__ import annotations

from truedrift.data.catalog import TOYS
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
from truedrift.validation import require_choice

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
