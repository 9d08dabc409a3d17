"""A step against its formulas in float64, and what may not change its numbers: precision, compilation, NaN."""

import dataclasses
from functools import partial
from importlib import import_module

import pytest
import torch
from oracles.little_run import CPU, convnet, gradients_of, little_config, little_samples, little_step
from oracles.training_step import LiteralRun
from torch import nn

from truedrift.encoders.base import PixelsOptions
from truedrift.field.affinity import NORMALIZATIONS
from truedrift.objective.feature_scale import FEATURE_SCALES
from truedrift.training import step as step_module
from truedrift.training.batch import draw_inputs
from truedrift.training.config import OptimizerOptions
from truedrift.training.setup import Parts
from truedrift.training.step import split_rows

drift_loss_module = import_module("truedrift.objective.drift_loss")


def relative(a, b):
    return float((a - b).norm() / b.norm())


def literal(config, step, samples=None):
    return LiteralRun(config, step.state.generator, step.encode, samples or little_samples())


# ---- the formulas --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("u", [0, 3], ids=["unguided", "guided"])
@pytest.mark.parametrize("feature_scale", FEATURE_SCALES)
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_gradients_are_those_of_the_formulas(normalization, feature_scale, u):
    options = {"normalization": normalization, "feature_scale": feature_scale, "estimator_neg": "standard"}
    config = little_config(objective=options, batch={"unconditional": u})
    step = little_step(config)
    run = literal(config, step)
    loss = run.loss(2)
    expected = torch.autograd.grad(loss, run.theta)
    assert float(step.gradients(2).loss) == pytest.approx(float(loss.detach()), rel=1e-9)
    for parameter, g in zip(step.state.parameters, expected, strict=True):
        assert relative(parameter.grad, g) < 1e-8


@pytest.mark.parametrize("clip", [0.05, 100.0], ids=["clipped", "not clipped"])
def test_steps_are_textbook_adamw_with_warm_up_clipping_and_average(clip):
    config = little_config(optimizer={"clip": clip, "ema": 0.8, "weight_decay": 0.3, "warmup_steps": 3})
    step = little_step(config)
    run = literal(config, step)
    for number in range(5):  # beyond the warm-up
        outcome = step(number)
        loss, norm = run.step(number)
        assert (norm > clip) == (clip == 0.05)
        # torch clips to clip/(‖g‖ + 1e-6), which the steps after it feel
        assert float(outcome.features.loss) == pytest.approx(loss, rel=1e-6)
        assert float(outcome.gradient_norm) == pytest.approx(norm, rel=1e-6)
        assert bool(outcome.finite)
        state = step.state
        for name, ours, theta, average in zip(state.names, state.parameters, run.theta, run.average, strict=True):
            assert relative(ours.detach(), theta.detach()) < 1e-6, name
            assert relative(dict(state.average.generator.named_parameters())[name], average) < 1e-6, name


def test_the_defaults_are_the_papers():
    options = OptimizerOptions()
    assert (options.beta1, options.beta2, options.weight_decay) == (0.9, 0.95, 0.01)
    assert (options.learning_rate, options.warmup_steps, options.ema, options.clip) == (2e-4, 2000, 0.999, 2.0)


def test_scales_of_unequal_size_have_the_gradients_that_they_have_alone():
    """Padding leaves the ε of the RMS out of proportion, hence the tolerance; without the weights it is 30 % off."""
    config = dataclasses.replace(little_config(objective={"temperatures": (0.4,)}), encoder=convnet(3, 6))
    step = little_step(config)
    run = literal(config, step)
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(run.loss(0), run.theta)])
    assert relative(gradients_of(step), expected) < 1e-3
    unweighted = dataclasses.replace(step, objective=dataclasses.replace(step.objective, weights=[1.0, 1.0]))
    assert relative(gradients_of(unweighted), expected) > 0.05


def test_a_hidden_label_still_drifts_as_its_class():
    config = little_config(condition={"label_dropout": 0.5}, objective={"feature_scale": "mean-distance"})
    step = little_step(config)
    labels = draw_inputs(config, step.state.generator, 1).labels
    assert 0 < int((labels == 3).sum()) < 12
    run = literal(config, step)
    expected = torch.autograd.grad(run.loss(1), run.theta)
    wrong = torch.autograd.grad(run.loss(1, hidden_drift_as=0), run.theta)
    gradients_of(step, 1)
    assert all(relative(p.grad, g) < 1e-8 for p, g in zip(step.state.parameters, expected, strict=True))
    assert max(relative(p.grad, g) for p, g in zip(step.state.parameters, wrong, strict=True)) > 0.1


def test_the_generator_is_told_the_null_class_where_the_label_is_hidden():
    seen = []
    step = little_step(little_config(condition={"label_dropout": 0.5}))
    step.state.generator.register_forward_hook(lambda module, inputs, output: seen.append(inputs[1]))
    step.gradients(1)
    assert torch.equal(seen[0], draw_inputs(step.config, step.state.generator, 1).labels)


# ---- engine --------------------------------------------------------------------------------------------------------


def recorded(monkeypatch):
    """What drift_loss is given."""
    given = []

    def watched(gen, pos, neg=None, **options):
        given.append((gen.dtype, pos.dtype, None if neg is None else neg.dtype, gen.abs().max() < torch.inf))
        return original(gen, pos, neg, **options)

    original = drift_loss_module.drift_loss
    monkeypatch.setattr(step_module, "drift_loss", watched)
    return given


def test_bfloat16_is_for_networks_and_the_field_stays_in_float32(monkeypatch):
    given = recorded(monkeypatch)
    layers, losses, gradients = [], {}, {}
    for precision in ("float32", "bfloat16"):
        engine = {"precision": precision}
        step = little_step(little_config(engine=engine, batch={"unconditional": 3}))
        step.state.generator.first.register_forward_hook(lambda module, i, output: layers.append(output.dtype))
        losses[precision], gradients[precision] = float(step.gradients(0).loss), gradients_of(step)
    assert {entry[:3] for entry in given} == {(torch.float32,) * 3}
    assert set(layers) == {torch.float32, torch.bfloat16}  # autocast was at work
    assert {g.dtype for g in gradients.values()} == {torch.float32}
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.02)
    assert losses["bfloat16"] != losses["float32"]
    assert relative(gradients["bfloat16"], gradients["float32"]) < 0.1


def compiled_gradients(precision):
    config = little_config(engine={"precision": precision, "compiled": True}, batch={"unconditional": 2})
    plain = dataclasses.replace(config, engine=dataclasses.replace(config.engine, compiled=False))
    return gradients_of(little_step(config)), gradients_of(little_step(plain))


@pytest.fixture
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # dynamo hides it, pytest would raise it first
def test_compiled_networks_give_the_same_gradients(monkeypatch):
    """The backend that traces and needs no C++ compiler; the slow test below takes the real one."""
    compiled = []
    original = torch.compile

    def traced(target, **options):
        compiled.append(target)
        return original(target, **options, backend="aot_eager")

    monkeypatch.setattr(torch, "compile", traced)
    ours, expected = compiled_gradients("float64")
    assert [isinstance(each, nn.Module) for each in compiled] == [True, True]  # generator and encoder
    assert relative(ours, expected) < 1e-12


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # dynamo hides it, pytest would raise it first
def test_networks_compiled_to_kernels_give_the_same_gradients():
    ours, expected = compiled_gradients("float32")
    assert relative(ours, expected) < 1e-5


class Poisoned(nn.Module):
    """Pixels, and NaN where it is asked for."""

    def __init__(self):
        super().__init__()
        self.poisoned = False

    def forward(self, values):
        return (values.flatten(1) * (torch.nan if self.poisoned else 1.0),)


def test_a_step_that_is_not_finite_changes_no_weight_and_no_moment():
    encoder = Poisoned()
    step = little_step(little_config(optimizer={"warmup_steps": 0}), parts=Parts(encoder=encoder))
    step(0)
    before = {file: {n: t.clone() for n, t in tensors.items()} for file, tensors in step.state.tensors().items()}
    encoder.poisoned = True
    outcome = step(1)
    after = step.state.tensors()
    assert not bool(outcome.finite)
    for file in ("generator", "optimizer"):
        assert all(torch.equal(after[file][name], tensor) for name, tensor in before[file].items()), file
    assert all(bool(tensor.isfinite().all()) for tensor in after["ema"].values())
    encoder.poisoned = False
    assert bool(step(2).finite)  # it goes on
    moved = step.state.tensors()["generator"]
    assert any(not torch.equal(moved[name], tensor) for name, tensor in before["generator"].items())


def test_infinite_gradients_of_a_finite_loss_change_nothing_either():
    step = little_step(little_config())
    step.state.parameters[0].register_hook(lambda g: g * torch.inf)
    before = [p.detach().clone() for p in step.state.parameters]
    outcome = step(0)
    assert bool(outcome.features.loss.isfinite())
    assert not bool(outcome.finite)
    assert all(torch.equal(a, b) for a, b in zip(step.state.parameters, before, strict=True))


def test_a_process_without_rows_has_a_part_without_rows():
    step = little_step(little_config())
    draws = draw_inputs(step.config, step.state.generator, 0).to(CPU, torch.float64)
    assert [len(part) for part in split_rows(draws.rows(4, 4), None)] == [0]
    assert [len(part) for part in split_rows(draws.rows(4, 4), 5)] == [0]
    assert [len(part) for part in split_rows(draws, 5)] == [5, 5, 2]
    assert step.features(draws.rows(4, 4)).shape == (0, 2, 4)


def test_estimators_that_draw_do_so_from_the_seed_and_the_step():
    config = little_config(objective={"estimator_pos": "bootstrap"})
    first, again = gradients_of(little_step(config), 1), gradients_of(little_step(config), 1)
    assert torch.equal(first, again)
    other = dataclasses.replace(little_step(config), config=dataclasses.replace(config, seed=4))
    wrong_seed = partial(gradients_of, other, 1)
    assert not torch.equal(wrong_seed(), first)


def test_pixels_of_images_are_a_scale_of_their_own():
    config = dataclasses.replace(little_config(), encoder=PixelsOptions())
    step = little_step(config)
    run = literal(config, step)
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(run.loss(0), run.theta)])
    assert relative(gradients_of(step), expected) < 1e-8


# ---- no waiting for the device -------------------------------------------------------------------------------------


def on_a_device_without_values(monkeypatch, **changed):
    """The step with everything on the device "meta", whose tensors have shapes and no values to look at."""
    meta, real, autocast = torch.device("meta"), torch.Generator, torch.autocast
    step = little_step(little_config(engine={"precision": "float32"}, **changed))
    step.state.generator.to(meta)
    step.encode.to(meta)
    lookup = step.positives.lookup
    lookup.device = meta
    lookup.encode = step.encode
    monkeypatch.setattr(torch, "Generator", lambda device=None: real())  # that device has none of its own,
    monkeypatch.setattr(torch, "autocast", lambda device, **options: autocast("cpu", enabled=False))  # nor autocast
    return dataclasses.replace(step, device=meta)


@pytest.mark.parametrize("u", [0, 3], ids=["unguided", "guided"])
@pytest.mark.parametrize("feature_scale", FEATURE_SCALES)
def test_nothing_looks_at_a_value_on_the_device(monkeypatch, feature_scale, u):
    """On a GPU every look would wait until all work that was asked for is done."""
    objective, batch = {"feature_scale": feature_scale}, {"unconditional": u}
    step = on_a_device_without_values(monkeypatch, objective=objective, batch=batch)
    loss = step.gradients(0)
    gradients = [parameter.grad for parameter in step.state.generator.parameters()]
    assert loss.loss.is_meta
    assert all(g is not None and g.is_meta for g in gradients)
    assert torch.nn.utils.clip_grad_norm_(step.state.generator.parameters(), 2.0).is_meta


def test_a_look_would_be_noticed(monkeypatch):
    step = on_a_device_without_values(monkeypatch)

    def looking(x, y, tau):
        distances = torch.cdist(x, y)
        return -distances / (tau if distances.max() > 0 else 1)

    curious = dataclasses.replace(step, objective=dataclasses.replace(step.objective, kernel=looking))
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        curious.gradients(0)
