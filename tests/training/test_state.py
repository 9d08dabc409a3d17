"""What a step changes: there and back bit for bit, only what is trained is trained, and the average by its formula."""

import copy

import pytest
import torch
from oracles.little_run import little_config, little_step
from torch import nn

from truedrift.errors import UserError
from truedrift.generators.base import Generator
from truedrift.generators.catalog import build
from truedrift.generators.mlp import MLPOptions
from truedrift.training.config import OptimizerOptions
from truedrift.training.setup import Parts
from truedrift.training.state import EMA, TrainingState

OPTIONS = OptimizerOptions(warmup_steps=0, learning_rate=0.05, ema=0.9, weight_decay=0.5)


class Own(Generator):
    """x = W z + buffer, beside a layer that is frozen and one that is never used."""

    architecture = "own"
    options_type = MLPOptions

    def __init__(self, width=2):
        super().__init__(MLPOptions(), sample_shape=(1, 8, 8), classes=3, noise_shape=(2,))
        self.linear = nn.Linear(2, 64)
        self.frozen = nn.Linear(64, width).requires_grad_(False)
        self.unused = nn.Linear(1, 1)
        self.register_buffer("calls", torch.zeros(()))

    def generate(self, z, labels, strength, style_ids):
        self.calls += 1
        return self.linear(z).view(-1, 1, 8, 8)


def stepped(steps=3, **parts):
    step = little_step(little_config(), parts=Parts(**parts))
    for number in range(steps):
        step(number)
    return step


def own(seed=0, **options):
    torch.manual_seed(seed)
    return Own(**options)


def copied(tensors):
    return {file: {name: tensor.clone() for name, tensor in each.items()} for file, each in tensors.items()}


def test_a_state_that_was_loaded_goes_on_as_the_one_that_was_saved():
    whole = stepped(5)
    half = stepped(3)
    saved = copied(half.state.tensors())
    assert set(saved) == {"generator", "ema", "optimizer"}
    resumed = stepped(1)  # another state, which is overwritten
    resumed.state.load(saved)
    for number in (3, 4):
        resumed(number)
    expected, ours = whole.state.tensors(), resumed.state.tensors()
    for file, tensors in expected.items():
        assert tensors.keys() == ours[file].keys()
        assert all(torch.equal(ours[file][name], tensor) for name, tensor in tensors.items()), file
    assert not all(torch.equal(saved["ema"][name], tensor) for name, tensor in ours["ema"].items())


def test_what_was_loaded_is_not_shared_with_the_state():
    step = stepped(2)
    saved = copied(step.state.tensors())
    other = stepped(0)
    other.state.load(saved)
    kept = copied(saved)
    other(2)
    assert all(torch.equal(saved[file][name], t) for file, each in kept.items() for name, t in each.items())


def test_moments_have_the_names_of_their_parameters():
    optimizer = stepped(2).state.tensors()["optimizer"]
    assert float(optimizer["first.weight.step"]) == 2
    assert optimizer["first.weight.exp_avg"].abs().max() > 0
    assert optimizer["first.weight.exp_avg_sq"].min() >= 0
    assert not stepped(0).state.tensors()["optimizer"]


def test_the_average_follows_its_formula_and_samples_come_from_it():
    generator = build(MLPOptions(width=8, depth=1, noise=2, embedding=2), sample_shape=(2,), classes=1, seed=0).double()
    average = EMA(generator, 0.75)
    expected = [parameter.detach().clone() for parameter in generator.parameters()]
    for number in range(3):
        with torch.no_grad():
            for parameter in generator.parameters():
                parameter.add_(number + 1)
        average.update()
        now = list(generator.parameters())
        expected = [0.75 * a + 0.25 * parameter.detach() for a, parameter in zip(expected, now, strict=True)]
    assert not average.generator.training
    for ours, wanted in zip(average.generator.parameters(), expected, strict=True):
        assert not ours.requires_grad
        torch.testing.assert_close(ours.detach(), wanted, rtol=1e-12, atol=1e-12)


def test_frozen_parameters_stay_and_unused_ones_only_decay():
    """Weight decay must not move what the user froze."""
    generator = own()
    before = copy.deepcopy(generator.state_dict())
    state = stepped(3, generator=generator).state
    after = state.tensors()
    assert "frozen.weight" not in state.names
    for file in ("generator", "ema"):
        assert torch.equal(after[file]["frozen.weight"], before["frozen.weight"].double())
    assert not any(name.startswith("frozen") for name in after["optimizer"])
    rates = [0.01 * (number + 1) / 4 for number in range(3)]
    shrunk = before["unused.weight"].double()
    for rate in rates:
        shrunk = shrunk * (1 - rate * 0.01)
    torch.testing.assert_close(after["generator"]["unused.weight"], shrunk, rtol=1e-12, atol=0)


def test_buffers_are_those_of_the_generator_in_the_average_too():
    state = stepped(3, generator=own()).state
    calls = float(state.generator.calls)
    assert calls == 3
    assert float(state.average.generator.calls) == calls == float(state.tensors()["ema"]["calls"])
    other = stepped(0, generator=own(1)).state
    other.load(copied(state.tensors()))
    assert float(other.average.generator.calls) == float(other.generator.calls) == calls


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (
            lambda: own(width=3),
            r"frozen\.bias of the generator has shape \[3\]; must have shape \[2\] as in the checkpoint; build",
        ),
        (
            lambda: build(MLPOptions(width=8, depth=1), sample_shape=(1, 8, 8), classes=3, seed=0),
            r"calls of the generator has shape none; must have shape \[\]",
        ),
    ],
    ids=["another size", "another network"],
)
def test_weights_of_another_generator_are_refused_in_one_line(other, told):
    saved = TrainingState(own(), OPTIONS).tensors()
    with pytest.raises(UserError, match=told) as caught:
        TrainingState(other(), OPTIONS).load(saved)
    assert "\n" not in str(caught.value)
