"""The training state: save and load bit for bit, frozen parameters, the average and the learning rate."""

import copy
import itertools

import pytest
import torch
from oracles.small_run import build_small_step, small_config
from torch import nn

from truedrift.errors import UserError
from truedrift.generators import Generator, MLPOptions, build
from truedrift.training import EMA, OptimizerOptions, Parts, TrainingState, learning_rate

OPTIONS = OptimizerOptions(warmup_steps=0, learning_rate=0.05, ema=0.9, weight_decay=0.5)


class PartlyFrozen(Generator):
    """x = W z + b, with a buffer, a frozen layer and an unused layer."""

    architecture = "partly-frozen"
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


def take_steps(steps=3, **parts):
    step = build_small_step(small_config(), parts=Parts(**parts))
    for number in range(steps):
        step(number)
    return step


def build_partly_frozen(seed=0, **options):
    torch.manual_seed(seed)
    return PartlyFrozen(**options)


def clone_tensors(tensors):
    return {file: {name: tensor.clone() for name, tensor in named.items()} for file, named in tensors.items()}


def test_loaded_state_continues_like_the_saved_one():
    uninterrupted = take_steps(5)
    saved = clone_tensors(take_steps(3).state.tensors())
    assert set(saved) == {"generator", "ema", "optimizer"}
    resumed = take_steps(1)  # a different state, which is overwritten
    resumed.state.load(saved)
    for number in (3, 4):
        resumed(number)
    expected, actual = uninterrupted.state.tensors(), resumed.state.tensors()
    for file, tensors in expected.items():
        assert tensors.keys() == actual[file].keys()
        assert all(torch.equal(actual[file][name], tensor) for name, tensor in tensors.items()), file
    assert not all(torch.equal(saved["ema"][name], tensor) for name, tensor in actual["ema"].items())


def test_loaded_tensors_are_not_shared_with_the_state():
    saved = clone_tensors(take_steps(2).state.tensors())
    other = take_steps(0)
    other.state.load(saved)
    before = clone_tensors(saved)
    other(2)
    assert all(torch.equal(saved[file][name], t) for file, named in before.items() for name, t in named.items())


def test_moments_are_named_by_their_parameters():
    optimizer = take_steps(2).state.tensors()["optimizer"]
    assert float(optimizer["first.weight.step"]) == 2
    assert optimizer["first.weight.exp_avg"].abs().max() > 0
    assert optimizer["first.weight.exp_avg_sq"].min() >= 0
    assert not take_steps(0).state.tensors()["optimizer"]


def test_average_equals_its_formula():
    generator = build(MLPOptions(width=8, depth=1, noise=2, embedding=2), sample_shape=(2,), classes=1, seed=0).double()
    average = EMA(generator, 0.75)
    expected = [parameter.detach().clone() for parameter in generator.parameters()]
    for number in range(3):
        with torch.no_grad():
            for parameter in generator.parameters():
                parameter.add_(number + 1)
        average.update()
        parameters = list(generator.parameters())
        expected = [0.75 * a + 0.25 * parameter.detach() for a, parameter in zip(expected, parameters, strict=True)]
    assert not average.generator.training
    for actual, wanted in zip(average.generator.parameters(), expected, strict=True):
        assert not actual.requires_grad
        torch.testing.assert_close(actual.detach(), wanted, rtol=1e-12, atol=1e-12)


def test_frozen_parameters_are_unchanged_and_unused_ones_decay():
    """Weight decay must not change frozen parameters."""
    generator = build_partly_frozen()
    before = copy.deepcopy(generator.state_dict())
    state = take_steps(3, generator=generator).state
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


def test_average_shares_the_buffers_of_the_generator():
    state = take_steps(3, generator=build_partly_frozen()).state
    calls = float(state.generator.calls)
    assert calls == 3
    assert float(state.average.generator.calls) == calls == float(state.tensors()["ema"]["calls"])
    other = take_steps(0, generator=build_partly_frozen(1)).state
    other.load(clone_tensors(state.tensors()))
    assert float(other.average.generator.calls) == float(other.generator.calls) == calls


@pytest.mark.parametrize(
    ("build_other", "message"),
    [
        (
            lambda: build_partly_frozen(width=3),
            r"frozen\.bias of the generator has shape \[3\]; must have shape \[2\] as in the checkpoint; build",
        ),
        (
            lambda: build(MLPOptions(width=8, depth=1), sample_shape=(1, 8, 8), classes=3, seed=0),
            r"calls of the generator has shape none; must have shape \[\]",
        ),
    ],
    ids=["another size", "another network"],
)
def test_state_of_another_generator_is_rejected_in_one_line(build_other, message):
    saved = TrainingState(build_partly_frozen(), OPTIONS).tensors()
    with pytest.raises(UserError, match=message) as caught:
        TrainingState(build_other(), OPTIONS).load(saved)
    assert "\n" not in str(caught.value)


# ---- Learning rate ----


def test_linear_warm_up():
    options = OptimizerOptions()
    rates = [learning_rate(options, step) for step in range(2010)]
    assert rates[0] == pytest.approx(2e-4 / 2000)  # not 0: the first step changes weights
    assert rates[999] == pytest.approx(1e-4)
    assert rates[1998] < rates[1999] == 2e-4 == rates[2009]
    differences = [b - a for a, b in itertools.pairwise(rates[:2000])]
    assert max(differences) == pytest.approx(min(differences))


@pytest.mark.parametrize("warmup_steps", [0, 1])
def test_constant_learning_rate_without_warm_up(warmup_steps):
    options = OptimizerOptions(warmup_steps=warmup_steps, learning_rate=0.3)
    assert {learning_rate(options, step) for step in range(3)} == {0.3}
