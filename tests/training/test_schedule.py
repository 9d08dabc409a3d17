"""The learning rate of every step."""

import itertools

import pytest

from truedrift.training.config import OptimizerOptions
from truedrift.training.state import learning_rate


def test_the_warm_up_begins_with_the_first_step_and_ends_after_as_many():
    options = OptimizerOptions()
    rates = [learning_rate(options, step) for step in range(2010)]
    assert rates[0] == pytest.approx(2e-4 / 2000)  # not 0: the first step counts
    assert rates[999] == pytest.approx(1e-4)
    assert rates[1998] < rates[1999] == 2e-4 == rates[2009]
    differences = [b - a for a, b in itertools.pairwise(rates[:2000])]
    assert max(differences) == pytest.approx(min(differences))


@pytest.mark.parametrize("warmup_steps", [0, 1])
def test_without_a_warm_up_every_step_has_the_rate(warmup_steps):
    options = OptimizerOptions(warmup_steps=warmup_steps, learning_rate=0.3)
    assert {learning_rate(options, step) for step in range(3)} == {0.3}
