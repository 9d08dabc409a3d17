"""`drift_loss(share=…)`: one mean distance and one RMS for all groups of a part, against a loop over groups."""

import math

import pytest
import torch
from oracles.field import literal_drift
from oracles.matching import literal_matched_drift

from truedrift import drift_loss
from truedrift.errors import UserError
from truedrift.objective import general

TEMPERATURES = (0.1, 0.5)
PARTS = (3, 1, 2)


def features(rows, seed, D=4):
    """[6 problems, 2 classes, rows, D], every problem on another scale."""
    values = torch.randn(6, 2, rows, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values * torch.tensor([0.5, 1.0, 2.0, 1.0, 5.0, 0.1], dtype=torch.float64).view(-1, 1, 1, 1)


def literal_field(x, y, tau, *, form, normalization, matched):
    """The field of one group with ABC on both sides."""
    if matched:
        return literal_matched_drift(x, y, x, tau=tau, own=True, normalization=normalization, form=form)
    others = ~torch.eye(len(x), dtype=torch.bool)
    return literal_drift(x, y, x, tau=tau, normalization=normalization, form=form, use_neg=others).V


def literal_losses(gen, pos, *, form, normalization, scale, matched):
    """The loss [6, 2] of every group, by loops over parts, groups, temperatures and windows.

    The ε of the RMS is relative to the masses of the product form. It is left out here and changes the loss by less
    than 5e-5.
    """
    epsilon = 1e-8 if form == "separate" else 0.0
    D, losses, start = gen.shape[-1], {}, 0
    for size in PARTS:
        groups = [(p, c) for p in range(start, start + size) for c in range(2)]
        start += size
        # One mean distance: of all pairs of a generated feature with a generated or positive one.
        s = 1.0
        if scale == "mean-distance":
            pairs = [
                math.dist(x, y)
                for p, c in groups
                for x in gen[p, c].tolist()
                for y in gen[p, c].tolist() + pos[p, c].tolist()
            ]
            s = sum(pairs) / len(pairs)
        # One RMS per temperature.
        total = dict.fromkeys(groups, 0.0)
        for tau in TEMPERATURES:
            fields = {}
            for group in groups:
                x, y = gen[group].detach() / s, pos[group] / s
                field = literal_field(x, y, tau, form=form, normalization=normalization, matched=matched)
                fields[group] = field * (D**0.5 if scale == "mean-distance" else 1.0)
            square = torch.stack([V.square().mean() for V in fields.values()]).mean()
            for group, V in fields.items():
                total[group] = total[group] + V / (square + epsilon).sqrt()
        for group in groups:
            c = s / D**0.5 if scale == "mean-distance" else 1.0
            f = gen[group] / c
            losses[group] = (f - (f.detach() + total[group])).square().mean()
    return torch.stack([torch.stack([losses[p, c] for c in range(2)]) for p in range(6)])


@pytest.mark.parametrize("block", [general.BLOCK_ELEMENTS, 1])
@pytest.mark.parametrize(
    ("form", "normalization", "matched"),
    [
        ("separate", "row", True),
        ("separate", "symmetric", True),
        ("product", "row", True),
        ("product", "bidirectional", False),  # the recipes with feature maps
    ],
)
@pytest.mark.parametrize("scale", ["mean-distance", "none"])
def test_loss_and_gradient_are_those_of_the_loop(monkeypatch, form, normalization, matched, scale, block):
    """In one block, and with one problem per block."""
    monkeypatch.setattr(general, "BLOCK_ELEMENTS", block)
    gen, pos = features(4, 0).requires_grad_(), features(6, 1)
    options = {"form": form, "normalization": normalization, "matched": matched, "feature_scale": scale}
    loss = drift_loss(gen, pos, share=PARTS, temperatures=TEMPERATURES, **options).loss
    expected = literal_losses(gen, pos, form=form, normalization=normalization, scale=scale, matched=matched)
    tolerance = 1e-10 if form == "separate" else 5e-5
    torch.testing.assert_close(loss, expected, rtol=tolerance, atol=1e-12)
    (gradient,) = torch.autograd.grad(loss.sum(), gen)
    (literal,) = torch.autograd.grad(expected.sum(), gen)
    torch.testing.assert_close(gradient, literal, rtol=10 * tolerance, atol=1e-10 if form == "separate" else 1e-6)
    alone = drift_loss(gen, pos, temperatures=TEMPERATURES, **options).loss  # negative control
    assert not torch.allclose(alone, expected, rtol=0.02)


def test_reports_are_those_of_the_shared_scale():
    """Energy distances do not depend on the scale; effective sizes do."""
    gen, pos = features(4, 0), features(6, 1)
    options = {"form": "separate", "normalization": "row", "feature_scale": "mean-distance", "temperatures": (0.1,)}
    shared, alone = drift_loss(gen, pos, share=(6,), **options).report, drift_loss(gen, pos, **options).report
    torch.testing.assert_close(shared.energy, alone.energy)
    ratio = shared.n_eff_pos[..., 0] / alone.n_eff_pos[..., 0]
    assert (ratio[5] > 2).all()  # its features are near each other on the common scale
    assert (ratio[4] < 1).all()


@pytest.mark.parametrize("share", [(3, 2), (), (6, 0), (6.0,), (3, 1, 2, 1)])
def test_parts_must_add_up(share):
    with pytest.raises(UserError, match=r"share is \(.*\) with gen \[6, 2, 4, 4\]; must be positive integers"):
        drift_loss(features(4, 0), features(6, 1), share=share)


def test_options_that_exclude_sharing():
    gen, pos = features(4, 0), features(6, 1)
    with pytest.raises(UserError, match="share is given with path='gram'; these exclude each other"):
        drift_loss(gen, pos, share=(6,), path="gram")
    with pytest.raises(UserError, match="share is given with scale_over_batch; these exclude each other"):
        drift_loss(gen, pos, share=(6,), feature_scale="mean-distance", scale_over_batch=True)
