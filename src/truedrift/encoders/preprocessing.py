"""Preprocessing of images in [−1, 1] for networks trained on ImageNet: RGB, resizing, (u − mean)/std of u in [0, 1].

Normalization comes before resizing, where there are fewer pixels: bilinear weights sum to 1, so the two commute.
"""

import torch
from torch import nn
from torch.nn import functional as F

from truedrift.axes import Float, Tensor

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def rgb(values: Float[Tensor, "B C H W"]) -> Float[Tensor, "B 3 H W"]:
    """Repeat the channel of gray images three times."""
    return values.expand(-1, 3, -1, -1)


class ImageNetNormalization(nn.Module):
    """((v + 1)/2 − mean)/std of values v in [−1, 1].

    The statistics are buffers, so that they are on the device of the network and no call waits for a copy.
    """

    center: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("center", 2 * torch.tensor(IMAGENET_MEAN).view(3, 1, 1) - 1, persistent=False)
        self.register_buffer("scale", 2 * torch.tensor(IMAGENET_STD).view(3, 1, 1), persistent=False)

    def forward(self, values: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B 3 H W"]:
        return (values - self.center) / self.scale


def resize(values: Float[Tensor, "B C H W"], side: int) -> Float[Tensor, "B C {side} {side}"]:
    """Resize bilinearly to side × side, with pixel centers at half-integers (align_corners=False).

    Larger images are smoothed first (antialias); for smaller ones that would change nothing.
    """
    height = values.shape[-2]
    if height == side:
        return values
    return F.interpolate(values, (side, side), mode="bilinear", align_corners=False, antialias=height > side)
