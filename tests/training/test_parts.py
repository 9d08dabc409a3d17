"""`Parts`: a run with the user's own generator, encoder, kernel, estimators and data, which it records by name."""

import json

import pytest
import torch
from oracles.small_run import build_small_step, small_config, small_samples
from torch import nn

from truedrift.centroids import ABC, Standard
from truedrift.errors import UserError
from truedrift.generators import Generator, MLPOptions
from truedrift.kernels import softmax
from truedrift.recipes import recipe
from truedrift.training import Parts, train


class Linear(Generator):
    """x = tanh(W [z | one-hot label])."""

    architecture = "linear"
    options_type = MLPOptions

    def __init__(self, noise=3):
        super().__init__(MLPOptions(), sample_shape=(1, 8, 8), classes=3, noise_shape=(noise,))
        self.weight = nn.Parameter(torch.linspace(-1, 1, 64 * (noise + 4)).view(64, noise + 4).sin())

    def generate(self, z, labels, strength, style_ids):
        inputs = torch.cat((z, nn.functional.one_hot(labels, 4).to(z)), -1)
        return (inputs @ self.weight.mT).tanh().view(-1, 1, 8, 8)


class OtherLinear(Linear):
    """The same generator under another name."""


class Halves(nn.Module):
    """An encoder with the upper and the lower half as two scales."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, values):
        upper, lower = (self.scale * values).chunk(2, 2)
        return upper.flatten(1), lower.flatten(1)


def halves(values):
    return Halves().to(values)(values)


def cauchy(x, y, tau):
    return -(torch.cdist(x, y) / tau).square().log1p()


class Sharpened:
    """γ ∝ α², which is not an estimator of the package."""

    name, bias_order = "sharpened", 1

    def budget(self, n):
        return n

    def reweight(self, log_w, generator=None):
        return softmax(2 * log_w)


def build_all_parts():
    return Parts(
        samples=small_samples(),
        generator=Linear(),
        encoder=Halves(),
        kernel=cauchy,
        estimator_pos=Sharpened(),
        estimator_neg=ABC(),
    )


def run(out, parts, **changes):
    return list(train(small_config(**changes), parts=parts, out=out, device="cpu"))


def test_run_with_custom_parts_records_their_names_and_resumes(tmp_path):
    reports = run(tmp_path / "run", build_all_parts())
    assert reports[-1].complete
    assert all(torch.isfinite(torch.tensor(report.metrics["loss"])) for report in reports)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    digest = small_samples().digest()[:12]
    assert config["parts"] == {
        "samples": f"small {digest}",
        "generator": f"{__name__}.Linear",
        "encoder": f"{__name__}.Halves",
        "kernel": f"{__name__}.cauchy",
        "estimator_pos": f"{__name__}.Sharpened",
        "estimator_neg": "truedrift.centroids.analytical.ABC",
    }
    repeated = run(tmp_path / "run", build_all_parts())  # the run is complete
    assert (repeated[-1].step, repeated[-1].metrics["loss"]) == (4, reports[-1].metrics["loss"])


OTHER_PARTS = {
    "generator": (OtherLinear(), r"parts.generator \('.*Linear' and '.*OtherLinear'\)"),
    "encoder": (halves, r"parts.encoder \('.*Halves' and '.*halves'\)"),
    "kernel": (None, r"parts.kernel \('.*cauchy' and None\)"),
    "estimator_pos": (Standard(), r"parts.estimator_pos \('.*Sharpened' and '.*Standard'\)"),
    "samples": (small_samples(seed=6), r"parts.samples \('small .*' and 'small .*'\)"),
}


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("parts") / "run"
    run(out, build_all_parts())
    return out


@pytest.mark.parametrize("name", OTHER_PARTS)
def test_other_parts_are_rejected_with_their_names(finished_run, name):
    other, message = OTHER_PARTS[name]
    original = build_all_parts()
    given = {part: getattr(original, part) for part in OTHER_PARTS} | {"estimator_neg": ABC(), name: other}
    with pytest.raises(UserError, match=message) as caught:
        run(finished_run, Parts(**given))
    assert "\n" not in str(caught.value)
    assert "must have the same configuration and data" in str(caught.value)


def test_generator_of_the_same_name_and_another_size_is_rejected(finished_run):
    given = {part: getattr(build_all_parts(), part) for part in OTHER_PARTS}
    with pytest.raises(UserError, match=r"weight of the generator has shape \[64, 9\]; must have shape \[64, 7\]"):
        run(finished_run, Parts(**given | {"generator": Linear(noise=5), "estimator_neg": ABC()}))


def test_every_part_is_used():
    """Each part alone changes the gradient."""

    def gradient(**parts):
        step = build_small_step(small_config(), parts=Parts(generator=Linear(), **parts))
        step.gradients(0)
        return step.state.parameters[0].grad

    plain = gradient()
    for name, part in (
        ("encoder", halves),
        ("kernel", cauchy),
        ("estimator_pos", Sharpened()),
        ("estimator_neg", Sharpened()),
    ):
        assert (gradient(**{name: part}) - plain).norm() > 0.01 * plain.norm(), name
    assert torch.equal(gradient(encoder=halves), gradient(encoder=Halves()))


def test_encoder_module_is_frozen_and_in_evaluation_mode():
    encoder = Halves()
    step = build_small_step(small_config(), parts=Parts(encoder=encoder))
    step.gradients(0)
    assert not encoder.training
    assert not encoder.scale.requires_grad
    assert encoder.scale.grad is None


def test_features_of_a_custom_encoder_are_not_cached(monkeypatch, tmp_path):
    """The name of a function does not identify its features."""
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    config = small_config(engine={"precision": "float32", "cached_positives": True})
    build_small_step(config, parts=Parts(encoder=halves))
    assert list(tmp_path.iterdir()) == []


# ---- Errors ----

WRONG_TYPES = {
    "samples": (torch.zeros(3), "the part samples is a Tensor; must be a truedrift.data.Samples"),
    "generator": (nn.Linear(2, 2), "the part generator is a Linear; must be a module with noise_shape"),
    "encoder": (3, "the part encoder is a int; must be a function of values"),
    "kernel": ("gaussian", "the part kernel is a str; must be a function"),
    "estimator_pos": ("abc", "the part estimator_pos is a str; must be an object with name"),
    "estimator_neg": (ABC, "the part estimator_neg is the class ABC; must be an object with name"),
}


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_part_of_a_wrong_type_is_rejected(name):
    part, message = WRONG_TYPES[name]
    with pytest.raises(UserError, match=message) as caught:
        Parts(**{name: part})
    assert "\n" not in str(caught.value)


WRONG_FEATURES = {
    "a tensor": (lambda v: v.flatten(1), r"returned a tensor \[1, 64\] for values \[1, 1, 8, 8\]"),
    "maps": (lambda v: (v,), r"returned \(a tensor \[1, 1, 8, 8\]\) for"),
    "nothing": (lambda v: (), r"returned \(\) for"),
    "no tensors": (lambda v: (v.flatten(1), None), r"returned \(a tensor \[1, 64\], a NoneType\) for"),
    "integers": (lambda v: (v.flatten(1).long(),), r"returned \(a tensor \[1, 64\]\) for"),
    "other rows": (lambda v: (v.view(4, 16),), r"returned \(a tensor \[4, 16\]\) for"),
}


@pytest.mark.parametrize(("encoder", "message"), WRONG_FEATURES.values(), ids=WRONG_FEATURES)
def test_encoder_must_return_one_tensor_per_scale(encoder, message):
    with pytest.raises(UserError, match=message) as caught:
        build_small_step(small_config(), parts=Parts(encoder=encoder))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("parts", [{"kernel": cauchy}, {"estimator_pos": ABC()}, {"estimator_neg": ABC()}])
def test_published_arithmetic_rejects_kernel_and_estimators(parts):
    config = small_config(objective={"arithmetic": "abc-release"}, engine={"precision": "float32"})
    with pytest.raises(UserError, match=f"the part {next(iter(parts))} is given with objective.arithmetic abc-release"):
        build_small_step(config, parts=Parts(**parts))


class ExtraLayer(nn.Module):
    """A generator with one more layer, which may draw numbers or depend on the whole batch."""

    noise_shape, sample_shape, classes, style_draws, style_entries = (4,), (1, 8, 8), 10, 0, 0

    def __init__(self, layer):
        super().__init__()
        self.linear, self.layer = nn.Linear(4, 64), layer

    def forward(self, z, labels, strength, style_ids):
        return self.layer(self.linear(z)).view(-1, 1, 8, 8)


@pytest.mark.parametrize(("layer", "pure"), [(nn.Dropout(), False), (nn.BatchNorm1d(64), False), (nn.Tanh(), True)])
def test_generator_must_be_a_function_of_the_inputs_of_a_sample(layer, pure, tmp_path):
    config = recipe("digits", settings=["cadence.epochs=1", "cadence.steps_per_epoch=1"])
    reports = train(config, parts=Parts(generator=ExtraLayer(layer)), out=tmp_path / "run", device="cpu")
    if pure:
        assert list(reports)[-1].complete
    else:
        with pytest.raises(
            UserError, match="the generator returns different samples for the same noise, or they depend on the rest"
        ):
            next(reports)
        assert not (tmp_path / "run").exists()
