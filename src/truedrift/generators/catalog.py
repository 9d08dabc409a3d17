"""Table of the generators by name, and `build`, which makes one from its options."""

from typing import Any

from truedrift.errors import UserError
from truedrift.generators.base import Generator
from truedrift.generators.conv import ConvGenerator, ConvOptions
from truedrift.generators.drift_dit import DriftDiT, DriftDiTOptions
from truedrift.generators.mlp import MLP, MLPOptions
from truedrift.generators.unet import UNetGenerator, UNetOptions
from truedrift.seeding import stream

GeneratorOptions = MLPOptions | ConvOptions | UNetOptions | DriftDiTOptions
"""Options of any of the generators."""

GENERATORS: dict[str, type[Generator]] = {
    each.architecture: each for each in (MLP, ConvGenerator, UNetGenerator, DriftDiT)
}
OPTIONS: dict[str, type[Any]] = {name: each.options_type for name, each in GENERATORS.items()}


def build(options: GeneratorOptions, *, sample_shape: tuple[int, ...], classes: int, seed: int) -> Generator:
    """Build the generator of these options, with parameters drawn from the stream (seed, "generator").

    Args:
        options: Options of one of the generators; their type selects it.
        sample_shape: (D,) for points or (C, H, W) for images.
        classes: Number of classes C ≥ 1. The generator also takes the label C, the null class.
        seed: Seed of the parameters.

    Returns:
        The generator in float32 on the CPU, in training mode.

    Raises:
        UserError: If the options belong to no generator, or do not fit `sample_shape`.

    Example:
        >>> generator = build(MLPOptions(width=8, depth=1), sample_shape=(2,), classes=1, seed=0)
        >>> sum(parameter.numel() for parameter in generator.parameters())
        1202
    """
    for network in GENERATORS.values():
        if isinstance(options, network.options_type):
            make: Any = network  # whose options these are
            generator: Generator = make(
                options, sample_shape=sample_shape, classes=classes, generator=stream(seed, "generator")
            )
            return generator
    names = ", ".join(each.__name__ for each in OPTIONS.values())
    raise UserError(f"options is a {type(options).__name__}", f"must be one of {names}", "pass one of these")
