"""Table of the encoders by name, and `build`, which makes one from its options."""

from collections.abc import Sequence
from typing import Any

from truedrift.encoders.base import Encoder, Pixels, PixelsOptions
from truedrift.encoders.convnet import ConvNet, ConvNetOptions
from truedrift.encoders.dinov2 import DINOv2, DINOv2Options
from truedrift.encoders.efficientnet_lite0 import EfficientNetLite0, EfficientNetLite0Options
from truedrift.encoders.resnet import OwnEncoder, OwnEncoderOptions
from truedrift.errors import UserError

EncoderOptions = PixelsOptions | ConvNetOptions | EfficientNetLite0Options | DINOv2Options | OwnEncoderOptions
"""Options of any of the encoders."""

_ENCODERS: tuple[type[Any], ...] = (Pixels, ConvNet, DINOv2, EfficientNetLite0, OwnEncoder)

OPTIONS: dict[str, type[Any]] = {each.options_type.kind: each.options_type for each in _ENCODERS}
"""Options type of every encoder by name."""


def build(options: object, *, sample_shape: Sequence[int]) -> Encoder:
    """Build the frozen encoder of these options.

    Args:
        options: Options of one of the encoders; their type selects it.
        sample_shape: (D,) for points or (C, H, W) for images.

    Returns:
        The encoder on the CPU, in evaluation mode. It maps values [B, *sample_shape] in [−1, 1] to one tensor [B, D_s]
        per group.

    Raises:
        UserError: If the options belong to no encoder, the encoder cannot take samples of this shape, or its weights
            are missing.

    Example:
        >>> import torch
        >>> encoder = build(ConvNetOptions(channels=(4, 8)), sample_shape=(3, 16, 16))
        >>> [tuple(group.shape) for group in encoder(torch.zeros(5, 3, 16, 16))]
        [(5, 4), (5, 8)]
    """
    for encoder in _ENCODERS:
        if isinstance(options, encoder.options_type):
            built: Encoder = encoder(options, sample_shape=sample_shape)
            return built
    names = ", ".join(each.__name__ for each in OPTIONS.values())
    raise UserError(f"options is a {type(options).__name__}", f"must be one of {names}", "pass one of these")
