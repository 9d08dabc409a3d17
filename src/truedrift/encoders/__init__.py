"""Image → features: frozen encoders, the pooling of their maps, and groups of several sizes as one tensor."""

from truedrift.encoders.base import Encoder
from truedrift.encoders.catalog import OPTIONS, build
from truedrift.encoders.convnet import ConvNetOptions
from truedrift.encoders.pixels import PixelsOptions
from truedrift.encoders.scales import gradient_weights, stack

__all__ = ["OPTIONS", "ConvNetOptions", "Encoder", "PixelsOptions", "build", "gradient_weights", "stack"]
