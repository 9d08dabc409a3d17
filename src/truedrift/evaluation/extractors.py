"""Extractors: frozen networks whose features of samples and data are compared.

Values have the format of a file: uint8 images [B, C, H, W] or float32 points [B, D]. Preprocessing belongs to the
extractor and to its hash. `encoder:NAME` concatenates the feature groups of an encoder with default options; a run
should not be evaluated by the network that gave its training features. `abc-release` is the network of the published
code: torchvision's Inception-v3 with ImageNet weights, images in [0, 1], 2 048 features. Its distances can be compared
with the paper's tables only, not with the standard FID.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch.nn import functional as F

from truedrift.axes import Float, Tensor
from truedrift.data.samples import to_model_range
from truedrift.encoders.catalog import OPTIONS, build
from truedrift.encoders.preprocessing import rgb
from truedrift.errors import UserError, error_text
from truedrift.progress import Progress, no_progress
from truedrift.storage import hash_tensors


@dataclass(frozen=True)
class ExtractedFeatures:
    """Features of a batch, and class probabilities if the extractor has a classifier."""

    features: Float[Tensor, "B D"]
    probabilities: Float[Tensor, "B classes"] | None = None


class Extractor(ABC):
    """A frozen network that turns samples into features. A subclass sets the attributes and writes `extract`."""

    name: str
    prepared: str
    """A description of the preprocessing."""
    sha256: str
    """The hash of the weights."""
    dimensions: int
    """Features per sample."""
    classes: int | None = None
    """Classes of the classifier, if there is one."""
    device: torch.device

    def load(self, progress: Progress = no_progress) -> None:  # noqa: B027  optional
        """Do the work that comes before the first features, if it takes long. A second call does nothing."""

    def __call__(self, values: Tensor) -> ExtractedFeatures:
        """Compute the features of these values, on the extractor's device."""
        self.load()
        with torch.no_grad():
            return self.extract(values.to(self.device))

    @abstractmethod
    def extract(self, values: Tensor) -> ExtractedFeatures:
        """Compute the features of values on the extractor's device, without gradients."""


class EncoderExtractor(Extractor):
    """An encoder that runs can be trained with, for samples of one shape."""

    def __init__(self, kind: str, sample_shape: Sequence[int], device: torch.device) -> None:
        encoder = build(OPTIONS[kind](), sample_shape=sample_shape)
        self.name = f"encoder:{kind}"
        self.prepared = "points as they are" if len(sample_shape) == 1 else "uint8 → [−1, 1], then as in training"
        self.sha256 = encoder.fingerprint()
        self.dimensions = sum(group.size for group in encoder.groups)
        self.device = device
        self._encoder = encoder.to(device)

    def extract(self, values: Tensor) -> ExtractedFeatures:
        return ExtractedFeatures(torch.cat([group.flatten(1) for group in self._encoder(to_model_range(values))], 1))


SIDE = 299


class ABCRelease(Extractor):
    """The network of the published code. It needs torchvision, which downloads the weights at first use."""

    name = "abc-release"
    prepared = f"[0, 1], bilinear to {SIDE}×{SIDE}"
    dimensions = 2048

    def __init__(self, device: torch.device) -> None:
        if find_spec("torchvision") is None:
            problem = "the extractor abc-release needs torchvision, which is not installed"
            fix = "run pip install torchvision, or use the extractor inception"
            raise UserError(problem, "torchvision must match your torch version", fix)
        with package_errors("torchvision"):
            from torchvision.models import Inception_V3_Weights, inception_v3  # type: ignore[import-not-found]  # noqa: PLC0415

            network: Any = inception_v3(weights=Inception_V3_Weights.IMAGENET1K_V1, transform_input=False)
        network.fc = torch.nn.Identity()
        self.sha256 = hash_tensors(network.state_dict())
        self.device = device
        self._network = network.eval().requires_grad_(False).to(device)

    def extract(self, values: Tensor) -> ExtractedFeatures:
        images = rgb(values).float() / 255
        return ExtractedFeatures(
            self._network(F.interpolate(images, (SIDE, SIDE), mode="bilinear", align_corners=False))
        )


@contextmanager
def package_errors(package: str) -> Iterator[None]:
    """Report any failure of a third-party package as a UserError."""
    try:
        yield
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise UserError(
            f"{package} cannot be used ({type(error).__name__}: {error_text(error)})",
            "it must match your torch version, and its weights must be present or downloadable",
            f"repair or uninstall {package}, or run truedrift data fetch inception and use the extractor inception",
        ) from None
