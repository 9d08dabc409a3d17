"""One suite for every estimator: log w → γ with Σγ = 1, and the other properties of a reweighting."""

import math

import pytest
import torch
from oracles.estimators import ANY_MASK, DETERMINISTIC, DRAWING, HULL, KINDS, UNMASKED, M, random_mask, random_order

from truedrift.centroids import BRSNIS, ESTIMATORS, Bootstrap, Estimator, StratifiedABC, Windowed, estimator

INF = math.inf
every = pytest.mark.parametrize("name", KINDS)
deterministic = pytest.mark.parametrize("name", DETERMINISTIC + UNMASKED)
masked = pytest.mark.parametrize("name", DETERMINISTIC)
drawing = pytest.mark.parametrize("name", DRAWING)


def reweight(name, log_w, seed=0):
    """Return γ of the estimator of that name, with repeatable draws."""
    return KINDS[name].make(log_w.shape[-1]).reweight(log_w, generator=torch.Generator().manual_seed(seed))


def rows(*leading, largest=3.0, seed=0, dtype=torch.float64, m=M):
    """Return log-weights −d/τ with d/τ up to about `largest`."""
    uniform = torch.rand(*leading, m, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (-largest * uniform).to(dtype)


def some_masked(name, log_w):
    """Mask up to half of the references of every row, as the estimator allows."""
    return log_w.masked_fill(~random_mask(name, *log_w.shape[:-1]), -INF)


@every
@pytest.mark.parametrize("largest", [0.1, 3, 100, 1e4])
@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float32, 2.0**-24), (torch.float64, 2.0**-53)])
def test_weights_sum_to_one(name, largest, dtype, rounding):
    for log_w in (rows(40, largest=largest, dtype=dtype), some_masked(name, rows(40, largest=largest, dtype=dtype))):
        gamma = reweight(name, log_w)
        assert gamma.dtype is dtype
        assert float((gamma.double().sum(-1) - 1).abs().max()) <= 8 * rounding


@pytest.mark.parametrize("name", HULL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("largest", [0.1, 3, 30, 1e3])
def test_weights_are_nonnegative_where_the_hull_is_claimed(name, dtype, largest):
    assert float(reweight(name, some_masked(name, rows(500, largest=largest, dtype=dtype))).min()) >= 0


@pytest.mark.parametrize("name", [name for name in KINDS if name not in HULL])
def test_weights_can_be_negative_where_the_hull_is_not_claimed(name):
    """One reference dominates: these estimators subtract centroids of samples without it."""
    log_w = torch.tensor([[0.0, -9.0, -9.5, -9.7]], dtype=torch.float64)
    gamma = KINDS[name].make(4).reweight(log_w, torch.Generator().manual_seed(0))
    assert float(gamma[0, 0]) > 1.2
    assert float(gamma[0, 1:].max()) < -0.01


@deterministic
def test_permuting_the_references_permutes_the_weights(name):
    log_w = some_masked(name, rows(6))
    order = random_order(name)
    each = KINDS[name].make(M)
    permuted = StratifiedABC(each.strata[order]) if isinstance(each, StratifiedABC) else each
    gamma = permuted.reweight(log_w[:, order])
    torch.testing.assert_close(gamma, each.reweight(log_w)[:, order], rtol=1e-13, atol=1e-16)
    assert not torch.allclose(gamma, each.reweight(log_w), rtol=1e-3)


@masked
@pytest.mark.parametrize("largest", [3, 1e3])
def test_masking_a_reference_equals_dropping_it(name, largest):
    """Windows of the references that are left have equally many fewer."""
    each = KINDS[name].make(M)
    for log_w in some_masked(name, rows(8, largest=largest)):
        kept = log_w > -INF
        stratified = isinstance(each, StratifiedABC)
        dropped = StratifiedABC(each.strata[kept]) if stratified else KINDS[name].make(int(kept.sum()))
        gamma = each.reweight(log_w)
        torch.testing.assert_close(gamma[kept], dropped.reweight(log_w[kept]), rtol=1e-13, atol=1e-16)
        assert float(gamma[~kept].abs().sum()) == 0


@drawing
def test_masked_references_are_never_drawn(name):
    """Positions of the masked references change the draws; test_bias_order compares the distributions."""
    log_w = some_masked(name, rows(50))
    gamma = reweight(name, log_w)
    assert float(gamma[log_w == -INF].abs().sum()) == 0
    assert bool((gamma.abs().sum(-1) > 0).all())


@deterministic
def test_batch_equals_its_rows(name):
    log_w = some_masked(name, rows(2, 3, 4, largest=20))
    looped = torch.stack([reweight(name, row) for row in log_w.flatten(0, -2)]).view_as(log_w)
    torch.testing.assert_close(reweight(name, log_w), looped, rtol=1e-13, atol=1e-16)


@drawing
def test_rows_of_a_batch_draw_independently(name):
    gamma = reweight(name, rows(1).expand(20, M))
    assert len({tuple(row) for row in gamma.tolist()}) > 5


@every
@pytest.mark.parametrize("leading", [(), (1,), (2, 1, 3)])
def test_any_leading_dimensions(name, leading):
    log_w = rows(*leading)
    gamma = reweight(name, log_w)
    assert gamma.shape == (*leading, M)
    flat = reweight(name, log_w.reshape(-1, M))
    torch.testing.assert_close(gamma.reshape(-1, M), flat, rtol=1e-13, atol=1e-16)


@every
@pytest.mark.parametrize("shift", [-1000.0, 700.0])
def test_common_factor_of_the_weights_has_no_effect(name, shift):
    log_w = some_masked(name, rows(6))
    torch.testing.assert_close(reweight(name, log_w + shift), reweight(name, log_w), rtol=1e-11, atol=1e-13)


@every
@pytest.mark.parametrize("value", [0.0, -1e4, 7.0])
def test_one_reference_is_its_own_centroid(name, value):
    log_w = torch.full((2, 3, 1), value)
    assert torch.equal(reweight(name, log_w), torch.ones(2, 3, 1))


@pytest.mark.parametrize("name", ANY_MASK)
def test_only_unmasked_reference_is_its_own_centroid(name):
    log_w = torch.full((M, M), -INF).fill_diagonal_(-3.0)
    assert torch.equal(reweight(name, log_w), torch.eye(M))


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.corrects_nothing_at_equal_weights])
def test_equal_weights_are_unchanged(name):
    log_w = some_masked(name, torch.full((5, M), -2.5, dtype=torch.float64))
    kept = (log_w > -INF).double()
    torch.testing.assert_close(reweight(name, log_w), kept / kept.sum(-1, keepdim=True), rtol=1e-14, atol=0)


@every
def test_completely_masked_row_has_no_weight(name):
    log_w = rows(3)
    alone = reweight(name, log_w[1:])
    log_w[0] = -INF
    gamma = reweight(name, log_w)
    assert torch.equal(gamma[0], torch.zeros(M, dtype=torch.float64))
    assert float((gamma[1:].sum(-1) - 1).abs().max()) < 1e-15
    if not KINDS[name].draws:
        torch.testing.assert_close(gamma[1:], alone, rtol=1e-14, atol=0)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_reference_dominates_by_ten_thousand(name, dtype):
    log_w = rows(20, largest=1e3, dtype=dtype) - 1e4
    log_w[:, 4] = 0
    log_w.requires_grad_()
    gamma = reweight(name, log_w)
    assert bool(torch.isfinite(gamma).all())
    if isinstance(KINDS[name].make(M), Windowed):  # it has all the weight of the windows that contain it
        share = torch.full((20,), KINDS[name].make(M).size / M, dtype=dtype)
        torch.testing.assert_close(gamma[:, 4], share, rtol=2.0**-22, atol=0)
    elif name in HULL and not KINDS[name].draws:
        assert torch.equal(gamma, torch.nn.functional.one_hot(torch.tensor(4), M).to(dtype).expand_as(gamma))
    (gamma * torch.arange(M)).sum().backward()
    assert bool(torch.isfinite(log_w.grad).all())


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_log_weights_give_float32_weights(name, dtype):
    log_w = rows(6, dtype=dtype)
    gamma = reweight(name, log_w)
    assert gamma.dtype is torch.float32
    assert torch.equal(gamma, reweight(name, log_w.float()))


@every
def test_float32_log_weights_give_weights_with_float32_digits(name):
    """The error of γ is at most 1e-6 of its terms (2α and what is subtracted), for weights above 1e-3."""
    for largest in (1, 10, 100, 1e3):
        log_w = rows(300, largest=largest, dtype=torch.float32)
        gamma, exact = reweight(name, log_w), reweight(name, log_w.double())
        scale = exact.abs() if name in HULL else exact.abs() + 2 * torch.softmax(log_w.double(), -1)
        large = exact.abs() > 1e-3
        assert float(((gamma - exact).abs() / scale)[large].max()) <= 1e-6


@every
@pytest.mark.parametrize("largest", [2, 40])
def test_gradient(name, largest):
    """The derivative at fixed random numbers, with masked references and an empty row."""
    log_w = some_masked(name, rows(3, largest=largest, seed=3))
    log_w[2] = -INF
    free = rows(3, largest=largest, seed=3).requires_grad_()
    kept = log_w > -INF
    assert torch.autograd.gradcheck(lambda free: reweight(name, free.masked_fill(~kept, -INF)), free)


@every
def test_name_and_bias_order(name):
    each = KINDS[name].make(M)
    assert isinstance(each, Estimator)
    assert (each.name, each.bias_order) == (name, KINDS[name].bias_order)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimator_looks_up_names_and_returns_objects_unchanged(name):
    assert estimator(name).name == name
    assert estimator(estimator(name)) is estimator(name)


def test_budget_is_n_except_for_br_snis():
    assert {name: each.budget(8) for name, each in ESTIMATORS.items()} == {
        "standard": 8,
        "abc": 8,
        "abc2": 8,
        "jackknife": 8,
        "bootstrap": 8,
        "br-snis": 71,  # 10 iterations of 7 fresh references, and a first state
    }
    assert KINDS["stratified-abc"].make(M).budget(8) == 8


def test_settings_of_the_paper():
    assert Bootstrap().resamples == 100
    assert (BRSNIS().iterations, BRSNIS().burn_in) == (10, 1)


@drawing
def test_draws_follow_the_generator_and_not_the_global_state(name):
    log_w = rows(4)
    before = torch.get_rng_state()
    assert torch.equal(reweight(name, log_w, seed=7), reweight(name, log_w, seed=7))
    assert not torch.equal(reweight(name, log_w, seed=7), reweight(name, log_w, seed=8))
    assert torch.equal(torch.get_rng_state(), before)


@drawing
def test_without_a_generator_the_global_one_is_used(name):
    log_w, each = rows(4), KINDS[name].make(M)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        first, second = each.reweight(log_w), each.reweight(log_w)
        torch.manual_seed(11)
        again = each.reweight(log_w)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
