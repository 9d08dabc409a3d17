"""Large n on small memory: micro-batches give the gradients of one pass, and what is kept for them is a micro-batch."""

import dataclasses
import weakref

import pytest
import torch
from oracles.little_run import CPU, gradients_of, little_config, little_samples, little_step
from torch import nn

from truedrift.generators.catalog import build
from truedrift.generators.drift_dit import DriftDiTOptions
from truedrift.training.batch import draw_inputs
from truedrift.training.setup import Parts
from truedrift.training.step import Step

GENERATED = 8
TOTAL = 3 * GENERATED


def relative(a, b):
    return float((a - b).norm() / b.norm())


def transformer():
    options = DriftDiTOptions(width=24, depth=2, heads=3, patch=2, registers=3, style_draws=5, style_entries=7)
    generator = build(options, sample_shape=(1, 8, 8), classes=3, seed=0)
    numbers = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in generator.parameters():  # what starts at zero would hide what comes after it
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=numbers))
    return generator


def made(micro_batch, precision="float64", generated=GENERATED, **parts):
    config = little_config(
        engine={"micro_batch": micro_batch, "precision": precision},
        batch={"generated": generated, "unconditional": 3},
        objective={"feature_scale": "mean-distance"},
    )
    return little_step(config, parts=Parts(**parts))


# float64 shows that the gradients are equal. In float32 products of another batch size round differently: about
# 10 units in the last place (6e-8), and more on some processors.
@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
@pytest.mark.parametrize("micro_batch", [1, 5, 7, 12, 23])
def test_gradients_are_those_of_one_pass(micro_batch, precision, tolerance):
    assert relative(gradients_of(made(micro_batch, precision), 1), gradients_of(made(None, precision), 1)) <= tolerance


def test_and_so_they_are_with_styles_and_attention():
    whole, parts = (gradients_of(made(size, generator=transformer())) for size in (None, 7))
    assert relative(parts, whole) <= 1e-12


def test_a_micro_batch_of_everything_is_one_pass():
    assert torch.equal(gradients_of(made(TOTAL), 1), gradients_of(made(None), 1))


def test_averages_of_the_losses_of_smaller_batches_are_something_else():
    """The control, accumulation as it is usually done: each half of the samples has its own targets."""
    step = made(None)
    pooled = gradients_of(step)
    draws = draw_inputs(step.config, step.state.generator, 0).to(CPU, torch.float64)
    gen = step.features(draws).transpose(0, 1).unflatten(1, (3, GENERATED))
    pos = step.positives.at(0)
    wanted = torch.cat([step.objective(half, pos).gradient / 2 for half in gen.chunk(2, 2)], 2)
    step.state.optimizer.zero_grad()
    gen.backward(wanted)
    averaged = torch.cat([parameter.grad.flatten() for parameter in step.state.parameters])
    assert relative(averaged, pooled) > 0.05


# ---- memory --------------------------------------------------------------------------------------------------------


class Kept:
    """A tensor that a graph holds, for as long as it holds it."""

    def __init__(self, tensor):
        self.tensor = tensor


class Ledger:
    """Bytes of what graphs hold now, and the most that they held; weights are there anyway and do not count."""

    def __init__(self, weights):
        self.weights = {weight.data_ptr() for weight in weights}
        self.now = self.peak = 0

    def pack(self, tensor):
        kept = Kept(tensor)
        if tensor.data_ptr() not in self.weights:
            size = tensor.numel() * tensor.element_size()
            self.now += size
            self.peak = max(self.peak, self.now)
            weakref.finalize(kept, self.release, size)
        return kept

    def release(self, size):
        self.now -= size

    def unpack(self, kept):
        return kept.tensor


def peak_of_a_step(micro_batch, generated):
    """Through generator and encoder; the target's own n × n matrices are not of the graph."""
    step = made(micro_batch, generated=generated)
    network = step.encode
    assert isinstance(network, nn.Module)
    ledger = Ledger([*step.state.parameters, *network.parameters()])

    @dataclasses.dataclass(frozen=True)
    class Watched(Step):
        def features(self, draws):
            with torch.autograd.graph.saved_tensors_hooks(ledger.pack, ledger.unpack):
                return super().features(draws)

    watched = Watched(**{field.name: getattr(step, field.name) for field in dataclasses.fields(step)})
    watched.gradients(0)
    assert ledger.now == 0  # nothing is left behind
    return ledger.peak


def test_what_is_kept_grows_with_the_micro_batch_and_not_with_n():
    whole = {n: peak_of_a_step(None, n) for n in (8, 32)}
    parts = {(size, n): peak_of_a_step(size, n) for size in (4, 8) for n in (8, 32)}
    assert whole[32] == 4 * whole[8]
    assert parts[4, 32] == parts[4, 8]
    assert parts[8, 8] == parts[8, 32] == 2 * parts[4, 8]
    assert parts[8, 8] * 3 == whole[8]  # 24 samples in three parts


def test_the_first_pass_keeps_nothing_and_every_sample_goes_through_twice():
    step = made(7)
    seen = []
    step.state.generator.register_forward_hook(lambda module, z, x: seen.append((len(x), x.requires_grad)))
    step.gradients(0)
    sizes = (7, 7, 7, 3)
    assert seen == [(size, False) for size in sizes] + [(size, True) for size in sizes]


def test_positives_are_encoded_in_micro_batches_too():
    seen = []

    def encoder(values):
        seen.append(len(values))
        return (values.flatten(1),)

    step = made(4, encoder=encoder)
    seen.clear()
    step.positives.at(0)
    assert seen == [4, 4, 4, 3]
    assert len(little_samples()) == 27
