"""`digits`: 64 features of a small classifier of the embedded digits, and its class probabilities.

Pixels in [−1, 1] → 128 → 64 features → 10 classes, with SiLU between. Features are divided by one number, so that their
mean variance over the train split is 1. The weights are in the package, digits_classifier.safetensors, so that every
machine computes the same distances. `train_classifier` made them: all images of the train split in every step, AdamW, a
fixed seed, and one thread, because more threads would sum in another order.
"""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from truedrift.axes import Tensor
from truedrift.data.images import digits
from truedrift.data.samples import to_model_range
from truedrift.errors import UserError
from truedrift.evaluation.extractors import ExtractedFeatures, Extractor
from truedrift.progress import Progress, no_progress
from truedrift.seeding import stream
from truedrift.storage import hash_tensors

WEIGHTS = "digits_classifier.safetensors"
SHAPE = (1, 8, 8)
WIDTH, FEATURES, CLASSES = 128, 64, 10
STEPS, LEARNING_RATE, WEIGHT_DECAY = 100, 1e-2, 1e-2
SCALE = "spread"
"""The name of the feature scale in the file."""


class DigitsExtractor(Extractor):
    """The classifier's features, for gray images of 8×8 pixels. It is loaded when it is first needed."""

    name = "digits"
    prepared = "uint8 → [−1, 1]"
    dimensions = FEATURES
    classes = CLASSES

    def __init__(self, sample_shape: Sequence[int], device: torch.device) -> None:
        if tuple(sample_shape) != SHAPE:
            problem = f"samples have shape {tuple(sample_shape)}"
            raise UserError(problem, f"the extractor digits takes {SHAPE}", "use inception or encoder:NAME")
        self.device = device
        self._network: Any = None

    @property
    def sha256(self) -> str:  # type: ignore[override]
        """The hash of the weights."""
        self.load()
        return self._sha256

    def load(self, progress: Progress = no_progress) -> None:
        """Read the classifier."""
        if self._network is None:
            network, scale, self._sha256 = load_classifier()
            self._network, self._scale = network.to(self.device), scale.to(self.device)

    def extract(self, values: Tensor) -> ExtractedFeatures:
        features = self._network[:-1](to_model_range(values))
        return ExtractedFeatures(features / self._scale, self._network[-1](features).softmax(1))


def load_classifier() -> tuple[nn.Sequential, Tensor, str]:
    """Return the classifier, the scale of its features, and the hash of both."""
    tensors = _read_weights()
    network = _build_network()
    network.load_state_dict({name: tensor for name, tensor in tensors.items() if name != SCALE})
    return network.eval().requires_grad_(False), tensors[SCALE], hash_tensors(tensors)


@cache
def _read_weights() -> dict[str, Tensor]:
    from safetensors.torch import load  # noqa: PLC0415  an extra

    return load(files("truedrift.evaluation").joinpath(WEIGHTS).read_bytes())


def train_classifier() -> dict[str, Tensor]:
    """Train the classifier and return its weights and the scale of its features.

    Two machines differ in the last digits of the weights, and the distances then by a few percent.
    """
    data, network = digits("train"), _build_network()
    images = to_model_range(data.values)
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(STEPS):
            optimizer.zero_grad()
            with torch.enable_grad():
                F.cross_entropy(network(images), data.labels).backward()
            optimizer.step()
    finally:
        torch.set_num_threads(threads)
    with torch.no_grad():
        scale = network[:-1](images).var(0).mean().sqrt()
    return {name: tensor.detach() for name, tensor in network.state_dict().items()} | {SCALE: scale}


def _build_network() -> nn.Sequential:
    """Build the untrained network. All layers but the last give the features."""
    with torch.random.fork_rng(devices=[]):  # leaves the global random state of a run unchanged
        layers = (nn.Flatten(), nn.Linear(64, WIDTH), nn.SiLU(), nn.Linear(WIDTH, FEATURES), nn.SiLU())
        network = nn.Sequential(*layers, nn.Linear(FEATURES, CLASSES))
    numbers = stream(0, "digits classifier")
    with torch.no_grad():
        for parameter in network.parameters():
            bound = parameter.shape[-1] ** -0.5
            parameter.copy_(torch.rand(parameter.shape, generator=numbers) * 2 * bound - bound)
    return network
