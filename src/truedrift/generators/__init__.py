"""Generators (z, c) → sample, sampling from them, and loading saved ones."""

from truedrift.generators.base import Generator
from truedrift.generators.catalog import OPTIONS, GeneratorOptions, build
from truedrift.generators.conv import ConvGenerator, ConvOptions
from truedrift.generators.drift_dit import DriftDiT, DriftDiTOptions
from truedrift.generators.mlp import MLP, MLPOptions
from truedrift.generators.pretrained import (
    PretrainedModel,
    convert_published,
    find_pretrained,
    from_pretrained,
    is_pretrained,
    load_published,
    pretrained_names,
)
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
    "PretrainedModel",
    "UNetGenerator",
    "UNetOptions",
    "build",
    "convert_published",
    "draw_inputs",
    "find_pretrained",
    "from_pretrained",
    "is_pretrained",
    "load_published",
    "pretrained_names",
    "sample",
]
