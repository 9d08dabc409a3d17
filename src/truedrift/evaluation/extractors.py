"""values → features: a frozen network that samples and data are compared in.

Values are as a file holds them, uint8 images [B, C, H, W] or float32 points [B, D]; what is done to them on the way
into the network belongs to the extractor and to its hash.

`encoder:NAME`: the feature groups of a frozen encoder, side by side, as one feature.

Any encoder that a run can be trained on, with its default options. A run should not be judged by the network that gave
its training features.

The published code's network: torchvision's Inception-v3 (ImageNet weights), images in [0, 1], 2 048 features.

It is another network with another input than the standard FID's, so that its distances are compared with the paper's
tables and with nothing else. torchvision is not among the dependencies: install it beside a torch that it fits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch.nn import functional as F

from truedrift.axes import Float, Tensor
from truedrift.data.samples import to_model_range
from truedrift.encoders.catalog import OPTIONS, build
from truedrift.encoders.preprocessing import rgb
from truedrift.errors import UserError
from truedrift.storage import hash_tensors


@dataclass(frozen=True)
class ExtractedFeatures:
    """Features of a batch, and class probabilities where the extractor has a classifier."""

    features: Float[Tensor, "B D"]
    probabilities: Float[Tensor, "B classes"] | None = None


def from_package(package: str, load: Callable[[], Any]) -> Any:
    """What `load` gets from a package of others, and its weights from the network; whatever fails is one line."""
    try:
        return load()
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise UserError(
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
    def __call__(self, values: Tensor) -> ExtractedFeatures:
        """Features of these values, on the extractor's device."""


class EncoderExtractor(Extractor):
    """For samples of one shape."""

    def __init__(self, kind: str, sample_shape: Sequence[int], device: torch.device) -> None:
        encoder = build(OPTIONS[kind](), sample_shape=sample_shape)
        self.name = f"encoder:{kind}"
        self.prepared = "points as they are" if len(sample_shape) == 1 else "uint8 → [−1, 1], then as in training"
        self.sha256 = encoder.fingerprint()
        self.dimensions = sum(encoder.dimensions)
        self.device = device
        self._encoder = encoder.to(device)

    def __call__(self, values: Tensor) -> ExtractedFeatures:
        with torch.no_grad():
            return ExtractedFeatures(torch.cat(self._encoder(to_model_range(values.to(self.device))), 1))


SIDE = 299


class ABCRelease(Extractor):
    """Needs torchvision, which downloads its weights when it is first asked for them."""

    name = "abc-release"
    prepared = f"[0, 1], bilinear to {SIDE}×{SIDE}"
    dimensions = 2048

    def __init__(self, device: torch.device) -> None:
        if find_spec("torchvision") is None:
            raise UserError(
                "the extractor abc-release needs torchvision, which is not installed",
                "allowed is a torchvision that fits your torch",
                "run pip install torchvision, or take the extractor inception",
            )
        network = from_package("torchvision", _of_torchvision)
        self.sha256 = hash_tensors(network.state_dict())
        self.device = device
        self._network = network.eval().requires_grad_(False).to(device)

    def __call__(self, values: Tensor) -> ExtractedFeatures:
        images = rgb(values.to(self.device)).float() / 255
        resized = F.interpolate(images, (SIDE, SIDE), mode="bilinear", align_corners=False)
        with torch.no_grad():
            return ExtractedFeatures(self._network(resized))


def _of_torchvision() -> Any:
    from torchvision.models import Inception_V3_Weights, inception_v3  # type: ignore[import-not-found]  # noqa: PLC0415

    network = inception_v3(weights=Inception_V3_Weights.IMAGENET1K_V1, transform_input=False)
    network.fc = torch.nn.Identity()
    return network
