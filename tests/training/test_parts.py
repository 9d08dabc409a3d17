"""Python objects of the user's in a run: generator, encoder, kernel, estimators, data; their names are remembered."""

import json

import pytest
import torch
from oracles.little_run import little_config, little_samples, little_step
from torch import nn

from truedrift.centroids.analytical import ABC
from truedrift.centroids.estimator import Standard
from truedrift.errors import UserError
from truedrift.generators.base import Generator
from truedrift.generators.mlp import MLPOptions
from truedrift.kernels.weights import softmax
from truedrift.recipes.overrides import recipe
from truedrift.training.setup import Parts
from truedrift.training.train import train


class Linear(Generator):
    """x = tanh(W [z | one-hot label])."""

    architecture = "linear"
    options_type = MLPOptions

    def __init__(self, noise=3):
        super().__init__(MLPOptions(), sample_shape=(1, 8, 8), classes=3, noise_shape=(noise,))
        self.weight = nn.Parameter(torch.linspace(-1, 1, 64 * (noise + 4)).view(64, noise + 4).sin())

    def generate(self, z, labels, strength, style_ids):
        told = torch.cat((z, nn.functional.one_hot(labels, 4).to(z)), -1)
        return (told @ self.weight.mT).tanh().view(-1, 1, 8, 8)


class Other(Linear):
    """The same, called otherwise."""


class Halves(nn.Module):
    """Upper and lower half as two scales."""

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
    """γ ∝ α²: no estimator of the package."""

    name, bias_order = "sharpened", 1

    def budget(self, n):
        return n

    def reweight(self, log_w, generator=None):
        return softmax(2 * log_w)


def everything():
    return Parts(
        samples=little_samples(),
        generator=Linear(),
        encoder=Halves(),
        kernel=cauchy,
        estimator_pos=Sharpened(),
        estimator_neg=ABC(),
    )


def run(out, parts, **changed):
    return list(train(little_config(**changed), parts=parts, out=out, device="cpu"))


def test_a_run_of_ones_own_parts_trains_remembers_their_names_and_goes_on(tmp_path):
    reports = run(tmp_path / "run", everything())
    assert reports[-1].complete
    assert all(torch.isfinite(torch.tensor(report.metrics["loss"])) for report in reports)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    here = __name__
    digest = little_samples().digest()[:12]
    assert config["parts"] == {
        "samples": f"little {digest}",
        "generator": f"{here}.Linear",
        "encoder": f"{here}.Halves",
        "kernel": f"{here}.cauchy",
        "estimator_pos": f"{here}.Sharpened",
        "estimator_neg": "truedrift.centroids.analytical.ABC",
    }
    again = run(tmp_path / "run", everything())  # it was complete
    assert (again[-1].step, again[-1].metrics["loss"]) == (4, reports[-1].metrics["loss"])


OTHERS = {
    "generator": (Other(), r"parts.generator \('.*Linear' and '.*Other'\)"),
    "encoder": (halves, r"parts.encoder \('.*Halves' and '.*halves'\)"),
    "kernel": (None, r"parts.kernel \('.*cauchy' and None\)"),
    "estimator_pos": (Standard(), r"parts.estimator_pos \('.*Sharpened' and '.*Standard'\)"),
    "samples": (little_samples(seed=6), r"parts.samples \('little .*' and 'little .*'\)"),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("parts") / "run"
    run(out, everything())
    return out


@pytest.mark.parametrize("name", OTHERS)
def test_other_parts_are_refused_with_their_names(finished, name):
    other, told = OTHERS[name]
    before = everything()
    given = {part: getattr(before, part) for part in OTHERS} | {"estimator_neg": ABC(), name: other}
    with pytest.raises(UserError, match=told) as caught:
        run(finished, Parts(**given))
    assert "\n" not in str(caught.value)
    assert "must have the same configuration and data" in str(caught.value)


def test_a_generator_of_the_same_name_and_another_size_is_refused_in_one_line(finished):
    given = {part: getattr(everything(), part) for part in OTHERS}
    with pytest.raises(UserError, match=r"weight of the generator has shape \[64, 9\]; must have shape \[64, 7\]"):
        run(finished, Parts(**given | {"generator": Linear(noise=5), "estimator_neg": ABC()}))


def test_every_part_is_used():
    """Each of them alone changes the gradient."""

    def gradient(**parts):
        step = little_step(little_config(), parts=Parts(generator=Linear(), **parts))
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


def test_a_module_is_frozen_and_in_evaluation():
    encoder = Halves()
    step = little_step(little_config(), parts=Parts(encoder=encoder))
    step.gradients(0)
    assert not encoder.training
    assert not encoder.scale.requires_grad
    assert encoder.scale.grad is None


def test_an_encoder_of_ones_own_is_not_kept(monkeypatch, tmp_path):
    """Nobody knows what a function does inside, so its name cannot be a key."""
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    config = little_config(engine={"precision": "float32", "cached_positives": True})
    little_step(config, parts=Parts(encoder=halves))
    assert list(tmp_path.iterdir()) == []


# ---- mistakes ------------------------------------------------------------------------------------------------------

WRONG = {
    "samples": (torch.zeros(3), "the part samples is a Tensor; must be a truedrift.data.Samples"),
    "generator": (nn.Linear(2, 2), "the part generator is a Linear; must be a module with noise_shape"),
    "encoder": (3, "the part encoder is a int; must be a function of values"),
    "kernel": ("gaussian", "the part kernel is a str; must be a function"),
    "estimator_pos": ("abc", "the part estimator_pos is a str; must be an object with name"),
    "estimator_neg": (ABC, "the part estimator_neg is the class ABC; must be an object with name"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_a_part_is_refused(name):
    part, told = WRONG[name]
    with pytest.raises(UserError, match=told) as caught:
        Parts(**{name: part})
    assert "\n" not in str(caught.value)


RETURNED = {
    "a tensor": (lambda v: v.flatten(1), r"returned a tensor \[1, 64\] for values \[1, 1, 8, 8\]"),
    "maps": (lambda v: (v,), r"returned \(a tensor \[1, 1, 8, 8\]\) for"),
    "nothing": (lambda v: (), r"returned \(\) for"),
    "no tensors": (lambda v: (v.flatten(1), None), r"returned \(a tensor \[1, 64\], a NoneType\) for"),
    "integers": (lambda v: (v.flatten(1).long(),), r"returned \(a tensor \[1, 64\]\) for"),
    "other rows": (lambda v: (v.view(4, 16),), r"returned \(a tensor \[4, 16\]\) for"),
}


@pytest.mark.parametrize(("encoder", "told"), RETURNED.values(), ids=RETURNED)
def test_an_encoder_must_return_one_tensor_a_scale(encoder, told):
    with pytest.raises(UserError, match=told) as caught:
        little_step(little_config(), parts=Parts(encoder=encoder))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("parts", [{"kernel": cauchy}, {"estimator_pos": ABC()}, {"estimator_neg": ABC()}])
def test_the_published_arithmetic_has_no_place_for_them(parts):
    config = little_config(objective={"arithmetic": "abc-release"}, engine={"precision": "float32"})
    with pytest.raises(UserError, match=f"the part {next(iter(parts))} is given with objective.arithmetic abc-release"):
        little_step(config, parts=Parts(**parts))


class Dropping(nn.Module):
    """Draws inside."""

    noise_shape, sample_shape, classes, style_draws, style_entries = (4,), (1, 8, 8), 10, 0, 0

    def __init__(self, layer):
        super().__init__()
        self.linear, self.layer = nn.Linear(4, 64), layer

    def forward(self, z, labels, strength, style_ids):
        return self.layer(self.linear(z)).view(-1, 1, 8, 8)


@pytest.mark.parametrize(("layer", "pure"), [(nn.Dropout(), False), (nn.BatchNorm1d(64), False), (nn.Tanh(), True)])
def test_a_generator_that_is_no_function_of_a_samples_inputs_is_refused(layer, pure, tmp_path):
    config = recipe("digits", settings=["cadence.epochs=1", "cadence.steps_per_epoch=1"])
    reports = train(config, parts=Parts(generator=Dropping(layer)), out=tmp_path / "run", device="cpu")
    if pure:
        assert list(reports)[-1].complete
    else:
        with pytest.raises(
            UserError, match="the generator gives other samples for the same noise, or samples that depend on the rest"
        ):
            next(reports)
        assert not (tmp_path / "run").exists()
