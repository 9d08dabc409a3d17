"""Image → features: frozen encoders, the pooling of their maps, and groups of several sizes as one tensor."""

from truedrift.encoders.base import Encoder, PixelsOptions, gradient_weights, stack_padded
from truedrift.encoders.catalog import OPTIONS, build
from truedrift.encoders.convnet import ConvNetOptions
from truedrift.encoders.dinov2 import DINOv2Options
from truedrift.encoders.efficientnet_lite0 import EfficientNetLite0Options

EncoderOptions = PixelsOptions | ConvNetOptions | EfficientNetLite0Options | DINOv2Options
"""Of an encoder by name."""

__all__ = [
    "OPTIONS",
    "ConvNetOptions",
    "DINOv2Options",
    "EfficientNetLite0Options",
    "Encoder",
    "EncoderOptions",
    "PixelsOptions",
    "build",
    "gradient_weights",
    "stack_padded",
]
