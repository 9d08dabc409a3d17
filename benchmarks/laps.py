"""A step of training, split: every mark gives the time since the mark before it to a name, so that parts sum to the
step.

The step is the engine's own. What it calls is wrapped (generator, encoder, look-up of positives, objective), and a hook
on the generated samples tells where the backward pass leaves the encoder and enters the generator. It is for a step in
one pass: with micro-batches some of the backward pass would be counted as the rest.
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
from truedrift.training.step import FeatureLoss, Step, StepResult

PARTS = (
    "generator, forward",
    "generator, backward",
    "encoder, forward",
    "encoder, backward",
    "positives",
    "field and loss",
    "optimizer and average",
    "the rest",
)


class Laps:
    """Seconds by name."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.seconds = device, defaultdict[str, float](float)
        self.start()

    def start(self) -> None:
        """Forget what was; the clock runs from now."""
        self.seconds.clear()
        self._last = self._now()

    def mark(self, name: str) -> None:
        """What passed since the last mark was `name`."""
        now = self._now()
        self.seconds[name] += now - self._last
        self._last = now

    def around(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The function, whose time is `name`; what came before it is the rest."""

        def run(*arguments: Any) -> Any:
            self.mark("the rest")
            result = function(*arguments)
            self.mark(name)
            return result

        return run

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


@dataclass(frozen=True)
class MarkedStep(Step):
    """A step that marks its ends."""

    laps: Laps

    def __call__(self, step: int) -> StepResult:
        self.laps.start()
        outcome = super().__call__(step)
        self.laps.mark("optimizer and average")
        return outcome

    def gradients(self, step: int) -> FeatureLoss:
        loss = super().gradients(step)
        self.laps.mark("generator, backward")
        return loss


def marked(step: Step) -> MarkedStep:
    """The same step with marks around its parts; it takes over the state of the other."""
    laps = Laps(step.device)
    encode = laps.around(step.encode, "encoder, forward")

    def hooked(samples: Tensor) -> tuple[Tensor, ...]:
        samples.register_hook(lambda gradient: laps.mark("encoder, backward"))
        return encode(samples)

    positives = step.positives
    lookup = laps.around(positives.lookup, "positives")
    step.state.call = laps.around(step.state.call, "generator, forward")
    wrapped = replace(
        step,
        encode=hooked,
        positives=Positives(positives.batches, lookup, positives.unconditionals),
        objective=laps.around(step.objective, "field and loss"),
    )
    return MarkedStep(**{field.name: getattr(wrapped, field.name) for field in fields(wrapped)}, laps=laps)


def splits(steps: Mapping[str, MarkedStep], *, repeats: int) -> dict[str, dict[str, float]]:
    """Seconds of every part of every step: the median over `repeats`, steps taking turns, after one to warm up."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in steps}
    for number in range(repeats + 1):
        for name, step in steps.items():
            step(number)
            taken[name].append(dict(step.laps.seconds))
    return {
        name: {part: median(laps.get(part, 0.0) for laps in each[1:]) for part in PARTS} for name, each in taken.items()
    }
