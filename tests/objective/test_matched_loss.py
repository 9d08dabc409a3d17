"""Matched references, fresh negatives and the new normalizations in the drift loss, against loops over windows."""

import pytest
import torch
from oracles.matching import literal_matched_drift

from truedrift import drift_loss
from truedrift.errors import UserError

TEMPERATURES = (0.1, 0.4)


def features(*shape, seed=0, shift=0.0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + shift


def batch(g, n, r=None, groups=2, D=5):
    gen, pos = features(groups, g, D), features(groups, n, D, seed=1, shift=0.5)
    return gen.requires_grad_(), pos, None if r is None else features(groups, r, D, seed=2, shift=-0.1)


def unit_features(gen, pos, fresh):
    """(f − μ)/σ over all features of a group, divided by the norm."""
    together = torch.cat([gen.detach(), pos] if fresh is None else [gen.detach(), pos, fresh])
    mean, deviation = together.mean(0), together.std(0)
    return [
        None if f is None else torch.nn.functional.normalize((f - mean) / deviation, dim=-1) for f in (gen, pos, fresh)
    ]


def literal_loss(gen, pos, fresh, **options):
    """The loss of every group: fields of all temperatures divided by their RMS and added."""
    losses = []
    for k in range(len(gen)):
        f, y, z = unit_features(gen[k], pos[k], None if fresh is None else fresh[k])
        x = f.detach()
        fields = [
            literal_matched_drift(x, y, x if z is None else z, tau=tau, own=z is None, relative=True, **options)
            for tau in TEMPERATURES
        ]
        total = sum(V / (V.square().mean() + 1e-8).sqrt() for V in fields)
        losses.append((f - (x + total)).square().mean())
    return torch.stack(losses)


CASES = [
    # g, n, r, options
    (6, 6, None, {"normalization": "row", "form": "separate"}),
    (4, 9, None, {"normalization": "row", "form": "separate"}),
    (4, 9, None, {"normalization": "row", "form": "product"}),
    (4, 5, None, {"normalization": "symmetric", "form": "product"}),
    (4, 9, None, {"normalization": "symmetric", "form": "product"}),
    (7, 3, None, {"normalization": "symmetric", "form": "separate"}),
    (7, 4, None, {"normalization": "row", "form": "product"}),
    (4, 5, 5, {"normalization": "bidirectional", "form": "product", "matched": False}),
    (4, 5, 3, {"normalization": "row", "form": "product", "matched": False}),
    (4, 6, 3, {"normalization": "bidirectional", "form": "product"}),
    (4, 6, 3, {"normalization": "bidirectional-loo", "form": "separate"}),
    (4, 6, 3, {"normalization": "symmetric", "form": "product"}),
    (4, 6, 4, {"normalization": "symmetric", "form": "product"}),
    (1, 6, 3, {"normalization": "row", "form": "separate"}),
]
GENERAL = [
    (4, 6, 3, {"normalization": "sinkhorn", "form": "separate"}),
    (4, 6, None, {"normalization": "row", "form": "potential"}),
    (4, 6, 3, {"normalization": "row", "form": "potential"}),
    (4, 6, None, {"normalization": "row", "form": "potential", "matched": False}),
]


@pytest.mark.parametrize("estimator", ["standard", "abc"])
@pytest.mark.parametrize(("g", "n", "r", "options"), CASES + GENERAL, ids=str)
@pytest.mark.parametrize("path", ["general", "gram"])
def test_loss_and_gradient_are_those_of_the_loop(g, n, r, options, estimator, path):
    if path == "gram" and (g, n, r, options) in GENERAL:
        pytest.skip("not on the Gram path")
    gen, pos, fresh = batch(g, n, r)
    options = {"matched": True} | options
    chosen = {"estimator_pos": estimator, "estimator_neg": estimator, "temperatures": TEMPERATURES, "path": path}
    loss = drift_loss(gen, pos, fresh_neg=fresh, **options, **chosen).loss
    expected = literal_loss(gen, pos, fresh, estimator=estimator, **options)
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-12)
    (gradient,) = torch.autograd.grad(loss.sum(), gen)
    (literal,) = torch.autograd.grad(expected.sum(), gen)
    torch.testing.assert_close(gradient, literal, rtol=1e-8, atol=1e-12)


def test_sizes_that_allow_no_windows_are_rejected():
    gen, pos, fresh = batch(2, 6, 1)
    row = {"normalization": "row", "matched": True}
    with pytest.raises(UserError, match="matched is True with 6 positives and 1 negative per query"):
        drift_loss(gen, pos, **row)
    with pytest.raises(UserError, match="matched is True with 6 positives and 1 negative per query"):
        drift_loss(gen, pos, fresh_neg=fresh, **row)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"matched": True, "normalization": "row"}, "matched=True"),
        ({"normalization": "symmetric"}, "normalization='symmetric'"),
        ({"fresh": True}, "fresh negatives"),
        ({"fresh": True, "matched": True}, "matched=True, fresh negatives"),
    ],
)
def test_unconditional_negatives_are_rejected(options, shown):
    gen, pos, neg = batch(4, 6, 3)
    given = dict(options)
    fresh = neg if given.pop("fresh", False) else None
    message = (
        f"unconditional negatives are given with {shown}; guidance allows normalization 'row', .*; "
        f"omit the unconditional negatives, or {shown}$"
    )
    with pytest.raises(UserError, match=message):
        drift_loss(gen, pos, neg, fresh_neg=fresh, **given)


def test_bidirectional_windows_are_rejected_with_advice():
    gen, pos, _ = batch(4, 6)
    message = (
        "normalization is 'bidirectional' with matched=True; .*; pass 'row' or 'symmetric', or use fresh negatives"
    )
    with pytest.raises(UserError, match=message):
        drift_loss(gen, pos, matched=True)


def test_fresh_negatives_have_no_gradient_and_replace_the_generated_ones():
    gen, pos, fresh = batch(4, 6, 5)
    fresh.requires_grad_()
    drift_loss(gen, pos, fresh_neg=fresh).loss.sum().backward()
    assert fresh.grad is None
    report = drift_loss(gen, pos, fresh_neg=fresh).report
    assert torch.isfinite(report.n_eff_neg).all()
    far = fresh.detach() + 100
    assert not torch.allclose(drift_loss(gen, pos, fresh_neg=far).loss, drift_loss(gen, pos, fresh_neg=fresh).loss)


def test_matching_equal_sides_changes_nothing():
    """One window per side: 5 others and 5 positives."""
    gen, pos, _ = batch(6, 5)
    plain = drift_loss(gen, pos, normalization="row", form="separate").loss
    matched = drift_loss(gen, pos, normalization="row", form="separate", matched=True).loss
    torch.testing.assert_close(matched, plain, rtol=1e-10, atol=0)
