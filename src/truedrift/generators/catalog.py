"""Generators by name, and a generator from its options."""

from __future__ import annotations

from typing import Any

from truedrift.errors import UserError
from truedrift.generators.base import Generator
from truedrift.generators.drift_dit import DriftDiT, DriftDiTOptions
from truedrift.generators.mlp import MLP, MLPOptions
from truedrift.seeding import stream

GENERATORS: dict[str, type[DriftDiT] | type[MLP]] = {each.architecture: each for each in (MLP, DriftDiT)}
OPTIONS: dict[str, type[Any]] = {name: each.options_type for name, each in GENERATORS.items()}


def build(
    options: MLPOptions | DriftDiTOptions, *, sample_shape: tuple[int, ...], classes: int, seed: int
) -> Generator:
    """The generator of these options, its parameters drawn from the stream (seed, "generator")."""
    for each in GENERATORS.values():
        if isinstance(options, each.options_type):
            generator = each(options, sample_shape=sample_shape, classes=classes)  # type: ignore[arg-type]
            generator.initialize(stream(seed, "generator"))
            return generator
    names = ", ".join(each.__name__ for each in OPTIONS.values())
    raise UserError(f"options are a {type(options).__name__}", f"allowed are {names}", "make one of these")
