"""Generators (z, c) → sample, sampling from them, and loading saved ones."""

from truedrift.generators.base import Generator
from truedrift.generators.catalog import OPTIONS, build
from truedrift.generators.drift_dit import DriftDiT, DriftDiTOptions
from truedrift.generators.mlp import MLP, MLPOptions
from truedrift.generators.pretrained import from_pretrained
from truedrift.generators.sampling import draw_inputs, sample

GeneratorOptions = MLPOptions | DriftDiTOptions
"""Options of any generator, distinguished by `kind`."""

__all__ = [
    "MLP",
    "OPTIONS",
    "DriftDiT",
    "DriftDiTOptions",
    "Generator",
    "GeneratorOptions",
    "MLPOptions",
    "build",
    "draw_inputs",
    "from_pretrained",
    "sample",
]
