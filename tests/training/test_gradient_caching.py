"""Micro-batches give the gradients of one pass, with the memory of one micro-batch."""

import dataclasses
import weakref

import pytest
import torch
from oracles.small_run import CPU, build_small_step, gradient_vector, small_config, small_samples
from torch import nn

from truedrift.generators import DriftDiTOptions, build
from truedrift.training import Parts, Step, draw_inputs

GENERATED = 8
TOTAL = 3 * GENERATED


def relative_error(a, b):
    return float((a - b).norm() / b.norm())


def build_transformer():
    options = DriftDiTOptions(width=24, depth=2, heads=3, patch=2, registers=3, style_draws=5, style_entries=7)
    generator = build(options, sample_shape=(1, 8, 8), classes=3, seed=0)
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in generator.parameters():  # layers that start at zero would hide the layers before them
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=rng))
    return generator


def build_step(micro_batch, precision="float64", generated=GENERATED, **parts):
    config = small_config(
        engine={"micro_batch": micro_batch, "precision": precision},
        batch={"generated": generated, "unconditional": 3},
        objective={"feature_scale": "mean-distance"},
    )
    return build_small_step(config, parts=Parts(**parts))


# float64 shows that the gradients are equal. In float32, products of another batch size round differently: by about
# 10 units in the last place (6e-8), and by more on some processors.
@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
@pytest.mark.parametrize("micro_batch", [1, 5, 7, 12, 23])
def test_gradients_equal_those_of_one_pass(micro_batch, precision, tolerance):
    assert (
        relative_error(
            gradient_vector(build_step(micro_batch, precision), 1), gradient_vector(build_step(None, precision), 1)
        )
        <= tolerance
    )


@pytest.mark.parametrize("matched", [False, True])
@pytest.mark.parametrize("micro_batch", [1, 5, 12])
def test_gradients_with_fresh_negatives_equal_those_of_one_pass(micro_batch, matched):
    batch, objective = {"n": 6, "fresh_negatives": 3}, {"matched": matched}
    steps = [
        build_small_step(small_config(batch=batch, objective=objective, engine={"micro_batch": size}))
        for size in (None, micro_batch)
    ]
    one_pass, micro_batches = (gradient_vector(step, 1) for step in steps)
    assert relative_error(micro_batches, one_pass) <= 1e-12


def test_gradients_of_a_transformer_equal_those_of_one_pass():
    one_pass, micro_batches = (gradient_vector(build_step(size, generator=build_transformer())) for size in (None, 7))
    assert relative_error(micro_batches, one_pass) <= 1e-12


def test_micro_batch_of_all_samples_is_one_pass():
    assert torch.equal(gradient_vector(build_step(TOTAL), 1), gradient_vector(build_step(None), 1))


def test_averaged_losses_of_smaller_batches_have_other_gradients():
    """Negative control: usual gradient accumulation, in which each half of the samples has its own targets."""
    step = build_step(None)
    pooled = gradient_vector(step)
    draws = draw_inputs(step.config, step.state.generator, 0).to(CPU, torch.float64)
    gen = step.features(draws).unflatten(0, (3, GENERATED))
    pos = step.positives.at(0)
    gradient = torch.cat([step.objective(half, pos).gradient / 2 for half in gen.chunk(2, 1)], 1)
    step.state.optimizer.zero_grad()
    gen.backward(gradient)
    averaged = torch.cat([parameter.grad.flatten() for parameter in step.state.parameters])
    assert relative_error(averaged, pooled) > 0.05


# ---- Memory ----


class SavedTensor:
    """A tensor that a graph holds; it is finalized when the graph releases it."""

    def __init__(self, tensor):
        self.tensor = tensor


class MemoryMeter:
    """Current and peak bytes of the tensors that graphs hold, without the weights."""

    def __init__(self, weights):
        self.weights = {weight.data_ptr() for weight in weights}
        self.current = self.peak = 0

    def pack(self, tensor):
        saved = SavedTensor(tensor)
        if tensor.data_ptr() not in self.weights:
            size = tensor.numel() * tensor.element_size()
            self.current += size
            self.peak = max(self.peak, self.current)
            weakref.finalize(saved, self.release, size)
        return saved

    def release(self, size):
        self.current -= size

    def unpack(self, saved):
        return saved.tensor


def measure_peak(micro_batch, generated):
    """Return the peak memory of generator and encoder, without the n × n matrices of the loss."""
    step = build_step(micro_batch, generated=generated)
    network = step.encode
    assert isinstance(network, nn.Module)
    meter = MemoryMeter([*step.state.parameters, *network.parameters()])

    @dataclasses.dataclass(frozen=True)
    class MeasuredStep(Step):
        def features(self, draws):
            with torch.autograd.graph.saved_tensors_hooks(meter.pack, meter.unpack):
                return super().features(draws)

    measured = MeasuredStep(**{field.name: getattr(step, field.name) for field in dataclasses.fields(step)})
    measured.gradients(0)
    assert meter.current == 0  # everything is released
    return meter.peak


def test_memory_grows_with_the_micro_batch_and_not_with_n():
    one_pass = {n: measure_peak(None, n) for n in (8, 32)}
    micro_batches = {(size, n): measure_peak(size, n) for size in (4, 8) for n in (8, 32)}
    assert one_pass[32] == 4 * one_pass[8]
    assert micro_batches[4, 32] == micro_batches[4, 8]
    assert micro_batches[8, 8] == micro_batches[8, 32] == 2 * micro_batches[4, 8]
    assert micro_batches[8, 8] * 3 == one_pass[8]  # 24 samples in three parts


def test_every_sample_is_generated_twice_and_first_without_a_graph():
    step = build_step(7)
    calls = []
    step.state.generator.register_forward_hook(lambda module, z, x: calls.append((len(x), x.requires_grad)))
    step.gradients(0)
    sizes = (7, 7, 7, 3)
    assert calls == [(size, False) for size in sizes] + [(size, True) for size in sizes]


def test_positives_are_encoded_in_micro_batches():
    sizes = []

    def encoder(values):
        sizes.append(len(values))
        return (values.flatten(1),)

    step = build_step(4, encoder=encoder)
    sizes.clear()
    step.positives.at(0)
    assert sizes == [4, 4, 4, 3]
    assert len(small_samples()) == 27
