"""`digits`: 64 features of a small classifier of the embedded digits, and its class probabilities.

Pixels in [−1, 1] → 128 → 64 features → 10 classes, SiLU between, trained once on the train split: all images in every
step, AdamW, from a fixed seed, on one thread, since more would add in another order. Features are divided by one
number, so that their variance over the train split is 1 on average. Two machines may differ in the last digits of the
weights; the hash in the protocol tells them apart. It is kept in the cache, with the hash of its content beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn import functional as F

from truedrift.axes import Tensor
from truedrift.data.images import digits
from truedrift.data.samples import to_model_range
from truedrift.errors import UserError
from truedrift.evaluation.extractors import ExtractedFeatures, Extractor
from truedrift.seeding import stream
from truedrift.storage import cache_directory, cache_tensors, hash_tensors, read_tensors

FORMAT = 1
SHAPE = (1, 8, 8)
WIDTH, FEATURES, CLASSES = 128, 64, 10
STEPS, LEARNING_RATE, WEIGHT_DECAY = 100, 1e-2, 1e-2


class DigitsExtractor(Extractor):
    """For gray images of 8×8 pixels."""

    name = "digits"
    prepared = "uint8 → [−1, 1]"
    dimensions = FEATURES
    classes = CLASSES

    def __init__(self, sample_shape: Sequence[int], device: torch.device) -> None:
        if tuple(sample_shape) != SHAPE:
            came = f"samples have shape {tuple(sample_shape)}"
            raise UserError(came, f"the extractor digits takes {SHAPE}", "take inception, or encoder:NAME")
        network, spread, self.sha256 = classifier()
        self.device = device
        self._network, self._spread = network.to(device), spread.to(device)

    def __call__(self, values: Tensor) -> ExtractedFeatures:
        with torch.no_grad():
            features = self._network[:-1](to_model_range(values.to(self.device)))
            return ExtractedFeatures(features / self._spread, self._network[-1](features).softmax(1))


def classifier() -> tuple[nn.Sequential, Tensor, str]:
    """The classifier of the cache, trained if it is not there, the spread of its features, and the hash of both."""
    recipe = repr((FORMAT, WIDTH, FEATURES, STEPS, LEARNING_RATE, WEIGHT_DECAY))
    name = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    path = cache_directory("digits-classifier") / f"{name}.safetensors"
    kept = read_tensors(path)
    if kept is None:
        kept = _trained()
        cache_tensors(path, kept)
    network = _network()
    network.load_state_dict({name: tensor for name, tensor in kept.items() if name != "spread"})
    return network.eval().requires_grad_(False), kept["spread"], hash_tensors(kept)


def _network() -> nn.Sequential:
    """Features come out of the layers before the last."""
    layers = (nn.Flatten(), nn.Linear(64, WIDTH), nn.SiLU(), nn.Linear(WIDTH, FEATURES), nn.SiLU())
    network = nn.Sequential(*layers, nn.Linear(FEATURES, CLASSES))
    numbers = stream(0, "digits classifier")
    with torch.no_grad():
        for parameter in network.parameters():
            bound = parameter.shape[-1] ** -0.5
            parameter.copy_(torch.rand(parameter.shape, generator=numbers) * 2 * bound - bound)
    return network


def _trained() -> dict[str, Tensor]:
    """The weights after training, and the root mean variance of the features."""
    data, network = digits("train"), _network()
    images = to_model_range(data.values)
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    with _one_thread(), torch.enable_grad():
        for _ in range(STEPS):
            optimizer.zero_grad()
            F.cross_entropy(network(images), data.labels).backward()
            optimizer.step()
    with torch.no_grad():
        spread = network[:-1](images).var(0).mean().sqrt()
    return {name: tensor.detach() for name, tensor in network.state_dict().items()} | {"spread": spread}


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
