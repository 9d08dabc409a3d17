"""`Objective`: loss and gradient of features by `drift_loss` with every option, and in the published arithmetic."""

import dataclasses

import pytest
import torch
from oracles.feature_groups import feature_groups

from truedrift.centroids import ABC2, Jackknife
from truedrift.encoders import GroupShape
from truedrift.objective import abc_release_loss, drift_loss, official_loss
from truedrift.training import BatchObjective, FeatureLayout, Objective, ObjectiveOptions

OPTIONS = ObjectiveOptions(
    temperatures=(0.1, 0.5),
    estimator_pos="abc",
    estimator_neg="standard",
    normalization="row",
    form="separate",
    feature_scale="mean-distance",
)


def draw_groups(u=0):
    """Draw features [S = 2, C = 2, rows, D]; weights are per class, as in a step."""
    gen, pos, neg, weight = feature_groups(4, 6, u)
    return gen, pos, neg, None if weight is None else weight[0]


def reference_loss(weights, gen, pos, neg=None, **options):
    gen = gen.clone().requires_grad_()
    losses = drift_loss(gen, pos, neg, **options).loss
    scaled = sum(w * losses[s].sum() for s, w in enumerate(weights)) / losses.numel()
    return losses.detach().mean(), torch.autograd.grad(scaled, gen)[0]


@pytest.mark.parametrize("u", [0, 3], ids=["unguided", "guided"])
def test_every_option_reaches_drift_loss(u):
    gen, pos, neg, weight = draw_groups(u)
    weights = (1.0, 1.7)
    result = Objective(OPTIONS, weights)(gen, pos, neg, weight)
    options = dataclasses.asdict(OPTIONS)
    for name in ("arithmetic", "pixels", "share_normalization", "locations"):
        del options[name]
    loss, gradient = reference_loss(weights, gen, pos, neg, weight_neg=weight, **options)
    torch.testing.assert_close(result.loss, loss, rtol=1e-12, atol=0)
    torch.testing.assert_close(result.gradient, gradient, rtol=1e-12, atol=1e-15)
    assert not result.gradient.requires_grad
    for name, other in (
        ("temperatures", (0.1, 0.6)),
        ("estimator_pos", "standard"),
        ("estimator_neg", "abc"),
        ("normalization", "bidirectional"),
        ("form", "product"),
        ("feature_scale", "none"),
        ("kernel", "gaussian"),
    ):
        changed = Objective(dataclasses.replace(OPTIONS, **{name: other}), weights)(gen, pos, neg, weight)
        assert not torch.allclose(changed.gradient, gradient, rtol=1e-6), name


def test_gradient_is_computed_under_no_grad():
    gen, pos, _, _ = draw_groups()
    with torch.no_grad():
        result = Objective(OPTIONS, (1.0, 1.0))(gen, pos)
    assert result.gradient.abs().max() > 0


def test_custom_estimators_and_kernel_replace_the_named_ones():
    gen, pos, _, _ = draw_groups()

    def cauchy(x, y, tau):
        return -((torch.cdist(x, y) / tau).square()).log1p()

    result = Objective(OPTIONS, (1.0, 1.0), estimator_pos=ABC2(), estimator_neg=Jackknife(), kernel=cauchy)(gen, pos)
    options = dataclasses.asdict(OPTIONS) | {"estimator_pos": "abc2", "estimator_neg": "jackknife", "kernel": cauchy}
    for name in ("arithmetic", "pixels", "share_normalization", "locations"):
        del options[name]
    loss, gradient = reference_loss((1.0, 1.0), gen, pos, **options)
    torch.testing.assert_close(result.gradient, gradient, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(result.loss, loss, rtol=1e-12, atol=0)
    named = Objective(OPTIONS, (1.0, 1.0))(gen, pos)
    assert not torch.allclose(named.gradient, gradient, rtol=1e-3)


@pytest.mark.parametrize("sides", [("abc", "abc"), ("standard", "abc"), ("abc", "standard"), ("abc2", "abc")])
def test_published_arithmetic_equals_its_reference_function(sides):
    options = ObjectiveOptions(
        arithmetic="abc-release", temperatures=(0.3, 0.8), estimator_pos=sides[0], estimator_neg=sides[1]
    )
    gen, pos, _, _ = (None if side is None else side.float() for side in draw_groups())
    result = Objective(options, (1.0, 1.0))(gen, pos)
    leaf = gen.clone().requires_grad_()
    loss = abc_release_loss(
        list(leaf.flatten(1, 2)),
        list(pos.flatten(1, 2)),
        torch.arange(2).repeat_interleave(4),
        torch.arange(2).repeat_interleave(6),
        temperatures=(0.3, 0.8),
        abc=("standard", "abc", "abc2").index(sides[0]),
        abc_neg=("standard", "abc", "abc2").index(sides[1]),
    )
    torch.testing.assert_close(result.loss, loss.detach(), rtol=1e-6, atol=0)
    torch.testing.assert_close(result.gradient, torch.autograd.grad(loss, leaf)[0], rtol=1e-5, atol=1e-8)
    stable = Objective(dataclasses.replace(options, arithmetic="stable"), (1.0, 1.0))(gen, pos)
    # The report is computed in the stable arithmetic.
    torch.testing.assert_close(result.report().n_eff_pos, stable.report().n_eff_pos)
    assert result.energy().shape == (2,)
    torch.testing.assert_close(result.energy(), stable.energy(), rtol=1e-5, atol=1e-6)


def test_report_equals_that_of_drift_loss():
    gen, pos, neg, weight = draw_groups(3)
    report = Objective(OPTIONS, (1.0, 1.0))(gen, pos, neg, weight).report()
    assert report.n_eff_pos.shape == (2, 2, 2)
    options = {name: getattr(OPTIONS, name) for name in ("temperatures", "normalization", "form", "feature_scale")}
    expected = drift_loss(
        gen, pos, neg, weight_neg=weight, estimator_pos="abc", estimator_neg="standard", **options
    ).report
    for name in ("force", "n_eff_neg", "correction_pos", "spread"):
        torch.testing.assert_close(getattr(report, name), getattr(expected, name))
    energy = Objective(OPTIONS, (1.0, 1.0))(gen, pos, neg, weight).energy()
    torch.testing.assert_close(energy, expected.energy.mean(-1))


@pytest.mark.parametrize("arithmetic", ["stable", "abc-release"])
def test_energy_of_a_side_with_one_sample_is_unknown(arithmetic):
    gen, pos, _, _ = (None if side is None else side.float() for side in draw_groups())
    options = ObjectiveOptions(arithmetic=arithmetic, temperatures=(0.3, 0.8), form="product")
    objective = Objective(options, (1.0, 1.0))
    assert objective(gen, pos).energy().isfinite().all()
    assert objective(gen[:, :, :1], pos).energy().isnan().all()
    assert objective(gen, pos[:, :, :1]).energy().isnan().all()


# ---- Feature vectors of several groups ----

MAPS = FeatureLayout((GroupShape(3, (4, 1)), GroupShape(2, (6,)), GroupShape(5)))
POOLED = FeatureLayout((GroupShape(3), GroupShape(2)))


def draw_vectors(rows, size, seed):
    return torch.randn(2, rows, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.2 * seed


@pytest.mark.parametrize("layout", [MAPS, POOLED, FeatureLayout(POOLED.groups, together=False)])
def test_vectors_are_split_and_joined(layout):
    vectors = draw_vectors(4, layout.size, 0)
    stacks = layout.stacks(vectors)
    assert torch.equal(layout.join(stacks), vectors)
    assert [sum(parts) for parts in layout.parts] == [len(stack) for stack in stacks]


def test_every_problem_is_at_its_place():
    """Group by group, problem by problem, coordinate by coordinate."""
    vectors = draw_vectors(4, MAPS.size, 0)
    position = 0
    for group, stack in zip(MAPS.groups, MAPS.stacks(vectors), strict=True):
        for problem in range(group.problems):
            assert torch.equal(stack[problem], vectors[..., position : position + group.dimension])
            position += group.dimension
    assert position == MAPS.size


def test_chosen_places_are_a_function_of_seed_and_step():
    cpu = torch.device("cpu")
    first, second, third = (MAPS.draw_places(3, 0, step, cpu) for step in (5, 5, 6))
    assert first[2] is None  # a single problem
    assert [len(each) for each in first[:2]] == [3 + 1, 3]  # 3 of 4 locations and the one of the second part; 3 of 6
    assert all(torch.equal(a, b) for a, b in zip(first[:2], second[:2], strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(first[:2], third[:2], strict=True))
    assert first[0][-1] == 4
    seen = {int(place) for step in range(60) for place in MAPS.draw_places(1, 0, step, cpu)[1]}
    assert seen == set(range(6))  # a place is missed with probability 1e-4
    assert MAPS.draw_places(None, 0, 5, cpu) is None
    assert POOLED.draw_places(1, 0, 5, cpu) is None


@pytest.mark.parametrize("share", ["group", "map"])
@pytest.mark.parametrize("locations", [None, 2])
def test_loss_of_maps_is_the_sum_over_parts_of_means(share, locations):
    """Compare with one call of `drift_loss` per part, which shares its scale only within the part."""
    options = dataclasses.replace(OPTIONS, share_normalization=share, locations=locations)
    gen, pos, neg = draw_vectors(4, MAPS.size, 0), draw_vectors(6, MAPS.size, 1), draw_vectors(3, MAPS.size, 2)[0]
    weight = torch.tensor([[0.5], [1.5]], dtype=torch.float64).expand(2, 3)
    result = BatchObjective(MAPS, options, seed=3)(gen, pos, neg, weight, step=7)
    places = MAPS.draw_places(locations, 3, 7, gen.device) or [None] * 3
    leaf = gen.clone().requires_grad_()
    total, energies = 0.0, []
    sides = zip(MAPS.stacks(leaf), MAPS.stacks(pos), MAPS.stacks(neg.expand(2, -1, -1)), strict=True)
    for group, drawn, stacks in zip(MAPS.groups, places, sides, strict=True):
        chosen = range(group.problems) if drawn is None else drawn.tolist()
        start = 0
        for size in group.parts:
            members = [problem for problem in chosen if start <= problem < start + size]
            start += size
            part = [side[members] for side in stacks]
            names = ("temperatures", "normalization", "form", "feature_scale")
            out = drift_loss(
                *part,
                weight_neg=weight,
                estimator_neg="standard",
                share=(len(members),) if share == "map" else None,
                **{name: getattr(options, name) for name in names},
            )
            total = total + out.loss.mean()
            energies.append(out.report.energy.mean())
    (gradient,) = torch.autograd.grad(total, leaf)
    torch.testing.assert_close(result.loss, total.detach(), rtol=1e-10, atol=0)
    torch.testing.assert_close(result.gradient, gradient, rtol=1e-8, atol=1e-13)
    torch.testing.assert_close(result.energy(), torch.stack(energies), rtol=1e-9, atol=1e-12)
    means = result.report_means()
    assert means["force"].shape == (4, 2)
    assert means["n_eff_pos"].shape == (2,)
    assert means["spread"].shape == ()


OFFICIAL = ObjectiveOptions(
    arithmetic="official",
    temperatures=(0.1, 0.5),
    estimator_pos="standard",
    estimator_neg="standard",
    feature_scale="mean-distance",
    share_normalization="map",
)


@pytest.mark.parametrize("guided", [False, True])
def test_official_arithmetic_takes_classes_and_locations_of_a_part_as_one_batch(guided):
    """The sum over parts of the mean of `official_loss`, which the golden numbers of the official code check."""
    gen, pos = draw_vectors(4, MAPS.size, 0), draw_vectors(6, MAPS.size, 1)
    neg = draw_vectors(3, MAPS.size, 2)[0] if guided else None
    weight = torch.tensor([[0.5], [1.5]], dtype=torch.float64).expand(2, 3) if guided else None
    result = BatchObjective(MAPS, OFFICIAL)(gen, pos, neg, weight)
    leaf = gen.clone().requires_grad_()
    total, start = 0.0, 0
    for group in MAPS.groups:
        for size in group.parts:
            columns = slice(start, start + size * group.dimension)
            start += size * group.dimension

            def problems(side, columns=columns, D=group.dimension):  # [size · C, rows, D], locations first
                return torch.cat([side[..., columns].unflatten(-1, (-1, D))[:, :, p] for p in range(size)])  # noqa: B023

            loss = official_loss(
                problems(leaf),
                problems(pos),
                None if neg is None else problems(neg.expand(2, -1, -1)),
                weight_neg=None if weight is None else weight.repeat(size, 1),
                temperatures=OFFICIAL.temperatures,
            )
            total = total + loss.mean()
    (gradient,) = torch.autograd.grad(total, leaf)
    torch.testing.assert_close(result.loss, total.detach(), rtol=1e-10, atol=0)
    torch.testing.assert_close(result.gradient, gradient, rtol=1e-9, atol=1e-13)
    stable = BatchObjective(MAPS, dataclasses.replace(OFFICIAL, arithmetic="stable"))(gen, pos, neg, weight)
    torch.testing.assert_close(result.energy(), stable.energy())
    assert not torch.allclose(result.gradient, stable.gradient, rtol=0.01)  # its clamps are active


def test_official_energy_is_that_of_the_report():
    gen, pos, neg, weight = draw_groups(3)
    options = dataclasses.replace(
        OPTIONS,
        arithmetic="official",
        estimator_pos="standard",
        normalization="bidirectional",
        form="product",
        share_normalization="map",
    )
    result = Objective(options, (1.0, 1.0), share=(2,), weigh_loss=True)(gen, pos, neg, weight)
    torch.testing.assert_close(result.energy(), result.report().energy.mean(-1), rtol=1e-6, atol=1e-9)
