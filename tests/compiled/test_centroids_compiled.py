"""torch.compile(fullgraph=True) finds no graph break, and the compiled numbers are the eager ones.

The backend "aot_eager" traces forward and backward and needs no C++ compiler.
"""

import pytest
import torch
from oracles.estimators import DETERMINISTIC, DRAWING, KINDS, M

from truedrift.centroids import ABC, Windowed, abc_weights, centroid

pytestmark = pytest.mark.usefixtures("unchecked_shapes", "plain_methods", "fresh_compiler")
ROUNDING = {"rtol": 1e-12, "atol": 1e-13}


def compiled(function):
    return torch.compile(function, fullgraph=True, backend="aot_eager")


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def test_graph_break_is_detected():
    """Negative control: `check_finite=True` reads values, which cannot be compiled into one graph."""
    with pytest.raises(torch._dynamo.exc.TorchDynamoException, match=r"[Dd]ata.dependent"):
        compiled(lambda x, y: centroid(x, y, tau=0.5, check_finite=True))(draw(4, 3), draw(M, 3))


@pytest.mark.parametrize("options", [{}, {"order": 2}, {"strata": torch.arange(M) % 2}], ids=str)
def test_abc_weights(options):
    alpha = draw(4, M).softmax(-1)
    result = compiled(lambda alpha: abc_weights(alpha, **options))(alpha)
    torch.testing.assert_close(result, abc_weights(alpha, **options), **ROUNDING)


@pytest.mark.parametrize("s", [2, 4, 7])
def test_windows(s):
    log_w = -draw(3, 8).abs()
    reweight = Windowed(ABC(), s).reweight
    torch.testing.assert_close(compiled(reweight)(log_w), reweight(log_w), **ROUNDING)


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_centroid_and_its_gradient(name):
    x, y, mask = draw(2, 4, 3), draw(2, M, 3, seed=1), torch.arange(M) % 5 > 0
    x.requires_grad_(), y.requires_grad_()
    each = KINDS[name].make(M)

    def size(x, y):
        return centroid(x, y, tau=0.5, estimator=each, mask=mask).square().sum()

    whole, eager = compiled(size)(x, y), size(x, y)
    torch.testing.assert_close(whole, eager, **ROUNDING)
    torch.testing.assert_close(torch.autograd.grad(whole, (x, y)), torch.autograd.grad(eager, (x, y)), **ROUNDING)


@pytest.mark.parametrize("options", [{"kernel": "gaussian"}, {"estimator": "abc2"}], ids=str)
def test_centroid_options_on_the_matmul_path(options):
    x, y = draw(64, 40, dtype=torch.float32), draw(64, 40, seed=1, dtype=torch.float32)
    result = compiled(centroid)(x, y, tau=1.5, **options)
    torch.testing.assert_close(result, centroid(x, y, tau=1.5, **options), rtol=1e-6, atol=1e-7)


def test_other_temperatures_and_sizes_need_no_graph_break():
    function = compiled(centroid)
    for tau in (0.5, 0.05, torch.tensor(0.7, dtype=torch.float64)):
        for n in (M, 7, 9):
            x, y = draw(4, 3), draw(n, 3, seed=1)
            torch.testing.assert_close(function(x, y, tau=tau), centroid(x, y, tau=tau), **ROUNDING)


def test_centroid_of_many_references():
    x, y = draw(2, 3, dtype=torch.float32).requires_grad_(), draw(9_000, 3, seed=1, dtype=torch.float32)
    whole, eager = compiled(lambda x, y: centroid(x, y, tau=0.5))(x, y), centroid(x, y, tau=0.5)
    torch.testing.assert_close(whole, eager, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(*(torch.autograd.grad(T.sum(), x) for T in (whole, eager)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", DRAWING)
def test_estimators_that_draw_from_the_global_generator(name):
    """Compiled draws may differ from eager ones. A coordinate that is 1 everywhere stays 1 if Σγ = 1."""
    x, y, each = draw(4, 3), draw(M, 3, seed=1), KINDS[name].make(M)
    y[:, 0] = 1
    function = compiled(lambda x, y: centroid(x, y, tau=0.5, estimator=each))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first, second = function(x, y), function(x, y)
    for T in (first, second):
        torch.testing.assert_close(T[:, 0], torch.ones(4, dtype=torch.float64), **ROUNDING)
    assert float((first - second).abs().max()) > 1e-3


@pytest.mark.parametrize("name", ["abc", "stratified-abc"])
def test_autocast_around_a_compiled_centroid(name):
    x, y = draw(9, 40, dtype=torch.float32), draw(M, 40, seed=1, dtype=torch.float32)
    each = KINDS[name].make(M)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = compiled(lambda x, y: centroid(x, y, tau=0.9, estimator=each))(x, y)
    torch.testing.assert_close(result, centroid(x, y, tau=0.9, estimator=each), rtol=1e-6, atol=1e-7)
