"""`inception`: the standard FID network, Inception-v3 with the TensorFlow weights of 2015-12-05, 2 048 features.

Bytes → bilinear resize as in TensorFlow 1 to 299×299 → (b − 128)/128 → pooled features of the last block.

The network comes from torch-fidelity if that is installed, with the classifier that the Inception Score needs. Else it
comes from the TorchScript file that `truedrift data fetch inception` downloads, which has no classifier. Both hold the
same weights. A TorchScript file is a program, so its sha256 is compared with the pinned one before it is opened. Only
its weights are used (`inception_network.py`).
"""

import hashlib
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from truedrift.axes import Float, Tensor
from truedrift.data.registry import REMOTE_ASSETS
from truedrift.encoders.preprocessing import rgb
from truedrift.errors import UserError
from truedrift.evaluation.extractors import ExtractedFeatures, Extractor, package_errors
from truedrift.evaluation.inception_network import InceptionNetwork
from truedrift.storage import cache_directory, hash_tensors

(FILE,) = REMOTE_ASSETS["inception"].files
SIDE = 299
DIMENSIONS = 2048
FETCH = "truedrift data fetch inception"
CPU_BATCH = 8
"""Images at a time on a CPU, whose caches hold their maps."""
PREPARED = f"uint8, bilinear as in TF1 to {SIDE}×{SIDE}, (b − 128)/128"


def build_inception(device: torch.device) -> Extractor:
    """Build the network from torch-fidelity, or else from the downloaded file."""
    return TorchFidelityInception(device) if find_spec("torch_fidelity") else ScriptedInception(device)


def inception_is_present() -> bool:
    """Return whether the network is installed or downloaded."""
    return find_spec("torch_fidelity") is not None or (cache_directory("inception") / FILE.name).is_file()


class ScriptedInception(Extractor):
    """The network from the downloaded TorchScript file."""

    name, prepared, dimensions = "inception", PREPARED, DIMENSIONS

    def __init__(self, device: torch.device) -> None:
        path = cache_directory("inception") / FILE.name
        self.sha256 = _verify_file(path)
        self.device = device
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # TorchScript is deprecated; the file is written in it
            self._network = InceptionNetwork.from_program(torch.jit.load(str(path), map_location=device))

    def extract(self, values: Tensor) -> ExtractedFeatures:
        at_once = CPU_BATCH if self.device.type == "cpu" else max(1, len(values))
        return ExtractedFeatures(torch.cat([self._features(part) for part in values.split(at_once)]))

    def _features(self, values: Tensor) -> Tensor:
        images = (resize_like_tensorflow1(rgb(values).float(), SIDE) - 128) / 128
        return self._network(images)


class TorchFidelityInception(Extractor):
    """The network from torch-fidelity, with its 1 008 classes; the logits have no bias, as in the Inception Score."""

    name, prepared, dimensions = "inception", PREPARED, DIMENSIONS
    classes = 1008

    def __init__(self, device: torch.device) -> None:
        with package_errors("torch_fidelity"):
            from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3  # type: ignore[import-not-found]  # noqa: PLC0415

            network: Any = FeatureExtractorInceptionV3("inception-v3-compat", ["2048", "logits_unbiased"])
        self.sha256 = hash_tensors(network.state_dict())
        self.device = device
        self._network = network.to(device)

    def extract(self, values: Tensor) -> ExtractedFeatures:
        features, logits = self._network(rgb(values).contiguous())
        return ExtractedFeatures(features, logits.double().softmax(1))


def _verify_file(path: Path) -> str:
    """Return the hash of the file, after comparing it with the pinned hash."""
    if not path.is_file():
        raise UserError(f"the Inception network is missing at {str(path)!r}", "it must be in the cache", f"run {FETCH}")
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != FILE.sha256:
        problem = f"{str(path)!r} has sha256 {sha256[:12]}…"
        raise UserError(problem, f"must be {FILE.sha256[:12]}…", f"remove it and run {FETCH}")
    return sha256


def resize_like_tensorflow1(images: Float[Tensor, "B C H W"], side: int) -> Float[Tensor, "B C {side} {side}"]:
    """Resize images bilinearly to side × side, as TensorFlow 1 does: without a half-pixel shift.

    Target pixel i reads at s = i·H/H′, and pixels beyond the last one repeat it:

        out = R_H · image · R_Wᵀ,   row i of R has 1 − t at ⌊s⌋ and t at ⌊s⌋ + 1,   t = s − ⌊s⌋.

    The standard FID is defined with this resize.
    """
    height, width = images.shape[-2:]
    return _resize_weights(height, side).to(images) @ images @ _resize_weights(width, side).to(images).mT


def _resize_weights(length: int, target: int) -> Float[Tensor, "target length"]:
    """Compute the matrix R of `resize_like_tensorflow1`."""
    position = torch.arange(target, dtype=torch.float64) * length / target
    lower = position.floor().long()
    upper = (lower + 1).clamp_max(length - 1)
    t = (position - lower).unsqueeze(1)
    one_hot = torch.eye(length, dtype=torch.float64)
    return (1 - t) * one_hot[lower] + t * one_hot[upper]
