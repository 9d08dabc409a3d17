"""The interface of every encoder: x_s = φ_s(sample), s = 1 … S, a frozen network whose feature groups drift.

The gradient passes through φ to the sample but never to weights: no parameter requires one, and normalization layers
stay in evaluation mode. A group is [B, D_s], or [B, P_s, D_s] for P_s drift problems, one per location of a feature map
(`truedrift.encoders.pooling`); the shapes are known before the first batch. The encoder `Pixels` returns the values
themselves, flattened.

`stack_padded` puts groups of different D_s into one tensor [S, B, D], D = max D_s, for a loss that takes all groups at
once. Zeros after a feature change no distance, but the RMS and the mean of the drift loss run over n·D numbers. With
V_τ/RMS and ∂loss/∂f = −2V/(nD), padding from D_s to D makes the gradient of a group smaller by √(D_s/D) where features
are used as they are or as unit vectors. Where they are divided by s/√D, for the mean distance s, the two changes
cancel. `gradient_weights` compensates.
"""

import dataclasses
import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from torch import nn
from torch.nn import functional as F

from truedrift.axes import Float, Tensor
from truedrift.encoders.pooling import GroupShape, group_shapes, parse_poolings, pool_maps, require_maps
from truedrift.errors import UserError, require_choice, require_sample_shape


def require_image(encoder: str, sample_shape: Sequence[int], *, square: bool = False) -> None:
    """Require (C, H, W) or, if `square`, (1 or 3, H, H)."""
    require_sample_shape(sample_shape)
    problem, encoder = f"sample_shape is {tuple(sample_shape)}", f'the encoder "{encoder}"'
    if len(sample_shape) != 3:
        raise UserError(problem, f"{encoder} needs images (C, H, W)", 'use the encoder "pixels" for points')
    channels, height, width = sample_shape
    if square and channels not in (1, 3):
        raise UserError(problem, f"{encoder} takes 1 or 3 channels", "convert the images to RGB")
    if square and height != width:
        raise UserError(problem, f"{encoder} takes square images", "crop or pad them")


_SHRINKS = {"standardize-l2": True, "none": True, "mean-distance": False}
"""Whether padding makes the gradient smaller, for each `feature_scale` of the drift loss."""


def stack_padded(features: Sequence[Float[Tensor, "B _"]]) -> Float[Tensor, "S B D"]:
    """Stack feature groups [B, D_s] into [S, B, D], with zeros after the narrower ones.

    Args:
        features: One or more feature groups with the same B, as an encoder returns them.

    Returns:
        The groups [S, B, D], with D = max D_s.

    Raises:
        UserError: If there are no groups.

    Example:
        >>> stack_padded([torch.ones(2, 3), torch.ones(2, 1)])[1]
        tensor([[1., 0., 0.],
                [1., 0., 0.]])
    """
    if not features:
        raise UserError("is empty", "must hold one or more groups", "pass the output of an encoder", field="features")
    if len(features) == 1:  # no copy
        return features[0].unsqueeze(0)
    widest = max(group.shape[-1] for group in features)
    padded = [group if group.shape[-1] == widest else F.pad(group, (0, widest - group.shape[-1])) for group in features]
    return torch.stack(padded)


def gradient_weights(dimensions: Sequence[int], feature_scale: str) -> list[float]:
    """Compute the weight per group that restores, after `stack_padded`, the gradient of the unpadded group.

    The weight is √(D/D_s), or 1 for mean-distance. It is exact up to the 1e-8 added to the mean square in the RMS, and
    as long as the mean distance is above its floor of 1e-3.

    Args:
        dimensions: D_s of every group.
        feature_scale: "standardize-l2", "mean-distance" or "none", as given to the drift loss.

    Returns:
        S factors ≥ 1, one per group; the widest group has 1.

    Raises:
        UserError: If `feature_scale` is unknown.

    Example:
        >>> gradient_weights([4, 16], "standardize-l2")
        [2.0, 1.0]
    """
    require_choice("feature_scale", feature_scale, _SHRINKS)
    widest = max(dimensions)
    return [math.sqrt(widest / D) if _SHRINKS[feature_scale] else 1.0 for D in dimensions]


class Encoder(nn.Module, ABC):
    """Map values [B, *sample_shape] in [−1, 1] to feature groups [B, D_s] or [B, P_s, D_s]. Always frozen.

    A subclass sets `options_type`, builds its network, passes it to `__init__`, and writes `features`.

    Args:
        options: Options of the encoder, part of its fingerprint.
        sample_shape: (D,) for points or (C, H, W) for images.
        network: The network; its parameters stop requiring gradients.
        groups: The shape of every group.
    """

    options_type: ClassVar[type[Any]]

    def __init__(
        self, options: Any, *, sample_shape: Sequence[int], network: nn.Module, groups: Sequence[GroupShape]
    ) -> None:
        super().__init__()
        require_sample_shape(sample_shape)
        self.options = options
        self.sample_shape: tuple[int, ...] = tuple(sample_shape)
        self.groups: tuple[GroupShape, ...] = tuple(groups)
        """The shape of every group."""
        self.network = network.requires_grad_(False)
        self.eval()

    @property
    def dimensions(self) -> tuple[int, ...]:
        """D_s of every group."""
        return tuple(group.dimension for group in self.groups)

    @abstractmethod
    def features(self, values: Tensor) -> tuple[Tensor, ...]:
        """Compute the feature groups of values whose shape was checked."""

    def forward(self, values: Tensor) -> tuple[Tensor, ...]:
        """Compute the feature groups of `values` in the dtype of the weights."""
        return self.features(self.prepare(values))

    def prepare(self, values: Tensor) -> Tensor:
        """Check the shape of values, and cast them to the dtype of the weights."""
        if tuple(values.shape[1:]) != self.sample_shape:
            allowed = f"must have shape [B, {', '.join(map(str, self.sample_shape))}], which this encoder was built for"
            fix = "build one for that sample_shape"
            raise UserError(f"has shape {list(values.shape)}", allowed, fix, field="values")
        weight = next(self.network.parameters(), None)
        return values if weight is None else values.to(weight.dtype)

    @property
    def stored_size(self) -> int:
        """Numbers per sample that a cache of features keeps."""
        return sum(group.size for group in self.groups)

    def encode_stored(self, values: Tensor) -> tuple[Tensor, ...]:
        """Compute what a cache of features keeps: the groups, or the feature maps if these are smaller.

        The channels of a map are next to each other, with which pooling is twice as fast.
        """
        return self(values)  # type: ignore[no-any-return]

    def read_stored(self, rows: Float[Tensor, "B M"]) -> tuple[Tensor, ...]:
        """Compute the groups, in vectors [B, …], from what `encode_stored` computed, flattened and joined."""
        return (rows,)

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode, also as part of a model that trains."""
        return super().train(False)

    def fingerprint(self) -> str:
        """Compute the sha256 of the class name, options, sample shape and weights: the key of cached features."""
        digest = hashlib.sha256()
        description = [type(self).__name__, dataclasses.asdict(self.options), self.sample_shape]
        digest.update(json.dumps(description, sort_keys=True).encode())
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
            # The bytes in the order of the indices, independent of memory layout and device.
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()


class MapEncoder(Encoder):
    """An encoder whose features are feature maps, pooled as `options.pooling` says.

    A subclass writes `maps`.

    Args:
        options: Options of the encoder with a field `pooling`.
        sample_shape: (C, H, W).
        network: The network; its parameters stop requiring gradients.
        channels: D of every map.
        sizes: (h, w) of every map.
    """

    def __init__(
        self,
        options: Any,
        *,
        sample_shape: Sequence[int],
        network: nn.Module,
        channels: Sequence[int],
        sizes: Sequence[tuple[int, int]],
    ) -> None:
        poolings = parse_poolings(options.pooling, len(channels))
        require_maps(poolings, sizes)
        groups = group_shapes(channels, sizes, poolings)
        super().__init__(options, sample_shape=sample_shape, network=network, groups=groups)
        self.poolings = poolings
        self.map_shapes = [(D, *size) for D, size in zip(channels, sizes, strict=True)]
        """(D, h, w) of every map."""

    @abstractmethod
    def maps(self, values: Tensor) -> list[Float[Tensor, "B D h w"]]:
        """Compute the feature maps of values whose shape was checked."""

    def features(self, values: Tensor) -> tuple[Tensor, ...]:
        return pool_maps(self.maps(values), self.poolings)

    @property
    def stores_maps(self) -> bool:
        """Whether the maps have fewer numbers than the groups, as with "pyramid"."""
        return sum(map(math.prod, self.map_shapes)) < sum(group.size for group in self.groups)

    @property
    def stored_size(self) -> int:
        return sum(map(math.prod, self.map_shapes)) if self.stores_maps else super().stored_size

    def encode_stored(self, values: Tensor) -> tuple[Tensor, ...]:
        if not self.stores_maps:
            return super().encode_stored(values)
        return tuple(each.permute(0, 2, 3, 1) for each in self.maps(self.prepare(values)))  # [B, h, w, D]

    def read_stored(self, rows: Float[Tensor, "B M"]) -> tuple[Tensor, ...]:
        if not self.stores_maps:
            return super().read_stored(rows)
        flat = rows.split([math.prod(shape) for shape in self.map_shapes], -1)
        maps = [
            each.unflatten(-1, (height, width, D)).permute(0, 3, 1, 2)
            for each, (D, height, width) in zip(flat, self.map_shapes, strict=True)
        ]
        return pool_maps(maps, self.poolings)


@dataclass(frozen=True, kw_only=True)
class PixelsOptions:
    """Options of `Pixels`."""

    kind: Literal["pixels"] = "pixels"
    pooling: str = "none"
    """`none` for all values as one vector; otherwise how an image becomes groups, see `truedrift.encoders.pooling`."""

    def __post_init__(self) -> None:
        if self.pooling != "none":
            parse_poolings(self.pooling, 1)


class Pixels(Encoder):
    """The values themselves: as one group, D = C·H·W for images, or pooled like a feature map of C channels."""

    options_type: ClassVar[type[Any]] = PixelsOptions

    def __init__(self, options: PixelsOptions, *, sample_shape: Sequence[int]) -> None:
        self.poolings = () if options.pooling == "none" else parse_poolings(options.pooling, 1)
        if self.poolings:
            require_image("pixels", sample_shape)
            channels, height, width = sample_shape
            require_maps(self.poolings, [(height, width)])
            groups = group_shapes([channels], [(height, width)], self.poolings)
        else:
            groups = (GroupShape(math.prod(sample_shape)),)
        super().__init__(options, sample_shape=sample_shape, network=nn.Identity(), groups=groups)

    def features(self, values: Tensor) -> tuple[Tensor, ...]:
        return pool_maps([values], self.poolings) if self.poolings else (values.flatten(1),)
