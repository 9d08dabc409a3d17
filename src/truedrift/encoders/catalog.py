"""Encoders by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from truedrift.encoders.base import Encoder, Pixels, PixelsOptions
from truedrift.encoders.convnet import ConvNet, ConvNetOptions
from truedrift.encoders.dinov2 import DINOv2, DINOv2Options
from truedrift.encoders.efficientnet_lite0 import EfficientNetLite0, EfficientNetLite0Options
from truedrift.errors import UserError

OPTIONS: dict[str, type] = {
    "pixels": PixelsOptions,
    "convnet": ConvNetOptions,
    "dinov2": DINOv2Options,
    "efficientnet-lite0": EfficientNetLite0Options,
}
"""The options of every encoder; their defaults are its settings."""

_ENCODERS: dict[type, type[Any]] = {
    PixelsOptions: Pixels,
    ConvNetOptions: ConvNet,
    DINOv2Options: DINOv2,
    EfficientNetLite0Options: EfficientNetLite0,
}


def build(options: object, *, sample_shape: Sequence[int]) -> Encoder:
    """The frozen encoder of these options for samples of this shape: (D,) or (C, H, W)."""
    encoder = _ENCODERS.get(type(options))
    if encoder is None:
        names = ", ".join(each.__name__ for each in OPTIONS.values())
        raise UserError(f"options is a {type(options).__name__}", f"allowed are {names}", "pass one of these")
    return encoder(options, sample_shape=sample_shape)
