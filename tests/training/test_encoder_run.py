"""Training of an encoder: a stopped or killed run ends like an uninterrupted one, and its encoder can be used."""

import json
import signal

import pytest
import torch
from oracles.outcomes import read_lines
from short_runs import SimulatedCrash, at_step, crash, send_signal

from truedrift.data import load
from truedrift.encoders import OwnEncoderOptions, ResNetOptions, build, hash_encoder
from truedrift.options import from_dict
from truedrift.training import NonFinite, TrainingState, checkpoint, open_run
from truedrift.training.autoencoder import MaskedAutoencoder
from truedrift.training.encoder_run import (
    EncoderConfig,
    EncoderRun,
    EncoderStep,
    encoder_config_from_dict,
    train_encoder,
)
from truedrift.training.journal import RunJournal

STEPS = 8
SHAPE = (1, 8, 8)


def make_config(seed=0, optimizer=None, **cadence):
    """Return five steps of the autoencoder and three of the classifier, saved after steps 3, 6 and 8."""
    lengths = {"autoencoder_steps": 5, "classifier_steps": 3, "log_every": 2, "checkpoint_every": 3}
    tree = {
        "seed": seed,
        "network": {"width": 8, "blocks": [1, 1]},
        "autoencoder": {"batch": 6},
        "optimizer": {"learning_rate": 1e-2, "warmup_steps": 2, "ema": 0.8} | (optimizer or {}),
        "cadence": lengths | cadence,
    }
    return from_dict(EncoderConfig, tree)


def run(config, out, **options):
    return list(train_encoder(config, out=out, device="cpu", **options))


def read_outcome(out):
    """Return the tensors of the last checkpoint as bytes, the metrics without timing, and the encoder."""
    saved = checkpoint.latest_checkpoint(out / "checkpoints", run=EncoderRun(out, make_config(), {}).id).checkpoint
    tensors = {
        (file, name): tensor.numpy().tobytes()
        for file, named in saved.tensors.items()
        for name, tensor in named.items()
    }
    return saved.step, tensors, read_lines(out), hash_encoder(out)


def run_outcome(config, out, **options):
    run(config, out, **options)
    return read_outcome(out)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return run_outcome(make_config(), tmp_path_factory.mktemp("uninterrupted"))


@pytest.mark.parametrize("step", [1, 3, 5, 6, 8])
def test_resume_after_a_signal(tmp_path, uninterrupted, step):
    last = run(make_config(), tmp_path, progress=at_step(step, send_signal))[-1]
    assert (last.step, last.interrupted, last.complete) == (step, "SIGTERM", step == STEPS)
    assert not (tmp_path / "encoder.safetensors").exists()
    assert run_outcome(make_config(), tmp_path) == uninterrupted


@pytest.mark.parametrize("step", [2, 5, 7])
def test_resume_after_a_crash(tmp_path, uninterrupted, step):
    """The run resumes at its last checkpoint, and later metrics are computed again."""
    with pytest.raises(SimulatedCrash):
        run(make_config(), tmp_path, progress=at_step(step, crash))
    messages = []
    assert run_outcome(make_config(), tmp_path, notify=messages.append) == uninterrupted
    saved = step - 1 - (step - 1) % 3
    assert messages[0].startswith(f"resuming at step {saved} of 8 steps" if saved else "encoder: 8 steps in ")


def test_a_damaged_configuration_is_written_again(tmp_path, uninterrupted):
    run(make_config(), tmp_path, progress=at_step(4, send_signal))
    (tmp_path / "config.json").write_bytes(b"{")
    messages = []
    assert run_outcome(make_config(), tmp_path, notify=messages.append) == uninterrupted
    assert messages[0].endswith("the checkpoints are of this run, so it was written again")


def test_resume_with_one_step_per_process(tmp_path, uninterrupted):
    for step in range(1, STEPS + 1):
        run(make_config(), tmp_path, progress=at_step(step, lambda: send_signal(signal.SIGINT)))
    assert run_outcome(make_config(), tmp_path) == uninterrupted


TRAIN = """
import json
import sys
import time
from pathlib import Path

from truedrift.options import from_dict
from truedrift.training.encoder_run import EncoderConfig, train_encoder

def progress(what, done, total):
    print(f"step {done}", flush=True)
    time.sleep(0.05)

config = from_dict(EncoderConfig, json.loads(sys.argv[1]))
list(train_encoder(config, out=Path(sys.argv[2]), device="cpu", progress=progress))
"""


def test_resume_after_sigkill(tmp_path, uninterrupted, start):
    out = tmp_path / "run"
    process = start(TRAIN, json.dumps(make_config().tree()), out)
    process.wait_for("step 7")
    assert process.kill() == -9
    assert run_outcome(make_config(), out) == uninterrupted


@pytest.mark.parametrize("lost", ["ema", "optimizer"])
def test_lost_state_changes_the_outcome(tmp_path, monkeypatch, uninterrupted, lost):
    """Negative control: a part of the checkpoint is not restored."""
    load_all = TrainingState.load
    replaced = {"ema": lambda tensors: tensors["generator"], "optimizer": lambda tensors: {}}[lost]
    monkeypatch.setattr(
        TrainingState, "load", lambda self, tensors: load_all(self, {**tensors, lost: replaced(tensors)})
    )
    run(make_config(), tmp_path, progress=at_step(4, send_signal))
    assert run_outcome(make_config(), tmp_path)[1] != uninterrupted[1]


def test_resume_with_a_warm_up_of_the_average(tmp_path, uninterrupted):
    config = make_config(optimizer={"ema_warmup": True})
    run(config, tmp_path / "whole")
    run(config, tmp_path / "resumed", progress=at_step(4, send_signal))
    run(config, tmp_path / "resumed")
    assert hash_encoder(tmp_path / "resumed") == hash_encoder(tmp_path / "whole") != uninterrupted[3]


def test_a_complete_run_is_unchanged(tmp_path):
    first = run_outcome(make_config(), tmp_path)
    (last,) = run(make_config(), tmp_path)
    assert (last.step, last.complete, last.interrupted) == (STEPS, True, None)
    assert read_outcome(tmp_path) == first


def test_another_seed_is_another_run(tmp_path, uninterrupted):
    reports = run(make_config(seed=1), tmp_path / "other")
    assert hash_encoder(tmp_path / "other") != uninterrupted[3]
    assert [report.step for report in reports] == [2, 4, 6, 8]
    with pytest.raises(ValueError, match=r"holds another run, which differs in seed \(1 and 0\)"):
        run(make_config(), tmp_path / "other")


def test_the_autoencoder_can_go_on_and_the_classifier_can_follow(tmp_path, uninterrupted):
    """Three, then five steps of the autoencoder, then the classifier: the same as all at once."""
    run(make_config(autoencoder_steps=3, classifier_steps=0), tmp_path)
    first = hash_encoder(tmp_path)
    run(make_config(classifier_steps=0), tmp_path)
    assert hash_encoder(tmp_path) != first
    step, tensors, _, encoder = run_outcome(make_config(), tmp_path)
    assert (step, tensors, encoder) == (uninterrupted[0], uninterrupted[1], uninterrupted[3])


def test_the_start_of_the_classifier_cannot_change_after_it(tmp_path):
    run(make_config(), tmp_path)
    with pytest.raises(ValueError, match=r"cadence.autoencoder_steps is 7 and the run in .* has taken 8 steps with 5"):
        run(make_config(autoencoder_steps=7), tmp_path)
    run(make_config(classifier_steps=4), tmp_path)


def test_a_run_of_an_encoder_is_not_a_run_of_a_generator(tmp_path):
    run(make_config(), tmp_path)
    with pytest.raises(
        ValueError, match=r"is a run of train-encoder; must be a run of train; pass it to train with --enc"
    ):
        open_run(tmp_path)


def test_with_a_cosine_schedule_another_length_is_another_run(tmp_path):
    run(make_config(optimizer={"schedule": "cosine"}), tmp_path)
    with pytest.raises(
        ValueError, match=r"holds another run, which differs in steps of the cosine schedule \(8 and 9\)"
    ):
        run(make_config(optimizer={"schedule": "cosine"}, classifier_steps=4), tmp_path)


def test_metrics_and_files(tmp_path, uninterrupted):
    run(make_config(), tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 4, 6, 8]
    assert [line["images_seen"] for line in lines] == [12, 24, 36, 48]
    assert [("accuracy" in line) for line in lines] == [False, False, True, True]
    assert lines[0]["loss"] == lines[0]["reconstruction"]
    assert lines[3]["loss"] == pytest.approx(lines[3]["reconstruction"] + 0.1 * lines[3]["classification"])
    # The weight of the classifier rises over the warm-up of two steps.
    assert lines[2]["loss"] == pytest.approx(lines[2]["reconstruction"] + 0.05 * lines[2]["classification"])
    assert {path.name for path in tmp_path.iterdir()} >= {"config.json", "history.jsonl", "encoder.safetensors"}
    assert checkpoint.steps(tmp_path / "checkpoints") == (6, 8)


def take_digits(count):
    """Return the first digits."""
    return load("digits").take(torch.arange(count))


def test_images_are_counted_as_they_are_drawn(tmp_path, monkeypatch):
    """A step of a data set that is smaller than the batch has as many images as the data set."""
    counted = []
    monkeypatch.setattr(
        "truedrift.training.encoder_run.timing", lambda images, since, device: counted.append(images) or {}
    )
    config = encoder_config_from_dict(make_config().tree() | {"autoencoder": {"batch": 64}})
    reports = run(config, tmp_path, samples=take_digits(30))
    assert [report.metrics["images_seen"] for report in reports] == [60, 120, 180, 240]
    assert counted == [60, 60, 60, 60]


def test_a_signal_while_a_step_is_logged_is_for_the_next_step(tmp_path, monkeypatch, uninterrupted):
    """An interrupted run has saved the step that it reports."""
    write = RunJournal.write

    def interrupt(self, metrics):
        write(self, metrics)
        if metrics["step"] == 2:
            send_signal()

    with monkeypatch.context() as patch:
        patch.setattr(RunJournal, "write", interrupt)
        last = run(make_config(), tmp_path)[-1]
    assert (last.step, last.interrupted) == (3, "SIGTERM")
    assert checkpoint.steps(tmp_path / "checkpoints") == (3,)
    assert run_outcome(make_config(), tmp_path) == uninterrupted


def test_the_encoder_has_the_averaged_weights(tmp_path):
    config = make_config()
    run(config, tmp_path)
    saved = checkpoint.latest_checkpoint(tmp_path / "checkpoints", run=EncoderRun(tmp_path, config, {}).id).checkpoint
    network = MaskedAutoencoder(config.network, sample_shape=SHAPE, classes=10, seed=0)
    network.load_state_dict(dict(saved.tensors["ema"]))
    images = torch.rand(3, *SHAPE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = [each.mean((-2, -1)) for each in network.encoder(images)]
    found = build(OwnEncoderOptions(run=str(tmp_path), taps=(0, 1, 2)), sample_shape=SHAPE)(images)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
    network.load_state_dict(dict(saved.tensors["generator"]))
    assert not torch.equal(network.encoder(images)[2].mean((-2, -1)), found[2])


def test_the_loss_falls():
    config = make_config(autoencoder_steps=60)
    digits = load("digits")
    network = MaskedAutoencoder(ResNetOptions(width=8, blocks=(1, 1)), sample_shape=SHAPE, classes=10, seed=0)
    step = EncoderStep(config, TrainingState(network, config.optimizer), digits, torch.device("cpu"))
    losses = [float(step(number)[0].loss) for number in range(60)]
    assert sum(losses[-5:]) < 0.6 * sum(losses[:5])


def test_a_step_that_is_not_finite_stops_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(EncoderStep, "classifier_weight", lambda self, step: float("nan") if step == 4 else 1.0)
    monkeypatch.setattr("truedrift.training.encoder_run.autoencoder_loss", with_weight)
    with pytest.raises(NonFinite, match="step 4: loss or gradient is not finite; no weight was changed"):
        run(make_config(), tmp_path)
    assert checkpoint.steps(tmp_path / "checkpoints") == (3,)


def with_weight(network, batch, weight):
    """Multiply the loss by the weight."""
    from truedrift.training.autoencoder import autoencoder_loss

    result = autoencoder_loss(network, batch, 0.0)
    return result._replace(loss=result.loss * weight)


def test_points_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"two-moons has points of shape \(2,\); an encoder is trained on images"):
        train_encoder(make_config(), samples=load("two-moons"), out=tmp_path)
    with pytest.raises(ValueError, match=r"masked is 0\.0; must be greater than 0 and at most 1"):
        from_dict(EncoderConfig, {"autoencoder": {"masked": 0}})


def test_a_cosine_schedule_needs_steps_after_its_warm_up(tmp_path):
    run(make_config(optimizer={"schedule": "cosine", "warmup_steps": 7}), tmp_path)
    with pytest.raises(
        ValueError, match=r"optimizer.warmup_steps is 8 with optimizer.schedule cosine and 8 steps; must be below"
    ):
        train_encoder(make_config(optimizer={"schedule": "cosine", "warmup_steps": 8}), out=tmp_path)


def test_further_averages_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"optimizer.more_ema is \(0.9, 0.99\); must be empty, .*; leave it out"):
        train_encoder(make_config(optimizer={"more_ema": [0.9, 0.99]}), out=tmp_path)


def test_a_classifier_needs_two_classes(tmp_path):
    """Labels count, not names: a class may be without images."""
    digits = load("digits")
    zeros = digits.take((digits.labels == 0).nonzero().flatten())
    with pytest.raises(ValueError, match=r"cadence.classifier_steps is 3 and digits has 1 class; a classifier needs"):
        train_encoder(make_config(), samples=zeros, out=tmp_path)
    run(make_config(classifier_steps=0), tmp_path, samples=zeros)
