"""softmax(q kᵀ/√d) v with q, k ← RoPE(RMSNorm(q)), RoPE(RMSNorm(k)), head by head.

RoPE turns the pair (x_j, x_{j+d/2}) of the token at position p by the angle p·10⁴^{−2j/d} (Su et al. 2021, in the
rotate-half arrangement). Positions count all tokens, the registers first.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from truedrift.axes import Float, Tensor
from truedrift.generators.layers import Linear, RMSNorm

BASE = 1e4


def inverse_periods(head: int) -> Float[Tensor, " half"]:
    """10⁴^{−2j/d}, j = 0 … d/2 − 1."""
    return BASE ** (-torch.arange(0, head, 2, dtype=torch.float64) / head)


def turns(tokens: int, head: int) -> tuple[Float[Tensor, "tokens head"], Float[Tensor, "tokens head"]]:
    """cos and sin of every position's angles, each half of the head alike; computed in float64, kept in float32."""
    angles = torch.outer(torch.arange(tokens, dtype=torch.float64), inverse_periods(head)).repeat(1, 2)
    return angles.cos().float(), angles.sin().float()


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [..., tokens, head] turned by each token's angles."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    """Self-attention of all tokens; qkv without bias, the output projection with one."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = Linear(width, 3 * width, bias=False)
        self.proj = Linear(width, width)
        self.q_norm = RMSNorm(width // heads)
        self.k_norm = RMSNorm(width // heads)

    def forward(self, x: Float[Tensor, "B tokens D"], cos: Tensor, sin: Tensor) -> Float[Tensor, "B tokens D"]:
        B, tokens, width = x.shape
        q, k, v = self.qkv(x).view(B, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q = turned(self.q_norm(q), cos, sin).type_as(v)  # under autocast the norms are wider than v
        k = turned(self.k_norm(k), cos, sin).type_as(v)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.proj(mixed.transpose(1, 2).reshape(B, tokens, width))
