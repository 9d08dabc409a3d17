"""Time the parts of a training step. Each mark adds the time since the previous mark to a part, so the parts sum to
the step.

The step is that of the engine. Its generator, encoder, source of positives and objective are wrapped. A hook on the
generated samples marks where the backward pass leaves the encoder and enters the generator. This works for a step in
one pass only: with micro-batches some of the backward pass would be counted as "other".
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from statistics import median
from typing import Any

import torch
from torch import Tensor

from truedrift.training.batch import Positives
from truedrift.training.objective import BatchLoss
from truedrift.training.step import Step, StepResult

PARTS = (
    "generator, forward",
    "generator, backward",
    "encoder, forward",
    "encoder, backward",
    "positives",
    "field and loss",
    "optimizer and average",
    "other",
)


class Laps:
    """A stopwatch: seconds by part."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.seconds = device, defaultdict[str, float](float)
        self.start()

    def start(self) -> None:
        """Reset all parts and start the clock."""
        self.seconds.clear()
        self._last = self._now()

    def mark(self, name: str) -> None:
        """Add the time since the last mark to `name`."""
        now = self._now()
        self.seconds[name] += now - self._last
        self._last = now

    def around(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Return the function, with its time added to `name` and the time before it to "other"."""

        def run(*arguments: Any, **options: Any) -> Any:
            self.mark("other")
            result = function(*arguments, **options)
            self.mark(name)
            return result

        return run

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


@dataclass(frozen=True)
class MarkedStep(Step):
    """A step that marks the end of the gradient and of the update."""

    laps: Laps

    def __call__(self, step: int) -> StepResult:
        self.laps.start()
        outcome = super().__call__(step)
        self.laps.mark("optimizer and average")
        return outcome

    def gradients(self, step: int) -> BatchLoss:
        loss = super().gradients(step)
        self.laps.mark("generator, backward")
        return loss


def mark_parts(step: Step) -> MarkedStep:
    """Return the same step with marks around its parts. It shares the state of the given step."""
    laps = Laps(step.device)
    encode = laps.around(step.encode, "encoder, forward")

    def encode_with_hook(samples: Tensor) -> tuple[Tensor, ...]:
        samples.register_hook(lambda gradient: laps.mark("encoder, backward"))
        return encode(samples)

    positives = step.positives
    lookup = laps.around(positives.lookup, "positives")
    step.state.call = laps.around(step.state.call, "generator, forward")
    wrapped = replace(
        step,
        encode=encode_with_hook,
        positives=Positives(positives.batches, lookup, positives.unconditionals),
        objective=laps.around(step.objective, "field and loss"),
    )
    return MarkedStep(**{field.name: getattr(wrapped, field.name) for field in fields(wrapped)}, laps=laps)


def time_parts(steps: Mapping[str, MarkedStep], *, repeats: int) -> dict[str, dict[str, float]]:
    """Return the median seconds of every part over `repeats` steps. The steps alternate; the first is a warm-up."""
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in steps}
    for number in range(repeats + 1):
        for name, step in steps.items():
            step(number)
            measured[name].append(dict(step.laps.seconds))
    return {
        name: {part: median(laps.get(part, 0.0) for laps in each[1:]) for part in PARTS}
        for name, each in measured.items()
    }
