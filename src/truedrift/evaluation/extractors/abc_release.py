"""The published code's network: torchvision's Inception-v3 (ImageNet weights), images in [0, 1], 2 048 features.

It is another network with another input than the standard FID's, so that its distances are compared with the paper's
tables and with nothing else. torchvision is not among the dependencies: install it beside a torch that it fits.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from torch.nn import functional as F

from truedrift.axes import Tensor
from truedrift.encoders.image_input import rgb
from truedrift.evaluation.extractors.base import Extracted, Extractor, from_package
from truedrift.evaluation.kept_tensors import sha256_of
from truedrift.validation import mistake

SIDE = 299


class ABCRelease(Extractor):
    """Needs torchvision, which downloads its weights when it is first asked for them."""

    name = "abc-release"
    prepared = f"[0, 1], bilinear to {SIDE}×{SIDE}"
    dimensions = 2048

    def __init__(self, device: torch.device) -> None:
        if find_spec("torchvision") is None:
            raise mistake(
                "the extractor abc-release needs torchvision, which is not installed",
                "allowed is a torchvision that fits your torch",
                "run pip install torchvision, or take the extractor inception",
            )
        network = from_package("torchvision", _of_torchvision)
        self.sha256 = sha256_of(network.state_dict())
        self.device = device
        self._network = network.eval().requires_grad_(False).to(device)

    def __call__(self, values: Tensor) -> Extracted:
        images = rgb(values.to(self.device)).float() / 255
        resized = F.interpolate(images, (SIDE, SIDE), mode="bilinear", align_corners=False)
        with torch.no_grad():
            return Extracted(self._network(resized))


def _of_torchvision() -> Any:
    from torchvision.models import Inception_V3_Weights, inception_v3  # type: ignore[import-not-found]  # noqa: PLC0415

    network = inception_v3(weights=Inception_V3_Weights.IMAGENET1K_V1, transform_input=False)
    network.fc = torch.nn.Identity()
    return network
