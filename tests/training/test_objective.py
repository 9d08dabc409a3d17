"""`Objective`: loss and gradient of features by `drift_loss` with every option, and in the published arithmetic."""

import dataclasses

import pytest
import torch
from oracles.feature_groups import feature_groups

from truedrift.centroids import ABC2, Jackknife
from truedrift.objective import abc_release_loss, drift_loss
from truedrift.training import Objective, ObjectiveOptions

OPTIONS = ObjectiveOptions(
    temperatures=(0.1, 0.5),
    estimator_pos="abc",
    estimator_neg="standard",
    normalization="row",
    form="separate",
    feature_scale="mean-distance",
)


def draw_groups(u=0):
    """Draw features [S = 2, C = 2, rows, D]; weights are per class, as in a step."""
    gen, pos, neg, weight = feature_groups(4, 6, u)
    return gen, pos, neg, None if weight is None else weight[0]


def reference_loss(weights, gen, pos, neg=None, **options):
    gen = gen.clone().requires_grad_()
    losses = drift_loss(gen, pos, neg, **options).loss
    scaled = sum(w * losses[s].sum() for s, w in enumerate(weights)) / losses.numel()
    return losses.detach().mean(), torch.autograd.grad(scaled, gen)[0]


@pytest.mark.parametrize("u", [0, 3], ids=["unguided", "guided"])
def test_every_option_reaches_drift_loss(u):
    gen, pos, neg, weight = draw_groups(u)
    weights = (1.0, 1.7)
    result = Objective(OPTIONS, weights)(gen, pos, neg, weight)
    options = dataclasses.asdict(OPTIONS)
    del options["arithmetic"], options["pixels"]
    loss, gradient = reference_loss(weights, gen, pos, neg, weight_neg=weight, **options)
    torch.testing.assert_close(result.loss, loss, rtol=1e-12, atol=0)
    torch.testing.assert_close(result.gradient, gradient, rtol=1e-12, atol=1e-15)
    assert not result.gradient.requires_grad
    for name, other in (
        ("temperatures", (0.1, 0.6)),
        ("estimator_pos", "standard"),
        ("estimator_neg", "abc"),
        ("normalization", "bidirectional"),
        ("form", "product"),
        ("feature_scale", "none"),
        ("kernel", "gaussian"),
    ):
        changed = Objective(dataclasses.replace(OPTIONS, **{name: other}), weights)(gen, pos, neg, weight)
        assert not torch.allclose(changed.gradient, gradient, rtol=1e-6), name


def test_gradient_is_computed_under_no_grad():
    gen, pos, _, _ = draw_groups()
    with torch.no_grad():
        result = Objective(OPTIONS, (1.0, 1.0))(gen, pos)
    assert result.gradient.abs().max() > 0


def test_custom_estimators_and_kernel_replace_the_named_ones():
    gen, pos, _, _ = draw_groups()

    def cauchy(x, y, tau):
        return -((torch.cdist(x, y) / tau).square()).log1p()

    result = Objective(OPTIONS, (1.0, 1.0), estimator_pos=ABC2(), estimator_neg=Jackknife(), kernel=cauchy)(gen, pos)
    options = dataclasses.asdict(OPTIONS) | {"estimator_pos": "abc2", "estimator_neg": "jackknife", "kernel": cauchy}
    del options["arithmetic"], options["pixels"]
    loss, gradient = reference_loss((1.0, 1.0), gen, pos, **options)
    torch.testing.assert_close(result.gradient, gradient, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(result.loss, loss, rtol=1e-12, atol=0)
    named = Objective(OPTIONS, (1.0, 1.0))(gen, pos)
    assert not torch.allclose(named.gradient, gradient, rtol=1e-3)


@pytest.mark.parametrize("sides", [("abc", "abc"), ("standard", "abc"), ("abc", "standard"), ("abc2", "abc")])
def test_published_arithmetic_equals_its_reference_function(sides):
    options = ObjectiveOptions(
        arithmetic="abc-release", temperatures=(0.3, 0.8), estimator_pos=sides[0], estimator_neg=sides[1]
    )
    gen, pos, _, _ = (None if side is None else side.float() for side in draw_groups())
    result = Objective(options, (1.0, 1.0))(gen, pos)
    leaf = gen.clone().requires_grad_()
    loss = abc_release_loss(
        list(leaf.flatten(1, 2)),
        list(pos.flatten(1, 2)),
        torch.arange(2).repeat_interleave(4),
        torch.arange(2).repeat_interleave(6),
        temperatures=(0.3, 0.8),
        abc=("standard", "abc", "abc2").index(sides[0]),
        abc_neg=("standard", "abc", "abc2").index(sides[1]),
    )
    torch.testing.assert_close(result.loss, loss.detach(), rtol=1e-6, atol=0)
    torch.testing.assert_close(result.gradient, torch.autograd.grad(loss, leaf)[0], rtol=1e-5, atol=1e-8)
    stable = Objective(dataclasses.replace(options, arithmetic="stable"), (1.0, 1.0))(gen, pos)
    # The report is computed in the stable arithmetic.
    torch.testing.assert_close(result.report().n_eff_pos, stable.report().n_eff_pos)
    assert result.energy().shape == (2,)
    torch.testing.assert_close(result.energy(), stable.energy(), rtol=1e-5, atol=1e-6)


def test_report_equals_that_of_drift_loss():
    gen, pos, neg, weight = draw_groups(3)
    report = Objective(OPTIONS, (1.0, 1.0))(gen, pos, neg, weight).report()
    assert report.n_eff_pos.shape == (2, 2, 2)
    options = {name: getattr(OPTIONS, name) for name in ("temperatures", "normalization", "form", "feature_scale")}
    expected = drift_loss(
        gen, pos, neg, weight_neg=weight, estimator_pos="abc", estimator_neg="standard", **options
    ).report
    for name in ("force", "n_eff_neg", "correction_pos", "spread"):
        torch.testing.assert_close(getattr(report, name), getattr(expected, name))
    energy = Objective(OPTIONS, (1.0, 1.0))(gen, pos, neg, weight).energy()
    torch.testing.assert_close(energy, expected.energy.mean(-1))


@pytest.mark.parametrize("arithmetic", ["stable", "abc-release"])
def test_energy_of_a_side_with_one_sample_is_unknown(arithmetic):
    gen, pos, _, _ = (None if side is None else side.float() for side in draw_groups())
    options = ObjectiveOptions(arithmetic=arithmetic, temperatures=(0.3, 0.8), form="product")
    objective = Objective(options, (1.0, 1.0))
    assert objective(gen, pos).energy().isfinite().all()
    assert objective(gen[:, :, :1], pos).energy().isnan().all()
    assert objective(gen, pos[:, :, :1]).energy().isnan().all()
