"""torch.compile(fullgraph=True) of the field and of the loss, backward included: no graph break, the eager numbers.

The backend "aot_eager" traces forward and backward and needs no C++ compiler; one test uses a compiler if there is one.
"""

import shutil
import warnings

import pytest
import torch
from oracles.feature_groups import feature_groups

from truedrift.field import JOINT_NORMALIZATIONS, WEIGHTINGS, Drift, drift
from truedrift.objective import DriftLoss, drift_loss

pytestmark = pytest.mark.usefixtures("unchecked_shapes", "plain_methods", "fresh_compiler")
ROUNDING = {"rtol": 1e-10, "atol": 1e-12}


def compiled(function, backend="aot_eager"):
    return torch.compile(function, fullgraph=True, backend=backend)


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def loss_and_gradient(loss_of, gen, *rest):
    gen = gen.detach().clone().requires_grad_()
    loss = loss_of(gen, *rest)
    weight = torch.arange(1, loss.numel() + 1, dtype=loss.dtype).view_as(loss)
    (gradient,) = torch.autograd.grad((weight * loss).sum(), gen)
    return loss.detach(), gradient


def test_graph_break_is_detected():
    """Negative control: reading values cannot be compiled into one graph."""
    with pytest.raises(torch._dynamo.exc.TorchDynamoException, match=r"[Dd]ata.dependent"):
        compiled(lambda gen, pos: drift_loss(gen, pos, check_finite=True).loss)(draw(4, 3), draw(5, 3))


def test_few_dimensions_give_a_warning_in_eager_code_only():
    gen, pos = draw(4, 2), draw(5, 2, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        loss = compiled(lambda gen, pos: drift_loss(gen, pos).loss)(gen, pos)
    with pytest.warns(UserWarning, match="'standardize-l2' with D = 2 loses the length"):
        torch.testing.assert_close(loss, drift_loss(gen, pos).loss, **ROUNDING)


# ---- field ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("normalization", "form"), [WEIGHTINGS[0], *WEIGHTINGS[3:5], *WEIGHTINGS[-3:]])
def test_drift_and_its_gradient(normalization, form):
    x, y_pos = draw(2, 4, 3).requires_grad_(), draw(2, 6, 3, seed=1).requires_grad_()
    mask = torch.arange(6) != 2
    own = torch.tensor([1, -1, 0, 3])

    def size(x, y_pos):
        found = drift(
            x,
            y_pos,
            x.detach(),
            tau=0.5,
            normalization=normalization,
            form=form,
            self_mask=own,
            mask_pos=mask,
            estimator_pos="jackknife",
        )
        return found.V.square().sum()

    whole, eager = compiled(size)(x, y_pos), size(x, y_pos)
    torch.testing.assert_close(whole, eager, **ROUNDING)
    torch.testing.assert_close(
        torch.autograd.grad(whole, (x, y_pos)), torch.autograd.grad(eager, (x, y_pos)), **ROUNDING
    )


@pytest.mark.parametrize("normalization", ["row", "symmetric"])
@pytest.mark.parametrize("n", [3, 4, 6])
def test_matched_drift(normalization, n):
    """Four queries have three others: one window of three, leave-one-out windows, two blocks."""
    x, y_pos = draw(4, 3), draw(n, 3, seed=1)

    def field(x, y_pos):
        return drift(x, y_pos, x, tau=0.5, normalization=normalization, self_mask=True, matched=True).V

    torch.testing.assert_close(compiled(field)(x, y_pos), field(x, y_pos), **ROUNDING)


def test_compiled_function_returns_a_drift():
    x, y_pos, y_neg = draw(4, 3), draw(6, 3, seed=1), draw(4, 3, seed=2)
    found = compiled(lambda x, y_pos, y_neg: drift(x, y_pos, y_neg, tau=0.5, self_mask=True))(x, y_pos, y_neg)
    assert isinstance(found, Drift)
    expected = drift(x, y_pos, y_neg, tau=0.5, self_mask=True)
    for name in ("V", "T_pos", "T_neg", "n_eff_pos", "n_eff_neg", "valid", "log_mass"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), **ROUNDING)


# ---- loss ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "normalization", "form"),
    [("gram", *weighting) for weighting in WEIGHTINGS if not {"sinkhorn", "potential"} & set(weighting)]
    + [("general", *WEIGHTINGS[each]) for each in (1, 2, 5)]
    + [("general", "symmetric", "product"), ("general", "sinkhorn", "separate"), ("general", "row", "potential")],
)
def test_loss_and_gradient(path, normalization, form):
    guided = (form == "product") == (path == "gram") and normalization in JOINT_NORMALIZATIONS and form != "potential"
    gen, pos, neg, weight_neg = feature_groups(4, 6, u=3 if guided else 0)

    def loss_of(gen, pos, neg, weight_neg):
        return drift_loss(gen, pos, neg, weight_neg=weight_neg, normalization=normalization, form=form, path=path).loss

    loss, gradient = loss_and_gradient(compiled(loss_of), gen, pos, neg, weight_neg)
    expected, expected_gradient = loss_and_gradient(loss_of, gen, pos, neg, weight_neg)
    torch.testing.assert_close(loss, expected, **ROUNDING)
    torch.testing.assert_close(gradient, expected_gradient, **ROUNDING)


@pytest.mark.parametrize(
    ("path", "normalization", "n", "r"),
    [
        ("gram", "row", 4, 0),
        ("gram", "row", 6, 0),
        ("gram", "symmetric", 6, 0),
        ("gram", "bidirectional", 6, 3),
        ("general", "symmetric", 6, 4),
        ("general", "row", 2, 0),
    ],
)
def test_matched_loss_and_gradient(path, normalization, n, r):
    gen, pos = draw(2, 4, 5), draw(2, n, 5, seed=1)
    fresh = draw(2, r, 5, seed=2) if r else None

    def loss_of(gen, pos, fresh):
        return drift_loss(gen, pos, fresh_neg=fresh, normalization=normalization, matched=True, path=path).loss

    found = loss_and_gradient(compiled(loss_of), gen, pos, fresh)
    torch.testing.assert_close(found, loss_and_gradient(loss_of, gen, pos, fresh), **ROUNDING)


def test_loss_with_other_options():
    gen, pos, neg, _ = feature_groups(4, 6, 3)

    def loss_of(gen, pos, neg):
        return drift_loss(gen, pos, neg, weight_neg=0.5, feature_scale="mean-distance", estimator_pos="abc2").loss

    found = loss_and_gradient(compiled(loss_of), gen, pos, neg)
    torch.testing.assert_close(found, loss_and_gradient(loss_of, gen, pos, neg), **ROUNDING)


def test_loss_with_shared_normalization():
    gen, pos = draw(3, 2, 4, 5), draw(3, 2, 6, 5, seed=1) + 0.3

    def loss_of(gen, pos):
        return drift_loss(gen, pos, feature_scale="mean-distance", share=(2, 1)).loss

    found = loss_and_gradient(compiled(loss_of), gen, pos)
    torch.testing.assert_close(found, loss_and_gradient(loss_of, gen, pos), **ROUNDING)


def test_loss_of_a_single_generated_feature():
    gen, pos, _, _ = feature_groups(1, 6)

    def loss_of(gen, pos):
        return drift_loss(gen, pos, form="separate").loss

    found = loss_and_gradient(compiled(loss_of), gen, pos)
    torch.testing.assert_close(found, loss_and_gradient(loss_of, gen, pos), **ROUNDING)


def test_float32_with_near_pairs():
    """The eager path reads distances to choose the precision; the compiled path is accurate without reading them."""
    gen = draw(2, 8, 384, dtype=torch.float32)
    pos = gen + 1e-3 * draw(2, 8, 384, seed=1, dtype=torch.float32)

    def loss_of(gen, pos):
        return drift_loss(gen, pos).loss

    _, found = loss_and_gradient(compiled(loss_of), gen, pos)
    _, expected = loss_and_gradient(
        lambda gen, pos: drift_loss(gen, pos, path="general").loss, gen.double(), pos.double()
    )
    assert (found - expected).norm() <= 1e-5 * expected.norm()


def test_compiled_function_returns_a_drift_loss():
    """The report is read outside the compiled function, and equals that of an eager run."""
    gen, pos, neg, weight_neg = feature_groups(4, 6, 3)

    def loss_of(gen, pos, neg, weight_neg):
        return drift_loss(gen, pos, neg, weight_neg=weight_neg)

    found, expected = compiled(loss_of)(gen, pos, neg, weight_neg), loss_of(gen, pos, neg, weight_neg)
    assert isinstance(found, DriftLoss)
    torch.testing.assert_close(found.loss, expected.loss, **ROUNDING)
    for name, value in expected.report.summary().items():
        torch.testing.assert_close(found.report.summary()[name], value, **ROUNDING)
    torch.testing.assert_close(found.report.log_force, expected.report.log_force, **ROUNDING)


def test_report_is_read_inside_a_compiled_function():
    gen, pos, _, _ = feature_groups(4, 6)

    def numbers_of(gen, pos):
        return drift_loss(gen, pos).report.summary()

    found = compiled(numbers_of)(gen, pos)
    for name, value in numbers_of(gen, pos).items():
        torch.testing.assert_close(found[name], value, **ROUNDING)


@pytest.mark.slow
def test_other_sizes_need_no_graph_break():
    def loss_of(gen, pos):
        return drift_loss(gen, pos).loss

    function = compiled(loss_of)
    for n, m in ((4, 6), (5, 7), (3, 3)):
        gen, pos, _, _ = feature_groups(n, m)
        torch.testing.assert_close(function(gen, pos), loss_of(gen, pos), **ROUNDING)


@pytest.mark.skipif(
    shutil.which("g++") is None and shutil.which("clang++") is None,
    reason="torch.compile writes C++ for the CPU, and this machine has no C++ compiler (g++ or clang++)",
)
def test_compiled_kernels_give_the_eager_numbers():
    gen, pos = draw(2, 4, 16, dtype=torch.float32), draw(2, 6, 16, seed=1, dtype=torch.float32)

    def loss_of(gen, pos):
        return drift_loss(gen, pos).loss

    loss, gradient = loss_and_gradient(compiled(loss_of, backend="inductor"), gen, pos)
    expected, expected_gradient = loss_and_gradient(loss_of, gen, pos)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)
    assert (gradient - expected_gradient).norm() <= 1e-5 * expected_gradient.norm()
