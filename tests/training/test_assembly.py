"""From a configuration to a step: every mistake is one line before any work, and everything named is built."""

import dataclasses

import pytest
import torch
from oracles.little_run import CPU, convnet, little_config, little_samples, little_step

from truedrift.data.samples import Samples
from truedrift.encoders.base import Encoder, PixelsOptions
from truedrift.errors import UserError
from truedrift.generators.catalog import build
from truedrift.generators.drift_dit import DriftDiTOptions
from truedrift.generators.mlp import MLPOptions
from truedrift.progress import no_progress
from truedrift.training import setup
from truedrift.training.config import RunConfig
from truedrift.training.setup import Parts, TrainingSetup, build_setup, load_samples, resolve_device


def test_what_is_named_is_built():
    made = build_setup(little_config(), Parts(), little_samples(), CPU, no_progress)
    assert isinstance(made, TrainingSetup)
    assert made.state is made.step.state
    assert made.state.generator.sample_shape == (1, 8, 8)
    assert {p.dtype for p in made.state.parameters} == {torch.float64}
    assert isinstance(made.step.encode, Encoder)
    assert not any(p.requires_grad for p in made.step.encode.parameters())
    assert made.step.positives.batches.n == 5


def test_weights_of_the_generator_come_from_the_seed():
    first, again = (little_step(little_config()).state.parameters[0] for _ in range(2))
    other = little_step(dataclasses.replace(little_config(), seed=4)).state.parameters[0]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_scales_of_unequal_size_are_weighted():
    step = little_step(dataclasses.replace(little_config(), encoder=convnet(3, 12)))
    assert step.objective.weights == [2.0, 1.0]
    options = {"feature_scale": "mean-distance"}
    step = little_step(dataclasses.replace(little_config(objective=options), encoder=convnet(3, 12)))
    assert step.objective.weights == [1.0, 1.0]


MISTAKES = {
    "too many positives": ({"batch": {"n": 8}}, "batch.n is 8 and class 'a' has 7 images; .*; use n = 7"),
    "too many unconditional ones": (
        {"batch": {"unconditional": 28}},
        "batch.unconditional is 28; .* 27, the number of images",
    ),
}


@pytest.mark.parametrize(("changed", "told"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_about_the_batch_are_one_line(changed, told):
    with pytest.raises(UserError, match=told) as caught:
        little_step(little_config(**changed))
    assert "\n" not in str(caught.value)


def test_mistakes_of_generator_and_encoder_name_their_section():
    config = dataclasses.replace(little_config(), generator=DriftDiTOptions(patch=3, width=24, depth=1, heads=2))
    with pytest.raises(UserError, match=r"generator\.patch is 3"):
        little_step(config)
    points = Samples(torch.zeros(10, 2), torch.zeros(10, dtype=torch.int64), ("a",), "points", False)
    with pytest.raises(UserError, match=r'^encoder: sample_shape is .* the encoder "convnet" needs images'):
        little_step(little_config(), points)


def test_data_that_is_not_there_is_told_with_its_option():
    config = dataclasses.replace(RunConfig(), data=dataclasses.replace(RunConfig().data, root="/no/such/place"))
    with pytest.raises(UserError, match=r"^data.name digits: .*'/no/such/place' does not exist"):
        load_samples(config, Parts())
    given = little_samples()
    assert load_samples(config, Parts(samples=given)) is given


@pytest.mark.parametrize(
    ("shape", "classes", "told"),
    [
        ((1, 8, 8), 4, r"makes samples \(1, 8, 8\) of 4 classes; little has \(1, 8, 8\) of 3"),
        ((1, 8, 4), 3, r"makes samples \(1, 8, 4\) of 3 classes"),
    ],
)
def test_a_generator_for_other_data_is_refused(shape, classes, told):
    generator = build(MLPOptions(width=8, depth=1), sample_shape=shape, classes=classes, seed=0)
    with pytest.raises(UserError, match=told):
        little_step(little_config(), parts=Parts(generator=generator))


def test_a_generator_that_is_frozen_whole_is_refused():
    generator = build(MLPOptions(width=8, depth=1), sample_shape=(1, 8, 8), classes=3, seed=0).requires_grad_(False)
    with pytest.raises(UserError, match=r"no parameter that requires a gradient; .*; unfreeze it"):
        little_step(little_config(), parts=Parts(generator=generator))


def test_points_are_features_themselves():
    generator = torch.Generator().manual_seed(0)
    points = Samples(torch.randn(40, 2, generator=generator), torch.arange(40) % 2, ("a", "b"), "points", False)
    config = dataclasses.replace(little_config(), encoder=PixelsOptions())
    step = little_step(config, points)
    batch = step.positives.batches.at(0)
    assert torch.equal(step.positives.at(0)[0], points.values[batch.indices].double())


# ---- devices -------------------------------------------------------------------------------------------------------


def machine(monkeypatch, cuda=0, mps=False):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


def test_auto_takes_a_gpu_if_there_is_one_and_each_process_its_own(monkeypatch):
    machine(monkeypatch)
    assert resolve_device("auto") == CPU == resolve_device("cpu")
    machine(monkeypatch, mps=True)
    assert resolve_device("auto").type == "mps"
    machine(monkeypatch, cuda=2, mps=True)
    assert resolve_device("auto") == torch.device("cuda", 0)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert resolve_device("cuda") == torch.device("cuda", 1)
    assert resolve_device("cpu") == CPU


def test_devices_that_are_not_there_are_one_line(monkeypatch):
    machine(monkeypatch)
    with pytest.raises(UserError, match="device 'cuda' is not available; available: cpu; pass one of these or 'auto'"):
        resolve_device("cuda")
    with pytest.raises(UserError, match="device 'tpu' is unknown; known: auto, cpu, cuda, mps; pass one"):
        resolve_device("tpu")
    machine(monkeypatch, cuda=2)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(
        UserError, match=r"process 3 of this machine has no GPU of its own; available GPUs: 2; .*per-node 2 or"
    ):
        resolve_device("auto")


def test_pixels_are_never_kept(monkeypatch, tmp_path):
    """There is nothing to save: looking a file up costs what encoding does."""
    monkeypatch.setattr(setup, "build_feature_cache", None)
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    config = little_config(engine={"precision": "float32", "cached_positives": True})
    little_step(dataclasses.replace(config, encoder=PixelsOptions()))
    assert list(tmp_path.iterdir()) == []
