"""Extractors by name."""

from collections.abc import Collection, Sequence

import torch

from truedrift.encoders.catalog import OPTIONS
from truedrift.encoders.efficientnet_lite0 import weights_file
from truedrift.errors import UserError, require_choice
from truedrift.evaluation.digits_classifier import SHAPE, DigitsExtractor
from truedrift.evaluation.extractors import ABCRelease, EncoderExtractor, Extractor
from truedrift.evaluation.inception import build_inception, inception_is_present

EXTRACTORS = ("inception", "abc-release", "digits", *(f"encoder:{kind}" for kind in OPTIONS if kind != "own"))
"""The names of all extractors."""


def build_extractor(name: str, *, sample_shape: Sequence[int], device: torch.device) -> Extractor:
    """Build an extractor.

    Args:
        name: One of `EXTRACTORS`.
        sample_shape: The shape of one sample: (channels, height, width), or (dimensions,) for points.
        device: Where features are computed.

    Returns:
        The extractor. Work that takes long, such as training a classifier, is left to `Extractor.load`.

    Raises:
        UserError: If the name is unknown, the extractor does not take such samples, or its network is missing.

    Example:
        >>> extractor = build_extractor("encoder:pixels", sample_shape=(2,), device=torch.device("cpu"))
        >>> extractor(torch.tensor([[0.0, 1.0]])).features
        tensor([[0., 1.]])
    """
    require_choice("the extractor", name, EXTRACTORS)
    if name.startswith("encoder:"):
        return EncoderExtractor(name.removeprefix("encoder:"), sample_shape, device)
    if name == "digits":
        return DigitsExtractor(sample_shape, device)
    if len(sample_shape) != 3 or sample_shape[0] not in (1, 3):
        problem = f"samples have shape {tuple(sample_shape)}"
        allowed = f"the extractor {name} takes images with 1 or 3 channels"
        raise UserError(problem, allowed, "use encoder:pixels")
    return ABCRelease(device) if name == "abc-release" else build_inception(device)


def default_extractor(sample_shape: Sequence[int]) -> str:
    """Return the name of the default extractor.

    Args:
        sample_shape: The shape of one sample: (channels, height, width), or (dimensions,) for points.

    Returns:
        "encoder:pixels" for points, "digits" for gray 8×8 images, else "inception".

    Example:
        >>> default_extractor((3, 32, 32))
        'inception'
    """
    if len(sample_shape) == 1:
        return "encoder:pixels"
    return "digits" if tuple(sample_shape) == SHAPE else "inception"


def independent_extractor(sample_shape: Sequence[int], trained_on: Collection[str]) -> str:
    """Return the name of the best available extractor that a run was not trained on.

    Args:
        sample_shape: The shape of one sample: (channels, height, width), or (dimensions,) for points.
        trained_on: The kinds of the run's encoders, such as "convnet".

    Returns:
        "encoder:pixels" for points, "digits" for gray 8×8 images, else "inception" if it is present, else the first
        encoder of another kind whose weights are present.

    Example:
        >>> independent_extractor((1, 8, 8), ["pixels"])
        'digits'
    """
    if default_extractor(sample_shape) != "inception":
        return default_extractor(sample_shape)
    if sample_shape[0] in (1, 3) and inception_is_present():
        return "inception"
    is_square = sample_shape[0] in (1, 3) and sample_shape[1] == sample_shape[2]
    present = ["efficientnet-lite0"] if is_square and weights_file().is_file() else []
    others = [kind for kind in (*present, "convnet", "pixels") if kind not in trained_on]
    return f"encoder:{(others or ['convnet'])[0]}"
