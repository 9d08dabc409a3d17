"""Finite features give finite loss, gradient and report; the normalized field in float32 is close to float64."""

import math

import pytest
import torch
from oracles.feature_groups import loss_and_gradient

from truedrift.field import CENTROID_FORMS, JOINT_NORMALIZATIONS, WEIGHTINGS
from truedrift.objective import drift_loss

ENTRIES = (
    "force",
    "n_eff_pos",
    "n_eff_neg",
    "dominated_pos",
    "dominated_neg",
    "correction_pos",
    "correction_neg",
    "spread",
    "energy",
)


def draw(rows, D=6, seed=0):
    return torch.randn(2, rows, D, generator=torch.Generator().manual_seed(seed))


def cases():
    """Return (gen, pos, neg, options) by name; distances of unit features reach 2, so τ = 2e-4 gives d/τ = 10⁴."""
    gen, pos, neg = draw(5), draw(7, seed=1) + 0.3, draw(3, seed=2)
    one, far, near_and_far = gen[:, :1], {"temperatures": (2e-4,)}, {"temperatures": (2e-4, 0.02)}
    return {
        "ordinary": (gen, pos, None, {}),
        "far": (gen, pos, None, {"temperatures": (2e-4, 2e-3)}),
        "one of everything": (one, pos[:, :1], None, {}),
        "one generated": (one, pos, None, {}),
        "one generated, far": (one, pos, neg, far),
        "two generated, far": (gen[:, :2], pos, None, far),
        "all positives equal": (gen, pos[:, :1].expand(2, 7, 6), None, {}),
        "all generated equal": (one.expand(2, 5, 6), pos, None, near_and_far),
        "everything equal": (torch.full((2, 5, 6), 0.1), torch.full((2, 7, 6), 0.1), None, {}),
        "one weight dominates": (gen, torch.cat((one + 1e-4, pos), 1), None, near_and_far),
        "on a reference": (gen, gen.flip(1), gen[:, :2], near_and_far),
        "guided, far": (gen, pos, neg, near_and_far | {"weight_neg": 5.0}),
        "guided with weight 0": (gen, pos, neg, {"weight_neg": 0.0}),
        "one generated, guided with weight 0": (one, pos, neg, {"weight_neg": 0.0}),
        "huge": (gen * 1e15, pos * 1e15, None, {}),
        "tiny": (gen * 1e-15, pos * 1e-15, None, {}),
    }


CASES = cases()


def losses(gen, pos, neg, **options):
    return drift_loss(gen, pos, neg, **options).loss


def weightings(guided, path):
    """Every normalization and form that the path supports with ABC; other estimators with the two that differ most."""
    supported = [each for each in WEIGHTINGS if path != "gram" or not {"sinkhorn", "potential"} & set(each)]
    joint = [each for each in supported if each[0] in JOINT_NORMALIZATIONS and each[1] in CENTROID_FORMS]
    yield from ((normalization, form, "abc") for normalization, form in (joint if guided else supported))
    for estimator in ("standard",) if guided else ("standard", "abc2", "jackknife", "bootstrap"):
        yield "row", "separate", estimator
        yield "bidirectional-loo", "product", estimator


@pytest.mark.parametrize("which", CASES)
@pytest.mark.parametrize(
    ("path", "dtype"),
    [(path, torch.float32) for path in ("gram", "general", "mean-distance", "none")] + [("gram", torch.float64)],
)
def test_finite_input_gives_finite_output(path, which, dtype):
    """Every entry of the report is finite, except the logarithm of a zero force, which is −∞."""
    gen, pos, neg, options = CASES[which]
    gen, pos, neg = gen.to(dtype), pos.to(dtype), None if neg is None else neg.to(dtype)
    options = options | ({"path": path} if path in ("gram", "general") else {"feature_scale": path})
    for normalization, form, estimator in weightings(neg is not None, path):
        leaf = gen.clone().requires_grad_()
        found = drift_loss(
            leaf,
            pos,
            neg,
            normalization=normalization,
            form=form,
            estimator_pos=estimator,
            estimator_neg=estimator,
            generator=torch.Generator().manual_seed(0),
            **options,
        )
        found.loss.sum().backward()
        assert torch.isfinite(found.loss).all()
        assert torch.isfinite(leaf.grad).all()
        T = len(options.get("temperatures", (0.02, 0.05, 0.2)))
        assert found.loss.max() <= T**2 * (1 + 1e-5)
        for entry in ENTRIES:
            assert torch.isfinite(getattr(found.report, entry)).all(), entry
        log_force = found.report.log_force
        assert torch.isfinite(log_force[found.report.force > 0]).all()
        assert (log_force < math.inf).all()  # which NaN is not


@pytest.mark.parametrize("path", ["gram", "general"])
@pytest.mark.parametrize("estimator", ["standard", "abc", "abc2", "jackknife"])
@pytest.mark.parametrize("form", CENTROID_FORMS)
@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
@pytest.mark.parametrize("D", [3, 384])
def test_normalized_field_in_float32_is_near_float64_at_a_thousand_temperatures(
    D, normalization, form, estimator, path
):
    """d reaches 2 and τ is 0.002: the gradient, which is the normalized field, to 1e-3 of its norm."""
    gen, pos, neg = draw(12, D), draw(16, D, seed=1) + 0.3, draw(5, D, seed=2)
    options = {
        "temperatures": (0.002,),
        "normalization": normalization,
        "form": form,
        "estimator_pos": estimator,
        "estimator_neg": estimator,
        "path": path,
    }
    if estimator in ("abc2", "jackknife"):
        neg = None
    _, found = loss_and_gradient(losses, gen, pos, neg, **options)
    doubled = None if neg is None else neg.double()
    _, exact = loss_and_gradient(losses, gen.double(), pos.double(), doubled, **options | {"path": "general"})
    assert (found - exact).norm() <= 1e-3 * exact.norm()


def test_kernel_underflows_at_a_thousand_temperatures():
    """Negative control: exponentiated first, every weight of that batch is 0 in float32, and there is no field."""
    gen, pos = draw(12, 384), draw(16, 384, seed=1) + 0.3
    both = torch.cat((gen, pos), 1)
    unit = torch.nn.functional.normalize((both - both.mean(1, keepdim=True)) / both.std(1, keepdim=True), dim=-1)
    assert ((-torch.cdist(unit[:, :12], unit[:, 12:]) / 0.002).exp() == 0).all()
    assert (drift_loss(gen, pos, temperatures=(0.002,)).loss > 0.99).all()


@pytest.mark.parametrize("feature_scale", ["standardize-l2", "mean-distance", "none"])
def test_features_whose_squares_overflow_give_no_nan(feature_scale):
    gen, pos = (torch.randn(rows, 3, generator=torch.Generator().manual_seed(rows)) * 1e25 for rows in (4, 5))
    gen.requires_grad_()
    loss = drift_loss(gen, pos, feature_scale=feature_scale).loss
    loss.backward()
    assert loss.isfinite()
    assert gen.grad.isfinite().all()
