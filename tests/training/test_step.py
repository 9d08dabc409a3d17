"""A step against its formulas in float64, and in other precisions, compiled, and with values that are not finite."""

import dataclasses

import pytest
import torch
from oracles.small_run import CPU, build_small_step, convnet, gradient_vector, small_config, small_samples
from oracles.training_step import LiteralRun
from torch import nn

from truedrift.encoders import PixelsOptions
from truedrift.field import JOINT_NORMALIZATIONS
from truedrift.objective import FEATURE_SCALES, drift_loss
from truedrift.training import OptimizerOptions, Parts, draw_inputs
from truedrift.training import step as step_module


def relative_error(a, b):
    return float((a - b).norm() / b.norm())


def build_literal_run(config, step, samples=None):
    return LiteralRun(config, step.state.generator, step.encode, samples or small_samples())


# ---- Formulas ----


@pytest.mark.parametrize("u", [0, 3], ids=["unguided", "guided"])
@pytest.mark.parametrize("feature_scale", FEATURE_SCALES)
@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
def test_gradients_equal_the_formulas(normalization, feature_scale, u):
    options = {"normalization": normalization, "feature_scale": feature_scale, "estimator_neg": "standard"}
    config = small_config(objective=options, batch={"unconditional": u})
    step = build_small_step(config)
    run = build_literal_run(config, step)
    loss = run.loss(2)
    expected = torch.autograd.grad(loss, run.theta)
    assert float(step.gradients(2).loss) == pytest.approx(float(loss.detach()), rel=1e-9)
    for parameter, g in zip(step.state.parameters, expected, strict=True):
        assert relative_error(parameter.grad, g) < 1e-8


@pytest.mark.parametrize("labels", [1, 2])
@pytest.mark.parametrize(
    "batch", [{}, {"unconditional": 3}, {"fresh_negatives": 5}], ids=["unguided", "guided", "fresh negatives"]
)
def test_gradients_of_some_classes_equal_the_formulas(batch, labels):
    options = {"feature_scale": "standardize-l2", "estimator_neg": "standard", "estimator_pos": "standard"}
    config = small_config(objective=options, batch=batch | {"labels": labels})
    step = build_small_step(config)
    run = build_literal_run(config, step)
    chosen = [run.batches.classes_at(number).classes.tolist() for number in range(4)]
    assert len({tuple(each) for each in chosen}) > 1
    for number in range(2):
        loss = run.loss(number)
        expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, run.theta)])
        assert float(step.gradients(number).loss) == pytest.approx(float(loss.detach()), rel=1e-9)
        assert relative_error(gradient_vector(step, number), expected) < 1e-8
    every = build_small_step(small_config(objective=options, batch=batch))  # negative control
    assert relative_error(gradient_vector(every, 1), expected) > 0.1


@pytest.mark.parametrize("clip", [0.05, 100.0], ids=["clipped", "not clipped"])
def test_steps_equal_textbook_adamw_with_warm_up_clipping_and_average(clip):
    config = small_config(optimizer={"clip": clip, "ema": 0.8, "weight_decay": 0.3, "warmup_steps": 3})
    step = build_small_step(config)
    run = build_literal_run(config, step)
    for number in range(5):  # beyond the warm-up
        outcome = step(number)
        loss, norm = run.step(number)
        assert (norm > clip) == (clip == 0.05)
        # torch clips to clip/(‖g‖ + 1e-6), which changes the later steps slightly
        assert float(outcome.features.loss) == pytest.approx(loss, rel=1e-6)
        assert float(outcome.gradient_norm) == pytest.approx(norm, rel=1e-6)
        assert bool(outcome.finite)
        state = step.state
        for name, parameter, theta, average in zip(state.names, state.parameters, run.theta, run.average, strict=True):
            assert relative_error(parameter.detach(), theta.detach()) < 1e-6, name
            assert relative_error(dict(state.average.generator.named_parameters())[name], average) < 1e-6, name


def test_optimizer_defaults_are_those_of_the_paper():
    options = OptimizerOptions()
    assert (options.beta1, options.beta2, options.weight_decay) == (0.9, 0.95, 0.01)
    assert (options.learning_rate, options.warmup_steps, options.ema, options.clip) == (2e-4, 2000, 0.999, 2.0)


def test_padded_scales_have_the_gradients_of_separate_scales(monkeypatch):
    """Padding changes the ε of the RMS, hence the tolerance; without the weights the error is 30 %."""
    config = dataclasses.replace(small_config(objective={"temperatures": (0.4,)}), encoder=convnet(3, 6))
    step = build_small_step(config)
    run = build_literal_run(config, step)
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(run.loss(0), run.theta)])
    assert relative_error(gradient_vector(step), expected) < 1e-3
    monkeypatch.setattr("truedrift.training.objective.gradient_weights", lambda dimensions, scale: [1.0, 1.0])
    assert relative_error(gradient_vector(step), expected) > 0.05


def test_sample_with_hidden_label_drifts_as_its_class():
    config = small_config(condition={"label_dropout": 0.5}, objective={"feature_scale": "mean-distance"})
    step = build_small_step(config)
    labels = draw_inputs(config, step.state.generator, 1).labels
    assert 0 < int((labels == 3).sum()) < 12
    run = build_literal_run(config, step)
    expected = torch.autograd.grad(run.loss(1), run.theta)
    wrong = torch.autograd.grad(run.loss(1, hidden_drift_as=0), run.theta)
    gradient_vector(step, 1)
    assert all(relative_error(p.grad, g) < 1e-8 for p, g in zip(step.state.parameters, expected, strict=True))
    assert max(relative_error(p.grad, g) for p, g in zip(step.state.parameters, wrong, strict=True)) > 0.1


def test_generator_gets_the_null_class_for_hidden_labels():
    labels = []
    step = build_small_step(small_config(condition={"label_dropout": 0.5}))
    step.state.generator.register_forward_hook(lambda module, inputs, output: labels.append(inputs[1]))
    step.gradients(1)
    assert torch.equal(labels[0], draw_inputs(step.config, step.state.generator, 1).labels)


# ---- Fresh negatives and matched references ----

REFERENCES = {
    "fresh": ({"fresh_negatives": 5}, {}),
    "fresh, other size": ({"fresh_negatives": 3}, {"normalization": "row", "form": "separate"}),
    "fresh, matched": ({"n": 6, "fresh_negatives": 3}, {"matched": True}),
    "matched": ({}, {"normalization": "row", "form": "separate", "matched": True}),
    "matched, symmetric": ({"n": 7}, {"normalization": "symmetric", "matched": True, "estimator_neg": "abc"}),
}
"""Options of batch and objective."""


def references_config(name, **changes):
    batch, objective = REFERENCES[name]
    return small_config(batch=batch, objective=objective, **changes)


@pytest.mark.parametrize("estimator", ["standard", "abc"])
@pytest.mark.parametrize("name", REFERENCES)
def test_gradients_with_fresh_and_matched_references_equal_the_formulas(name, estimator):
    batch, objective = REFERENCES[name]
    config = small_config(batch=batch, objective=objective | {"estimator_pos": estimator, "estimator_neg": estimator})
    step = build_small_step(config)
    run = build_literal_run(config, step)
    loss = run.loss(2)
    expected = torch.autograd.grad(loss, run.theta)
    assert float(step.gradients(2).loss) == pytest.approx(float(loss.detach()), rel=1e-9)
    for parameter, g in zip(step.state.parameters, expected, strict=True):
        assert relative_error(parameter.grad, g) < 1e-8


def test_gradients_with_and_without_fresh_and_matched_references_differ():
    """Negative control of the test above."""
    gradients = [gradient_vector(build_small_step(references_config(name)), 2) for name in REFERENCES]
    gradients.append(gradient_vector(build_small_step(small_config()), 2))
    assert min(relative_error(a, b) for i, a in enumerate(gradients) for b in gradients[:i]) > 1e-3


def by_scale(features):
    """[C, rows, F] → [S, C, rows, D] of two scales with four features each."""
    return features.unflatten(-1, (2, 4)).permute(2, 0, 1, 3)


@pytest.mark.parametrize("name", ["fresh", "fresh, matched"])
def test_loss_is_that_of_drift_loss_with_fresh_negatives(name):
    config = references_config(name)
    step = build_small_step(config)
    with torch.no_grad():
        draws = (draw_inputs(config, step.state.generator, 1, fresh=fresh) for fresh in (False, True))
        gen, fresh = (by_scale(step.features(each.to(CPU, torch.float64)).unflatten(0, (3, -1))) for each in draws)
    options = config.objective
    expected = drift_loss(
        gen,
        by_scale(step.positives.at(1)),
        fresh_neg=fresh,
        temperatures=options.temperatures,
        normalization=options.normalization,
        form=options.form,
        estimator_pos=options.estimator_pos,
        estimator_neg=options.estimator_neg,
        matched=options.matched,
    ).loss
    assert torch.equal(step.gradients(1).loss, expected.mean())


def test_fresh_negatives_are_a_function_of_seed_and_step():
    config = references_config("fresh")
    step = build_small_step(config)
    first = step.fresh_features(1)
    assert first.shape == (15, 8)
    step.fresh_features(2)
    torch.manual_seed(17)  # global random numbers have no effect
    assert torch.equal(step.fresh_features(1), first)
    assert torch.equal(build_small_step(config).fresh_features(1), first)
    other_seed = dataclasses.replace(step, config=dataclasses.replace(config, seed=4))
    for other in (step.fresh_features(2), other_seed.fresh_features(1)):
        assert not torch.isclose(other, first).all(-1).any()  # no sample is repeated
    # The samples that are trained are those of a run without fresh negatives, and no fresh one is among them.
    trained = draw_inputs(config, step.state.generator, 1)
    assert torch.equal(trained.z, draw_inputs(small_config(), step.state.generator, 1).z)
    fresh = draw_inputs(config, step.state.generator, 1, fresh=True)
    assert not torch.isclose(torch.cdist(trained.z, fresh.z), torch.zeros(())).any()
    assert build_small_step(small_config()).fresh_features(1) is None


@pytest.mark.parametrize("micro_batch", [None, 4])
def test_fresh_negatives_are_generated_without_a_graph_under_the_micro_batch_limit(micro_batch):
    step = build_small_step(references_config("fresh", engine={"micro_batch": micro_batch}))
    calls = []
    step.state.generator.register_forward_hook(lambda m, i, out: calls.append((len(out), out.requires_grad)))
    assert not step.fresh_features(0).requires_grad
    assert calls == ([(15, False)] if micro_batch is None else [(4, False)] * 3 + [(3, False)])
    calls.clear()
    step.gradients(0)
    with_graph = [(12, True)] if micro_batch is None else [(4, True)] * 3  # 12 samples are trained
    assert [call for call in calls if call[1]] == with_graph


# ---- Engine ----


def record_loss_inputs(monkeypatch):
    """Return a list to which every call of drift_loss adds the dtypes of its arguments."""
    calls = []

    def recording_loss(gen, pos, neg=None, **options):
        calls.append((gen.dtype, pos.dtype, None if neg is None else neg.dtype, gen.abs().max() < torch.inf))
        return drift_loss(gen, pos, neg, **options)

    monkeypatch.setattr("truedrift.training.objective.drift_loss", recording_loss)
    return calls


def test_networks_compute_in_bfloat16_and_the_field_in_float32(monkeypatch):
    calls = record_loss_inputs(monkeypatch)
    layers, losses, gradients = [], {}, {}
    for precision in ("float32", "bfloat16"):
        engine = {"precision": precision}
        step = build_small_step(small_config(engine=engine, batch={"unconditional": 3}))
        step.state.generator.first.register_forward_hook(lambda module, i, output: layers.append(output.dtype))
        losses[precision], gradients[precision] = float(step.gradients(0).loss), gradient_vector(step)
    assert {entry[:3] for entry in calls} == {(torch.float32,) * 3}
    assert set(layers) == {torch.float32, torch.bfloat16}  # autocast was active
    assert {g.dtype for g in gradients.values()} == {torch.float32}
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.02)
    assert losses["bfloat16"] != losses["float32"]
    assert relative_error(gradients["bfloat16"], gradients["float32"]) < 0.1


def compiled_gradients(precision):
    config = small_config(engine={"precision": precision, "compiled": True}, batch={"unconditional": 2})
    plain = dataclasses.replace(config, engine=dataclasses.replace(config.engine, compiled=False))
    return gradient_vector(build_small_step(config)), gradient_vector(build_small_step(plain))


@pytest.fixture
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def compiles(test):
    """Reset the compiler, and ignore a warning that dynamo hides but pytest would raise as an error."""
    ignore = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
    return pytest.mark.usefixtures("fresh_compiler")(ignore(test))


@compiles
def test_compiled_networks_give_the_same_gradients(monkeypatch):
    """Uses a backend that traces and needs no C++ compiler; the slow test below uses the real one."""
    compiled = []
    original = torch.compile

    def trace_only(target, **options):
        compiled.append(target)
        return original(target, **options, backend="aot_eager")

    monkeypatch.setattr(torch, "compile", trace_only)
    actual, expected = compiled_gradients("float64")
    assert [isinstance(target, nn.Module) for target in compiled] == [True, True]  # generator and encoder
    assert relative_error(actual, expected) < 1e-12


@pytest.mark.slow
@compiles
def test_networks_compiled_to_kernels_give_the_same_gradients():
    actual, expected = compiled_gradients("float32")
    assert relative_error(actual, expected) < 1e-5


class SwitchableNaN(nn.Module):
    """Pixels, or NaN while `nan` is set."""

    def __init__(self):
        super().__init__()
        self.nan = False

    def forward(self, values):
        return (values.flatten(1) * (torch.nan if self.nan else 1.0),)


def test_nonfinite_step_changes_no_weight_and_no_moment():
    encoder = SwitchableNaN()
    step = build_small_step(small_config(optimizer={"warmup_steps": 0}), parts=Parts(encoder=encoder))
    step(0)
    before = {file: {n: t.clone() for n, t in tensors.items()} for file, tensors in step.state.tensors().items()}
    encoder.nan = True
    outcome = step(1)
    after = step.state.tensors()
    assert not bool(outcome.finite)
    for file in ("generator", "optimizer"):
        assert all(torch.equal(after[file][name], tensor) for name, tensor in before[file].items()), file
    assert all(bool(tensor.isfinite().all()) for tensor in after["ema"].values())
    encoder.nan = False
    assert bool(step(2).finite)  # training continues
    later = step.state.tensors()["generator"]
    assert any(not torch.equal(later[name], tensor) for name, tensor in before["generator"].items())


def test_infinite_gradient_of_a_finite_loss_changes_no_weight():
    step = build_small_step(small_config())
    step.state.parameters[0].register_hook(lambda g: g * torch.inf)
    before = [p.detach().clone() for p in step.state.parameters]
    outcome = step(0)
    assert bool(outcome.features.loss.isfinite())
    assert not bool(outcome.finite)
    assert all(torch.equal(a, b) for a, b in zip(step.state.parameters, before, strict=True))


def test_split_rows_of_a_process_without_rows():
    step = build_small_step(small_config())
    draws = draw_inputs(step.config, step.state.generator, 0).to(CPU, torch.float64)
    assert [len(part) for part in step_module.split_rows(draws.rows(4, 4), None)] == [0]
    assert [len(part) for part in step_module.split_rows(draws.rows(4, 4), 5)] == [0]
    assert [len(part) for part in step_module.split_rows(draws, 5)] == [5, 5, 2]
    assert step.features(draws.rows(4, 4)).shape == (0, 8)


def test_random_estimator_depends_on_seed_and_step():
    config = small_config(objective={"estimator_pos": "bootstrap"})
    first, second = gradient_vector(build_small_step(config), 1), gradient_vector(build_small_step(config), 1)
    assert torch.equal(first, second)
    other = dataclasses.replace(build_small_step(config), config=dataclasses.replace(config, seed=4))
    assert not torch.equal(gradient_vector(other, 1), first)


def test_gradients_with_the_pixel_encoder_equal_the_formulas():
    config = dataclasses.replace(small_config(), encoder=PixelsOptions())
    step = build_small_step(config)
    run = build_literal_run(config, step)
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(run.loss(0), run.theta)])
    assert relative_error(gradient_vector(step), expected) < 1e-8


# ---- No synchronization with the device ----


def build_step_on_meta(monkeypatch, **changes):
    """Build a step on the device "meta", whose tensors have shapes but no values."""
    meta, real, autocast = torch.device("meta"), torch.Generator, torch.autocast
    step = build_small_step(small_config(engine={"precision": "float32"}, **changes))
    step.state.generator.to(meta)
    step.encode.to(meta)
    lookup = step.positives.lookup
    lookup.device = meta
    lookup.encode = step.encode
    monkeypatch.setattr(torch, "Generator", lambda device=None: real())  # meta has no random generator
    monkeypatch.setattr(torch, "autocast", lambda device, **options: autocast("cpu", enabled=False))  # and no autocast
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device=None: False)
    return dataclasses.replace(step, device=meta)


@pytest.mark.parametrize(
    "batch", [{}, {"unconditional": 3}, {"fresh_negatives": 5}], ids=["unguided", "guided", "fresh"]
)
@pytest.mark.parametrize("feature_scale", FEATURE_SCALES)
def test_step_reads_no_value_on_the_device(monkeypatch, feature_scale, batch):
    """On a GPU, reading a value waits for all pending work."""
    step = build_step_on_meta(monkeypatch, objective={"feature_scale": feature_scale}, batch=batch)
    loss = step.gradients(0)
    assert loss.energy().is_meta
    gradients = [parameter.grad for parameter in step.state.generator.parameters()]
    assert loss.loss.is_meta
    assert all(g is not None and g.is_meta for g in gradients)
    assert torch.nn.utils.clip_grad_norm_(step.state.generator.parameters(), 2.0).is_meta


def test_reading_a_value_on_meta_fails(monkeypatch):
    """Negative control."""
    step = build_step_on_meta(monkeypatch)

    def reading_kernel(x, y, tau):
        distances = torch.cdist(x, y)
        return -distances / (tau if distances.max() > 0 else 1)

    reading_step = dataclasses.replace(step, objective=dataclasses.replace(step.objective, kernel=reading_kernel))
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        reading_step.gradients(0)
