"""What a step changes: the weights, their exponential averages, and the moments of AdamW.

    learning rate   lr_t = lr · min(1, (t + 1)/W), a linear warm-up over W steps; t = 0 is the first step
    cosine          after the warm-up, lr_t = lr · (f + (1 − f)(1 + cos(π (t + 1 − W)/(T − W)))/2), f · lr at t = T − 1
    average         θ̄ ← θ̄ + (1 − β)(θ − θ̄) after every step; samples are drawn from the averaged weights
    ema_warmup      β_t = min(β, (1 + t)/(10 + t)) in place of β at update t = 1, 2, …, so that a short run forgets its
                    initial weights

The state is written to disk and restored bit for bit.
"""

import copy
import math
from collections.abc import Mapping
from typing import Generic, TypeVar

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from truedrift import distributed
from truedrift.axes import Tensor
from truedrift.errors import UserError
from truedrift.training.config import OptimizerOptions


def learning_rate(options: OptimizerOptions, step: int, steps: int | None = None) -> float:
    """Return the learning rate lr_t of a step.

    Args:
        options: The learning rate lr, the number W of warm-up steps (0: none), the schedule, and its final fraction f.
        step: The number t of the step, counted from 0.
        steps: The number T of steps of the whole run, which the schedule `cosine` needs.

    Returns:
        lr · min(1, (t + 1)/W), and with the schedule `cosine` the formula above after the warm-up. Steps after the last
        one keep its learning rate.

    Example:
        >>> learning_rate(OptimizerOptions(learning_rate=0.001, warmup_steps=10), 4)
        0.0005
        >>> cosine = OptimizerOptions(learning_rate=0.5, warmup_steps=0, schedule="cosine", final_fraction=0.25)
        >>> [learning_rate(cosine, step, 3) for step in range(3)]
        [0.5, 0.3125, 0.125]
    """
    warmup = max(1, options.warmup_steps)
    if options.schedule == "constant" or step < warmup:
        return options.learning_rate * min(1.0, (step + 1) / warmup)
    if steps is None:
        raise UserError(
            "is cosine and the number of steps is not given",
            "cosine needs the length of the run",
            "pass steps, or set optimizer.schedule=constant",
            field="optimizer.schedule",
        )
    progress = min(1.0, (step + 1 - warmup) / max(1, steps - warmup))
    fraction = options.final_fraction
    return options.learning_rate * (fraction + (1 - fraction) * (1 + math.cos(math.pi * progress)) / 2)


def average_decay(decay: float, step: int, *, warmup: bool = False) -> float:
    """Return the decay of the average after a step.

    Args:
        decay: The decay β of the average.
        step: The number of the step, counted from 0; its update has t = step + 1.
        warmup: Whether β_t = min(β, (1 + t)/(10 + t)), the option `optimizer.ema_warmup`.

    Returns:
        β, or β_t with `warmup`.

    Example:
        >>> [average_decay(0.75, step, warmup=True) for step in (0, 7, 98)]
        [0.18181818181818182, 0.5, 0.75]
    """
    t = step + 1
    return min(decay, (1 + t) / (10 + t)) if warmup else decay


Network = TypeVar("Network", bound=nn.Module)
"""A generator, or the autoencoder that trains an encoder."""


class EMA(Generic[Network]):
    """A copy of a generator whose parameters are the exponential moving average of the original's.

    Buffers are shared, not averaged.

    Args:
        generator: The network that is trained. The average starts at its current weights.
        decay: β of θ̄ ← θ̄ + (1 − β)(θ − θ̄); 0 copies the weights at every update.
        warmup: Whether the first updates have smaller decays, see `average_decay`.
    """

    def __init__(self, generator: Network, decay: float, *, warmup: bool = False) -> None:
        self.generator = copy.deepcopy(generator, {id(buffer): buffer for buffer in generator.buffers()})
        self.generator.requires_grad_(False).eval()
        self._averages = list(self.generator.parameters())
        self._parameters = list(generator.parameters())
        self._decay, self._warmup = decay, warmup

    def update(self, step: int) -> None:
        """Move the averages toward the current parameters, after step number `step`, counted from 0."""
        move_averages = get_ema_multi_avg_fn(average_decay(self._decay, step, warmup=self._warmup))
        move_averages(self._averages, self._parameters, 0)

    def tensors(self) -> dict[str, Tensor]:
        """Return parameters and buffers by name."""
        return dict(self.generator.state_dict())

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the averages of a checkpoint."""
        self.generator.load_state_dict(dict(tensors))


Tensors = dict[str, dict[str, Tensor]]
MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def average_file(decay: float) -> str:
    """Return the file of a further average in a checkpoint, without its suffix; the main one is in `ema`."""
    return f"ema-{decay!r}"


class TrainingState(Generic[Network]):
    """A generator with its optimizer and the averages of its weights.

    Args:
        generator: The network, on the device and in the dtype of the run. Frozen parameters stay as they are.
        options: Options of AdamW and of the averages.
        compiled: Whether to compile the generator with `torch.compile`.
    """

    def __init__(self, generator: Network, options: OptimizerOptions, *, compiled: bool = False) -> None:
        self.generator = generator
        self.call = torch.compile(generator) if compiled else generator
        trained = {name: each for name, each in generator.named_parameters() if each.requires_grad}
        self.names, self.parameters = list(trained), list(trained.values())
        self.average = EMA(generator, options.ema, warmup=options.ema_warmup)
        self.more_averages = {decay: EMA(generator, decay, warmup=options.ema_warmup) for decay in options.more_ema}
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=options.learning_rate,
            betas=(options.beta1, options.beta2),
            weight_decay=options.weight_decay,
            fused=True,
        )

    def advance(self, step: int, learning_rate: float, finite: Tensor) -> None:
        """Take one AdamW step with the current gradients and update the averages; skip AdamW if `finite` is False.

        Args:
            step: The number of the step, counted from 0.
            learning_rate: Its learning rate.
            finite: Scalar: whether loss and gradient are finite.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        # The interface of GradScaler: the fused step reads this flag on the device.
        self.optimizer.found_inf = (~finite).to(torch.float32)  # type: ignore[attr-defined]
        self.optimizer.step()
        for average in (self.average, *self.more_averages.values()):
            average.update(step)

    def tensors(self) -> Tensors:
        """Return all tensors by file and name."""
        moments = {
            f"{name}.{moment}": self.optimizer.state[parameter][moment]
            for name, parameter in zip(self.names, self.parameters, strict=True)
            if parameter in self.optimizer.state
            for moment in MOMENTS
        }
        more = {average_file(decay): average.tensors() for decay, average in self.more_averages.items()}
        averages = {"ema": self.average.tensors(), **more}
        return {"generator": dict(self.generator.state_dict()), **averages, "optimizer": moments}

    def load(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Restore what `tensors` returned."""
        _require_fit(tensors["generator"], self.generator.state_dict())
        self.generator.load_state_dict(dict(tensors["generator"]))
        self.average.load(tensors["ema"])
        for decay, average in self.more_averages.items():
            average.load(tensors[average_file(decay)])
        moments = tensors["optimizer"]
        for name, parameter in zip(self.names, self.parameters, strict=True):
            if f"{name}.step" in moments:
                if any(moments[f"{name}.{moment}"].shape != parameter.shape for moment in MOMENTS[:2]):
                    raise ValueError(f"the moments of {name} have another shape")
                self.optimizer.state[parameter] = {
                    moment: moments[f"{name}.{moment}"].to(parameter.device).clone() for moment in MOMENTS
                }

    def broadcast(self, *, started: bool) -> None:
        """Give all processes the state of rank 0. AdamW has moments once the run has started."""
        if started:
            for parameter in self.parameters:
                if parameter not in self.optimizer.state:  # the initial moments of AdamW
                    zeros = (torch.zeros_like(parameter), torch.zeros_like(parameter), parameter.new_zeros(()).float())
                    self.optimizer.state[parameter] = dict(zip(MOMENTS, zeros, strict=True))
        with torch.no_grad():
            distributed.broadcast_tensors([tensor for file in self.tensors().values() for tensor in file.values()])


def _require_fit(saved: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Require the shapes of the checkpoint. A user's own generator may differ from the one that started the run."""
    for name in sorted(saved.keys() | wanted.keys()):
        sizes = [list(tensors[name].shape) if name in tensors else "none" for tensors in (saved, wanted)]
        if sizes[0] != sizes[1]:
            raise UserError(
                f"{name} of the generator has shape {sizes[1]}",
                f"must have shape {sizes[0]} as in the checkpoint",
                "build the generator that started the run, or start another run",
            )
