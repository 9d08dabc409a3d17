"""Symmetries of the field, its derivatives, its dtypes, and function transforms."""

import pytest
import torch
from torch import Tensor

from truedrift.field import JOINT_NORMALIZATIONS, WEIGHTINGS, drift

OPTIONS = WEIGHTINGS


def samples(*leading, B=4, n=6, m=5, D=3, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*leading, B, D, generator=generator, dtype=dtype)
    y_pos = 0.5 * torch.randn(*leading, n, D, generator=generator, dtype=dtype).exp() + 0.3
    y_neg = 1.5 * torch.randn(*leading, m, D, generator=generator, dtype=dtype) - 0.4
    return x, y_pos, y_neg


def rotation(D, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(D, D, generator=generator, dtype=torch.float64))[0]


def test_swapping_the_sides_reverses_the_field():
    """Swapping positives and negatives reverses a row-normalized separate field."""
    x, y_pos, y_neg = samples()
    V = drift(x, y_pos, y_neg, tau=0.7).V
    torch.testing.assert_close(drift(x, y_neg, y_pos, tau=0.7).V, -V, rtol=1e-13, atol=1e-15)
    assert V.norm(dim=1).min() > 0.1


def test_swapping_different_sides_does_not_reverse_the_field():
    """Negative control of the test above."""
    x, y_pos, y_neg = samples()
    mixed = {"tau": 0.7, "estimator_pos": "standard", "estimator_neg": "abc"}
    assert (drift(x, y_pos, y_neg, **mixed).V + drift(x, y_neg, y_pos, **mixed).V).norm() > 0.1
    own = {"tau": 0.7, "self_mask": torch.arange(4)}
    assert (drift(x, y_pos, y_neg, **own).V + drift(x, y_neg, y_pos, **own).V).norm() > 0.1


def test_no_force_where_both_sides_are_the_same():
    x, y_pos, _ = samples()
    for normalization, form in OPTIONS:
        V = drift(x, y_pos, y_pos, tau=0.7, normalization=normalization, form=form).V
        assert V.abs().max() < 1e-15


@pytest.mark.parametrize(("normalization", "form"), OPTIONS)
def test_translation_and_rotation(normalization, form):
    options = {"tau": 0.7, "normalization": normalization, "form": form, "self_mask": torch.tensor([2, -1, 0, 1])}
    data = samples()
    R, shift = rotation(3), torch.tensor([3.0, -1.0, 20.0], dtype=torch.float64)
    still, moved = drift(*data, **options), drift(*(points @ R.T + shift for points in data), **options)
    torch.testing.assert_close(moved.V, still.V @ R.T, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(moved.T_pos, still.T_pos @ R.T + shift, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("normalization", "form"), OPTIONS)
def test_scaling_lengths_and_temperature_scales_the_field(normalization, form):
    """Lengths and temperature scaled alike scale the field; a gradient of a log-density scales inversely."""
    data = samples()
    still = drift(*data, tau=0.7, normalization=normalization, form=form).V
    scaled = drift(*(3 * points for points in data), tau=2.1, normalization=normalization, form=form).V
    torch.testing.assert_close(scaled, still / 3 if form == "potential" else 3 * still)


@pytest.mark.parametrize(("normalization", "form"), OPTIONS)
def test_permuting_samples(normalization, form):
    """Permuting queries permutes the field; permuting references changes nothing if self_mask is permuted too."""
    x, y_pos, y_neg = samples()
    own = torch.tensor([2, -1, 0, 1])
    options = {"tau": 0.7, "normalization": normalization, "form": form}
    V = drift(x, y_pos, y_neg, self_mask=own, **options).V
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(drift(x[order], y_pos, y_neg, self_mask=own[order], **options).V, V[order])
    of_pos, of_neg = torch.tensor([4, 2, 0, 5, 1, 3]), torch.tensor([3, 1, 4, 0, 2])
    place = torch.argsort(of_neg)
    moved = torch.where(own >= 0, place[own], -1)
    torch.testing.assert_close(drift(x, y_pos[of_pos], y_neg[of_neg], self_mask=moved, **options).V, V)
    wrong = drift(x, y_pos[of_pos], y_neg[of_neg], self_mask=own, **options).V
    assert (wrong - V).abs().max() > 1e-3


@pytest.mark.parametrize(("normalization", "form"), OPTIONS)
def test_batch_equals_loop(normalization, form):
    x, y_pos, y_neg = samples(2, 3)
    options = {"tau": 0.7, "normalization": normalization, "form": form, "self_mask": torch.tensor([2, -1, 0, 1])}
    batched = drift(x, y_pos, y_neg, **options)
    for a in range(2):
        for b in range(3):
            one = drift(x[a, b], y_pos[a, b], y_neg[a, b], **options)
            for name in ("V", "T_pos", "T_neg", "n_eff_pos", "n_eff_neg", "log_mass", "valid"):
                torch.testing.assert_close(getattr(batched, name)[a, b], getattr(one, name))


@pytest.mark.parametrize(("normalization", "form"), OPTIONS)
def test_leading_dimensions_broadcast(normalization, form):
    """One group of queries, two of positives, and negatives without the leading dimension."""
    x, y_pos, y_neg = samples(1)[0], samples(2)[1], samples()[2]
    options = {"tau": 0.7, "normalization": normalization, "form": form}
    together = drift(x, y_pos, y_neg, **options)
    assert together.V.shape == (2, 4, 3)
    assert together.valid.shape == together.log_mass.shape == (2, 4)
    for group in range(2):
        torch.testing.assert_close(together.V[group], drift(x[0], y_pos[group], y_neg, **options).V)


# ---- derivatives ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("normalization", "form"), OPTIONS)
def test_gradient_with_respect_to_every_input(normalization, form):
    x, y_pos, y_neg = samples(B=3, n=3, m=4, D=2)
    y_neg[0] = x[2]  # a distance of zero, masked
    tau = torch.tensor(0.7, dtype=torch.float64)
    inputs = tuple(each.requires_grad_() for each in (x.detach(), y_pos, y_neg.detach(), tau))

    def field(x, y_pos, y_neg, tau):
        own = torch.tensor([-1, 1, 0])
        found = drift(x, y_pos, y_neg, tau=tau, normalization=normalization, form=form, self_mask=own)
        return found.V, found.T_pos, found.n_eff_neg, found.log_mass

    assert torch.autograd.gradcheck(field, inputs)


@pytest.mark.parametrize("estimator", ["standard", "abc2", "jackknife"])
def test_gradient_of_other_estimators(estimator):
    x, y_pos, y_neg = (each.requires_grad_() for each in samples(B=2, n=3, m=4, D=2))

    def field(x, y_pos, y_neg):
        return drift(x, y_pos, y_neg, tau=0.7, estimator_pos=estimator, estimator_neg=estimator).V

    assert torch.autograd.gradcheck(field, (x, y_pos, y_neg))


@pytest.mark.parametrize(("normalization", "form"), OPTIONS)
@pytest.mark.parametrize("estimator", ["standard", "abc", "abc2", "jackknife", "bootstrap"])
def test_gradient_is_finite_on_a_reference_and_with_empty_sides(normalization, form, estimator):
    x, y_pos, y_neg = samples(B=4, n=6, m=4)
    y_pos[:2] = x[0]
    y_neg = x.clone()
    use_pos = torch.ones(4, 6, dtype=torch.bool)
    use_pos[2] = False
    x, y_pos, y_neg = (each.detach().requires_grad_() for each in (x, y_pos, y_neg))
    found = drift(
        x,
        y_pos,
        y_neg,
        tau=0.01,
        normalization=normalization,
        form=form,
        self_mask=True,
        mask_pos=use_pos,
        estimator_pos=estimator,
        estimator_neg=estimator,
        generator=torch.Generator().manual_seed(0),
    )
    gradients = torch.autograd.grad(found.V.square().sum(), (x, y_pos, y_neg))
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert torch.isfinite(found.V).all()


# ---- dtypes --------------------------------------------------------------------------------------------------------


def unit_vectors():
    """384-dimensional unit vectors, all about √2 apart, so that several references have weight at τ = 0.02."""
    return tuple(torch.nn.functional.normalize(points - points.mean(), dim=-1) for points in samples(D=384))


@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
@pytest.mark.parametrize(("dtype", "digits"), [(torch.float16, 2**-11), (torch.bfloat16, 2**-8)])
def test_half_precision_inputs_have_float32_weights(normalization, dtype, digits):
    """Rounding happens once, at the end: at τ = 0.02 bfloat16 log-weights alone would cost 15 %."""
    data = tuple(points.to(dtype) for points in unit_vectors())
    options = {"tau": 0.02, "normalization": normalization}
    found = drift(*data, **options)
    exact = drift(*(points.double() for points in data), **options)
    assert found.V.dtype == found.T_pos.dtype == found.T_neg.dtype == dtype
    assert found.n_eff_pos.dtype == found.log_mass.dtype == torch.float32
    largest = exact.V.abs().max()
    assert (found.V.double() - exact.V).abs().max() <= digits * largest
    torch.testing.assert_close(found.n_eff_neg.double(), exact.n_eff_neg, rtol=1e-3, atol=0)


def test_half_precision_weights_would_be_wrong():
    """Negative control of the test above: the same weights from bfloat16 distances."""
    x, y_pos, _ = (points.to(torch.bfloat16) for points in unit_vectors())
    d = torch.cdist(x.double(), y_pos.double())
    rough = torch.softmax((-d.to(torch.bfloat16) / 0.02).double(), 1)
    exact = torch.softmax(-d / 0.02, 1)
    assert (rough - exact).abs().max() > 0.05


def test_result_has_the_widest_dtype_of_the_inputs():
    x, y_pos, y_neg = samples()
    assert drift(x.float(), y_pos, y_neg.half(), tau=0.7).V.dtype == torch.float64
    assert drift(x.float(), y_pos.half(), y_neg.half(), tau=0.7).V.dtype == torch.float32
    assert drift(x.half(), y_pos.half(), y_neg, tau=0.7).V.dtype == torch.float64


@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
def test_autocast_changes_nothing(normalization):
    data = samples(D=16, dtype=torch.float32)
    options = {"tau": 0.02, "normalization": normalization, "form": "product"}
    expected = drift(*data, **options)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        product = data[0] @ data[0].T
        found = drift(*data, **options)
    assert product.dtype == torch.bfloat16  # autocast was on
    assert found.V.dtype == torch.float32
    assert torch.equal(found.V, expected.V)
    assert torch.equal(found.log_mass, expected.log_mass)


def test_inputs_are_not_changed():
    data = samples()
    before = [points.clone() for points in data]
    mask = torch.tensor([True, False, True, True, True])
    drift(*data, tau=0.7, normalization="bidirectional-loo", form="product", mask_neg=mask)
    assert all(torch.equal(points, kept) for points, kept in zip(data, before, strict=True))


# ---- function transforms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("normalization", "form"), OPTIONS)
@pytest.mark.parametrize("estimator", ["abc", "jackknife"])
def test_vmap_equals_batch(normalization, form, estimator):
    data = samples(3)
    options = {
        "tau": 0.7,
        "normalization": normalization,
        "form": form,
        "estimator_pos": estimator,
        "estimator_neg": estimator,
        "self_mask": torch.tensor([2, -1, 0, 1]),
    }

    def field(x: Tensor, y_pos: Tensor, y_neg: Tensor) -> tuple[Tensor, Tensor]:
        found = drift(x, y_pos, y_neg, **options)
        return found.V, found.valid

    V, valid = torch.func.vmap(field)(*data)
    expected = drift(*data, **options)
    torch.testing.assert_close(V, expected.V, rtol=1e-13, atol=1e-14)
    assert torch.equal(valid, expected.valid)


def test_vmap_over_positives_only():
    x, y_pos, y_neg = samples()[0], samples(3)[1], samples()[2]
    found = torch.func.vmap(lambda y: drift(x, y, y_neg, tau=0.7).V)(y_pos)
    torch.testing.assert_close(found, drift(x, y_pos, y_neg, tau=0.7).V)


@pytest.mark.parametrize(("normalization", "form"), OPTIONS)
def test_functional_gradient_equals_autograd(normalization, form):
    x, y_pos, y_neg = samples()

    def energy(x):
        own = torch.arange(4)
        return drift(x, y_pos, y_neg, tau=0.7, normalization=normalization, form=form, self_mask=own).V.square().sum()

    leaf = x.clone().requires_grad_()
    energy(leaf).backward()
    torch.testing.assert_close(torch.func.grad(energy)(x), leaf.grad)
    per_group = torch.func.vmap(torch.func.grad(energy))(torch.stack((x, 2 * x)))
    torch.testing.assert_close(per_group[0], leaf.grad)
