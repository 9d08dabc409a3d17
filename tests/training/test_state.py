"""The training state: save and load bit for bit, frozen parameters, the average and the learning rate."""

import copy
import itertools
import math

import pytest
import torch
from oracles.small_run import build_small_step, small_config
from torch import nn

from truedrift.errors import UserError
from truedrift.generators import Generator, MLPOptions, build
from truedrift.training import EMA, OptimizerOptions, Parts, TrainingState, learning_rate
from truedrift.training.state import average_decay

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
        average.update(number)
        parameters = list(generator.parameters())
        expected = [0.75 * a + 0.25 * parameter.detach() for a, parameter in zip(expected, parameters, strict=True)]
    assert not average.generator.training
    for actual, wanted in zip(average.generator.parameters(), expected, strict=True):
        assert not actual.requires_grad
        torch.testing.assert_close(actual.detach(), wanted, rtol=1e-12, atol=1e-12)


def test_further_averages_equal_those_of_other_runs():
    """An average with decay β is that of a run whose main decay is β; the weights do not depend on it."""
    runs = [
        build_small_step(small_config(optimizer={"ema": ema, "more_ema": more}))
        for ema, more in ((0.8, (0.5, 0.99)), (0.5, ()), (0.99, ()))
    ]
    for step in runs:
        for number in range(4):
            step(number)
    several, half, slow = (step.state.tensors() for step in runs)
    assert set(several) == {"generator", "ema", "ema-0.5", "ema-0.99", "optimizer"}
    for file, expected in (("ema-0.5", half["ema"]), ("ema-0.99", slow["ema"]), ("generator", half["generator"])):
        assert all(torch.equal(several[file][name], tensor) for name, tensor in expected.items()), file
    assert not torch.equal(several["ema-0.5"]["first.weight"], several["ema"]["first.weight"])  # negative control


def literal_averages(history, decay, *, first=1):
    """Average float64 vectors of weights with the decay min(decay, (1 + t)/(10 + t)); update t = 1 has the second."""
    average = history[0].clone()
    for t, weights in enumerate(history[1:], start=first):
        beta = min(decay, (1 + t) / (10 + t))
        average = beta * average + (1 - beta) * weights
    return average


def test_warm_up_of_all_averages_equals_a_loop():
    """The decay 0.5 is reached at t = 8 and 0.8 at t = 35, so that every branch of the minimum is taken."""
    options = {"ema": 0.8, "more_ema": (0.5, 0.0, 0.99), "ema_warmup": True}
    step = build_small_step(small_config(optimizer=options))
    state = step.state

    def weights(generator):
        return torch.cat([parameter.detach().flatten() for parameter in generator.parameters()])

    history = [weights(state.generator).clone()]
    for number in range(40):
        step(number)
        history.append(weights(state.generator).clone())
    for decay, average in {0.8: state.average, **state.more_averages}.items():
        actual = weights(average.generator)
        torch.testing.assert_close(actual, literal_averages(history, decay), rtol=1e-12, atol=1e-12)
        # Negative controls: an update counted from 0, and no warm-up.
        if decay > 0.5:
            assert not torch.allclose(actual, literal_averages(history, decay, first=0), rtol=1e-9, atol=1e-9)
            assert not torch.allclose(actual, literal_averages(history, decay, first=10**9), rtol=1e-4, atol=1e-4)
    # The weight of the initial weights in the average 0.99: Π β_t instead of 0.99⁴⁰ = 0.67.
    assert math.prod(average_decay(0.99, number, warmup=True) for number in range(40)) < 1e-7
    assert average_decay(0.99, 0) == 0.99


def test_further_averages_are_restored():
    config = small_config(optimizer={"ema": 0.8, "more_ema": (0.5, 1e-05)})
    saved, resumed = build_small_step(config), build_small_step(config)
    saved(0)
    resumed.state.load(clone_tensors(saved.state.tensors()))
    for step in (saved, resumed):
        step(1)
    expected, actual = saved.state.tensors(), resumed.state.tensors()
    assert "ema-1e-05" in actual
    for file, tensors in expected.items():
        assert all(torch.equal(actual[file][name], tensor) for name, tensor in tensors.items()), file


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


@pytest.mark.parametrize("warmup", [0, 1, 30])
@pytest.mark.parametrize("fraction", [0.0, 0.1])
def test_cosine_schedule(warmup, fraction):
    """Against its definition: a line up, then half a cosine that ends at f·lr at the last step."""
    options = OptimizerOptions(warmup_steps=warmup, learning_rate=0.3, schedule="cosine", final_fraction=fraction)
    steps = 200
    rates = [learning_rate(options, step, steps) for step in range(steps)]
    peak = max(warmup, 1) - 1  # the first step at the full learning rate
    assert rates[peak] == 0.3
    for step, rate in enumerate(rates):
        if step <= peak:
            assert rate == pytest.approx(0.3 * (step + 1) / (peak + 1))
        else:
            angle = math.pi * (step - peak) / (steps - 1 - peak)
            assert rate == pytest.approx(0.3 * (fraction + (1 - fraction) * math.cos(angle / 2) ** 2), abs=1e-12)
    assert rates[-1] == pytest.approx(0.3 * fraction, abs=1e-15)
    assert all(a > b for a, b in itertools.pairwise(rates[peak:]))
    assert learning_rate(options, steps + 5, steps) == rates[-1]


def test_cosine_schedule_needs_the_length_of_the_run():
    options = OptimizerOptions(warmup_steps=2, schedule="cosine")
    assert learning_rate(options, 1) == options.learning_rate  # the warm-up does not depend on it
    with pytest.raises(UserError, match=r"^optimizer.schedule is cosine and the number of steps is not given; "):
        learning_rate(options, 2)


def test_steps_use_the_schedule():
    """Weight decay alone moves a parameter without gradient by the factor 1 − lr_t·λ, for 4 steps of the run."""
    options = {"schedule": "cosine", "final_fraction": 0.5, "warmup_steps": 1, "weight_decay": 2.0}
    step = build_small_step(small_config(optimizer=options), parts=Parts(generator=build_partly_frozen()))
    weight = step.state.generator.unused.weight
    expected = weight.detach().clone()
    for number in range(4):
        step(number)
        expected = expected * (1 - 2 * learning_rate(step.config.optimizer, number, 4))
    torch.testing.assert_close(weight.detach(), expected, rtol=1e-12, atol=0)
    assert learning_rate(step.config.optimizer, 3, 4) == 0.005


def test_a_schedule_of_warm_up_steps_alone_keeps_its_last_rate():
    options = OptimizerOptions(learning_rate=0.5, schedule="cosine", warmup_steps=5, final_fraction=0.1)
    assert learning_rate(options, 4, 5) == 0.5
    assert learning_rate(options, 5, 5) == pytest.approx(0.05)
