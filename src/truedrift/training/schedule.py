"""lr_t = lr · min(1, (t + 1)/W): a linear warm-up over W steps of which step 0 is the first."""

from __future__ import annotations

from truedrift.training.config import OptimizerOptions


def learning_rate(options: OptimizerOptions, step: int) -> float:
    """The rate of step `step`, counted from 0."""
    warmup = max(1, options.warmup_steps)
    return options.learning_rate * min(1.0, (step + 1) / warmup)
