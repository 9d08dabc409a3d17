"""The fast forms of the transforms against their definition, one cell and one node at a time."""

import math

import pytest
import torch

from truedrift.bias import quadrature

POWERS = (1, 2, 5)


def literal(
    cells: quadrature.PoolCells, at: quadrature.QuadratureNodes, q: int, k: int
) -> tuple[dict[int, list[float]], float]:
    """M_p over channels and log φ of query q at node k, summed in order."""
    u = float(at.values()[k])
    rows = list(zip(cells.s.expand(len(cells.channels), -1)[q].tolist(), cells.channels[q].tolist(), strict=True))
    M = {}
    for p in POWERS:
        weights = [math.exp(p * (u - s) - math.exp(min(u - s, 50))) for s, _ in rows]
        M[p] = [math.fsum(w * row[c] for w, (_, row) in zip(weights, rows, strict=True)) for c in range(4)]
    phi = math.fsum(row[0] * math.exp(-math.exp(min(u - s, 50))) for s, row in rows)
    return M, phi


@pytest.fixture(params=["short", "long"])
def form(request, monkeypatch):
    """Run with the single product of a short grid, and with the windows of a long one."""
    if request.param == "long":
        monkeypatch.setattr(quadrature, "_ELEMENTS", 0)
    return request.param


@pytest.mark.parametrize("origin", [0.0, -0.125])
def test_a_grid_has_the_sums_of_its_cells(form, origin):
    generator = torch.Generator().manual_seed(0)
    grid = torch.rand(2, 150, 4, generator=generator, dtype=torch.float64)
    grid[..., 0] /= grid[..., 0].sum(-1, keepdim=True)
    cells = quadrature.histogram(grid, 0.125, origin)
    at = quadrature.quadrature_nodes(float(cells.s.max()), 100, 0.375, 0.25).shifted(origin)
    found = quadrature.transforms(cells, at, POWERS)
    assert found.log_phi.shape == (2, at.count)
    for q in range(2):
        for k in range(0, at.count, 7):
            M, phi = literal(cells, at, q, k)
            for p in POWERS:
                expected = torch.tensor(M[p], dtype=torch.float64)
                torch.testing.assert_close(found.M[p][q, k], expected, rtol=1e-12, atol=1e-17)
            if phi > 1e-250:
                assert float(found.log_phi[q, k]) == pytest.approx(math.log(phi), rel=1e-9, abs=1e-15)


def test_log_phi_stays_accurate_where_phi_is_nearly_one():
    """Far to the left 1 − φ = t E[w] to rounding, although φ itself rounds to 1."""
    cells = quadrature.histogram(torch.full((1, 40, 4), 1 / 40, dtype=torch.float64), 0.125)
    found = quadrature.transforms(cells, quadrature.QuadratureNodes(-38.0, 0.375, 4), (1,))
    torch.testing.assert_close(-found.log_phi, found.M[1][..., 0], rtol=1e-12, atol=0)
