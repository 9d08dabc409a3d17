"""Masks: True = use. [..., n] is about a reference, [..., B, n] about a reference and a query; inside it is l = −∞."""

from __future__ import annotations

import torch

from truedrift.axes import Tensor
from truedrift.validation import mistake, require_broadcastable, require_mask


def usable(mask: Tensor | None, x: Tensor, y: Tensor, what: str = "mask") -> tuple[Tensor | None, Tensor]:
    """The mask as [..., B or 1, n], and y with zeros where no query uses it, whatever stood there."""
    if mask is None:
        return None, y
    mask = spread_mask(mask, x, y, what)
    return mask, y.masked_fill(~mask.any(-2).unsqueeze(-1), 0)


def spread_mask(mask: Tensor, x: Tensor, y: Tensor, what: str = "mask") -> Tensor:
    """The mask as [..., B or 1, n]. With as many dimensions as x or y it is that already, with fewer it is [..., n]."""
    B, n, dimensions = x.shape[-2], y.shape[-2], max(x.ndim, y.ndim)
    allowed = f"[..., {n}] or [..., {B}, {n}]"
    require_mask(mask, n, allowed, what)
    if mask.ndim < dimensions:
        mask = mask.unsqueeze(-2)
    if mask.shape[-2] not in (1, B):
        came = f"{what} has shape {list(mask.shape)}"
        raise mistake(came, f"allowed is {allowed}", "give one row a query and one column a reference")
    require_broadcastable(f"{what}, x and y", mask.shape[:-2], x.shape[:-2], y.shape[:-2])
    leading = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    if torch.broadcast_shapes(mask.shape[:-2], leading) != leading:
        came = f"{what} has leading dimensions {list(mask.shape[:-2])}, which would repeat x and y"
        raise mistake(came, f"allowed are those of x and y, {list(leading)}", "unsqueeze it to [..., B, n]")
    return mask
