"""The exact mean of BR-SNIS: its state's law, moved on iteration by iteration.

An iteration joins the state to n − 1 new draws, takes their centroid, and picks the next state among them with
probability w/S. The law of the state has a density r(s) with respect to the pool that depends on the weight alone,
r_0 = 1. With ν for expectations under it, H_1(z) = e^{z − e^z} and 1/S = ∫ e^{−tS} dt as in `power_sums`,

    E[T_k] = ∫ { ν[w y e^{−tw}] φ^{n−1} + (n − 1) ν[e^{−tw}] E[w y e^{−tw}] φ^{n−2} } dt,
    r_{k+1}(s) = r_k(s) ∫ H_1(u − s) φ^{n−1} du + (n − 1) ∫ H_1(u − s) ν[e^{−tw}] φ^{n−2} du.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from truedrift.axes import Float, Tensor
from truedrift.bias.integration.cells import Cells, Nodes


def br_snis_mean(
    cells: Cells, nodes: Nodes, n: Sequence[int], *, iterations: int, burn_in: int
) -> Float[Tensor, "Q S D"]:
    """E[T] − T* for centered cells: the mean of E[T_k] over the iterations that are kept."""
    z = nodes.values()[:, None] - cells.s.unsqueeze(-2)  # [Q or 1, K, J]
    e_z = z.exp()
    H_0, H_1 = (-e_z).exp(), (z - e_z).exp()
    mass, y = cells.channels[..., :1], cells.channels[..., 1:-1]
    phi, B = H_0 @ mass, H_1 @ y  # [Q, K, 1], [Q, K, D]
    means = []
    for size in n:
        alone, joined = (nodes.step * phi ** max(size - k, 0) for k in (1, 2))
        joined = (size - 1) * joined
        kept, stays = torch.zeros_like(B[:, 0]), H_1.mT @ alone
        r = torch.ones_like(mass)
        for k in range(iterations):
            nu = H_0 @ (r * mass)
            if k >= burn_in:
                kept = kept + ((H_1 @ (r * y)) * alone + nu * B * joined).sum(-2)
            r = r * stays + H_1.mT @ (nu * joined)
        means.append(kept / (iterations - burn_in))
    return torch.stack(means, -2)
