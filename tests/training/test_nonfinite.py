"""Steps whose loss or gradient is not finite: the incident file, raise or skip, and `replay`."""

import dataclasses
import json

import pytest
import torch
from oracles.outcomes import read_outcome
from short_runs import SimulatedCrash, at_step, crash, run, run_outcome, send_signal, short_config

from truedrift.cli import main
from truedrift.data import ClassBatches, load
from truedrift.errors import UserError
from truedrift.training import NonFinite, NonFiniteMonitor, Parts, checkpoint, open_run, replay, setup

STEP = 4
"""The step that is not finite, counted from 0; the checkpoint before it is of step 3."""


class NaNForImage:
    """Pixels, with NaN for one image of the data set."""

    def __init__(self, image):
        self.image = image

    def __call__(self, values):
        flat = values.flatten(1)
        matches = (flat == self.image).all(-1, keepdim=True)
        return (torch.where(matches, torch.nan, flat),)


class InfiniteGradient:
    """Pixels whose gradient with respect to generated samples is infinite at the marked step."""

    def __init__(self):
        self.calls = 0

    def __call__(self, values):
        flat = values.flatten(1)
        if not flat.requires_grad:
            return (flat,)
        self.calls += 1
        if self.calls == STEP + 1:
            flat.register_hook(lambda gradient: gradient * torch.inf)
        return (flat,)


@pytest.fixture(scope="module")
def batches():
    samples = load("digits")
    return ClassBatches(samples.labels, 10, n=3, seed=0, flips=samples.flips)


@pytest.fixture(scope="module")
def parts(batches):
    """NaN for an image that is a positive of step 4 and of no other of the eight steps."""
    index = int(batches.at(STEP).indices[7, 1])
    assert all(index not in batches.at(step).indices for step in range(8) if step != STEP)
    return Parts(encoder=NaNForImage(load("digits").values[index].flatten().float() / 127.5 - 1))


def read_incident(out, step=STEP):
    return json.loads((out / "incidents" / f"step-{step:08d}.json").read_text())


def all_finite(tensors):
    return all(bool(torch.isfinite(tensor).all()) for named in tensors.values() for tensor in named.values())


def load_newest(out):
    return checkpoint.latest_checkpoint(out / "checkpoints", run=open_run(out).id).checkpoint


def test_raise_is_the_default_and_records_the_batch(tmp_path, parts, batches):
    config = short_config("digits")
    assert config.engine.nonfinite == "raise"
    for _ in range(2):  # the same command reaches the same step
        with pytest.raises(NonFinite, match=rf"^step {STEP}: loss or gradient is not finite; .*step-00000004\.json; "):
            run(config, tmp_path, parts=parts)
    incident = read_incident(tmp_path)
    batch = batches.at(STEP)
    assert (incident["step"], incident["seed"], incident["loss"]) == (STEP, 0, "nan")
    assert incident["positives"] == batch.indices.tolist()
    assert incident["mirrored"] == batch.mirrored.tolist()
    assert incident["positives"] != batches.at(STEP + 1).indices.tolist()
    assert incident["generated"] == 30
    assert "labels" not in incident  # all of them
    saved = load_newest(tmp_path)
    assert saved.step == 3
    assert all_finite(saved.tensors)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2  # steps 2 and 4


def test_incident_records_unconditional_negatives(tmp_path, parts, batches):
    with pytest.raises(NonFinite, match="step 4"):
        run(short_config("digits", "batch.unconditional=4", "condition.strength_high=4"), tmp_path, parts=parts)
    assert read_incident(tmp_path)["unconditional"] == batches.unconditional(STEP, 4).indices.tolist()


def test_incident_records_the_classes_of_the_step(tmp_path):
    samples = load("digits")
    chosen = ClassBatches(samples.labels, 10, n=3, seed=0, flips=samples.flips, classes_per_step=4)
    index = int(chosen.at(STEP).indices[2, 1])
    assert all(index not in chosen.at(step).indices for step in range(STEP))
    encoder = NaNForImage(samples.values[index].flatten().float() / 127.5 - 1)
    with pytest.raises(NonFinite, match="step 4"):
        run(short_config("digits", "batch.labels=4"), tmp_path, parts=Parts(encoder=encoder))
    incident = read_incident(tmp_path)
    assert incident["labels"] == chosen.classes_at(STEP).classes.tolist()
    assert [samples.labels[row].unique().tolist() for row in incident["positives"]] == [[c] for c in incident["labels"]]
    assert incident["generated"] == 12


def test_skip_continues_and_counts_the_step(tmp_path, parts):
    messages = []
    config = short_config("digits", "engine.nonfinite=skip", "cadence.log_every=1")
    reports = run(config, tmp_path, parts=parts, notify=messages.append)
    assert reports[-1].complete
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["skipped"] for line in lines] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [line["loss"] is None for line in lines] == [False] * 4 + [True] + [False] * 3
    assert lines[STEP]["collapsed"] is False
    assert [message for message in messages if "skipped" in message] == [
        f"step 4: loss or gradient is not finite; the batch is described in {tmp_path}/incidents/step-00000004.json; "
        "the step was skipped"
    ]
    assert read_incident(tmp_path)["loss"] == "nan"
    assert all_finite(load_newest(tmp_path).tensors)
    assert load_newest(tmp_path).facts["skipped"] == 1


def test_skipped_step_changes_no_weight(tmp_path, parts):
    settings = ("engine.nonfinite=skip", "cadence.checkpoint_every=1", "cadence.keep_last=9")
    run(short_config("digits", *settings), tmp_path, parts=parts)
    states = [
        checkpoint.load(tmp_path / "checkpoints" / checkpoint.directory_name(step), run=open_run(tmp_path).id).tensors
        for step in (STEP, STEP + 1, STEP + 2)
    ]
    before, after, later = ({**state["generator"], **state["optimizer"]} for state in states)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not any(torch.equal(after[name], later[name]) for name in after if name.endswith("weight"))


def test_resume_across_a_skipped_step(tmp_path, parts):
    config = short_config("digits", "engine.nonfinite=skip", "cadence.log_every=1")
    expected = run_outcome(config, tmp_path / "uninterrupted", parts=parts)
    for step in (4, 5):  # before the skipped step and after it
        run(config, tmp_path / f"stopped-{step}", parts=parts, progress=at_step(step, send_signal))
        assert run_outcome(config, tmp_path / f"stopped-{step}", parts=parts) == expected
    with pytest.raises(SimulatedCrash):
        run(config, tmp_path / "crashed", parts=parts, progress=at_step(8, crash))
    run(config, tmp_path / "crashed", parts=parts)
    assert read_outcome(tmp_path / "crashed") == expected


def test_infinite_gradient_of_a_finite_loss(tmp_path):
    with pytest.raises(NonFinite, match="step 4"):
        run(short_config("digits"), tmp_path, parts=Parts(encoder=InfiniteGradient()))
    incident = read_incident(tmp_path)
    assert float(incident["loss"]) > 0
    assert incident["gradient_norm"] in ("inf", "nan")
    assert all_finite(load_newest(tmp_path).tensors)


@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_replay_reproduces_the_step(tmp_path, parts, policy):
    config = short_config("digits", f"engine.nonfinite={policy}", "cadence.log_every=1")
    if policy == "raise":
        with pytest.raises(NonFinite):
            run(config, tmp_path, parts=parts)
    else:
        run(config, tmp_path, parts=parts)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    outcome = replay(tmp_path, STEP, parts=parts)
    assert repr(float(outcome.features.loss)) == read_incident(tmp_path)["loss"] == "nan"
    assert not bool(outcome.finite)
    losses = [json.loads(line)["loss"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    for step in (0, 2, 3):  # from the initial state, and from the checkpoint of step 3
        assert float(replay(tmp_path, step, parts=parts).features.loss) == losses[step]
    assert len(set(losses[:4])) == 4
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_replay_skips_a_damaged_checkpoint(tmp_path):
    run(short_config("digits", "cadence.log_every=1", "cadence.keep_last=9"), tmp_path)
    losses = [json.loads(line)["loss"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    (tmp_path / "checkpoints" / "step-00000006" / "generator.safetensors").write_bytes(b"")
    assert float(replay(tmp_path, 7).features.loss) == losses[7]


@pytest.mark.parametrize(
    ("step", "arguments", "message"),
    [
        (-1, {}, "step is -1; must be from 0 to 7; "),
        (8, {}, "step is 8; must be from 0 to 7; "),
        (
            4,
            {"parts": Parts(encoder=InfiniteGradient())},
            r"the run has parts \{\} and was given .*InfiniteGradient.*; .*; ",
        ),
        (4, {"device": "tpu"}, "device 'tpu' is unknown"),
    ],
)
def test_replay_rejects_wrong_arguments(tmp_path, step, arguments, message):
    run(short_config("digits"), tmp_path)
    with pytest.raises(UserError, match=message):
        replay(tmp_path, step, **arguments)


def test_command_exits_with_status_1_and_one_line(tmp_path, monkeypatch, capsys, parts):
    monkeypatch.setattr(setup, "build_encoder", lambda options, sample_shape: build_nan_encoder(parts))
    settings = [flag for setting in SETTINGS for flag in ("--set", setting)]
    assert main(["train", "digits", *settings, "--device", "cpu", "--out", str(tmp_path / "run")]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    start, failure = output.err.splitlines()
    assert start.startswith("truedrift: digits: 8 steps in ")
    assert failure.startswith("truedrift: step 4: loss or gradient is not finite; the batch is described in ")
    assert failure.endswith("; no weight was changed; inspect the batch, or set engine.nonfinite=skip")
    assert read_incident(tmp_path / "run")["step"] == STEP


SETTINGS = (
    "batch.n=3",
    "generator.width=16",
    "cadence.epochs=1",
    "cadence.steps_per_epoch=8",
    "cadence.grid_every=none",
)


def build_nan_encoder(parts):
    from truedrift.encoders import Pixels, PixelsOptions

    class NaNEncoder(Pixels):
        def features(self, values):
            return parts.encoder(values)

    return NaNEncoder(PixelsOptions(), sample_shape=(1, 8, 8))


def test_monitor_reports_all_steps_since_the_last_check():
    """On a GPU the flags are read only every few steps."""
    monitor = NonFiniteMonitor(4, torch.device("cpu"))
    finite = {6: False, 8: False}
    found = {}
    for step in range(5, 12):
        monitor.record(step, torch.tensor(finite.get(step, True)))
        if (step + 1) % 4 == 0 or step == 9:
            found[step] = monitor.nonfinite_steps(step)
    assert found == {7: [6], 9: [8], 11: []}


def test_replay_rejects_changed_data(tmp_path, monkeypatch):
    run(short_config(), tmp_path)

    def load_flipped(*arguments, **options):
        samples = load(*arguments, **options)
        return dataclasses.replace(samples, values=samples.values.flip(0))

    monkeypatch.setattr(setup, "load", load_flipped)
    with pytest.raises(UserError, match=r"holds another run, which differs in data\.sha256"):
        replay(tmp_path, 1)
