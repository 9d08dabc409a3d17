"""KID: the unbiased MMD² of two sets of features under k(f, g) = (f·g/D + 1)³ (Bińkowski and others, 2018).

    KID = (1/n(n−1)) Σ_{i≠j} k(f_i, f_j) + (1/m(m−1)) Σ_{i≠j} k(g_i, g_j) − (2/nm) Σ_{ij} k(f_i, g_j)

over all pairs: other tools average this over random subsets, which estimates the same number with more noise. Its
standard error is that of a U-statistic: with h(f) = mean_j k(f, f_j) − mean_j k(f, g_j), and h(g) likewise,

    error² = 4 Var h(f)/n + 4 Var h(g)/m.
"""

from __future__ import annotations

import torch

from truedrift.axes import Float, Tensor

ROWS = 1024
"""Of the kernel matrix at a time."""


def kernel_distance(f: Float[Tensor, "n D"], g: Float[Tensor, "m D"]) -> tuple[float | None, float | None]:
    """KID and its standard error; None where a side has fewer than two features."""
    n, m = len(f), len(g)
    if min(n, m) < 2:
        return None, None
    f, g = f.double(), g.double()
    own_f = (_row_sums(f, f) - _own(f)) / (n - 1)
    own_g = (_row_sums(g, g) - _own(g)) / (m - 1)
    f_to_g, g_to_f = _row_sums(f, g) / m, _row_sums(g, f) / n
    distance = own_f.mean() + own_g.mean() - 2 * f_to_g.mean()
    error = 2 * torch.sqrt((own_f - f_to_g).var() / n + (own_g - g_to_f).var() / m)
    return float(distance), float(error)


def _row_sums(f: Tensor, g: Tensor) -> Float[Tensor, " n"]:
    return torch.cat([(rows @ g.mT / f.shape[1] + 1).pow(3).sum(1) for rows in f.split(ROWS)])


def _own(f: Tensor) -> Float[Tensor, " n"]:
    return (f.square().sum(1) / f.shape[1] + 1).pow(3)
