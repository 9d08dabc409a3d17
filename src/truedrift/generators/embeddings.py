"""What goes into a DriftDiT as vectors: its noise as tokens; label, strength and style as a condition."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import nn

from truedrift.axes import Float, Tensor
from truedrift.generators.layers import Embedding, Linear, PatchProjection, strength_features

STRENGTH_FEATURES = 256
SPREAD = 0.02
"""Of embeddings, registers and the last layer at the start."""
PLACES = 0.1
"""Spread of the places of patches at the start: below the noise, or all images share one layout for long."""
MODULATION = 0.3
"""Spread at the start of what a noise vector adds to the condition."""
COARSE = 4
"""Rows and columns of the grid that a noise vector becomes."""


class PatchEmbedding(nn.Module):
    """Image → tokens, row by row."""

    def __init__(self, channels: int, width: int, patch: int) -> None:
        super().__init__()
        self.proj = PatchProjection(channels, width, patch)

    def forward(self, z: Float[Tensor, "B C H W"]) -> Float[Tensor, "B tokens D"]:
        return self.proj(z).flatten(2).transpose(1, 2)


class NoiseEmbedding(nn.Module):
    """M(z)_i + place_i: a noise vector → tokens, those of neighbors alike at the start."""

    def __init__(self, noise: int, width: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.grid = grid
        self.proj = Linear(noise, COARSE * COARSE * width, spread=noise**-0.5)
        self.places = Embedding(math.prod(grid), width, spread=PLACES)
        self.modulation = Linear(noise, width, spread=MODULATION * noise**-0.5)

    def forward(self, z: Float[Tensor, "B noise"]) -> Float[Tensor, "B tokens D"]:
        coarse = self.proj(z).unflatten(1, (-1, COARSE, COARSE))
        fine = F.interpolate(coarse, self.grid, mode="bilinear")
        return fine.flatten(2).transpose(1, 2) + self.places.weight


class LabelEmbedding(nn.Module):
    """A vector for each class, and the last one for no class."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.embedding_table = Embedding(classes + 1, width, spread=SPREAD)

    def forward(self, labels: Tensor) -> Tensor:
        return self.embedding_table(labels)


class StrengthEmbedding(nn.Module):
    """Linear-SiLU-Linear of the strength's cosines and sines."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(Linear(STRENGTH_FEATURES, width), nn.SiLU(), Linear(width, width))

    def forward(self, strength: Tensor) -> Tensor:
        return self.mlp(strength_features(strength, STRENGTH_FEATURES))


class StyleEmbedding(nn.Module):
    """Σ_k codebook[style_k]."""

    def __init__(self, entries: int, width: int) -> None:
        super().__init__()
        self.codebook = Embedding(entries, width, spread=SPREAD)

    def forward(self, style_ids: Tensor) -> Tensor:
        return self.codebook(style_ids).sum(dim=1)
