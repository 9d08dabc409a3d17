"""x_s = φ_s(image), s = 1 … S: a frozen network whose feature groups are what drifts.

The gradient passes through φ to the image and never into weights: no parameter requires one, and normalization layers
stay in evaluation. Every group is [B, D_s]; the sizes D_s are known before the first batch.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import nn

from truedrift.axes import Tensor
from truedrift.encoders.option_checks import require_sample_shape
from truedrift.validation import mistake


class Encoder(nn.Module):
    """values [B, *sample_shape] in [−1, 1] → one tensor [B, D_s] a feature group. Frozen by construction.

    A subclass builds its network, hands it over here, and writes `features`.
    """

    def __init__(
        self, options: Any, *, sample_shape: Sequence[int], network: nn.Module, dimensions: Sequence[int]
    ) -> None:
        super().__init__()
        require_sample_shape(sample_shape)
        self.options = options
        self.sample_shape: tuple[int, ...] = tuple(sample_shape)
        self.dimensions: tuple[int, ...] = tuple(dimensions)
        """D_s of every group."""
        self.network = network.requires_grad_(False)
        self.eval()

    def features(self, values: Tensor) -> tuple[Tensor, ...]:
        """The groups of checked values."""
        raise NotImplementedError

    def forward(self, values: Tensor) -> tuple[Tensor, ...]:
        """The feature groups of `values`, computed in the dtype of the weights."""
        if tuple(values.shape[1:]) != self.sample_shape:
            expected = ", ".join(map(str, self.sample_shape))
            raise mistake(
                f"values have shape {list(values.shape)}",
                f"this encoder was built for [B, {expected}]",
                "build one for that sample_shape",
            )
        weight = next(self.network.parameters(), None)
        return self.features(values if weight is None else values.to(weight.dtype))

    def train(self, mode: bool = True) -> Self:
        """Stays in evaluation, whatever the model around it does."""
        return super().train(False)

    def fingerprint(self) -> str:
        """sha256 over the encoder's name and options, the sample shape and every weight: the key of kept features."""
        digest = hashlib.sha256()
        described = [type(self).__name__, dataclasses.asdict(self.options), self.sample_shape]
        digest.update(json.dumps(described, sort_keys=True).encode())
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
            digest.update(_content(tensor))
        return digest.hexdigest()


def _content(tensor: Tensor) -> Any:
    """The bytes of a tensor in the order of its indices, whatever its memory layout or device."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
