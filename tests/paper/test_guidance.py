"""The study `guidance`, compared with its definitions."""

from dataclasses import replace

import pytest
import torch

from truedrift.bias import exact_stratified_bias
from truedrift.data import FOUR_MODES
from truedrift.grids import StudyOptions
from truedrift.paper import guidance


@pytest.fixture(scope="module")
def record():
    return guidance.study(StudyOptions(scale="smoke", seed=5))


@pytest.fixture(scope="module")
def toy(record):
    generator = torch.Generator().manual_seed(5)
    draws = (
        (guidance.GENERATED, record.pool_points),
        (FOUR_MODES, record.pool_points),
        (guidance.GENERATED, record.queries),
    )
    generated, unconditional, x = (law.sample(count, generator, dtype=torch.float64) for law, count in draws)
    return x, generated, unconditional


def test_target_depends_on_the_strength(record, toy):
    """T* = (E_gen[k y] + (a − 1) E_unc[k y]) / (E_gen[k] + (a − 1) E_unc[k]), the same for all sizes."""
    x, generated, unconditional = toy
    for at in record.at:
        found = exact_stratified_bias(
            x, (generated, unconditional), tau=guidance.TAU, n=guidance.SIZES, pool_weights=(1.0, at.w_u)
        )
        k_gen, k_unc = ((-torch.cdist(x, y) / guidance.TAU).exp() / len(y) for y in (generated, unconditional))
        above = k_gen @ generated + (at.strength - 1) * k_unc @ unconditional
        below = k_gen.sum(-1, keepdim=True) + (at.strength - 1) * k_unc.sum(-1, keepdim=True)
        T_star = (above / below).unsqueeze(-2).expand(-1, len(guidance.SIZES), -1)
        torch.testing.assert_close(found["abc"].T_star, T_star, rtol=1e-6, atol=1e-8)
        for name, recorded in (("standard", at.standard), ("abc", at.abc), ("stratified-abc", at.stratified)):
            assert recorded == pytest.approx(found[name].bias.norm(dim=-1).mean(0).tolist(), rel=1e-9)
        nearer = found["stratified-abc"].bias.norm(dim=-1) < found["abc"].bias.norm(dim=-1)
        assert at.share_nearer == pytest.approx(nearer.double().mean(0).tolist())


def test_weights_match_the_formula(record):
    """w_u = (a − 1) n_gen/n_unc."""
    assert [(at.strength, at.w_u) for at in record.at] == [(1.5, 1.0), (3.0, 4.0)]
    assert all(gen == 2 * unc for gen, unc in record.sizes)
    assert all(at.relative_error <= 1e-6 for at in record.at)


def test_only_the_stratified_correction_is_of_second_order(record):
    """At the smallest sizes, plain ABC has the smaller bias."""
    for at in record.at:
        standard, abc, stratified = at.slopes(record.sizes)
        assert standard == pytest.approx(-1, abs=0.05)
        assert abc == pytest.approx(-1, abs=0.1)
        assert stratified == pytest.approx(-2, abs=0.05)
        assert at.stratified[-1] < 0.2 * at.abc[-1] < 0.2 * at.standard[-1]
        assert at.abc[0] < at.stratified[0] < at.standard[0]


def test_slopes_are_between_the_last_two_sizes(record):
    at = replace(record.at[0], standard=(9.0, 1.0, 0.5), abc=(9.0, 1.0, 0.25), stratified=(9.0, 1.0, 2.0))
    assert at.slopes(((2, 1), (4, 2), (8, 4))) == pytest.approx((-1, -2, 1))
