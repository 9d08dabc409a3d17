"""T(x) = Σ γ_i y_i of features: definition, shapes, dtypes, masks and precision."""

import math

import pytest
import torch
from oracles import centroids as literal
from oracles.estimators import ANY_MASK, DETERMINISTIC, HULL, KINDS, UNMASKED, M, random_mask

from truedrift.centroids import ABC, StratifiedABC, abc_weights, centroid
from truedrift.kernels import laplace, log_kernel, pairwise_distance

ROUNDING = 2.0**-24
every = pytest.mark.parametrize("name", KINDS)
deterministic = pytest.mark.parametrize("name", DETERMINISTIC + UNMASKED)
masked = pytest.mark.parametrize("name", DETERMINISTIC)


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def seeded():
    return torch.Generator().manual_seed(9)


def by(name, m=M):
    """Return the arguments that select an estimator, with repeatable draws."""
    return {"estimator": KINDS[name].make(m), "generator": seeded()}


# Definition, shapes and dtypes


@pytest.mark.parametrize("kernel", ["laplace", "gaussian"])
@pytest.mark.parametrize(("name", "definition"), [("standard", literal.standard), ("abc", literal.abc)])
def test_centroid_of_features_matches_its_definition(name, definition, kernel):
    x, y, tau = draw(4, 3), draw(6, 3, seed=1), 0.7
    T = centroid(x, y, tau=tau, estimator=name, kernel=kernel)
    for query, result in zip(x, T, strict=True):
        d = [math.dist(query.tolist(), point) for point in y.tolist()]
        log_w = [-value / tau if kernel == "laplace" else -(value**2) / (2 * tau**2) for value in d]
        torch.testing.assert_close(result, definition(log_w, y), rtol=1e-13, atol=1e-14)


def test_the_default_is_abc_with_the_laplace_kernel():
    x, y = draw(4, 3), draw(6, 3, seed=1)
    default = centroid(x, y, tau=0.5)
    assert torch.equal(default, centroid(x, y, tau=0.5, estimator="abc", kernel="laplace"))
    assert not torch.allclose(default, centroid(x, y, tau=0.5, estimator="standard"), rtol=1e-3)


def test_custom_kernel_and_tensor_tau():
    x, y = draw(4, 3), draw(6, 3, seed=1)

    def cauchy(x, y, tau):
        return -torch.log1p((torch.cdist(x, y) / tau) ** 2)

    T = centroid(x, y, tau=torch.tensor(0.5), estimator="standard", kernel=cauchy)
    w = 1 / (1 + (torch.cdist(x, y) / 0.5) ** 2)
    torch.testing.assert_close(T, (w / w.sum(-1, keepdim=True)) @ y, rtol=1e-12, atol=1e-13)


@deterministic
def test_centroids_translate_and_rotate_with_the_data(name):
    x, y = draw(4, 3), draw(M, 3, seed=1)
    rotation, _ = torch.linalg.qr(draw(3, 3, seed=2))
    shift = draw(3, seed=3)
    T = centroid(x, y, tau=0.5, **by(name))
    moved = centroid(x @ rotation + shift, y @ rotation + shift, tau=0.5, **by(name))
    torch.testing.assert_close(moved, T @ rotation + shift, rtol=1e-12, atol=1e-12)


@every
def test_leading_dimensions_broadcast(name):
    x, y = draw(2, 1, 4, 3), draw(5, M, 3, seed=1)
    T = centroid(x, y, tau=0.5, **by(name))
    assert T.shape == (2, 5, 4, 3)
    if not KINDS[name].draws:
        looped = torch.stack([torch.stack([centroid(a, b, tau=0.5, **by(name)) for b in y]) for a in x[:, 0]])
        torch.testing.assert_close(T, looped, rtol=1e-12, atol=1e-13)


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_result_is_computed_wide_and_returned_in_the_dtype_of_the_input(name, dtype):
    x, y = draw(4, 8, dtype=dtype), draw(M, 8, seed=1, dtype=dtype)
    T = centroid(x, y, tau=0.5, **by(name))
    assert T.dtype is dtype
    wider = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    assert torch.equal(T, centroid(x.to(wider), y.to(wider), tau=0.5, **by(name)).to(dtype))


def test_result_has_the_wider_dtype_of_queries_and_references():
    x, y = draw(4, 3, dtype=torch.float32), draw(6, 3, seed=1)
    assert centroid(x, y, tau=0.5).dtype is centroid(x.double(), y.float(), tau=0.5).dtype is torch.float64


@every
def test_centroid_gradient_reaches_queries_references_and_temperature(name):
    x, y, tau = draw(2, 3), draw(M, 3, seed=1), torch.tensor(0.8, dtype=torch.float64)
    leaves = [leaf.requires_grad_() for leaf in (x, y, tau)]
    assert torch.autograd.gradcheck(lambda x, y, tau: centroid(x, y, tau=tau, **by(name)), leaves)


# Masks


@masked
@pytest.mark.parametrize("per_query", [False, True])
def test_masked_references_equal_dropped_ones_and_may_contain_anything(name, per_query):
    x, y = draw(2, 4, 3), draw(2, M, 3, seed=1)
    mask = random_mask(name, *((2, 4) if per_query else (2,)), unused=3)
    poisoned = y.clone()
    unused = ~(mask.any(-2) if per_query else mask)
    poisoned[unused] = math.nan
    x.requires_grad_(), poisoned.requires_grad_()
    T = centroid(x, poisoned, tau=0.5, mask=mask, **by(name))
    strata = getattr(KINDS[name].make(M), "strata", None)
    for group in range(2):
        for query in range(4):
            kept = mask[group, query] if per_query else mask[group]
            dropped = KINDS[name].make(int(kept.sum())) if strata is None else StratifiedABC(strata[kept])
            alone = centroid(x[group, query : query + 1], y[group, kept], tau=0.5, estimator=dropped)
            torch.testing.assert_close(T[group, query : query + 1], alone, rtol=1e-12, atol=1e-13)
    x_grad, y_grad = torch.autograd.grad(T.square().sum(), (x, poisoned))
    clean = y.clone().requires_grad_()
    expected = torch.autograd.grad(centroid(x, clean, tau=0.5, mask=mask, **by(name)).square().sum(), (x, clean))
    torch.testing.assert_close((x_grad, y_grad), expected, rtol=1e-12, atol=1e-13)
    assert float(y_grad[unused].abs().sum()) == 0


@pytest.mark.parametrize("name", [name for name in KINDS if name not in UNMASKED])
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_content_of_masked_references_has_no_effect(name, poison):
    x, y = draw(4, 3, dtype=torch.float32), draw(M, 3, seed=1, dtype=torch.float32)
    mask = random_mask(name)
    T = centroid(x, y, tau=0.5, mask=mask, **by(name))
    y[~mask] = poison
    assert torch.equal(centroid(x, y, tau=0.5, mask=mask, **by(name)), T)
    assert not bool(torch.isfinite(centroid(x, y, tau=0.5, **by(name))).all())


@every
def test_query_without_references_gets_itself(name):
    x, y = draw(4, 3, dtype=torch.float32).requires_grad_(), torch.full((M, 3), math.nan).requires_grad_()
    T = centroid(x, y, tau=0.5, mask=torch.zeros(M, dtype=torch.bool), **by(name))
    assert torch.equal(T, x)
    x_grad, y_grad = torch.autograd.grad(T.sum(), (x, y))
    assert torch.equal(x_grad, torch.ones(4, 3))
    assert torch.equal(y_grad, torch.zeros(M, 3))


def test_masks_of_all_shapes_agree():
    x, y = draw(2, 4, 3), draw(2, 6, 3, seed=1)
    mask = torch.tensor([True, False, True, True, False, True])
    T = centroid(x, y[:, mask], tau=0.5)
    for shaped in (mask, mask.expand(2, 6), mask.expand(1, 1, 6), mask.expand(2, 1, 6), mask.expand(2, 4, 6)):
        torch.testing.assert_close(centroid(x, y, tau=0.5, mask=shaped), T, rtol=1e-13, atol=1e-14)


def test_masks_where_only_one_side_has_leading_dimensions():
    x, y, mask = draw(2, 4, 3), draw(2, 6, 3, seed=1), torch.rand(2, 6, generator=seeded()) < 0.6
    mask[:, 0] = True
    per_query = mask[:, None].expand(2, 4, 6)
    for queries, references in ((x[0], y), (x, y[0])):
        T = centroid(queries, references, tau=0.5, mask=mask)
        assert torch.equal(T, centroid(queries, references, tau=0.5, mask=per_query))
        for group in range(2):
            q, r = (side if side.ndim == 2 else side[group] for side in (queries, references))
            torch.testing.assert_close(T[group], centroid(q, r[mask[group]], tau=0.5), rtol=1e-13, atol=1e-14)


# Precision


@every
@pytest.mark.parametrize("method", ["exact", "matmul"])
@pytest.mark.parametrize("D", [2, 384])
@pytest.mark.parametrize("ratio", [1, 10, 100, 1e3])
def test_float32_weights_from_distances(name, method, D, ratio):
    """Relative error of γ_i at most 8·2⁻²⁴·max(1, d_i/τ) for weights above 1e-3; d/τ reaches `ratio`.

    γ of jackknife and bootstrap crosses zero, so their error is relative to the terms that they subtract.
    """
    x, y = draw(20, D, dtype=torch.float32), draw(64, D, seed=1, dtype=torch.float32)
    y[:3] = x[:3] + 1e-3 * y[:3]  # near-duplicates
    d = torch.tensor([[math.dist(a, b) for b in y.tolist()] for a in x.tolist()], dtype=torch.float64)
    tau = float(d.max()) / ratio
    each = KINDS[name].make(64)
    gamma = each.reweight(-pairwise_distance(x, y, method=method) / tau, seeded())
    exact = each.reweight(-d / tau, seeded())
    scale = exact.abs() if name in HULL else exact.abs() + 2 * torch.softmax(-d / tau, -1)
    error = (gamma.double() - exact).abs() / (scale * (d / tau).clamp_min(1))
    assert float(error[exact.abs() > 1e-3].max()) <= 8 * ROUNDING


@every
def test_weights_of_unit_vectors_sum_to_one_at_a_sharp_temperature(name):
    x, y = (torch.nn.functional.normalize(draw(M, 384, seed=s, dtype=torch.float32), dim=-1) for s in (0, 1))
    gamma = KINDS[name].make(M).reweight(laplace(x, y, 0.02), seeded())
    assert float((gamma.double().sum(-1) - 1).abs().max()) <= 8 * ROUNDING
    exponentiated_first = (-torch.cdist(x, y) / 0.02).exp()
    lost = exponentiated_first / exponentiated_first.sum(-1, keepdim=True).clamp_min(1e-12)
    assert float(lost.sum(-1).max()) < 1e-10


@every
@pytest.mark.parametrize("kernel", ["laplace", "gaussian"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("ratio", [1e2, 1e4])
def test_finite_input_gives_finite_centroids_and_gradients(name, kernel, dtype, ratio):
    x, y = draw(6, 5, dtype=dtype), draw(M, 5, seed=1, dtype=dtype)
    y[4] = x[2]  # query on a reference
    d = float(pairwise_distance(x, y).max())
    tau = d / ratio if kernel == "laplace" else d / math.sqrt(2 * ratio)
    assert float(-log_kernel(kernel)(x, y, tau).min()) == pytest.approx(ratio, rel=1e-5)
    x.requires_grad_(), y.requires_grad_()
    T = centroid(x, y, tau=tau, kernel=kernel, **by(name))
    T.square().sum().backward()
    for result in (T, x.grad, y.grad):
        assert bool(torch.isfinite(result).all())


@deterministic
@pytest.mark.parametrize("tau", [0.5, 1e-4])
def test_centroid_of_equal_references_is_that_reference(name, tau):
    x, y = draw(4, 3, dtype=torch.float32), draw(1, 3, seed=1, dtype=torch.float32).expand(M, 3)
    x = torch.cat((x, y[:1]))  # and a query on it
    x.requires_grad_()
    T = centroid(x, y, tau=tau, **by(name))
    torch.testing.assert_close(T, y[:1].expand(5, 3), rtol=8 * ROUNDING, atol=0)  # a float32 sum of 25 terms
    T.sum().backward()
    assert bool(torch.isfinite(x.grad).all())


@pytest.mark.parametrize("name", [name for name in HULL if name in ANY_MASK])
def test_query_on_a_reference_at_a_sharp_temperature(name):
    x, y = draw(4, 70, dtype=torch.float32), draw(400, 70, seed=1, dtype=torch.float32)
    y[:4] = x
    T = centroid(x, y, tau=1e-3, **by(name, 400))  # 4 × 400 × 70 differences: the matmul path
    torch.testing.assert_close(T, x, rtol=2 * ROUNDING, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_abc_weights_are_computed_wide_and_returned_in_their_dtype(dtype):
    """16 equal weights of 1/16: exact in every format, and their squares are summed in float32."""
    alpha = torch.full((2, 16), 1 / 16, dtype=dtype)
    assert torch.equal(abc_weights(alpha), alpha)
    uneven = torch.tensor([0.5, 0.25, 0.125, 0.125], dtype=dtype)
    assert torch.equal(abc_weights(uneven), abc_weights(uneven.float()).to(dtype))
    assert abc_weights(uneven, order=2).dtype is dtype
    assert abc_weights(uneven, strata=torch.tensor([0, 0, 1, 1])).dtype is dtype


def test_copies_of_a_reference_count_as_draws():
    """Documented: the centroid of doubled references is the same for the standard estimator, another one for ABC."""
    log_w = torch.tensor([0.0, -1.0, -1.5], dtype=torch.float64)
    doubled = log_w.repeat_interleave(2)
    assert not torch.allclose(ABC().reweight(doubled).view(3, 2).sum(-1), ABC().reweight(log_w), rtol=1e-2)
