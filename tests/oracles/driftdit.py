"""DriftDiT as its description reads, from a published state dict: one image, one head, one token pair at a time.

Plain loops in float64, nothing shared with the package: no batched attention, no convolution, no norm layers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

State = dict[str, Tensor]


def image(state: State, z: Tensor, label: int, strength: float, styles: list[int], heads: int) -> Tensor:
    """The image [C, H, W] of one noise image z."""
    s = {name: tensor.double() for name, tensor in state.items()}
    c = condition(s, label, strength, styles)
    rows = [*s["register_tokens"][0], *patches(s, z.double())]
    depth = 1 + max(int(name.split(".")[1]) for name in s if name.startswith("blocks."))
    for i in range(depth):
        rows = block({name.removeprefix(f"blocks.{i}."): t for name, t in s.items()}, rows, c, heads)
    kept = rows[s["register_tokens"].shape[1] :]
    shift, scale = two = (
        (s["final_layer.adaLN_modulation.1.weight"] @ silu(c))
        .add(s["final_layer.adaLN_modulation.1.bias"])
        .split(len(c))
    )
    assert len(two) == 2
    values = [
        s["final_layer.linear.weight"] @ (rms(row, s["final_layer.norm.weight"]) * (1 + scale) + shift)
        + s["final_layer.linear.bias"]
        for row in kept
    ]
    return assembled(values, tuple(z.shape), s["patch_embed.proj.weight"].shape[-1])


def condition(s: State, label: int, strength: float, styles: list[int]) -> Tensor:
    features = [math.cos(strength * 10 ** (-j / 128)) for j in range(128)]
    features += [math.sin(strength * 10 ** (-j / 128)) for j in range(128)]
    hidden = s["alpha_embed.mlp.0.weight"] @ torch.tensor(features).double() + s["alpha_embed.mlp.0.bias"]
    c = s["label_embed.embedding_table.weight"][label]
    c = c + s["alpha_embed.mlp.2.weight"] @ silu(hidden) + s["alpha_embed.mlp.2.bias"]
    for style in styles:
        c = c + s["style_embed.codebook.weight"][style]
    return c


def patches(s: State, z: Tensor) -> list[Tensor]:
    weight, bias = s["patch_embed.proj.weight"], s["patch_embed.proj.bias"]
    p = weight.shape[-1]
    return [
        torch.stack([(kernel * z[:, top : top + p, left : left + p]).sum() for kernel in weight]) + bias
        for top in range(0, z.shape[1], p)
        for left in range(0, z.shape[2], p)
    ]


def block(s: State, rows: list[Tensor], c: Tensor, heads: int) -> list[Tensor]:
    six = s["adaLN_modulation.1.weight"] @ silu(c) + s["adaLN_modulation.1.bias"]
    shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = six.split(len(c))
    inputs = [rms(row, s["norm1.weight"]) * (1 + scale_1) + shift_1 for row in rows]
    rows = [row + gate_1 * more for row, more in zip(rows, attention(s, inputs, heads), strict=True)]
    done = []
    for row in rows:
        x = rms(row, s["norm2.weight"]) * (1 + scale_2) + shift_2
        done.append(row + gate_2 * (s["mlp.w2.weight"] @ (silu(s["mlp.w1.weight"] @ x) * (s["mlp.w3.weight"] @ x))))
    return done


def attention(s: State, inputs: list[Tensor], heads: int) -> list[Tensor]:
    width = len(inputs[0])
    d = width // heads
    q, k, v = ([part @ x for x in inputs] for part in s["attn.qkv.weight"].split(width))
    mixed = [torch.zeros(width).double() for _ in inputs]
    for head in range(heads):
        of = slice(head * d, (head + 1) * d)
        queries = [rotated(rms(x[of], s["attn.q_norm.weight"]), at) for at, x in enumerate(q)]
        keys = [rotated(rms(x[of], s["attn.k_norm.weight"]), at) for at, x in enumerate(k)]
        for at, query in enumerate(queries):
            weights = [math.exp(float(query @ key) / math.sqrt(d)) for key in keys]
            mixed[at][of] = sum(w * x[of] for w, x in zip(weights, v, strict=True)) / sum(weights)
    return [s["attn.proj.weight"] @ x + s["attn.proj.bias"] for x in mixed]


def rotated(x: Tensor, position: int) -> Tensor:
    """The pair (x_j, x_{j+d/2}) as a complex number, times e^{i·position·θ_j}."""
    half = len(x) // 2
    out = x.clone()
    for j in range(half):
        turned = complex(x[j], x[j + half]) * complex(
            math.cos(position * 10000 ** (-j / half)), math.sin(position * 10000 ** (-j / half))
        )
        out[j], out[j + half] = turned.real, turned.imag
    return out


def rms(x: Tensor, gain: Tensor) -> Tensor:
    return gain * x / math.sqrt(float(x @ x) / len(x) + 1e-6)


def silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def assembled(values: list[Tensor], shape: tuple[int, ...], p: int) -> Tensor:
    """Token t is the square at (t div columns, t mod columns); its values run over rows, columns, channels."""
    channels, height, across = shape
    out = torch.zeros(shape).double()
    for y in range(height):
        for x in range(across):
            token = (y // p) * (across // p) + x // p
            for channel in range(channels):
                out[channel, y, x] = values[token][((y % p) * p + x % p) * channels + channel]
    return out
