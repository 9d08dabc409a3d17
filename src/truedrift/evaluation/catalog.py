"""name → extractor."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from truedrift.encoders.catalog import OPTIONS
from truedrift.errors import UserError, require_choice
from truedrift.evaluation.digits_classifier import SHAPE, DigitsExtractor
from truedrift.evaluation.extractors import ABCRelease, EncoderExtractor, Extractor
from truedrift.evaluation.inception import inception

EXTRACTORS = ("inception", "abc-release", "digits", *(f"encoder:{kind}" for kind in OPTIONS))
"""What samples can be judged by."""


def build_extractor(name: str, *, sample_shape: Sequence[int], device: torch.device) -> Extractor:
    """The extractor of that name for samples of this shape, on the device."""
    require_choice("the extractor", name, EXTRACTORS)
    if name.startswith("encoder:"):
        return EncoderExtractor(name.removeprefix("encoder:"), sample_shape, device)
    if name == "digits":
        return DigitsExtractor(sample_shape, device)
    _require_image(name, sample_shape)
    return ABCRelease(device) if name == "abc-release" else inception(device)


def default_extractor(sample_shape: Sequence[int]) -> str:
    """What samples of this shape are judged by if nobody says: points by themselves, images by the FID network."""
    if len(sample_shape) == 1:
        return "encoder:pixels"
    return "digits" if tuple(sample_shape) == SHAPE else "inception"


def _require_image(name: str, sample_shape: Sequence[int]) -> None:
    if len(sample_shape) != 3 or sample_shape[0] not in (1, 3):
        came = f"samples have shape {tuple(sample_shape)}"
        raise UserError(came, f"the extractor {name} takes images of 1 or 3 channels", "take encoder:pixels")
