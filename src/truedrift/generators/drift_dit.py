"""DriftDiT: a transformer that maps a noise image to an image in one step.

    tokens  t = [registers | patches(z)]
    c       = label + MLP(cos/sin of the strength) + Σ_k codebook[style_k]
    block   t ← t + g₁ ⊙ Attention((1 + s₁) ⊙ RMSNorm(t) + b₁);   t ← t + g₂ ⊙ SwiGLU((1 + s₂) ⊙ RMSNorm(t) + b₂)
            (b₁, s₁, g₁, b₂, s₂, g₂) = Linear(silu(c)), initially zero
    image   = unpatch(Linear((1 + s) ⊙ RMSNorm(t without registers) + b))

Attributes have the names of the published checkpoints, so the state dicts agree (`from_published`, `to_published`).
The output is not clamped to [−1, 1]; training moves it into this range.

With the option `noise`, z is a vector instead of a noise image: patch i gets M(z)_i + place_i, where M(z) is a linear
map to a 4×4 grid, interpolated, and c gets Linear(z) as well. The published network has to learn common decisions from
noise that is independent per patch, and the position of a patch from rotations relative to the registers. With a noise
vector, neighboring patches agree from the start, which makes training on a CPU affordable.

Reference: Peebles & Xie, Scalable Diffusion Models with Transformers, 2023 (adaLN-zero).
"""

from __future__ import annotations  # else the hub mixin reads the options itself

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from torch import nn

from truedrift.axes import Float, Tensor
from truedrift.errors import UserError, error_text, require_integer
from truedrift.generators import published
from truedrift.generators.base import Generator
from truedrift.generators.layers import (
    INITIAL_STD,
    Attention,
    Embedding,
    Linear,
    NoiseEmbedding,
    PatchEmbedding,
    RMSNorm,
    SwiGLU,
    normal_,
    rope_angles,
    strength_features,
)
from truedrift.options import use_plain_integers

STRENGTH_FEATURES = 256
HIDDEN = 4
"""Hidden width of a SwiGLU, in widths of the network."""


@dataclass(frozen=True, kw_only=True)
class DriftDiTOptions:
    """Size of a `DriftDiT`; the defaults are those of `DriftDiT.small`."""

    kind: Literal["drift-dit"] = "drift-dit"
    width: int = 384
    """Dimension of a token, a multiple of 2·heads."""
    depth: int = 8
    """Number of blocks."""
    heads: int = 6
    """Attention heads per block."""
    patch: int = 4
    """Side of a patch in pixels; it must divide height and width of the images."""
    registers: int = 8
    """Learned tokens before the patches."""
    style_draws: int = 32
    """Style ids per sample; 0: no styles."""
    style_entries: int = 64
    """Number of different style ids; 0: no styles."""
    noise: int | None = None
    """Dimension of z as a vector that all patches share; None: a noise image, as published."""

    def __post_init__(self) -> None:
        use_plain_integers(self)
        for name, example in (("width", 384), ("depth", 8), ("heads", 6), ("patch", 4)):
            require_integer(name, getattr(self, name), 1, example)
        for name, example in (("registers", 8), ("style_draws", 32), ("style_entries", 64)):
            require_integer(name, getattr(self, name), 0, example)
        if self.noise is not None:
            require_integer("noise", self.noise, 1, 64)
        if self.width % (2 * self.heads):
            problem = f"is {self.width} and heads is {self.heads}"
            raise UserError(problem, "must be a multiple of 2·heads", "pass for example 384 and 6", field="width")
        if (self.style_draws == 0) != (self.style_entries == 0):
            problem = f"is {self.style_draws} and style_entries is {self.style_entries}"
            allowed = "must both be 0 (no styles) or both be positive"
            raise UserError(problem, allowed, "pass for example 32 and 64", field="style_draws")


TINY = DriftDiTOptions(width=256, depth=6, heads=4)
SMALL = DriftDiTOptions()


class DriftDiT(Generator):
    """Map a noise image [B, C, H, W], or a noise vector [B, noise], to an image [B, C, H, W].

    Args:
        options: Size of the network.
        sample_shape: (C, H, W), with H and W multiples of the patch.
        classes: Number of classes.
        generator: Source of the initial parameters; None: a generator with seed 0.

    Example:
        >>> generator = DriftDiT.tiny(channels=1, classes=10, image_size=8)
        >>> generator.noise_shape, generator.sample_shape, generator.style_draws
        ((1, 8, 8), (1, 8, 8), 32)
    """

    architecture: ClassVar[str] = "drift-dit"
    options_type: ClassVar[type[DriftDiTOptions]] = DriftDiTOptions

    def __init__(
        self,
        options: DriftDiTOptions,
        *,
        sample_shape: tuple[int, ...],
        classes: int,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            options,
            sample_shape=sample_shape,
            classes=classes,
            noise_shape=tuple(sample_shape) if options.noise is None else (options.noise,),
            style_draws=options.style_draws,
            style_entries=options.style_entries,
        )
        _require_patches(self.sample_shape, options.patch)
        self.options = options
        channels, rows, columns = self.sample_shape
        width = options.width
        self.grid = (rows // options.patch, columns // options.patch)
        self.tokens = options.registers + math.prod(self.grid)
        # Noise as tokens.
        if options.noise is None:
            self.patch_embed = PatchEmbedding(channels, width, options.patch)
        else:
            self.noise_embed = NoiseEmbedding(options.noise, width, self.grid)
        self.register_tokens = nn.Parameter(torch.empty(1, options.registers, width))
        # Condition, in dictionaries that give the layers their published names.
        mlp = nn.Sequential(Linear(STRENGTH_FEATURES, width), nn.SiLU(), Linear(width, width))
        self.label_embed = nn.ModuleDict({"embedding_table": Embedding(classes + 1, width, std=INITIAL_STD)})
        self.alpha_embed = nn.ModuleDict({"mlp": mlp})
        if options.style_entries:
            self.style_embed = nn.ModuleDict({"codebook": Embedding(options.style_entries, width, std=INITIAL_STD)})
        # Transformer.
        self.blocks = nn.ModuleList(Block(width, options.heads) for _ in range(options.depth))
        self.final_layer = FinalLayer(width, channels * options.patch**2)
        cos, sin = rope_angles(self.tokens, width // options.heads)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.initialize(generator)

    def draw_parameters(self, generator: torch.Generator) -> None:
        """Draw the register tokens."""
        normal_(self.register_tokens, INITIAL_STD, generator)

    def generate(self, z: Tensor, labels: Tensor, strength: Tensor, style_ids: Tensor) -> Tensor:
        dtype = self.register_tokens.dtype
        c, z = self.condition(labels, strength.to(dtype), style_ids), z.to(dtype)
        if self.options.noise is None:
            t = self.patch_embed(z)
        else:
            t, c = self.noise_embed(z), c + self.noise_embed.modulation(z)
        c = F.silu(c)
        t = torch.cat((self.register_tokens.to(t.dtype).expand(z.shape[0], -1, -1), t), dim=1)
        for block in self.blocks:
            t = block(t, c, self.cos, self.sin)
        return self._unpatch(self.final_layer(t[:, self.options.registers :], c))

    def condition(self, labels: Tensor, strength: Tensor, style_ids: Tensor) -> Float[Tensor, "B D"]:
        """Compute c, the sum of the embeddings."""
        features = strength_features(strength, STRENGTH_FEATURES)
        c = self.label_embed["embedding_table"](labels) + self.alpha_embed["mlp"](features)
        return c + self.style_embed["codebook"](style_ids).sum(dim=1) if self.options.style_entries else c

    def _unpatch(self, t: Float[Tensor, "B tokens values"]) -> Float[Tensor, "B C H W"]:
        """Assemble the image; the values of one token are a square (row, column, channel)."""
        patch = self.options.patch
        squares = t.unflatten(2, (patch, patch, self.sample_shape[0])).unflatten(1, self.grid)
        return squares.permute(0, 5, 1, 3, 2, 4).reshape(t.shape[0], *self.sample_shape)

    @classmethod
    def small(cls, channels: int = 3, classes: int = 10, image_size: int = 32) -> Self:
        """Build a network of width 384, 8 blocks, 6 heads: 26 592 688 parameters with 3 channels and 10 classes."""
        return cls(SMALL, sample_shape=(channels, image_size, image_size), classes=classes)

    @classmethod
    def tiny(cls, channels: int = 3, classes: int = 10, image_size: int = 32) -> Self:
        """Build a network of width 256, 6 blocks, 4 heads: 8 974 896 parameters with 3 channels and 10 classes."""
        return cls(TINY, sample_shape=(channels, image_size, image_size), classes=classes)

    @classmethod
    def from_published(
        cls, state_dict: Mapping[str, Tensor], *, image_size: int | None = None, style_draws: int | None = None
    ) -> Self:
        """Build the network of a published checkpoint and load its weights; the tensors imply its size.

        Args:
            state_dict: State dict of a published checkpoint.
            image_size: Side of the images; None: derived from the length of the position cache, or 32 without one.
            style_draws: Style ids per sample, which no tensor implies; None: 32, or 0 in a network without styles.

        Raises:
            UserError: If a tensor is missing, unexpected or of the wrong shape.
        """
        state = published.without_wrappers(state_dict)
        options, sample_shape, classes = published.read_shape(state, image_size, style_draws)
        model = cls(DriftDiTOptions(**options), sample_shape=sample_shape, classes=classes)
        parameters = {name: tensor for name, tensor in state.items() if not name.startswith("rope.")}
        try:
            model.load_state_dict(parameters)
        except RuntimeError as error:  # a tensor is missing, unexpected or of another shape
            problem = f"the tensors do not fit each other ({error_text(error)})"
            raise UserError(problem, published.PUBLISHED, published.FIX) from None
        return model

    def to_published(self) -> dict[str, Tensor]:
        """Return the state dict as in a published checkpoint, including the position cache."""
        if self.options.noise is not None:
            problem = f"the network takes a noise vector of dimension {self.options.noise}"
            raise UserError(problem, "published networks take a noise image", "train one with generator.noise=none")
        head = self.options.width // self.options.heads
        return published.with_positions(self.state_dict(), tokens=self.tokens, head=head)


def _require_patches(sample_shape: tuple[int, ...], patch: int) -> None:
    if len(sample_shape) != 3 or sample_shape[1] % patch or sample_shape[2] % patch:
        problem = f"is {patch} and sample_shape is {sample_shape}"
        allowed = "sample_shape must be (C, H, W) with H and W multiples of patch"
        raise UserError(problem, allowed, "choose another patch, or use an MLP for points", field="patch")


def modulation(width: int, vectors: int) -> nn.Sequential:
    """Build Linear(silu(c)), initially zero. silu is computed once for all blocks; Identity keeps published names."""
    return nn.Sequential(nn.Identity(), Linear(width, vectors * width, std=0.0))


class Block(nn.Module):
    """t + g ⊙ f((1 + s) ⊙ RMSNorm(t) + b), with attention and then with SwiGLU as f."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = RMSNorm(width)
        self.attn = Attention(width, heads)
        self.norm2 = RMSNorm(width)
        self.mlp = SwiGLU(width, HIDDEN * width)
        self.adaLN_modulation = modulation(width, 6)

    def forward(self, t: Tensor, c: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b_1, s_1, g_1, b_2, s_2, g_2 = self.adaLN_modulation(c).unsqueeze(1).chunk(6, dim=-1)
        t = t + g_1 * self.attn((1 + s_1) * self.norm1(t) + b_1, cos, sin)
        return t + g_2 * self.mlp((1 + s_2) * self.norm2(t) + b_2)


class FinalLayer(nn.Module):
    """Linear((1 + s) ⊙ RMSNorm(t) + b)."""

    def __init__(self, width: int, values: int) -> None:
        super().__init__()
        self.norm = RMSNorm(width)
        self.linear = Linear(width, values, std=INITIAL_STD)
        self.adaLN_modulation = modulation(width, 2)

    def forward(self, t: Tensor, c: Tensor) -> Tensor:
        b, s = self.adaLN_modulation(c).unsqueeze(1).chunk(2, dim=-1)
        return self.linear((1 + s) * self.norm(t) + b)
