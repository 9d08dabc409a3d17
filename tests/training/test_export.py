"""A run → the generator to sample from: the average of the newest whole checkpoint, or the last weights."""

import pytest
import torch
from short_runs import ask, at, run, tiny
from torch import nn

from truedrift.errors import UserError
from truedrift.generators.mlp import MLP, MLPOptions
from truedrift.generators.sampling import sample
from truedrift.training import checkpoint
from truedrift.training.load import load_generator
from truedrift.training.run_directory import open_run
from truedrift.training.setup import Parts

OPTIONS = MLPOptions(width=16, depth=1, noise=4, embedding=4)
LABELS = torch.arange(10)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "run"
    run(tiny(), out)
    return out


def weights_of(out, file):
    newest = checkpoint.latest_checkpoint(out / "checkpoints", run=open_run(out).id).checkpoint
    return newest.tensors[file]


@pytest.mark.parametrize(("weights", "file"), [("ema", "ema"), ("model", "generator")])
def test_the_weights_that_were_asked_for(trained, weights, file):
    opened = load_generator(trained, weights=weights)
    saved = weights_of(trained, file)
    assert all(torch.equal(value, saved[name]) for name, value in opened.generator.state_dict().items())
    assert opened.classes == tuple("0123456789")
    assert opened.source == f"{trained}, step 8, {weights} weights"
    assert not opened.generator.training


def test_the_average_is_the_default_and_another(trained):
    images = {
        name: sample(load_generator(trained, weights=name).generator, LABELS, seed=0) for name in ("ema", "model")
    }
    assert torch.equal(sample(load_generator(trained).generator, LABELS, seed=0), images["ema"])
    assert (images["ema"] - images["model"]).abs().max() > 1e-3


def test_a_run_in_float64_is_sampled_in_float32(tmp_path):
    run(tiny("digits", "engine.precision=float64"), tmp_path)
    assert {value.dtype for value in weights_of(tmp_path, "ema").values()} == {torch.float64}
    assert {value.dtype for value in load_generator(tmp_path).generator.state_dict().values()} == {torch.float32}


def test_a_damaged_newest_checkpoint_is_passed_over(tmp_path):
    run(tiny(), tmp_path)
    (tmp_path / "checkpoints" / "step-00000008" / "ema.safetensors").write_bytes(b"")
    assert "step 6, " in load_generator(tmp_path).source


def test_a_folder_of_saved_weights(tmp_path, trained):
    generator = load_generator(trained).generator
    generator.save_pretrained(tmp_path / "saved")
    opened = load_generator(tmp_path / "saved")
    assert torch.equal(sample(opened.generator, LABELS, seed=3), sample(generator, LABELS, seed=3))
    assert opened.classes == tuple("0123456789")


class Mine(MLP):
    """With a buffer, of which there is no average."""

    def __init__(self, options, *, sample_shape, classes):
        super().__init__(options, sample_shape=sample_shape, classes=classes)
        self.register_buffer("offset", torch.tensor(0.25))


def test_a_generator_of_ones_own_must_be_given(tmp_path):
    mine = Mine(OPTIONS, sample_shape=(1, 8, 8), classes=10)
    run(tiny(), tmp_path, parts=Parts(generator=mine))
    with pytest.raises(
        UserError, match=r"is test_export.Mine, a class of your own; .*; pass generator= to load_generator"
    ):
        load_generator(tmp_path)
    again = Mine(OPTIONS, sample_shape=(1, 8, 8), classes=10)
    again.offset.fill_(9)
    opened = load_generator(tmp_path, generator=again)
    assert float(opened.generator.offset) == 0.25
    saved = weights_of(tmp_path, "ema")
    assert all(torch.equal(value, saved[name]) for name, value in opened.generator.named_parameters())
    other = MLP(MLPOptions(width=8, depth=1, noise=4, embedding=4), sample_shape=(1, 8, 8), classes=10)
    with pytest.raises(UserError, match=r"do not fit the generator \(.*\); .*; build it as in training"):
        load_generator(tmp_path, generator=other)


def test_what_is_no_run_and_no_folder_of_weights(tmp_path, trained):
    with pytest.raises(UserError, match=r"'.*none' does not exist; must be a run directory or a folder of weights; "):
        load_generator(tmp_path / "none")
    with pytest.raises(UserError, match=r"has no config.json; must be a run directory or a folder of weights; "):
        load_generator(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"is a file; must be a run directory or a folder of weights; "):
        load_generator(tmp_path / "file")


def test_a_run_that_has_saved_nothing_yet(tmp_path):
    reports = run(tiny(), tmp_path, progress=at(1, ask))
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


def test_it_is_a_module_and_stays_frozen_nowhere(trained):
    opened = load_generator(trained)
    assert isinstance(opened.generator, nn.Module)
    assert all(parameter.requires_grad for parameter in opened.generator.parameters())  # to be trained further
