"""Generators (z, c) → sample, sampling from them, and loading saved ones."""

from truedrift.generators.base import Generator
from truedrift.generators.catalog import OPTIONS, GeneratorOptions, build
from truedrift.generators.drift_dit import DriftDiT, DriftDiTOptions
from truedrift.generators.mlp import MLP, MLPOptions
from truedrift.generators.pretrained import convert_published, from_pretrained, load_published
from truedrift.generators.sampling import draw_inputs, sample

__all__ = [
    "MLP",
    "OPTIONS",
    "DriftDiT",
    "DriftDiTOptions",
    "Generator",
    "GeneratorOptions",
    "MLPOptions",
    "build",
    "convert_published",
    "draw_inputs",
    "from_pretrained",
    "load_published",
    "sample",
]
