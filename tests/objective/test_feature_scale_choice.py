"""Which feature scale fits: the length of points is lost by "standardize-l2", and drift_loss warns about it."""

import warnings

import pytest
import torch

from truedrift import drift_loss

RADIUS = 2.0


def ring(count, generator):
    """Eight Gaussians on a circle."""
    angle = torch.randint(8, (count,), generator=generator) * (torch.pi / 4)
    points = RADIUS * torch.stack((angle.cos(), angle.sin()), -1)
    return points + 0.1 * torch.randn(count, 2, generator=generator)


def trained_radius(feature_scale):
    """Move 64 points by the loss, starting in the middle; return their mean radius."""
    generator = torch.Generator().manual_seed(0)
    x = torch.nn.Parameter(0.5 * torch.randn(64, 2, generator=generator))
    optimizer = torch.optim.Adam([x], lr=0.05)
    options = {"normalization": "row", "form": "separate", "matched": True, "temperatures": (0.05, 0.2, 1.0)}
    for _ in range(150):
        optimizer.zero_grad()
        drift_loss(x, ring(64, generator), feature_scale=feature_scale, **options).loss.backward()
        optimizer.step()
    return float(x.detach().norm(dim=-1).mean())


def test_only_mean_distance_learns_the_radius_of_points():
    assert trained_radius("mean-distance") == pytest.approx(RADIUS, abs=0.1)
    assert trained_radius("standardize-l2") < RADIUS - 0.2


@pytest.mark.parametrize("D", [1, 2, 7])
def test_few_dimensions_give_a_warning(D):
    gen, pos = torch.randn(2, 4, 4, D, generator=torch.Generator().manual_seed(0))
    with pytest.warns(
        UserWarning, match=f"with D = {D} loses the length .*; pass feature_scale='mean-distance'"
    ) as seen:
        drift_loss(gen, pos)
    assert seen[0].filename == __file__  # the line of the caller


def test_other_features_and_scales_give_none():
    gen, pos = torch.randn(2, 4, 4, 8, generator=torch.Generator().manual_seed(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drift_loss(gen, pos)
        for feature_scale in ("mean-distance", "none"):
            drift_loss(gen[..., :2], pos[..., :2], feature_scale=feature_scale)


def test_the_warning_does_not_break_vmap():
    gen, pos = torch.randn(2, 3, 4, 2, generator=torch.Generator().manual_seed(0))
    with pytest.warns(UserWarning, match="D = 2"):
        mapped = torch.func.vmap(lambda x, y: drift_loss(x, y).loss)(gen, pos)
    torch.testing.assert_close(mapped, drift_loss(gen, pos).loss)
