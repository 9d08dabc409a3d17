"""lr_t = lr · min(1, (t + 1)/W): a linear warm-up over W steps of which step 0 is the first.

θ̄ ← θ̄ + (1 − β)(θ − θ̄) after every step: the weights that samples are drawn from.

What a step changes: weights, their average, the moments of AdamW. It goes to disk and back bit for bit.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch

from truedrift import distributed
from truedrift.axes import Tensor
from truedrift.errors import UserError
from truedrift.generators.base import Generator
from truedrift.training.config import OptimizerOptions


def learning_rate(options: OptimizerOptions, step: int) -> float:
    """The rate of step `step`, counted from 0."""
    warmup = max(1, options.warmup_steps)
    return options.learning_rate * min(1.0, (step + 1) / warmup)


class EMA:
    """A generator whose parameters are the exponential average of another's; it starts as its copy.

    Buffers are not averaged: both have the same ones.
    """

    def __init__(self, generator: Generator, decay: float) -> None:
        self.decay = decay
        self.generator = copy.deepcopy(generator, {id(buffer): buffer for buffer in generator.buffers()})
        self.generator.requires_grad_(False).eval()
        self._parameters: list[Tensor] = list(self.generator.parameters())
        self._followed: list[Tensor] = list(generator.parameters())

    @torch.no_grad()
    def update(self) -> None:
        """One step towards the parameters as they are."""
        torch._foreach_lerp_(self._parameters, self._followed, 1 - self.decay)

    def tensors(self) -> dict[str, Tensor]:
        """Parameters and buffers by name."""
        return dict(self.generator.state_dict())

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over the averages of a checkpoint."""
        self.generator.load_state_dict(dict(tensors))


Tensors = dict[str, dict[str, Tensor]]
MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class TrainingState:
    """The generator with its optimizer and average."""

    def __init__(self, generator: Generator, options: OptimizerOptions, *, compiled: bool = False) -> None:
        self.generator = generator
        self.call = torch.compile(generator) if compiled else generator
        trained = {name: each for name, each in generator.named_parameters() if each.requires_grad}
        self.names, self.parameters = list(trained), list(trained.values())
        self.average = EMA(generator, options.ema)
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=options.learning_rate,
            betas=(options.beta1, options.beta2),
            weight_decay=options.weight_decay,
            fused=True,
        )

    def advance(self, learning_rate: float, finite: Tensor) -> None:
        """One step of AdamW with the gradients that are there, none where `finite` is false; one of the average."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        # What GradScaler uses: the fused step looks at it on the device.
        self.optimizer.found_inf = (~finite).to(torch.float32)  # type: ignore[attr-defined]
        self.optimizer.step()
        self.average.update()

    def tensors(self) -> Tensors:
        """Everything by file and name."""
        moments = {
            f"{name}.{moment}": self.optimizer.state[parameter][moment]
            for name, parameter in zip(self.names, self.parameters, strict=True)
            if parameter in self.optimizer.state
            for moment in MOMENTS
        }
        return {"generator": dict(self.generator.state_dict()), "ema": self.average.tensors(), "optimizer": moments}

    def load(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Take over what `tensors` gave."""
        _require_fit(tensors["generator"], self.generator.state_dict())
        self.generator.load_state_dict(dict(tensors["generator"]))
        self.average.load(tensors["ema"])
        moments = tensors["optimizer"]
        for name, parameter in zip(self.names, self.parameters, strict=True):
            if f"{name}.step" in moments:
                self.optimizer.state[parameter] = {
                    moment: moments[f"{name}.{moment}"].to(parameter.device).clone() for moment in MOMENTS
                }

    def agree(self, *, begun: bool) -> None:
        """All processes take over the state of process 0; AdamW has moments once the run has begun."""
        if begun:
            for parameter in self.parameters:
                if parameter not in self.optimizer.state:  # as AdamW makes them
                    zeros = (torch.zeros_like(parameter), torch.zeros_like(parameter), parameter.new_zeros(()).float())
                    self.optimizer.state[parameter] = dict(zip(MOMENTS, zeros, strict=True))
        with torch.no_grad():
            distributed.broadcast_tensors([tensor for file in self.tensors().values() for tensor in file.values()])


def _require_fit(saved: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """A generator of the user's own may have another shape than the one that the run began with."""
    for name in sorted(saved.keys() | wanted.keys()):
        sizes = [list(tensors[name].shape) if name in tensors else "none" for tensors in (saved, wanted)]
        if sizes[0] != sizes[1]:
            raise UserError(
                f"{name} of the generator is {sizes[1]}",
                f"the checkpoint has {sizes[0]}",
                "build the generator that the run began with, or begin another run",
            )
