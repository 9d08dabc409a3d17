"""`build_setup`: a configuration becomes a step, and mistakes are reported in one line before any work."""

import dataclasses

import pytest
import torch
from oracles.small_run import CPU, build_small_step, small_config, small_samples

from truedrift.data import Samples
from truedrift.distributed import resolve_device
from truedrift.encoders import Encoder, PixelsOptions
from truedrift.errors import UserError
from truedrift.generators import DriftDiTOptions, MLPOptions, build
from truedrift.progress import no_progress
from truedrift.training import Parts, RunConfig, TrainingSetup, build_setup, load_samples
from truedrift.training import setup as training_setup


def test_setup_has_everything_that_the_configuration_names():
    setup = build_setup(small_config(), Parts(), small_samples(), CPU, no_progress)
    assert isinstance(setup, TrainingSetup)
    assert setup.state is setup.step.state
    assert setup.state.generator.sample_shape == (1, 8, 8)
    assert {p.dtype for p in setup.state.parameters} == {torch.float64}
    assert isinstance(setup.step.encode, Encoder)
    assert not any(p.requires_grad for p in setup.step.encode.parameters())
    assert setup.step.positives.batches.n == 5


def test_initial_weights_depend_only_on_the_seed():
    first, second = (build_small_step(small_config()).state.parameters[0] for _ in range(2))
    other = build_small_step(dataclasses.replace(small_config(), seed=4)).state.parameters[0]
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


BATCH_ERRORS = {
    "too many positives": ({"batch": {"n": 8}}, "batch.n is 8 and class 'a' has 7 images; .*; use n = 7"),
    "too many unconditional negatives": (
        {"batch": {"unconditional": 28}},
        "batch.unconditional is 28; .* 27, the number of images",
    ),
    "too many labels": (
        {"batch": {"labels": 4}},
        "batch.labels is 4; must be 1 to 3, the number of classes; set a smaller number, or none for all",
    ),
}


@pytest.mark.parametrize(("changes", "message"), BATCH_ERRORS.values(), ids=BATCH_ERRORS)
def test_batch_error_is_one_line(changes, message):
    with pytest.raises(UserError, match=message) as caught:
        build_small_step(small_config(**changes))
    assert "\n" not in str(caught.value)


def test_generator_and_encoder_errors_name_their_section():
    config = dataclasses.replace(small_config(), generator=DriftDiTOptions(patch=3, width=24, depth=1, heads=2))
    with pytest.raises(UserError, match=r"generator\.patch is 3"):
        build_small_step(config)
    points = Samples(torch.zeros(10, 2), torch.zeros(10, dtype=torch.int64), ("a",), "points", False)
    with pytest.raises(UserError, match=r'^encoder: sample_shape is .* the encoder "convnet" needs images'):
        build_small_step(small_config(), points)


def test_missing_data_error_names_the_option():
    config = dataclasses.replace(RunConfig(), data=dataclasses.replace(RunConfig().data, root="/no/such/place"))
    with pytest.raises(UserError, match=r"^data.name digits: .*'/no/such/place' does not exist"):
        load_samples(config, Parts())
    samples = small_samples()
    assert load_samples(config, Parts(samples=samples)) is samples


def test_some_classes_of_the_data_are_loaded():
    config = dataclasses.replace(RunConfig(), data=dataclasses.replace(RunConfig().data, classes=("7", "0")))
    every, chosen = load_samples(RunConfig(), Parts()), load_samples(config, Parts())
    assert (chosen.classes, chosen.name) == (("7", "0"), "digits (7, 0)")
    assert torch.equal(chosen.values[chosen.labels == 0], every.values[every.labels == 7])
    assert torch.equal(chosen.values[chosen.labels == 1], every.values[every.labels == 0])
    assert chosen.digest() != every.digest()
    # Also of samples that are a Python object.
    data = dataclasses.replace(RunConfig().data, classes=("c",))
    few = load_samples(dataclasses.replace(RunConfig(), data=data), Parts(samples=small_samples()))
    assert (len(few), few.classes) == (9, ("c",))


def test_unknown_class_error_lists_the_classes():
    config = dataclasses.replace(RunConfig(), data=dataclasses.replace(RunConfig().data, classes=("7", "cat")))
    with pytest.raises(UserError) as caught:
        load_samples(config, Parts())
    assert str(caught.value) == (
        "data.classes contains 'cat'; must be among 0, 1, 2, 3, 4, 5, 6, 7, 8, 9; use these names"
    )


def test_a_thousand_classes_train():
    """Three steps with eight of 1,000 classes: no tensor of the step has a row per class."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(3000) % 1000
    samples = Samples(
        torch.randn(3000, 2, generator=generator), labels, tuple(map(str, range(1000))), "points", flips=False
    )
    config = small_config(batch={"n": 3, "generated": 4, "labels": 8}, engine={"precision": "float32"})
    step = build_small_step(dataclasses.replace(config, encoder=PixelsOptions()), samples)
    for number in range(3):
        outcome = step(number)
        assert bool(outcome.finite)
        assert outcome.features.gradient.shape == (8, 4, 2)
        assert step.positives.at(number).shape == (8, 3, 2)


@pytest.mark.parametrize(
    ("shape", "classes", "message"),
    [
        ((1, 8, 8), 4, r"makes samples \(1, 8, 8\) of 4 classes; small has \(1, 8, 8\) of 3"),
        ((1, 8, 4), 3, r"makes samples \(1, 8, 4\) of 3 classes"),
    ],
)
def test_generator_for_other_data_is_rejected(shape, classes, message):
    generator = build(MLPOptions(width=8, depth=1), sample_shape=shape, classes=classes, seed=0)
    with pytest.raises(UserError, match=message):
        build_small_step(small_config(), parts=Parts(generator=generator))


def test_fully_frozen_generator_is_rejected():
    generator = build(MLPOptions(width=8, depth=1), sample_shape=(1, 8, 8), classes=3, seed=0).requires_grad_(False)
    with pytest.raises(UserError, match=r"no parameter that requires a gradient; .*; unfreeze it"):
        build_small_step(small_config(), parts=Parts(generator=generator))


def test_points_are_their_own_features():
    generator = torch.Generator().manual_seed(0)
    points = Samples(torch.randn(40, 2, generator=generator), torch.arange(40) % 2, ("a", "b"), "points", False)
    config = dataclasses.replace(small_config(), encoder=PixelsOptions())
    step = build_small_step(config, points)
    batch = step.positives.batches.at(0)
    assert torch.equal(step.positives.at(0), points.values[batch.indices].double())


# ---- Devices ----


def set_available_devices(monkeypatch, cuda=0, mps=False):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


def test_auto_selects_a_gpu_and_each_process_gets_its_own(monkeypatch):
    set_available_devices(monkeypatch)
    assert resolve_device("auto") == CPU == resolve_device("cpu")
    set_available_devices(monkeypatch, mps=True)
    assert resolve_device("auto").type == "mps"
    set_available_devices(monkeypatch, cuda=2, mps=True)
    assert resolve_device("auto") == torch.device("cuda", 0)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert resolve_device("cuda") == torch.device("cuda", 1)
    assert resolve_device("cpu") == CPU


def test_unavailable_device_error_is_one_line(monkeypatch):
    set_available_devices(monkeypatch)
    with pytest.raises(UserError, match="device 'cuda' is not available; available: cpu; pass one of these or 'auto'"):
        resolve_device("cuda")
    with pytest.raises(UserError, match="device 'tpu' is unknown; known: auto, cpu, cuda, mps; pass one"):
        resolve_device("tpu")
    set_available_devices(monkeypatch, cuda=2)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(
        UserError, match=r"no GPU is left for process 3 on this machine; available GPUs: 2; .*per-node 2 or"
    ):
        resolve_device("auto")


def test_pixels_are_never_cached(monkeypatch, tmp_path):
    """Caching would save nothing: reading a file costs as much as encoding pixels."""
    monkeypatch.setattr(training_setup, "build_feature_cache", None)
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    config = small_config(engine={"precision": "float32", "cached_positives": True})
    build_small_step(dataclasses.replace(config, encoder=PixelsOptions()))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mirror", [True, False])
def test_mirroring_can_be_chosen(mirror):
    data = dataclasses.replace(RunConfig().data, mirror=mirror)
    samples = load_samples(dataclasses.replace(RunConfig(), data=data), Parts())
    assert samples.flips is mirror  # digits are not mirrored by default
    photos = load_samples(dataclasses.replace(RunConfig(), data=data), Parts(samples=small_samples()))
    assert photos.flips is mirror


def test_points_cannot_be_mirrored():
    config = RunConfig(data=dataclasses.replace(RunConfig().data, name="two-moons", mirror=True))
    with pytest.raises(UserError, match=r"^data.mirror is true and the samples are points; only images"):
        load_samples(config, Parts())


def test_number_of_locations_needs_locations():
    config = small_config(objective={"locations": 4})
    with pytest.raises(UserError, match=r"objective.locations is 4 and no feature group has locations; .*; set"):
        build_small_step(config)
