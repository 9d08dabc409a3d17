"""Generators (z, c) → sample, sampling from them, and loading saved ones."""

from truedrift.generators.base import Generator
from truedrift.generators.catalog import OPTIONS, GeneratorOptions, build
from truedrift.generators.conv import ConvGenerator, ConvOptions
from truedrift.generators.drift_dit import DriftDiT, DriftDiTOptions
from truedrift.generators.mlp import MLP, MLPOptions
from truedrift.generators.pretrained import convert_published, from_pretrained, load_published
from truedrift.generators.sampling import draw_inputs, sample
from truedrift.generators.unet import UNetGenerator, UNetOptions

__all__ = [
    "MLP",
    "OPTIONS",
    "ConvGenerator",
    "ConvOptions",
    "DriftDiT",
    "DriftDiTOptions",
    "Generator",
    "GeneratorOptions",
    "MLPOptions",
    "UNetGenerator",
    "UNetOptions",
    "build",
    "convert_published",
    "draw_inputs",
    "from_pretrained",
    "load_published",
    "sample",
]
