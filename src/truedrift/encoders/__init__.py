"""Image → features: frozen encoders, the pooling of their maps, and groups of several sizes as one tensor."""

from truedrift.encoders.base import Encoder
from truedrift.encoders.catalog import OPTIONS, build
from truedrift.encoders.convnet import ConvNetOptions
from truedrift.encoders.pixels import PixelsOptions
from truedrift.encoders.scales import gradient_weights, stack

EncoderOptions = PixelsOptions | ConvNetOptions
"""Of an encoder by name."""

__all__ = [
    "OPTIONS",
    "ConvNetOptions",
    "Encoder",
    "EncoderOptions",
    "PixelsOptions",
    "build",
    "gradient_weights",
    "stack",
]
