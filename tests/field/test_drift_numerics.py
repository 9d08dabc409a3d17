"""Numerical properties: finite in, finite out; float32 near float64 at d/τ up to 10³."""

import pytest
import torch

from truedrift.centroids import ESTIMATORS
from truedrift.field import JOINT_NORMALIZATIONS, WEIGHTINGS, drift

IN_THE_HULL = ("standard", "abc", "abc2", "br-snis")
"""Estimators with γ ≥ 0."""


def points(rows, D=3, seed=0, dtype=torch.float32):
    return torch.randn(rows, D, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def case(name):
    """(x, y_pos, y_neg, options): 11 references per side, which is what BR-SNIS reads as n = 2."""
    x, y_pos, y_neg, options = points(5), points(11, seed=1) + 0.5, points(11, seed=2) - 0.5, {"tau": 0.3}
    if name == "far":  # d/τ around 10⁴
        options["tau"] = 3e-4
    elif name == "one of everything":
        x, y_pos, y_neg = x[:1], y_pos[:1], y_neg[:1]
    elif name == "one query and its own negative":
        x, y_neg, options["self_mask"] = x[:1], x[:1], True
    elif name == "two queries, self-mask":
        y_neg, options["self_mask"] = y_neg.clone(), torch.tensor([0, 1, 2, 3, 4])
        y_neg[:5], options["tau"] = x, 1e-3
    elif name == "all references equal":
        y_pos, y_neg = y_pos[:1].expand(11, 3), y_neg[:1].expand(11, 3)
    elif name == "everything equal":
        x, y_pos, y_neg = (torch.full((rows, 3), 0.1) for rows in (5, 11, 11))
    elif name == "one weight dominates":
        y_pos = y_pos.clone()
        y_pos[4], options["tau"] = x.mean(0), 2e-4
    elif name == "query on a reference":
        y_pos, y_neg = y_pos.clone(), y_neg.clone()
        y_pos[:5], y_neg[3:8], options["tau"] = x, x, 2e-4
    elif name == "everything masked":
        options |= {"mask_pos": torch.zeros(11, dtype=torch.bool), "mask_neg": torch.zeros(11, dtype=torch.bool)}
    elif name == "positives masked":
        options["mask_pos"] = torch.zeros(11, dtype=torch.bool)
    elif name == "rows and columns masked":
        options["mask_pos"] = points(5, 11, seed=3) > 0.5
        options["mask_neg"] = points(5, 11, seed=4) > 1
    elif name == "large offset":
        x, y_pos, y_neg = (each + 1e4 for each in (x, y_pos, y_neg))
    return x, y_pos, y_neg, options


CASES = [
    "ordinary",
    "far",
    "one of everything",
    "one query and its own negative",
    "two queries, self-mask",
    "all references equal",
    "everything equal",
    "one weight dominates",
    "query on a reference",
    "everything masked",
    "positives masked",
    "rows and columns masked",
    "large offset",
]


def can_be_matched(normalization, y_pos, y_neg, options):
    """Whether a matched field is defined: two references or more per side, equal masks, no sums over the negatives."""
    own = options.get("self_mask", False)
    mask_pos, mask_neg = (options.get(side, torch.ones(11, dtype=torch.bool)) for side in ("mask_pos", "mask_neg"))
    masked = isinstance(own, torch.Tensor) or not torch.equal(mask_pos, mask_neg)
    over_negatives = own is True and normalization in ("bidirectional", "bidirectional-loo", "sinkhorn")
    return not masked and not over_negatives and min(len(y_pos), len(y_neg) - int(own)) >= 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("which", CASES)
def test_finite_input_gives_finite_output(which, name, dtype):
    x, y_pos, y_neg, options = case(which)
    for normalization, form in WEIGHTINGS:
        for matched in (False, True):
            if matched and (name == "br-snis" or not can_be_matched(normalization, y_pos, y_neg, options)):
                continue
            found = drift(
                x.to(dtype),
                y_pos.to(dtype),
                y_neg.to(dtype),
                normalization=normalization,
                form=form,
                estimator_pos=name,
                estimator_neg=name,
                matched=matched,
                generator=torch.Generator().manual_seed(0),
                **options,
            )
            for result in (found.V, found.T_pos, found.T_neg, found.n_eff_pos, found.n_eff_neg):
                assert torch.isfinite(result).all()
            assert torch.isfinite(found.log_mass[found.valid]).all()
            if normalization != "sinkhorn":  # which has no masses
                assert (found.log_mass[~found.valid] < -1e38).all()
            if name in IN_THE_HULL and form != "potential":
                slack = 4 * torch.finfo(dtype).eps * y_pos.abs().max()
                used = torch.cat((x, y_pos)).to(dtype)  # T is x where nothing is used
                assert (found.T_pos <= used.amax(0) + slack).all()
                assert (found.T_pos >= used.amin(0) - slack).all()


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in ("bootstrap", "br-snis")])
@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
@pytest.mark.parametrize("D", [2, 384])
def test_float32_is_near_float64_at_a_thousand_temperatures(D, normalization, name):
    """V of the separate form, and V over its largest mass of the product form, to 1e-3 of their norm."""
    x, y_pos, y_neg = points(16, D), points(24, D, seed=1) + 0.2, points(20, D, seed=2)
    farthest = torch.cdist(x, torch.cat((y_pos, y_neg))).max().item()
    options = {
        "tau": farthest / 1e3,
        "normalization": normalization,
        "estimator_pos": name,
        "estimator_neg": name,
        "self_mask": torch.arange(16),
    }
    rough = drift(x, y_pos, y_neg, **options)
    exact = drift(x.double(), y_pos.double(), y_neg.double(), **options)
    assert (rough.V - exact.V).norm() <= 1e-3 * exact.V.norm()

    def product(field):
        return (field.log_mass - field.log_mass.max()).exp().unsqueeze(-1) * (field.T_pos - field.T_neg)

    assert (product(rough) - product(exact)).norm() <= 1e-3 * product(exact).norm()


def test_masses_underflow_without_logarithms():
    """Negative control: S⁺S⁻ of that matrix is 0 in float32, so the product form without logarithms is 0 there."""
    x, y_pos, y_neg = points(16, 384), points(24, 384, seed=1) + 3, points(20, 384, seed=2)
    farthest = torch.cdist(x, torch.cat((y_pos, y_neg))).max().item()
    found = drift(x, y_pos, y_neg, tau=farthest / 1e3, form="product")
    assert (found.V == 0).all()
    assert torch.isfinite(found.log_mass).all()


@pytest.mark.parametrize("normalization", ["row", "bidirectional", "bidirectional-loo"])
def test_the_mass_of_two_empty_sides_is_finite(normalization):
    nothing = torch.zeros(1, dtype=torch.bool)
    result = drift(
        *torch.randn(3, 1, 2), tau=1.0, normalization=normalization, form="product", mask_pos=nothing, mask_neg=nothing
    )
    assert result.log_mass.isfinite().all()
    assert (result.V == 0).all()


@pytest.mark.parametrize(("normalization", "form"), WEIGHTINGS)
@pytest.mark.parametrize("matched", [False, True])
@pytest.mark.parametrize(("dtype", "far"), [(torch.float32, 1e36), (torch.float64, 1e306)])
def test_points_far_from_the_origin_give_no_nan(normalization, form, matched, dtype, far):
    """The weights of the potential are up to 1/τ² = 400, and 400 · 10³⁶ exceeds float32."""
    place = torch.full((4, 2), far, dtype=dtype)
    two_places = place * torch.tensor([[1], [-1], [1], [-1]])
    options = {"tau": 0.05, "normalization": normalization, "form": form, "matched": matched}
    assert (drift(place, place, place, **options).V == 0).all()
    for points_of_query in (place, two_places):
        assert torch.isfinite(drift(points_of_query, two_places, two_places, **options).V).all()


@pytest.mark.parametrize("matched", [False, True])
def test_potential_keeps_its_digits_far_from_the_origin(matched):
    """Points on a grid of 1/256, so that they can be moved by 4096 in float32 without rounding."""
    x, y_pos, y_neg = ((256 * each).round() / 256 for each in (points(5), points(8, seed=1), points(4, seed=2)))
    options = {"tau": 0.1, "form": "potential", "matched": matched}
    V = drift(x, y_pos, y_neg, **options).V
    moved = drift(x + 4096, y_pos + 4096, y_neg + 4096, **options).V
    torch.testing.assert_close(moved, V, rtol=0, atol=2e-6 * V.abs().max().item())
