"""Hostile numbers: finite values at the limits of float32 never give NaN, and invalid arguments give a `UserError`.

The values are combinations of SCALES, `arrangements` and TEMPERATURES. Gradients are checked for the loss only: those
of a centroid are sums of values over coordinates, which overflow at 10³⁸.
"""

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

import truedrift
from truedrift.errors import UserError
from truedrift.field import WEIGHTINGS

ROUNDING = 2.0**-24
SUBNORMAL = 11 * 2.0**-149
"""The rounding error of a sum of 11 subnormal numbers."""
SCALES = (1e-45, 1e-38, 1e-20, 1.0, 1e19, 1e25, 3e38)
TEMPERATURES = (1e-30, 0.1, 1e19, 3e38)
KERNELS = ("laplace", "gaussian")
DIFFERENT_WEIGHTINGS = (
    ("bidirectional", "product"),
    ("symmetric", "separate"),
    ("row", "potential"),
    ("sinkhorn", "separate"),
)
LIMITS = (1e-45, 1e-20, 1e19, 3e38)
"""The scales at which values, or their squares, leave the range of float32."""


def arrangements(scale, B=3, n=11, D=2):
    """Return (x, y) with coordinates in ±scale, by name."""
    generator = torch.Generator().manual_seed(0)
    unit_x, unit_y = (2 * torch.rand(rows, D, generator=generator) - 1 for rows in (B, n))
    x, y = unit_x * scale, unit_y * scale
    place, sign = torch.full((1, D), scale), 1 - 2 * (torch.arange(n) % 2).unsqueeze(-1)
    return {
        "random": (x, y),
        "one reference": (x, y[:1]),
        "one huge reference": (unit_x, torch.cat((place, unit_y[1:]))),
        "one huge query": (torch.cat((-place, unit_x[1:])), unit_y),
        "duplicates": (x, y[:1].expand(n, D)),
        "everything equal": (place.expand(B, D), place.expand(n, D)),
        "two places": (place.expand(B, D), place * sign),
        "queries on references": (y[:B], y),
        "far apart": (-place.expand(B, D), place.expand(n, D)),
    }


def no_nan(*results):
    return not any(bool(result.isnan().any()) for result in results)


# Values


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_centroids_are_those_of_float64(scale, kernel):
    """Also where d/τ exceeds float32, or the squares of d and τ do, and with τ as a tensor."""
    for (name, (x, y)), tau in itertools.product(arrangements(scale).items(), (*TEMPERATURES, max(scale / 10, 1e-30))):
        exact = truedrift.centroid(x.double(), y.double(), tau=tau, kernel=kernel).float()
        found = {
            "float": truedrift.centroid(x, y, tau=tau, kernel=kernel),
            "chunks": truedrift.streaming_centroid(x, y.split(4), tau=tau, kernel=kernel),
        }
        if tau in TEMPERATURES:
            rounded = torch.tensor(tau)
            expected = truedrift.centroid(x.double(), y.double(), tau=float(rounded), kernel=kernel).float()
            T = truedrift.centroid(x, y, tau=rounded, kernel=kernel)
            assert (T - expected).abs().max() <= 8 * ROUNDING * y.abs().max() + SUBNORMAL, (name, tau)
        for how, T in found.items():
            assert (T - exact).abs().max() <= 8 * ROUNDING * y.abs().max() + SUBNORMAL, (name, tau, how)


@pytest.mark.parametrize("name", ["jackknife", "bootstrap", "br-snis"])
def test_estimators_with_negative_weights_give_no_nan_up_to_a_third_of_the_largest_number(name):
    for scale, tau in itertools.product((*SCALES[:-1], 1e38), TEMPERATURES):
        for x, y in arrangements(scale).values():
            generator = torch.Generator().manual_seed(0)
            assert no_nan(truedrift.centroid(x, y, tau=tau, estimator=name, generator=generator))


@pytest.mark.parametrize("scale", LIMITS)
@pytest.mark.parametrize(("normalization", "form"), WEIGHTINGS)
def test_fields_are_not_nan_and_centroids_stay_in_the_hull(scale, normalization, form):
    options = {"normalization": normalization, "form": form}
    for (name, (x, y)), (tau, kernel) in itertools.product(
        arrangements(scale).items(), ((1e-30, "laplace"), (0.1, "laplace"), (1e-30, "gaussian"), (1e19, "gaussian"))
    ):
        found = truedrift.drift(x, y, y.flip(0) / 2, tau=tau, kernel=kernel, **options)
        assert no_nan(found.V, found.T_pos, found.T_neg, found.n_eff_pos, found.n_eff_neg, found.log_mass), name
        assert found.valid.all()  # a reference at any distance is used
        if form != "potential":
            slack = 8 * ROUNDING * y.abs().max() + SUBNORMAL
            assert ((found.T_pos >= y.amin(0) - slack) & (found.T_pos <= y.amax(0) + slack)).all(), (name, tau)


@pytest.mark.parametrize("scale", LIMITS)
@pytest.mark.parametrize("feature_scale", ["standardize-l2", "mean-distance", "none"])
def test_losses_gradients_and_reports_are_not_nan(scale, feature_scale):
    weightings = (
        ("bidirectional", "product"),
        ("symmetric", "separate"),
        ("row", "potential"),
        ("sinkhorn", "separate"),
    )
    for (name, (x, y)), (normalization, form), kernel in itertools.product(
        arrangements(scale).items(), weightings, KERNELS
    ):
        gen, given = x.clone().requires_grad_(), (name, normalization, kernel)
        found = truedrift.drift_loss(
            gen,
            y,
            temperatures=(1e-30, 0.1),
            normalization=normalization,
            form=form,
            feature_scale=feature_scale,
            kernel=kernel,
        )
        (gradient,) = torch.autograd.grad(found.loss, gen)
        assert found.loss.isfinite(), given
        assert gradient.isfinite().all(), given
        assert no_nan(*found.report.summary().values()), given


@pytest.mark.parametrize("feature_scale", ["standardize-l2", "mean-distance"])
@pytest.mark.parametrize("weight", [0.0, 1e300])
def test_extreme_weights_of_unconditional_negatives(feature_scale, weight):
    x, y = arrangements(1.0)["random"]
    found = truedrift.drift_loss(x, y, y[:4] + 1, weight_neg=weight, feature_scale=feature_scale)
    assert found.loss.isfinite()
    assert no_nan(*found.report.summary().values())


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize(
    "options",
    [{"path": "gram"}, {"path": "general"}, {"feature_scale": "mean-distance"}, {"feature_scale": "none"}],
    ids=str,
)
def test_input_that_is_not_finite_is_not_hidden(options, value):
    """Negative control: the limits above do not turn an infinite feature into a finite loss and gradient."""
    for side, row, m in itertools.product((0, 1), (0, 2), (4, 7)):
        sides = [torch.randn(rows, 3, generator=torch.Generator().manual_seed(rows)) for rows in (4, m)]
        sides[side][row, 1] = value
        gen = sides[0].requires_grad_()
        loss = truedrift.drift_loss(gen, sides[1], **options).loss
        (gradient,) = torch.autograd.grad(loss, gen)
        assert not (loss.isfinite() and gradient.isfinite().all())


# Arguments

X, Y = arrangements(1.0)["random"]
DIGITS = 10**5000
"""Python refuses to print it."""


def by_tau(tau):
    yield lambda: truedrift.centroid(X, Y, tau=tau)
    yield lambda: truedrift.streaming_centroid(X, [Y], tau=tau)
    yield lambda: truedrift.drift(X, Y, Y, tau=tau, kernel="gaussian")
    yield lambda: truedrift.drift_loss(X, Y, temperatures=(0.1, tau))
    yield lambda: truedrift.exact_moments(X, Y, tau=tau, n=4)
    yield lambda: truedrift.exact_field(X, Y, Y, tau=tau, n=4, m=3)
    yield lambda: truedrift.diagnose(queries=X, references=Y, tau=tau, n=4)


def by_features(value):
    yield lambda: truedrift.centroid(value, Y, tau=0.1)
    yield lambda: truedrift.centroid(X, value, tau=0.1)
    yield lambda: truedrift.streaming_centroid(X, [value], tau=0.1)
    yield lambda: truedrift.drift(X, Y, value, tau=0.1)
    yield lambda: truedrift.drift_loss(value, Y)
    yield lambda: truedrift.drift_loss(X, Y, value)
    yield lambda: truedrift.exact_moments(X, value, tau=0.1, n=4)
    yield lambda: truedrift.exact_field(value, Y, Y, tau=0.1, n=4, m=3)
    yield lambda: truedrift.diagnose(queries=X, references=value, tau=0.1, n=4)
    yield lambda: truedrift.abc_weights(value)


def assert_one_line(call, match):
    with pytest.raises(UserError, match=match) as raised:
        call()
    assert len(str(raised.value).splitlines()) == 1
    assert len(str(raised.value)) < 300


NOT_NUMBERS = (True, "1", 10**400, DIGITS, Fraction(1, 3), Decimal("0.1"), 1j, np.array(0.1), torch.eye(2).to_sparse())
pytestmark = pytest.mark.usefixtures("unchecked_shapes")


def type_names(value):
    return type(value).__name__


@pytest.mark.parametrize(
    "tau",
    [*NOT_NUMBERS, 0, -1, math.nan, math.inf, 10**30, torch.tensor(True), torch.tensor(1), torch.tensor(1j)],
    ids=type_names,
)
def test_temperatures(tau):
    for call in by_tau(tau):
        assert_one_line(call, r"^(tau|temperatures\[1\]) is .*; must be a positive (finite )?number")


def test_temperatures_of_numpy():
    for tau in (np.float32(0.5), np.float64(0.5), np.int64(1)):
        for call in by_tau(tau):
            call()


@pytest.mark.filterwarnings("ignore")  # about layouts in beta
@pytest.mark.parametrize(
    "convert",
    [
        torch.Tensor.to_sparse,
        torch.Tensor.to_sparse_csr,
        torch.Tensor.to_mkldnn,
        lambda y: torch.nested.nested_tensor([y, y]),
        lambda y: torch.quantize_per_tensor(y, 0.1, 0, torch.qint8),
        lambda y: y.to(torch.complex64),
        lambda y: y.to(torch.float8_e4m3fn),
        torch.Tensor.numpy,
    ],
    ids=["sparse", "csr", "mkldnn", "nested", "quantized", "complex", "float8", "numpy"],
)
def test_tensors_of_other_kinds(convert):
    for call in by_features(convert(Y)):
        assert_one_line(
            call, r"^\S+( chunk)? (has the layout|has dtype|is a ndarray|has sums)"
        )  # abc_weights takes arrays


def test_tensors_without_values():
    x, y = X.to("meta"), Y.to("meta")
    assert truedrift.centroid(x, y, tau=0.1).shape == X.shape
    assert_one_line(lambda: truedrift.exact_moments(x, y, tau=0.1, n=4), "^x is on the device meta; must have values")


@pytest.mark.parametrize("n", [*NOT_NUMBERS, 0, -1, 1.5, None, (), (4, 1.5), torch.tensor(4)], ids=type_names)
def test_sizes(n):
    several = r"^[nm] is .*; must be (one or more integers ≥ 1|at most 1000000000000000); pass for example"
    assert_one_line(lambda: truedrift.exact_moments(X, Y, tau=0.1, n=n), several)
    assert_one_line(lambda: truedrift.exact_field(X, Y, Y, tau=0.1, n=4, m=n), several)
    one = "^n is .*; must be an integer from 1 to 1000000; pass"
    assert_one_line(lambda: truedrift.diagnose(queries=X, references=Y, tau=0.1, n=n), one)


def test_sizes_of_numpy():
    moments = truedrift.exact_moments(X, Y, tau=0.1, n=np.int64(4))
    assert type(moments.n[0]) is int
    assert torch.equal(moments.bias, truedrift.exact_moments(X, Y, tau=0.1, n=4).bias)


OTHER_ARGUMENTS = {
    "rtol is .*; must be between 0 and 1": lambda number: truedrift.exact_moments(X, Y, tau=0.1, n=4, rtol=number),
    "order is .*; must be 1": lambda number: truedrift.abc_weights(torch.full((4,), 0.25), order=number),
    "(chunks is|a chunk) .*; must be": lambda number: truedrift.streaming_centroid(X, number, tau=0.1),
    "share is .*; must be positive integers": lambda number: truedrift.drift_loss(X[None], Y[None], share=number),
    "weight_neg (is|has) .*; must be": lambda number: truedrift.drift_loss(X, Y, Y[:2], weight_neg=number),
    "wanted is .*; must be a positive": lambda number: truedrift.diagnose(
        queries=X, references=Y, tau=0.1, n=4, wanted=number
    ),
    "seed is .*; must be an integer from 0": lambda number: truedrift.diagnose(
        queries=X, references=Y, tau=0.1, n=4, seed=number
    ),
}


@pytest.mark.parametrize("number", NOT_NUMBERS, ids=type_names)
def test_other_arguments(number):
    for match, call in OTHER_ARGUMENTS.items():
        assert_one_line(lambda call=call: call(number), f"^{match}")
