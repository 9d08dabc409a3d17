"""A run's parts that are Python objects of the user's: data, generator, encoder, kernel, estimators.

They stand in place of what the configuration names. A run remembers what they are called, and is resumed only with
parts of the same names; that they are the same inside is the user's word.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from torch import nn

from truedrift.axes import Tensor
from truedrift.centroids.base import Estimator
from truedrift.data.samples import Samples
from truedrift.generators.base import Generator
from truedrift.kernels.kernel import LogKernel
from truedrift.validation import mistake

OF_A_GENERATOR = ("noise_shape", "sample_shape", "classes", "style_draws", "style_entries")
"""What a generator must say of itself (`generators/base.py`)."""


def _generates(part: Any) -> bool:
    return isinstance(part, nn.Module) and all(hasattr(part, name) for name in OF_A_GENERATOR)


_ESTIMATOR = (lambda part: isinstance(part, Estimator), "an object with name, bias_order, budget and reweight")
ALLOWED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "samples": (lambda part: isinstance(part, Samples), "a truedrift.data.Samples"),
    "generator": (_generates, f"a module with {', '.join(OF_A_GENERATOR)}"),
    "encoder": (callable, "a function of values [B, *sample_shape]"),
    "kernel": (callable, "a function (x, y, tau) → log k"),
    "estimator_pos": _ESTIMATOR,
    "estimator_neg": _ESTIMATOR,
}
"""Whether an object can be that part, and what can."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What is given replaces what the configuration names."""

    samples: Samples | None = None
    generator: Generator | Any | None = None
    """A `Generator` or any module with its attributes; its weights as they are at the start of a new run."""
    encoder: Callable[[Tensor], tuple[Tensor, ...]] | None = None
    """values [B, *sample_shape] in [−1, 1] → one tensor [B, D_s] a scale; a module is frozen."""
    kernel: LogKernel | None = None
    estimator_pos: Estimator | None = None
    estimator_neg: Estimator | None = None

    def __post_init__(self) -> None:
        for name, (fits, told) in ALLOWED.items():
            part = getattr(self, name)
            if part is not None and (isinstance(part, type) or not fits(part)):
                came = f"the class {part.__name__}" if isinstance(part, type) else f"a {type(part).__name__}"
                raise mistake(f"the part {name} is {came}", f"allowed is {told}", "pass such an object")

    def names(self) -> dict[str, str]:
        """What stands in place of what, for config.json."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: _name(part) for name, part in given.items() if part is not None}


def _name(part: Any) -> str:
    if isinstance(part, Samples):
        return f"{part.name} {part.digest()[:12]}"
    named = part if hasattr(part, "__qualname__") else type(part)
    return f"{named.__module__}.{named.__qualname__}"
