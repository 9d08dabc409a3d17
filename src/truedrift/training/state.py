"""What a step changes: weights, their average, the moments of AdamW. It goes to disk and back bit for bit."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from truedrift import collectives
from truedrift.axes import Tensor
from truedrift.generators.base import Generator
from truedrift.training.config import OptimizerOptions
from truedrift.training.ema import Average
from truedrift.validation import mistake

Tensors = dict[str, dict[str, Tensor]]
MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class TrainingState:
    """The generator with its optimizer and average."""

    def __init__(self, generator: Generator, options: OptimizerOptions, *, compiled: bool = False) -> None:
        self.generator = generator
        self.call = torch.compile(generator) if compiled else generator
        trained = {name: each for name, each in generator.named_parameters() if each.requires_grad}
        self.names, self.parameters = list(trained), list(trained.values())
        self.average = Average(generator, options.ema)
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
            collectives.copy_from_first([tensor for file in self.tensors().values() for tensor in file.values()])


def _require_fit(saved: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """A generator of the user's own may have another shape than the one that the run began with."""
    for name in sorted(saved.keys() | wanted.keys()):
        sizes = [list(tensors[name].shape) if name in tensors else "none" for tensors in (saved, wanted)]
        if sizes[0] != sizes[1]:
            raise mistake(
                f"{name} of the generator is {sizes[1]}",
                f"the checkpoint has {sizes[0]}",
                "build the generator that the run began with, or begin another run",
            )
