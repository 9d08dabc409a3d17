"""RUN/incidents/step-N.json: what a step with a loss or gradient that is not finite had seen.

A batch is a pure function of (seed, step). The file names both, and the images by their position in the data set, so
that the step can be looked at: `truedrift.training.replay(run, step)`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from truedrift.axes import Tensor
from truedrift.files import write_atomically
from truedrift.training.config import RunConfig
from truedrift.training.positives import Positives
from truedrift.training.step import Outcome


class NonFinite(RuntimeError):
    """A loss or gradient was NaN or infinite; the step changed no weight."""


class Watch:
    """Which steps were not finite: noted on the device at every step, read from it now and then."""

    def __init__(self, every: int, device: torch.device) -> None:
        self.every = every
        self._flags = torch.zeros(self.every, dtype=torch.bool, device=device)

    def note(self, step: int, finite: Tensor) -> None:
        """Of step number `step`; nothing waits for the device."""
        self._flags[step % self.every] = ~finite

    def found(self, last: int) -> list[int]:
        """The steps since the last look, `last` included, that were not finite."""
        slots = self._flags.nonzero().flatten().tolist()
        self._flags.zero_()
        return sorted(last - (last - slot) % self.every for slot in slots)


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
