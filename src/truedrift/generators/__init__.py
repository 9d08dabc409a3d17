"""(z, c) → image: generators, how to sample from them, and how to keep them."""

from truedrift.generators.base import Generator
from truedrift.generators.catalog import OPTIONS, build
from truedrift.generators.drift_dit import DriftDiT, DriftDiTOptions
from truedrift.generators.mlp import MLP, MLPOptions
from truedrift.generators.pretrained import from_pretrained
from truedrift.generators.sampling import draw_inputs, sample

GeneratorOptions = MLPOptions | DriftDiTOptions
"""Of a generator by name."""

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
