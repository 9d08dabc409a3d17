"""Windows of references: the mean over windows against a literal loop, and its closed form without one reference."""

import math

import pytest
import torch
from oracles.field import literal_centroid
from oracles.matching import literal_window_mean, literal_windows

from truedrift.centroids import ABC, ABC2, Bootstrap, Jackknife, Standard, Windowed, Windows, centroid
from truedrift.errors import UserError

SIZES = [(8, 8), (8, 4), (8, 1), (8, 7), (3, 2), (9, 6), (10, 4), (7, 3), (126, 7)]
ESTIMATORS = [Standard(), ABC(), ABC2(), Jackknife()]


def rows(n, *leading, largest=5.0, seed=0):
    uniform = torch.rand(*leading, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return -largest * uniform


@pytest.mark.parametrize(("n", "s"), SIZES)
def test_windows_are_those_of_the_definition(n, s):
    windows = Windows(n, s)
    assert windows.members().tolist() == literal_windows(n, s)
    assert windows.count == len(literal_windows(n, s))
    counts = torch.bincount(windows.members().flatten(), minlength=n)
    assert int(counts.min()) == int(counts.max())


@pytest.mark.parametrize(("n", "s"), SIZES)
def test_merge_sums_the_entries_of_every_reference(n, s):
    windows = Windows(n, s)
    values = torch.rand(2, windows.count, s, dtype=torch.float64)
    expected = torch.zeros(2, n, dtype=torch.float64)
    for w, members in enumerate(literal_windows(n, s)):
        for k, j in enumerate(members):
            expected[:, j] += values[:, w, k]
    torch.testing.assert_close(windows.merge(values), expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize(("n", "s"), SIZES)
@pytest.mark.parametrize("largest", [1.0, 30.0, 1000.0])
def test_logsumexp_of_every_window(n, s, largest):
    log_w = rows(n, 3, largest=largest)
    expected = torch.stack([log_w[:, w].logsumexp(-1) for w in literal_windows(n, s)], -1)
    torch.testing.assert_close(Windows(n, s).logsumexp(log_w), expected, rtol=1e-14, atol=1e-13)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: each.name)
@pytest.mark.parametrize(("n", "s"), SIZES)
@pytest.mark.parametrize("largest", [1.0, 30.0, 1000.0])
def test_weights_are_the_mean_over_windows(estimator, n, s, largest):
    if (n, s, estimator.name) == (126, 7, "jackknife"):
        pytest.skip("the literal loop is slow")
    log_w = rows(n, 2, largest=largest)
    y = torch.eye(n, dtype=torch.float64)
    gamma = Windowed(estimator, s).reweight(log_w)
    expected = torch.stack([literal_window_mean(row.tolist(), y, estimator.name, s) for row in log_w])
    torch.testing.assert_close(gamma, expected, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("estimator", [Standard(), ABC(), ABC2()], ids=lambda each: each.name)
@pytest.mark.parametrize(
    "log_w", [[0.0, -800.0, -801.0, -805.0], [0.0, 0.0, -900.0, -950.0], [0.0, -1e-9, -40.0, -41.0]]
)
def test_closed_form_where_few_references_have_all_the_weight(estimator, log_w):
    y = torch.eye(4, dtype=torch.float64)
    gamma = Windowed(estimator, 3).reweight(torch.tensor(log_w, dtype=torch.float64))
    torch.testing.assert_close(gamma, literal_window_mean(log_w, y, estimator.name, 3), rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize("estimator", [Standard(), ABC(), ABC2()], ids=lambda each: each.name)
def test_size_n_is_the_estimator_itself(estimator):
    log_w = rows(6, 4)
    torch.testing.assert_close(Windowed(estimator, 6).reweight(log_w), estimator.reweight(log_w), rtol=0, atol=0)


def test_windowed_centroid_in_public_functions():
    x, y = torch.zeros(1, 2, dtype=torch.float64), rows(2, 6, seed=3)
    T = centroid(x, y, tau=0.7, estimator=Windowed(ABC(), 3))
    log_w = (-torch.cdist(x, y) / 0.7)[0].tolist()
    expected = (literal_centroid(log_w[:3], y[:3], "abc") + literal_centroid(log_w[3:], y[3:], "abc")) / 2
    torch.testing.assert_close(T[0], expected, rtol=1e-13, atol=1e-15)


def test_equally_masked_windows_equal_windows_without_the_masked_references():
    log_w = rows(8, 5)
    masked = log_w.clone()
    masked[:, [1, 6]] = -math.inf
    kept = [0, 2, 3, 4, 5, 7]
    gamma = Windowed(ABC(), 4).reweight(masked)
    torch.testing.assert_close(gamma[:, kept], Windowed(ABC(), 3).reweight(log_w[:, kept]), rtol=1e-13, atol=1e-16)
    assert float(gamma[:, [1, 6]].abs().sum()) == 0


@pytest.mark.parametrize(
    ("s", "masked", "message"),
    [
        (4, [1], "mask leaves from 3 to 4 references in windows of 4; every window must keep the same number; "),
        (7, [1], "mask leaves from 6 to 7 references in windows of 7; "),
    ],
)
def test_unequally_masked_windows_are_rejected(s, masked, message):
    log_w = rows(8, 5)
    log_w[:, masked] = -math.inf
    with pytest.raises(UserError, match=message):
        Windowed(ABC(), s).reweight(log_w)


@pytest.mark.parametrize("size", [0, 9])
def test_impossible_sizes_are_rejected(size):
    with pytest.raises(UserError, match=r"size is (0|9)"):
        Windowed(ABC(), size).reweight(rows(8))


def test_gradients_agree_with_finite_differences():
    for s in (3, 5, 4):
        log_w = rows(6, 2).requires_grad_()
        assert torch.autograd.gradcheck(Windowed(ABC2(), s).reweight, log_w)


def test_expectation_is_that_of_a_window():
    """All ordered pairs of references from a pool of 3: E of leave-one-out windows of 3 draws is E of 2 draws."""
    pool = torch.tensor([[0.0], [1.0], [4.0]], dtype=torch.float64)
    log_w = -(pool[:, 0] - 0.3).abs() / 0.5
    three = torch.cartesian_prod(*[torch.arange(3)] * 3)
    two = torch.cartesian_prod(*[torch.arange(3)] * 2)
    for estimator in (Standard(), ABC(), ABC2()):
        many = (Windowed(estimator, 2).reweight(log_w[three]).unsqueeze(-2) @ pool[three]).mean()
        few = (estimator.reweight(log_w[two]).unsqueeze(-2) @ pool[two]).mean()
        whole = (estimator.reweight(log_w[three]).unsqueeze(-2) @ pool[three]).mean()
        torch.testing.assert_close(many, few, rtol=1e-13, atol=0)
        assert abs(float(whole - few)) > 1e-3  # the control: without windows the expectation differs


@pytest.mark.parametrize("s", [3, 4, 11])
def test_windows_of_an_estimator_that_draws_follow_the_generator(s):
    log_w, each = rows(12, 5), Windowed(Bootstrap(), s)
    first, again, other = (each.reweight(log_w, torch.Generator().manual_seed(seed)) for seed in (7, 7, 8))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    torch.testing.assert_close(first.sum(-1), torch.ones(5, dtype=torch.float64), rtol=1e-13, atol=0)


def test_a_mask_is_not_checked_under_vmap():
    """Documented: values cannot be read there. Equal windows give the same numbers, unequal ones are not rejected."""
    log_w = rows(8, 5)
    log_w[:, [1, 6]] = -math.inf
    reweight = Windowed(ABC(), 4).reweight
    torch.testing.assert_close(torch.vmap(reweight)(log_w), reweight(log_w), rtol=1e-14, atol=1e-16)
    log_w[:, 2] = -math.inf
    assert bool(torch.isfinite(torch.vmap(reweight)(log_w)).all())
    with pytest.raises(UserError, match="mask leaves from 2 to 3 references in windows of 4; "):
        reweight(log_w)


def test_order_of_the_bias_is_that_of_the_window():
    assert [Windowed(each, 4).bias_order for each in (Standard(), ABC(), ABC2())] == [1, 2, 3]
    assert Windowed(ABC(), 4).budget(12) == 12
