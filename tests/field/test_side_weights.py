"""α, γ and the masses of both sides: Σα = Σγ = 1 also where exponentiating first would give 1e-11 or 0."""

import math

import pytest
import torch
from oracles.field import literal_log_affinity, log_of_sum

from truedrift.centroids import ABC, ESTIMATORS, Jackknife, Standard
from truedrift.field import JOINT_NORMALIZATIONS, FieldSpec, side_weights

INF = math.inf
FIXED_POOL = [name for name in ESTIMATORS if name != "br-snis"]


def unit_vectors(rows, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(rows, 384, generator=generator), dim=-1)


def log_kernel_of_unit_vectors(n=12, m=15, tau=0.02):
    """log k [n, n + m] in float32 over [gen | pos], 384-d unit vectors at distances near √2."""
    gen, pos = unit_vectors(n, 0), unit_vectors(m, 1)
    d = torch.cdist(gen.double(), torch.cat((gen, pos)).double()).float()
    return (-d / tau).fill_diagonal_(-INF)


@pytest.mark.parametrize("name", FIXED_POOL)
@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
def test_weights_sum_to_one_at_a_sharp_temperature_on_unit_vectors(normalization, name):
    estimator = ESTIMATORS[name]
    generator = torch.Generator().manual_seed(2)
    both = side_weights(
        log_kernel_of_unit_vectors(), 12, FieldSpec(normalization, "product", estimator, estimator), generator=generator
    )
    for weights in (both.alpha_neg, both.alpha_pos, both.gamma_neg, both.gamma_pos):
        torch.testing.assert_close(weights.sum(-1), torch.ones(12), rtol=0, atol=1e-5)


def test_weights_are_lost_if_exponentiated_first():
    """Negative control: the published order of operations, with its floors of 1e-12, on the same matrix."""
    K = log_kernel_of_unit_vectors().exp()
    affinity = K / (K.sum(1, keepdim=True) * K.sum(0, keepdim=True)).clamp_min(1e-12).sqrt()
    side = affinity[:, 12:]
    alpha = side / side.sum(1, keepdim=True).clamp_min(1e-12)
    assert alpha.sum(1).max() < 1e-10


@pytest.mark.parametrize("name", FIXED_POOL)
@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
def test_weights_sum_to_one_at_ten_thousand(normalization, name):
    estimator = ESTIMATORS[name]
    log_k = -1e4 * torch.rand(6, 14, generator=torch.Generator().manual_seed(3)).sqrt()
    weighting = FieldSpec(normalization, "product", estimator, estimator)
    both = side_weights(log_k.fill_diagonal_(-INF), 6, weighting, generator=torch.Generator().manual_seed(4))
    for weights in (both.alpha_neg, both.alpha_pos, both.gamma_neg, both.gamma_pos):
        torch.testing.assert_close(weights.sum(-1), torch.ones(6), rtol=0, atol=1e-5)
    assert torch.isfinite(both.log_mass).all()


def draw_log_kernels(B=4, neg=3, pos=5, seed=5):
    return -20 * torch.rand(B, neg + pos, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
@pytest.mark.parametrize("neg", [3, 4, 5], ids=["fewer negatives", "equal sides", "more negatives"])
def test_alpha_gamma_and_masses_match_the_literal_formula(normalization, neg):
    """Sides of equal size with equal estimators are computed jointly; every case matches the formula."""
    log_k = draw_log_kernels(neg=neg, pos=8 - neg)
    both = side_weights(log_k, neg, FieldSpec(normalization, "product", ABC(), ABC()))
    log_w, log_A = literal_log_affinity(log_k.tolist(), normalization)
    log_w = torch.tensor(log_w, dtype=torch.float64)
    for alpha, gamma, columns in (
        (both.alpha_neg, both.gamma_neg, slice(None, neg)),
        (both.alpha_pos, both.gamma_pos, slice(neg, None)),
    ):
        expected = torch.softmax(log_w[:, columns], 1)
        torch.testing.assert_close(alpha, expected, rtol=1e-12, atol=1e-14)
        p_2 = (expected**2).sum(1, keepdim=True)
        torch.testing.assert_close(gamma, expected * (1 - p_2 + expected), rtol=1e-12, atol=1e-14)
    log_mass = [log_of_sum(row[:neg]) + log_of_sum(row[neg:]) for row in log_A]
    torch.testing.assert_close(both.log_mass[:, 0], torch.tensor(log_mass, dtype=torch.float64), rtol=0, atol=1e-12)


def test_each_side_has_its_own_estimator():
    log_k = draw_log_kernels(neg=4, pos=4)
    for estimator_pos, estimator_neg in ((ABC(), Standard()), (Standard(), ABC()), (Jackknife(), ABC())):
        both = side_weights(log_k, 4, FieldSpec("row", "separate", estimator_pos, estimator_neg))
        torch.testing.assert_close(both.gamma_pos, estimator_pos.reweight(log_k[:, 4:]))
        torch.testing.assert_close(both.gamma_neg, estimator_neg.reweight(log_k[:, :4]))


@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
def test_weights_of_negatives_multiply_after_the_root(normalization):
    """A_ij w_j: the weights change α⁻ and S⁻, but neither the positives nor the column sums."""
    log_k, w = draw_log_kernels(), torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64)
    weighting = FieldSpec(normalization, "product", Standard(), Standard())
    plain = side_weights(log_k, 3, weighting)
    both = side_weights(log_k, 3, weighting, log_weight_neg=w.log()[None, :])
    expected = plain.alpha_neg * w / (plain.alpha_neg * w).sum(1, keepdim=True)
    torch.testing.assert_close(both.alpha_neg, expected)
    torch.testing.assert_close(both.alpha_pos, plain.alpha_pos)
    A = torch.tensor(literal_log_affinity(log_k.tolist(), normalization)[1], dtype=torch.float64).exp()
    torch.testing.assert_close(both.log_mass[:, 0].exp(), (A[:, :3] * w).sum(1) * A[:, 3:].sum(1))


@pytest.mark.parametrize("form", ["separate", "product"])
def test_coefficients_times_references_are_the_field(form):
    """C·[Y⁻ | Y⁺] = V, rows of C sum to 0, masses relative to the largest."""
    log_k, y = draw_log_kernels(), torch.randn(8, 2, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    both = side_weights(log_k, 3, FieldSpec("bidirectional", form, ABC(), ABC()))
    C = both.coefficients(form)
    torch.testing.assert_close(C.sum(1), torch.zeros(4, dtype=torch.float64), rtol=0, atol=1e-15)
    V = both.gamma_pos @ y[3:] - both.gamma_neg @ y[:3]
    mass = both.log_mass.exp() / both.log_mass.exp().max()
    torch.testing.assert_close(C @ y, V if form == "separate" else mass * V)
    torch.testing.assert_close(both.relative_mass(), mass)


def test_relative_masses_where_the_masses_underflow():
    """Row normalization with positives 2000 temperatures further off than negatives: S⁺ is 0 in float32."""
    log_k = torch.tensor([[0.0, -1.0, -2000.0], [-1.0, 0.0, -2001.0]])
    both = side_weights(log_k, 2, FieldSpec("row", "product", ABC(), ABC()))
    assert (both.log_mass.exp() == 0).all()
    torch.testing.assert_close(both.relative_mass()[:, 0], torch.tensor([1.0, math.exp(-1)]), rtol=1e-3, atol=0)


@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
def test_an_empty_side_has_no_mass_and_no_weights(normalization):
    log_k = draw_log_kernels().float()
    log_k[1, :3] = -INF
    both = side_weights(log_k, 3, FieldSpec(normalization, "product", ABC(), Jackknife()))
    assert (both.alpha_neg[1] == 0).all()
    assert (both.gamma_neg[1] == 0).all()
    assert both.log_mass[1] < -1e38
    assert both.relative_mass()[1] == 0
    assert both.relative_mass().max() == 1


def test_relative_masses_are_zero_where_every_side_is_empty():
    log_k = draw_log_kernels().float()
    log_k[:, :3] = -INF
    both = side_weights(log_k, 3, FieldSpec("row", "product", ABC(), ABC()))
    assert (both.relative_mass() == 0).all()
