"""Strength: with weighted unconditional negatives it moves samples away from the mean of all classes; else it does not.

Measured on three clusters, as the mean over samples of a class of (x − m)·e, with m the mean of all data and e the
direction from there to the class.
"""

import dataclasses
import math
import statistics

import pytest
import torch
from oracles.little_run import CPU, little_config, little_step

from truedrift.data.load import load
from truedrift.data.toys import THREE_CLUSTERS
from truedrift.progress import no_progress
from truedrift.recipes.overrides import recipe
from truedrift.training.setup import Parts, build_setup

STEPS = 250
MEAN = torch.tensor(THREE_CLUSTERS.mean)
FROM_MEAN = torch.tensor(THREE_CLUSTERS.means) - MEAN


def trained(unconditional, seed):
    settings = (
        "generator.width=32",
        "generator.depth=2",
        "optimizer.ema=0.98",
        "optimizer.learning_rate=0.005",
        "objective.temperatures=0.3,1.0",
        f"batch.unconditional={unconditional}",
        "condition.strength_high=4.0",
    )
    config = recipe("toy", given={"data": "three-clusters", "n": 16, "seed": seed}, settings=settings)
    step = build_setup(config, Parts(), load("three-clusters", seed=seed), CPU, no_progress).step
    for number in range(STEPS):
        step(number)
    return step.state.average.generator


def outward(generator, strength):
    """[class] how far samples are from the mean of all, in the direction of their class."""
    z = torch.randn(3000, 8, generator=torch.Generator().manual_seed(9))
    labels = torch.arange(3).repeat_interleave(1000)
    with torch.no_grad():
        x = generator(z, labels, torch.full((3000,), strength), torch.zeros(3000, 0, dtype=torch.long))
    direction = FROM_MEAN / FROM_MEAN.norm(dim=-1, keepdim=True)
    return ((x.view(3, 1000, 2) - MEAN) * direction[:, None]).sum(-1).mean(1)


def shift(generator):
    return outward(generator, 4.0) - outward(generator, 1.0)


def test_with_unconditional_negatives_strength_moves_samples_away_from_the_mean_of_all():
    generator = trained(16, seed=0)
    at = {strength: outward(generator, strength) for strength in (1.0, 2.0, 4.0)}
    assert bool((at[2.0] - at[1.0] > 0.05).all()), at
    assert bool((at[4.0] - at[2.0] > 0.05).all()), at
    torch.testing.assert_close(at[1.0], FROM_MEAN.norm(dim=-1), rtol=0, atol=0.2)  # strength 1 is the data itself


@pytest.mark.slow
def test_and_without_them_it_has_no_systematic_effect():
    """Six seeds each: the mean shift is within 4 standard errors of 0 without, and beyond 6 of them with guidance.

    Of one run the shift is not 0: a strength without effect is one more coordinate of the noise, used at random. Were
    it normal with mean 0, 4 standard errors of six would be passed by chance once in a hundred seeds.
    """
    without = [float(shift(trained(0, seed)).mean()) for seed in range(6)]
    guided = [float(shift(trained(16, seed)).mean()) for seed in range(6)]
    errors = {name: statistics.stdev(found) / math.sqrt(6) for name, found in (("0", without), ("16", guided))}
    assert abs(statistics.mean(without)) < 4 * errors["0"], without
    assert statistics.mean(guided) > 6 * errors["16"], guided
    assert min(guided) > 0.1


def loss_at(strength, unconditional, **objective):
    """The loss with every strength at one value, of a generator that does not look at it."""
    condition = {"strength_low": strength, "strength_high": strength}
    config = little_config(condition=condition, batch={"unconditional": unconditional}, objective=objective)
    step = little_step(config)
    with torch.no_grad():
        columns = config.generator.embedding
        step.state.generator.first.weight[:, -columns:] = 0
    loss = step.gradients(0)
    return loss.loss, loss.gradient


def test_the_field_knows_the_strength_only_by_unconditional_negatives():
    (loss, gradient), (other, other_gradient) = loss_at(1.0, 0), loss_at(4.0, 0)
    assert torch.equal(loss, other)
    assert torch.equal(gradient, other_gradient)
    (loss, gradient), (other, other_gradient) = loss_at(1.0, 3), loss_at(4.0, 3)
    assert (gradient - other_gradient).norm() > 0.05 * gradient.norm()


def test_at_strength_one_unconditional_negatives_weigh_nothing():
    """Centroids are as if they were not there. Masses are not: row sums count every column before it is weighted."""
    options = {"form": "separate", "normalization": "row"}
    (loss, gradient), (without, expected) = loss_at(1.0, 3, **options), loss_at(1.0, 0, **options)
    torch.testing.assert_close(loss, without, rtol=1e-10, atol=0)
    torch.testing.assert_close(gradient, expected, rtol=1e-8, atol=1e-14)
    assert loss_at(1.0, 3)[0] != loss_at(1.0, 0)[0]


def test_weights_reach_the_loss_by_class(monkeypatch):
    """w_u = (a − 1)(g − 1)/u, the strength of each class in its own groups."""
    step = little_step(little_config(batch={"unconditional": 3}))
    seen = []

    @dataclasses.dataclass(frozen=True)
    class Watched(type(step.objective)):
        def __call__(self, gen, pos, neg=None, weight_neg=None, generator=None):
            seen.append((neg, weight_neg))
            return super().__call__(gen, pos, neg, weight_neg, generator)

    told = []
    step.state.generator.register_forward_hook(lambda module, inputs, output: told.append(inputs[2]))
    fields = {field.name: getattr(step.objective, field.name) for field in dataclasses.fields(step.objective)}
    dataclasses.replace(step, objective=Watched(**fields)).gradients(2)
    ((neg, weight),) = seen
    a = told[0].view(3, 4)
    assert weight.shape == (3, 3)
    torch.testing.assert_close(weight, ((a[:, :1] - 1) * (4 - 1) / 3).expand(3, 3))
    assert neg.shape == (2, 3, 3, 4)
    assert torch.equal(neg[:, 0], neg[:, 2])  # the same images for every class
