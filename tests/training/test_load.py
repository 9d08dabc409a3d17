"""`load_generator`: averaged or current weights of the newest valid checkpoint, or of a folder of weights."""

import re
import shutil
from pathlib import Path

import pytest
import torch
from short_runs import at_step, run, send_signal, short_config
from torch import nn

from truedrift.errors import UserError
from truedrift.generators import MLP, MLPOptions, from_pretrained, sample
from truedrift.training import Parts, latest_checkpoint, load_generator, open_run
from truedrift.training.load import load_config

OPTIONS = MLPOptions(width=16, depth=1, noise=4, embedding=4)
LABELS = torch.arange(10)


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "run"
    run(short_config(), out)
    return out


def load_saved_weights(out, file):
    newest = latest_checkpoint(out / "checkpoints", run=open_run(out).id).checkpoint
    return newest.tensors[file]


@pytest.mark.parametrize(("weights", "file"), [("ema", "ema"), ("model", "generator")])
def test_requested_weights_are_loaded(trained_run, weights, file):
    loaded = load_generator(trained_run, weights=weights)
    saved = load_saved_weights(trained_run, file)
    assert all(torch.equal(value, saved[name]) for name, value in loaded.generator.state_dict().items())
    assert loaded.classes == tuple("0123456789")
    assert loaded.source == f"{trained_run}, step 8, {weights} weights"
    assert not loaded.generator.training


def test_default_weights_are_the_average(trained_run):
    images = {
        name: sample(load_generator(trained_run, weights=name).generator, LABELS, seed=0) for name in ("ema", "model")
    }
    assert torch.equal(sample(load_generator(trained_run).generator, LABELS, seed=0), images["ema"])
    assert (images["ema"] - images["model"]).abs().max() > 1e-3


@pytest.fixture(scope="module")
def run_with_averages(tmp_path_factory):
    out = tmp_path_factory.mktemp("averages") / "run"
    run(short_config("digits", "optimizer.more_ema=0.5,0.95"), out)
    return out


@pytest.mark.parametrize(("ema", "file"), [(None, "ema"), (0.8, "ema"), (0.5, "ema-0.5"), (0.95, "ema-0.95")])
def test_average_is_selected_by_its_decay(run_with_averages, ema, file):
    loaded = load_generator(run_with_averages, ema=ema)
    saved = load_saved_weights(run_with_averages, file)
    assert all(torch.equal(value, saved[name]) for name, value in loaded.generator.state_dict().items())
    assert loaded.source == f"{run_with_averages}, step 8, {'ema' if ema is None else f'ema {ema}'} weights"
    others = [load_saved_weights(run_with_averages, other) for other in ("ema", "ema-0.5", "ema-0.95") if other != file]
    assert not any(torch.equal(saved["first.weight"], other["first.weight"]) for other in others)


def test_average_that_the_run_does_not_have_is_rejected(run_with_averages, trained_run, tmp_path):
    message = r"^ema is 0\.9; the run has averages with decay 0\.8, 0\.5, 0\.95; use one of these$"
    with pytest.raises(UserError, match=message):
        load_generator(run_with_averages, ema=0.9)
    with pytest.raises(UserError, match=r"^ema is 0\.5; the run has averages with decay 0\.8; "):
        load_generator(trained_run, ema=0.5)
    with pytest.raises(
        UserError, match=r"^ema is 0\.5 with the weights model; only averages have a decay; leave it out"
    ):
        load_generator(run_with_averages, weights="model", ema=0.5)
    load_generator(trained_run).generator.save_pretrained(tmp_path / "saved")
    with pytest.raises(UserError, match=r"^ema is 0\.5 and '.*saved' is a folder of weights; "):
        load_generator(tmp_path / "saved", ema=0.5)


def test_step_selects_the_checkpoint(trained_run, tmp_path):
    steps = sorted(int(path.name.removeprefix("step-")) for path in (trained_run / "checkpoints").glob("step-*"))
    assert len(steps) > 1
    first = load_generator(trained_run, step=steps[0])
    assert first.step == steps[0]
    assert load_generator(trained_run, step=steps[-1]).step == load_generator(trained_run).step == 8
    # The same weights as in a run that has no newer checkpoint.
    copied = tmp_path / "copied"
    shutil.copytree(trained_run, copied)
    for step in steps[1:]:
        shutil.rmtree(copied / "checkpoints" / f"step-{step:08d}")
    expected = load_generator(copied).generator.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in first.generator.state_dict().items())
    listed = ", ".join(map(str, steps))
    message = f"step is 3000; the run has checkpoints of the steps {listed}; use one of these, or train with cadence"
    with pytest.raises(UserError, match=message):
        load_generator(trained_run, step=3000)
    with pytest.raises(UserError, match=r"step is 8 and 'pretrained:digits' is not a run directory; only runs have"):
        load_generator(Path("pretrained:digits"), step=8)


def test_float64_run_is_loaded_as_float32(tmp_path):
    run(short_config("digits", "engine.precision=float64"), tmp_path)
    assert {value.dtype for value in load_saved_weights(tmp_path, "ema").values()} == {torch.float64}
    assert {value.dtype for value in load_generator(tmp_path).generator.state_dict().values()} == {torch.float32}


def test_damaged_newest_checkpoint_is_skipped_and_reported(tmp_path):
    run(short_config(), tmp_path)
    (tmp_path / "checkpoints" / "step-00000008" / "ema.safetensors").write_bytes(b"")
    (before, after) = load_generator(tmp_path).source.split(" (")
    assert before == f"{tmp_path}, step 6, ema weights"
    assert after.startswith("checkpoint step-00000008 was skipped: ema.safetensors has 0 bytes instead of ")


def test_folder_of_saved_weights_is_loaded(tmp_path, trained_run):
    generator = load_generator(trained_run).generator
    generator.save_pretrained(tmp_path / "saved")
    loaded = load_generator(tmp_path / "saved")
    assert torch.equal(sample(loaded.generator, LABELS, seed=3), sample(generator, LABELS, seed=3))
    assert loaded.classes == tuple("0123456789")


def test_model_of_the_package_has_class_names_and_one_set_of_weights():
    name = Path("pretrained:digits")
    loaded = load_generator(name)
    assert (loaded.classes, loaded.source, loaded.step) == (tuple("0123456789"), "pretrained:digits", None)
    assert torch.equal(
        sample(loaded.generator, LABELS, seed=3), sample(from_pretrained("pretrained:digits"), LABELS, seed=3)
    )
    for options, problem in (({"weights": "model"}, "weights is model"), ({"ema": 0.5}, r"ema is 0\.5")):
        with pytest.raises(
            UserError, match=f"^{problem} and 'pretrained:digits' is a pretrained model; .*; leave it out"
        ):
            load_generator(name, **options)


def test_configuration_of_a_generator(trained_run, tmp_path):
    assert load_config(trained_run) == open_run(trained_run).config
    assert load_config(Path("pretrained:digits")).data.name == "digits"
    load_generator(trained_run).generator.save_pretrained(tmp_path / "saved")
    assert load_config(tmp_path / "saved") is None
    with pytest.raises(UserError, match="'pretrained:cats' is not a pretrained model; available: pretrained:"):
        load_config(Path("pretrained:cats"))


class GeneratorWithBuffer(MLP):
    """A generator with a buffer, which is not averaged."""

    def __init__(self, options, *, sample_shape, classes):
        super().__init__(options, sample_shape=sample_shape, classes=classes)
        self.register_buffer("offset", torch.tensor(0.25))


def test_custom_generator_must_be_passed(tmp_path):
    custom = GeneratorWithBuffer(OPTIONS, sample_shape=(1, 8, 8), classes=10)
    run(short_config(), tmp_path, parts=Parts(generator=custom))
    message = (
        rf"is {re.escape(__name__)}\.GeneratorWithBuffer, a class of your own; .*; pass generator= to load_generator"
    )
    with pytest.raises(UserError, match=message):
        load_generator(tmp_path)
    other = GeneratorWithBuffer(OPTIONS, sample_shape=(1, 8, 8), classes=10)
    other.offset.fill_(9)
    loaded = load_generator(tmp_path, generator=other)
    assert float(loaded.generator.offset) == 0.25
    saved = load_saved_weights(tmp_path, "ema")
    assert all(torch.equal(value, saved[name]) for name, value in loaded.generator.named_parameters())
    other = MLP(MLPOptions(width=8, depth=1, noise=4, embedding=4), sample_shape=(1, 8, 8), classes=10)
    with pytest.raises(UserError, match=r"do not fit the generator \(.*\); .*; build it as in training"):
        load_generator(tmp_path, generator=other)


def test_path_without_run_or_weights_is_rejected(tmp_path):
    with pytest.raises(UserError, match=r"'.*none' does not exist; must be a run directory or a folder of weights; "):
        load_generator(tmp_path / "none")
    with pytest.raises(UserError, match=r"has no config.json; must be a run directory or a folder of weights; "):
        load_generator(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"is a file; must be a run directory or a folder of weights; "):
        load_generator(tmp_path / "file")


def test_run_without_a_valid_checkpoint_is_rejected(tmp_path):
    reports = run(short_config(), tmp_path, progress=at_step(1, send_signal))
    assert reports[-1].step == 1
    (tmp_path / "checkpoints" / "step-00000001" / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"no valid checkpoint \(checkpoint step-00000001 was skipped: manifest"):
        load_generator(tmp_path)
    for path in sorted((tmp_path / "checkpoints").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(UserError, match=r"has no checkpoint yet; must have at least one; train it further"):
        load_generator(tmp_path)
    (tmp_path / "checkpoints").rmdir()
    (tmp_path / "metrics.jsonl").unlink()  # killed right after config.json
    with pytest.raises(UserError, match=r"has no checkpoint yet; "):
        load_generator(tmp_path)


def test_loaded_generator_is_trainable(trained_run):
    loaded = load_generator(trained_run)
    assert isinstance(loaded.generator, nn.Module)
    assert all(parameter.requires_grad for parameter in loaded.generator.parameters())
