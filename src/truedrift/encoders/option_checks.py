"""What options and sample shapes of encoders may be; each message names the field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from truedrift.validation import mistake, require_whole


def ascending(what: str, value: object, least: int, most: int | None = None) -> tuple[int, ...]:
    """`value` (JSON gives lists) as a tuple of whole numbers least ≤ … ≤ most, each larger than the one before."""
    numbers = whole_numbers(what, value, least)
    if list(numbers) != sorted(set(numbers)) or (most is not None and numbers[-1] > most):
        upper = "" if most is None else f" up to {most}"
        came = f"{what} is {value!r}"
        raise mistake(came, f"allowed are ascending whole numbers from {least}{upper}", "sort them, each one once")
    return numbers


def whole_numbers(what: str, value: object, least: int) -> tuple[int, ...]:
    """`value` as a tuple of one or more whole numbers of at least `least`."""
    if not isinstance(value, (tuple, list)) or not value:
        raise mistake(f"{what} is {value!r}", "allowed are one or more whole numbers", "pass them as a tuple")
    for position, number in enumerate(value):
        require_whole(f"{what}[{position}]", number, least, max(least, 1))
    return tuple(value)


def replace_field(options: Any, name: str, value: object) -> None:
    """Set a field of frozen options, in their `__post_init__` only: a list from JSON becomes the tuple it was."""
    object.__setattr__(options, name, value)


def require_sample_shape(sample_shape: Sequence[int]) -> None:
    """(D,) for points or (C, H, W) for images."""
    sizes = tuple(sample_shape)
    if len(sizes) not in (1, 3) or not all(type(size) is int and size >= 1 for size in sizes):
        raise mistake(
            f"sample_shape is {sizes}",
            "allowed is (D,) for points or (C, H, W) for images",
            "take the shape of one sample",
        )


def require_image(what: str, sample_shape: Sequence[int], channels: Sequence[int] | None = None) -> None:
    """(C, H, W), with C one of `channels` if they are given."""
    require_sample_shape(sample_shape)
    sizes = tuple(sample_shape)
    if len(sizes) != 3:
        raise mistake(
            f"sample_shape is {sizes}", f"{what} needs images (C, H, W)", 'take the encoder "pixels" for points'
        )
    if channels is not None and sizes[0] not in channels:
        allowed = " or ".join(map(str, channels))
        raise mistake(f"sample_shape is {sizes}", f"{what} takes {allowed} channels", "convert the images to RGB")
