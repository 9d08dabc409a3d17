"""Guidance strength moves samples away from the mean of all classes only if there are unconditional negatives.

The effect is measured on three clusters as the mean of (x − m)·e over the samples of a class. Here m is the mean of all
data, and e is the direction from m to the class.
"""

import dataclasses
import math
import statistics

import pytest
import torch
from oracles.small_run import CPU, build_small_step, small_config

from truedrift.data import THREE_CLUSTERS, load
from truedrift.progress import no_progress
from truedrift.recipes import PAPER_FIELD, recipe
from truedrift.training import Parts, build_setup

STEPS = 250
MEAN = torch.tensor(THREE_CLUSTERS.mean)
FROM_MEAN = torch.tensor(THREE_CLUSTERS.means) - MEAN


def train_generator(unconditional, seed):
    settings = (
        "generator.width=32",
        "generator.depth=2",
        "optimizer.ema=0.98",
        "optimizer.learning_rate=0.005",
        "objective.temperatures=0.3,1.0",
        f"batch.unconditional={unconditional}",
        "condition.strength_high=4.0",
    )
    given = {"data": "three-clusters", "n": 16, "seed": seed}
    config = recipe("toy", given=given, tree=PAPER_FIELD, settings=settings)
    step = build_setup(config, Parts(), load("three-clusters", seed=seed), CPU, no_progress).step
    for number in range(STEPS):
        step(number)
    return step.state.average.generator


def distance_from_mean(generator, strength):
    """Return the distance [class] of samples from the mean of all data, in the direction of their class."""
    z = torch.randn(3000, 8, generator=torch.Generator().manual_seed(9))
    labels = torch.arange(3).repeat_interleave(1000)
    with torch.no_grad():
        x = generator(z, labels, torch.full((3000,), strength), torch.zeros(3000, 0, dtype=torch.long))
    direction = FROM_MEAN / FROM_MEAN.norm(dim=-1, keepdim=True)
    return ((x.view(3, 1000, 2) - MEAN) * direction[:, None]).sum(-1).mean(1)


def strength_effect(generator):
    return distance_from_mean(generator, 4.0) - distance_from_mean(generator, 1.0)


def test_strength_moves_samples_away_from_the_mean_with_unconditional_negatives():
    generator = train_generator(16, seed=0)
    distance = {strength: distance_from_mean(generator, strength) for strength in (1.0, 2.0, 4.0)}
    assert bool((distance[2.0] - distance[1.0] > 0.05).all()), distance
    assert bool((distance[4.0] - distance[2.0] > 0.05).all()), distance
    # At strength 1 the samples have the distribution of the data.
    torch.testing.assert_close(distance[1.0], FROM_MEAN.norm(dim=-1), rtol=0, atol=0.2)


@pytest.mark.slow
def test_strength_has_no_systematic_effect_without_unconditional_negatives():
    """Six seeds each: the mean effect is within 4 standard errors of 0 without guidance, and beyond 6 with guidance.

    The effect in a single run is not 0, because an unused strength acts as one more coordinate of the noise. If it is
    normal with mean 0, then 4 standard errors of six values are exceeded by chance about once in a hundred cases.
    """
    without = [float(strength_effect(train_generator(0, seed)).mean()) for seed in range(6)]
    guided = [float(strength_effect(train_generator(16, seed)).mean()) for seed in range(6)]
    errors = {name: statistics.stdev(effects) / math.sqrt(6) for name, effects in (("0", without), ("16", guided))}
    assert abs(statistics.mean(without)) < 4 * errors["0"], without
    assert statistics.mean(guided) > 6 * errors["16"], guided
    assert min(guided) > 0.1


def loss_at(strength, unconditional, **objective):
    """Return loss and gradient with all strengths equal, for a generator that does not depend on the strength."""
    condition = {"strength_low": strength, "strength_high": strength}
    config = small_config(condition=condition, batch={"unconditional": unconditional}, objective=objective)
    step = build_small_step(config)
    with torch.no_grad():
        columns = config.generator.embedding
        step.state.generator.first.weight[:, -columns:] = 0
    loss = step.gradients(0)
    return loss.loss, loss.gradient


def test_field_depends_on_strength_only_through_unconditional_negatives():
    (loss, gradient), (other, other_gradient) = loss_at(1.0, 0), loss_at(4.0, 0)
    assert torch.equal(loss, other)
    assert torch.equal(gradient, other_gradient)
    (loss, gradient), (other, other_gradient) = loss_at(1.0, 3), loss_at(4.0, 3)
    assert (gradient - other_gradient).norm() > 0.05 * gradient.norm()


def test_unconditional_negatives_have_no_weight_at_strength_1():
    """Centroids equal those without them. Masses do not, since row sums count every column before it is weighted."""
    options = {"form": "separate", "normalization": "row"}
    (loss, gradient), (without, expected) = loss_at(1.0, 3, **options), loss_at(1.0, 0, **options)
    torch.testing.assert_close(loss, without, rtol=1e-10, atol=0)
    torch.testing.assert_close(gradient, expected, rtol=1e-8, atol=1e-14)
    assert loss_at(1.0, 3)[0] != loss_at(1.0, 0)[0]


def test_unconditional_weights_reach_the_loss_by_class():
    """w_u = (a − 1)(g − 1)/u, with the strength of each class in its own groups."""
    step = build_small_step(small_config(batch={"unconditional": 3}))
    calls = []

    @dataclasses.dataclass(frozen=True)
    class RecordingObjective(type(step.objective)):
        def __call__(self, gen, pos, neg=None, weight_neg=None, *others, **options):
            calls.append((neg, weight_neg))
            return super().__call__(gen, pos, neg, weight_neg, *others, **options)

    strengths = []
    step.state.generator.register_forward_hook(lambda module, inputs, output: strengths.append(inputs[2]))
    fields = {field.name: getattr(step.objective, field.name) for field in dataclasses.fields(step.objective)}
    dataclasses.replace(step, objective=RecordingObjective(**fields)).gradients(2)
    ((neg, weight),) = calls
    a = strengths[0].view(3, 4)
    assert weight.shape == (3, 3)
    torch.testing.assert_close(weight, ((a[:, :1] - 1) * (4 - 1) / 3).expand(3, 3))
    assert neg.shape == (3, 8)  # the same images for every class
