"""values → features: a frozen network that samples and data are compared in.

Values are as a file holds them, uint8 images [B, C, H, W] or float32 points [B, D]; what is done to them on the way
into the network belongs to the extractor and to its hash.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from truedrift.axes import Float, Tensor
from truedrift.validation import mistake


@dataclass(frozen=True)
class Extracted:
    """Features of a batch, and class probabilities where the extractor has a classifier."""

    features: Float[Tensor, "B D"]
    probabilities: Float[Tensor, "B classes"] | None = None


def from_package(package: str, load: Callable[[], Any]) -> Any:
    """What `load` gets from a package of others, and its weights from the network; whatever fails is one line."""
    try:
        return load()
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise mistake(
            f"{package} cannot be used ({type(error).__name__}: {' '.join(str(error).split())[:200]})",
            "allowed is one that fits your torch, with its weights or a network to get them from",
            f"repair or uninstall {package}, and take the extractor inception of truedrift data fetch inception",
        ) from None


class Extractor(ABC):
    """Its name, what it does to an image first, its hash, the size of its features, and its classes if it has any."""

    name: str
    prepared: str
    sha256: str
    dimensions: int
    classes: int | None = None
    device: torch.device

    @abstractmethod
    def __call__(self, values: Tensor) -> Extracted:
        """Features of these values, on the extractor's device."""
