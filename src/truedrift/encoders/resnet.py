"""A small residual network as an encoder of one's own: trained on the user's images by `truedrift train-encoder`.

    h_0 = relu(norm(conv(x)))                                  tap 0, the size of the image
    h_s = block(… block(h_{s−1})),  s = 1 … S                  the first block of stages 2 … S halves the map
    block(h) = relu(skip(h) + norm(conv(relu(norm(conv(h))))))  3×3 convolutions; skip is 1×1 where the shape changes

All norms are group normalizations of 8 channels per group. Stage s has width · 2^(s−1) channels. The map of tap s ≥ 1
is h_s after one more group normalization without weights, as in the official code, so that the taps have the same
scale.

`truedrift train-encoder` trains the network as a masked autoencoder (`truedrift.training.autoencoder`). A complete run
holds encoder.safetensors: the averaged weights, the layout of the network and the shape of the images.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import nn
from torch.nn import functional as F

from truedrift.axes import Float, Tensor
from truedrift.encoders.base import MapEncoder, require_image
from truedrift.encoders.pooling import parse_poolings
from truedrift.errors import UserError, require_integer, require_integers
from truedrift.options import use_plain_integers
from truedrift.storage import hash_tensors, read_tensors, write_tensors

WEIGHTS = "encoder.safetensors"
"""The file in the run directory."""
GROUP = 8
"""Channels per group of the normalizations."""
DEFAULT_TAPS = (2, 3, 4)
"""The last three of the four stages that a network has by default."""
_LAYOUT, _SHAPE = "layout", "sample_shape"
"""Names of two integer tensors beside the weights: width and blocks per stage; shape of the images."""

# ---- Network ----


@dataclass(frozen=True, kw_only=True)
class ResNetOptions:
    """Size of a `ResNet`; the defaults suit 32×32 images on a CPU."""

    width: int = 32
    """Channels of the first stage, a multiple of 8; each further stage has twice as many."""
    blocks: tuple[int, ...] = (1, 1, 1, 1)
    """Residual blocks per stage; each further stage has maps of half the size."""

    def __post_init__(self) -> None:
        use_plain_integers(self)
        require_integer("width", self.width, GROUP, 32)
        if self.width % GROUP:
            fix = "pass for example 32"
            raise UserError(f"is {self.width}", f"must be a multiple of {GROUP}", fix, field="width")
        require_integers("blocks", self.blocks, 1)

    @property
    def channels(self) -> tuple[int, ...]:
        """Channels of every tap: the first convolution, then the stages."""
        return (self.width, *(self.width * 2**stage for stage in range(len(self.blocks))))


class ResNet(nn.Module):
    """Network that returns the map of the first convolution and the normalized map of every stage.

    Args:
        channels: Channels of the images.
        options: Size of the network.
        stages: Number of stages to build; None for all.

    Example:
        >>> network = ResNet(3, ResNetOptions(width=8, blocks=(1, 2)))
        >>> [tuple(each.shape) for each in network(torch.zeros(5, 3, 16, 16))]
        [(5, 8, 16, 16), (5, 8, 16, 16), (5, 16, 8, 8)]
    """

    def __init__(self, channels: int, options: ResNetOptions, stages: int | None = None) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, options.width, 3, padding=1, bias=False)
        self.norm = group_norm(options.width)
        sizes = list(zip(options.channels, options.channels[1:], options.blocks, strict=False))[:stages]
        self.stages = nn.ModuleList(
            nn.Sequential(
                BasicBlock(inside, outside, stride=1 if stage == 0 else 2),
                *(BasicBlock(outside, outside) for _ in range(blocks - 1)),
            )
            for stage, (inside, outside, blocks) in enumerate(sizes)
        )

    def forward(self, values: Float[Tensor, "B C H W"]) -> list[Tensor]:
        # On a CPU, convolutions of maps in this layout are faster.
        h = F.relu(self.norm(self.stem(values.contiguous(memory_format=torch.channels_last))))
        maps = [h]
        for stage in self.stages:
            h = stage(h)
            maps.append(F.group_norm(h, h.shape[1] // GROUP))
        return maps


class BasicBlock(nn.Module):
    """relu(skip(h) + norm(conv(relu(norm(conv(h))))))."""

    def __init__(self, inside: int, outside: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.norm1, self.norm2 = group_norm(outside), group_norm(outside)
        same_shape = inside == outside and stride == 1
        self.skip = nn.Identity() if same_shape else nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, h: Float[Tensor, "B C h w"]) -> Float[Tensor, "B C2 h2 w2"]:
        inside = F.relu(self.norm1(self.conv1(h)))
        return F.relu(self.skip(h) + self.norm2(self.conv2(inside)))


def group_norm(channels: int) -> nn.GroupNorm:
    """Return a group normalization of 8 channels per group, with scale and shift."""
    return nn.GroupNorm(channels // GROUP, channels)


def initialize_weights(network: nn.Module, generator: torch.Generator) -> None:
    """Draw the weights of convolutions and linear layers, N(0, 2/fan-in); scales become 1, shifts 0."""
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.ndim > 1:
                std = math.sqrt(2 / parameter[0].numel())
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)
            else:
                parameter.fill_(1.0 if name.endswith("weight") else 0.0)


# ---- Weights of a run ----


def save_encoder(run: Path, weights: Mapping[str, Tensor], options: ResNetOptions, sample_shape: Sequence[int]) -> None:
    """Write the weights of a trained `ResNet`, its size and the shape of its images to RUN/encoder.safetensors."""
    layout = {_LAYOUT: torch.tensor((options.width, *options.blocks)), _SHAPE: torch.tensor(tuple(sample_shape))}
    write_tensors(run / WEIGHTS, {**weights, **layout})


def read_encoder(run: Path) -> dict[str, Tensor]:
    """Read what `save_encoder` wrote.

    Raises:
        UserError: If the directory does not exist, or holds no complete encoder.
    """
    allowed = "must be the directory of a complete run of truedrift train-encoder"
    if not run.is_dir():
        fix = "pass the path that `truedrift train-encoder` printed"
        raise UserError(f"is {str(run)!r}, which does not exist", allowed, fix, field="run")
    tensors = read_tensors(run / WEIGHTS)
    if tensors is None:
        problem = f"is {str(run)!r}, where {WEIGHTS} is missing or damaged"
        raise UserError(problem, allowed, "run the same train-encoder command again to complete it", field="run")
    return tensors


def hash_encoder(run: Path) -> str:
    """Return twelve hexadecimal digits that identify the weights of a run, for `OwnEncoderOptions.weights`."""
    return hash_tensors(read_encoder(run))[:12]


# ---- Encoder ----


@dataclass(frozen=True, kw_only=True)
class OwnEncoderOptions:
    """Options of `OwnEncoder`, which has one feature group per tap (several with some poolings)."""

    kind: Literal["own"] = "own"
    run: str = ""
    """Directory of a complete run of `truedrift train-encoder`."""
    taps: tuple[int, ...] = DEFAULT_TAPS
    """Stages whose maps are used; 0 is the first convolution. Later stages are not computed. For a network of fewer
    than four stages, 2, 3, 4 stands for its last three stages, or for all of them if there are fewer."""
    pooling: str = "mean"
    """How feature maps become groups, see `truedrift.encoders.pooling`: one name, or one per tap with commas."""
    weights: str | None = None
    """The weights that the run must hold (`hash_encoder`), so that a run cannot be resumed with others; none: any."""

    def __post_init__(self) -> None:
        use_plain_integers(self)
        require_integers("taps", self.taps, 0, ascending=True)
        parse_poolings(self.pooling, len(self.taps))


class OwnEncoder(MapEncoder):
    """Encoder of images of the shape that it was trained on."""

    options_type: ClassVar[type[Any]] = OwnEncoderOptions

    def __init__(self, options: OwnEncoderOptions, *, sample_shape: Sequence[int]) -> None:
        require_image("own", sample_shape)
        if not options.run:
            allowed = "must be the directory of a complete run of truedrift train-encoder"
            raise UserError("is not set", allowed, "pass --encoder RUN", field="run")
        tensors = read_encoder(Path(options.run))
        _require_weights(options, tensors)
        width, *blocks = tensors.pop(_LAYOUT).tolist()
        _require_shape(options, tuple(tensors.pop(_SHAPE).tolist()), tuple(sample_shape))
        layout = ResNetOptions(width=width, blocks=tuple(blocks))
        options = replace(options, taps=_choose_taps(options.taps, len(blocks)))
        # Build the stages that are needed.
        network = ResNet(sample_shape[0], layout, max(options.taps))
        network.load_state_dict({name: tensors[name] for name in network.state_dict()})
        super().__init__(
            options,
            sample_shape=sample_shape,
            network=network.to(memory_format=torch.channels_last),  # type: ignore[call-overload]
            channels=[layout.channels[tap] for tap in options.taps],
            sizes=[_map_size(sample_shape, tap) for tap in options.taps],
        )

    def maps(self, values: Float[Tensor, "B C H W"]) -> list[Tensor]:
        maps = self.network(values)
        return [maps[tap] for tap in self.options.taps]


def _choose_taps(taps: tuple[int, ...], stages: int) -> tuple[int, ...]:
    """Return the taps of a network of that many stages: those that are given, or the last three for the default."""
    if taps == DEFAULT_TAPS and stages < max(DEFAULT_TAPS):
        return tuple(range(max(1, stages - 2), stages + 1))
    if max(taps) > stages:
        problem, fix = f"is {taps}", "leave out the larger ones"
        raise UserError(problem, f"must be from 0 to {stages}, the stages of this run", fix, field="taps")
    return taps


def _map_size(sample_shape: Sequence[int], tap: int) -> tuple[int, int]:
    """Return the size of a map. Strides round up."""
    factor = 2 ** max(0, tap - 1)
    return -(-sample_shape[1] // factor), -(-sample_shape[2] // factor)


def _require_weights(options: OwnEncoderOptions, tensors: Mapping[str, Tensor]) -> None:
    if options.weights not in (None, hash_tensors(tensors)[:12]):
        problem = f"the encoder in {options.run!r} has other weights than {options.weights}"
        fix = "restore that encoder, or start another run with the new one"
        raise UserError(problem, "must be the encoder that the run started with", fix)


def _require_shape(options: OwnEncoderOptions, trained: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if trained != wanted:
        problem = f"the encoder in {options.run!r} was trained on images {trained} and the samples are {wanted}"
        fix = "use the data set and the image size that it was trained on, or train an encoder on these images"
        raise UserError(problem, "both must have the same shape", fix)
