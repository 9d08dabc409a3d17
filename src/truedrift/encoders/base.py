"""What options and sample shapes of encoders may be; each message names the field.

Groups of different D_s as one tensor [S, B, D], D = max D_s, for a loss that takes all groups at once.

Zeros after a feature change no distance, but the RMS and the mean of the drift loss run over n·D numbers. With V_τ/RMS
and ∂loss/∂f = −2V/(nD), a zero dimension more makes the gradient of a group smaller by √(D_s/D) where features are
used as they are or as unit vectors. Where they are divided by s/√D, for the mean distance s, the two changes cancel.

x_s = φ_s(image), s = 1 … S: a frozen network whose feature groups are what drifts.

The gradient passes through φ to the image and never into weights: no parameter requires one, and normalization layers
stay in evaluation. Every group is [B, D_s]; the sizes D_s are known before the first batch.

x = the values themselves, flattened to [B, D]: for points in the plane, and images small enough to compare.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from torch import nn
from torch.nn import functional as F

from truedrift.axes import Float, Tensor
from truedrift.errors import UserError, require_choice, require_integer


def require_ascending(what: str, value: object, least: int, most: int | None = None) -> tuple[int, ...]:
    """`value` (JSON gives lists) as a tuple of whole numbers least ≤ … ≤ most, each larger than the one before."""
    numbers = require_integers(what, value, least)
    if list(numbers) != sorted(set(numbers)) or (most is not None and numbers[-1] > most):
        upper = "" if most is None else f" up to {most}"
        allowed = f"allowed are ascending whole numbers from {least}{upper}"
        raise UserError(f"is {value!r}", allowed, "sort them, each one once", field=what)
    return numbers


def require_integers(what: str, value: object, least: int) -> tuple[int, ...]:
    """`value` as a tuple of one or more whole numbers of at least `least`."""
    if not isinstance(value, (tuple, list)) or not value:
        raise UserError(f"is {value!r}", "allowed are one or more whole numbers", "pass them as a tuple", field=what)
    for position, number in enumerate(value):
        require_integer(f"{what}[{position}]", number, least, max(least, 1))
    return tuple(value)


def replace_field(options: Any, name: str, value: object) -> None:
    """Set a field of frozen options, in their `__post_init__` only: a list from JSON becomes the tuple it was."""
    object.__setattr__(options, name, value)


def require_sample_shape(sample_shape: Sequence[int]) -> None:
    """(D,) for points or (C, H, W) for images."""
    sizes = tuple(sample_shape)
    if len(sizes) not in (1, 3) or not all(type(size) is int and size >= 1 for size in sizes):
        raise UserError(
            f"sample_shape is {sizes}",
            "allowed is (D,) for points or (C, H, W) for images",
            "take the shape of one sample",
        )


def require_image(what: str, sample_shape: Sequence[int], channels: Sequence[int] | None = None) -> None:
    """(C, H, W), with C one of `channels` if they are given."""
    require_sample_shape(sample_shape)
    sizes = tuple(sample_shape)
    if len(sizes) != 3:
        raise UserError(
            f"sample_shape is {sizes}", f"{what} needs images (C, H, W)", 'take the encoder "pixels" for points'
        )
    if channels is not None and sizes[0] not in channels:
        allowed = " or ".join(map(str, channels))
        raise UserError(f"sample_shape is {sizes}", f"{what} takes {allowed} channels", "convert the images to RGB")


_SHRINKS = {"standardize-l2": True, "none": True, "mean-distance": False}
"""Whether padding makes the gradient smaller, by the drift loss's `feature_scale`."""


def stack_padded(features: Sequence[Float[Tensor, "B _"]]) -> Float[Tensor, "S B D"]:
    """[S, B, D] of groups [B, D_s]: zeros after the narrower ones."""
    if not features:
        raise UserError("features is empty", "allowed is one group or more", "pass what an encoder returned")
    widest = max(group.shape[-1] for group in features)
    return torch.stack([F.pad(group, (0, widest - group.shape[-1])) for group in features])


def gradient_weights(dimensions: Sequence[int], feature_scale: str) -> list[float]:
    """The factor of each group's loss after `stack` that gives back the gradient it has alone: √(D/D_s), or 1.

    Exact but for the 1e-8 beside the mean square in the RMS, and while the mean distance is above its floor of 1e-3.
    """
    require_choice("feature_scale", feature_scale, _SHRINKS)
    widest = max(dimensions)
    return [math.sqrt(widest / D) if _SHRINKS[feature_scale] else 1.0 for D in dimensions]


class Encoder(nn.Module):
    """values [B, *sample_shape] in [−1, 1] → one tensor [B, D_s] a feature group. Frozen by construction.

    A subclass builds its network, hands it over here, and writes `features`.
    """

    def __init__(
        self, options: Any, *, sample_shape: Sequence[int], network: nn.Module, dimensions: Sequence[int]
    ) -> None:
        super().__init__()
        require_sample_shape(sample_shape)
        self.options = options
        self.sample_shape: tuple[int, ...] = tuple(sample_shape)
        self.dimensions: tuple[int, ...] = tuple(dimensions)
        """D_s of every group."""
        self.network = network.requires_grad_(False)
        self.eval()

    def features(self, values: Tensor) -> tuple[Tensor, ...]:
        """The groups of checked values."""
        raise NotImplementedError

    def forward(self, values: Tensor) -> tuple[Tensor, ...]:
        """The feature groups of `values`, computed in the dtype of the weights."""
        if tuple(values.shape[1:]) != self.sample_shape:
            expected = ", ".join(map(str, self.sample_shape))
            raise UserError(
                f"values have shape {list(values.shape)}",
                f"this encoder was built for [B, {expected}]",
                "build one for that sample_shape",
            )
        weight = next(self.network.parameters(), None)
        return self.features(values if weight is None else values.to(weight.dtype))

    def train(self, mode: bool = True) -> Self:
        """Stays in evaluation, whatever the model around it does."""
        return super().train(False)

    def fingerprint(self) -> str:
        """sha256 over the encoder's name and options, the sample shape and every weight: the key of kept features."""
        digest = hashlib.sha256()
        described = [type(self).__name__, dataclasses.asdict(self.options), self.sample_shape]
        digest.update(json.dumps(described, sort_keys=True).encode())
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
            digest.update(_content(tensor))
        return digest.hexdigest()


def _content(tensor: Tensor) -> Any:
    """The bytes of a tensor in the order of its indices, whatever its memory layout or device."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


@dataclass(frozen=True, kw_only=True)
class PixelsOptions:
    """There is nothing to choose."""

    kind: Literal["pixels"] = "pixels"


class Pixels(Encoder):
    """One group of D = C·H·W, or D for points."""

    def __init__(self, options: PixelsOptions, *, sample_shape: Sequence[int]) -> None:
        require_sample_shape(sample_shape)
        super().__init__(
            options, sample_shape=sample_shape, network=nn.Identity(), dimensions=(math.prod(sample_shape),)
        )

    def features(self, values: Tensor) -> tuple[Tensor, ...]:
        return (values.flatten(1),)
