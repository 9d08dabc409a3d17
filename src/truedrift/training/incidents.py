"""RUN/incidents/step-N.json: what a step with a loss or gradient that is not finite had seen.

A batch is a pure function of (seed, step). The file names both, and the images by their position in the data set, so
that the step can be looked at: `truedrift.training.replay(run, step)`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from truedrift.training.config import RunConfig
from truedrift.training.files import write_atomically
from truedrift.training.positives import Positives
from truedrift.training.step import Outcome


class NonFinite(RuntimeError):
    """A loss or gradient was NaN or infinite; the weights are those before the step."""


def record(path: Path, config: RunConfig, step: int, positives: Positives, outcome: Outcome | None) -> None:
    """Write what step number `step`, counted from 0, had seen."""
    batch = positives.batches.at(step)
    incident: dict[str, Any] = {
        "step": step,
        "seed": config.seed,
        "loss": None if outcome is None else repr(float(outcome.features.loss)),
        "gradient_norm": None if outcome is None else repr(float(outcome.gradient_norm)),
        "positives": batch.indices.tolist(),
        "mirrored": batch.mirrored.tolist(),
        "generated": config.generated * len(batch.indices),
    }
    if config.batch.unconditional > 0:
        incident["unconditional"] = positives.batches.unconditional(step, config.batch.unconditional).indices.tolist()
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, (json.dumps(incident) + "\n").encode())
