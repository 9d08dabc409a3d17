"""Frozen encoders from samples to feature groups, and stacking of groups of different sizes into one tensor."""

from truedrift.encoders.base import Encoder, MapEncoder, Pixels, PixelsOptions, gradient_weights, stack_padded
from truedrift.encoders.catalog import OPTIONS, EncoderOptions, build
from truedrift.encoders.convnet import ConvNetOptions
from truedrift.encoders.dinov2 import DINOv2Options
from truedrift.encoders.efficientnet_lite0 import EfficientNetLite0Options
from truedrift.encoders.pooling import GroupShape
from truedrift.encoders.resnet import OwnEncoderOptions, ResNetOptions, hash_encoder

__all__ = [
    "OPTIONS",
    "ConvNetOptions",
    "DINOv2Options",
    "EfficientNetLite0Options",
    "Encoder",
    "EncoderOptions",
    "GroupShape",
    "MapEncoder",
    "OwnEncoderOptions",
    "Pixels",
    "PixelsOptions",
    "ResNetOptions",
    "build",
    "gradient_weights",
    "hash_encoder",
    "stack_padded",
]
