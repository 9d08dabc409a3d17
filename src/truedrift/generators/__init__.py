"""(z, c) → image: generators, how to sample from them, and how to keep them."""

from truedrift.generators.base import Generator
from truedrift.generators.catalog import OPTIONS, build
from truedrift.generators.drift_dit import DriftDiT, DriftDiTOptions
from truedrift.generators.mlp import MLP, MLPOptions
from truedrift.generators.pretrained import from_pretrained
from truedrift.generators.sampling import draws, sample

__all__ = [
    "MLP",
    "OPTIONS",
    "DriftDiT",
    "DriftDiTOptions",
    "Generator",
    "MLPOptions",
    "build",
    "draws",
    "from_pretrained",
    "sample",
]
