"""A loss or gradient that is not finite: told with its batch, survived or not as the configuration says, replayed."""

import dataclasses
import json

import pytest
import torch
from kills import end_of
from short_runs import Dropped, ask, at, drop, end, run, tiny

from truedrift.cli.main import main
from truedrift.data.class_batches import ClassBatches
from truedrift.data.load import load
from truedrift.errors import UserError
from truedrift.training import checkpoint, setup
from truedrift.training.loop import NonFinite, NonFiniteMonitor
from truedrift.training.run_directory import open_run
from truedrift.training.setup import Parts
from truedrift.training.train import replay

STEP = 4
"""The step that goes wrong, counted from 0; the checkpoint before it is of step 3."""


class Poisoned:
    """Pixels, with NaN for one image of the data set, wherever it turns up."""

    def __init__(self, image):
        self.image = image

    def __call__(self, values):
        flat = values.flatten(1)
        mine = (flat == self.image).all(-1, keepdim=True)
        return (torch.where(mine, torch.nan, flat),)


class GoesInfinite:
    """Pixels whose gradient, and nothing else, is infinite where a sample is generated at a marked step."""

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
    """The image is a positive of step 4 and of no other of the eight."""
    index = int(batches.at(STEP).indices[7, 1])
    assert all(index not in batches.at(step).indices for step in range(8) if step != STEP)
    return Parts(encoder=Poisoned(load("digits").values[index].flatten().float() / 127.5 - 1))


def incident(out, step=STEP):
    return json.loads((out / "incidents" / f"step-{step:08d}.json").read_text())


def all_finite(tensors):
    return all(bool(torch.isfinite(tensor).all()) for named in tensors.values() for tensor in named.values())


def newest(out):
    return checkpoint.latest_checkpoint(out / "checkpoints", run=open_run(out).id).checkpoint


def test_raise_is_the_default_and_names_the_batch(tmp_path, parts, batches):
    config = tiny("digits")
    assert config.engine.nonfinite == "raise"
    for _ in range(2):  # the same command again comes to the same step
        with pytest.raises(NonFinite, match=rf"^step {STEP}: loss or gradient is not finite; .*step-00000004\.json; "):
            run(config, tmp_path, parts=parts)
    told = incident(tmp_path)
    batch = batches.at(STEP)
    assert (told["step"], told["seed"], told["loss"]) == (STEP, 0, "nan")
    assert told["positives"] == batch.indices.tolist()
    assert told["mirrored"] == batch.mirrored.tolist()
    assert told["positives"] != batches.at(STEP + 1).indices.tolist()
    assert told["generated"] == 30
    saved = newest(tmp_path)
    assert saved.step == 3
    assert all_finite(saved.tensors)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2  # of steps 2 and 4


def test_unconditional_negatives_are_named_too(tmp_path, parts, batches):
    with pytest.raises(NonFinite, match="step 4"):
        run(tiny("digits", "batch.unconditional=4", "condition.strength_high=4"), tmp_path, parts=parts)
    assert incident(tmp_path)["unconditional"] == batches.unconditional(STEP, 4).indices.tolist()


def test_skip_goes_on_and_counts(tmp_path, parts):
    said = []
    config = tiny("digits", "engine.nonfinite=skip", "cadence.log_every=1")
    reports = run(config, tmp_path, parts=parts, notify=said.append)
    assert reports[-1].complete
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["skipped"] for line in lines] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [line["loss"] is None for line in lines] == [False] * 4 + [True] + [False] * 3
    assert lines[STEP]["collapsed"] is False
    assert [sentence for sentence in said if "skipped" in sentence] == [
        f"step 4: loss or gradient is not finite; the batch is described in {tmp_path}/incidents/step-00000004.json; "
        "the step was skipped"
    ]
    assert incident(tmp_path)["loss"] == "nan"
    assert all_finite(newest(tmp_path).tensors)
    assert newest(tmp_path).facts["skipped"] == 1


def test_a_skipped_step_moves_no_weight(tmp_path, parts):
    """Against the state before it, of the checkpoint that the step after would start from."""
    settings = ("engine.nonfinite=skip", "cadence.checkpoint_every=1", "cadence.keep_last=9")
    run(tiny("digits", *settings), tmp_path, parts=parts)
    states = [
        checkpoint.load(tmp_path / "checkpoints" / checkpoint.directory_name(step), run=open_run(tmp_path).id).tensors
        for step in (STEP, STEP + 1, STEP + 2)
    ]
    before, after, later = ({**each["generator"], **each["optimizer"]} for each in states)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not any(torch.equal(after[name], later[name]) for name in after if name.endswith("weight"))


def test_resumed_across_a_skipped_step(tmp_path, parts):
    config = tiny("digits", "engine.nonfinite=skip", "cadence.log_every=1")
    whole = end(config, tmp_path / "whole", parts=parts)
    for step in (4, 5):  # before it and after it
        run(config, tmp_path / f"asked-{step}", parts=parts, progress=at(step, ask))
        assert end(config, tmp_path / f"asked-{step}", parts=parts) == whole
    with pytest.raises(Dropped):
        run(config, tmp_path / "dropped", parts=parts, progress=at(8, drop))
    run(config, tmp_path / "dropped", parts=parts)
    assert end_of(tmp_path / "dropped") == whole


def test_a_gradient_alone(tmp_path):
    """The loss is finite; its gradient is not."""
    with pytest.raises(NonFinite, match="step 4"):
        run(tiny("digits"), tmp_path, parts=Parts(encoder=GoesInfinite()))
    told = incident(tmp_path)
    assert float(told["loss"]) > 0
    assert told["gradient_norm"] in ("inf", "nan")
    assert all_finite(newest(tmp_path).tensors)


@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_replay_sees_what_the_step_saw(tmp_path, parts, policy):
    config = tiny("digits", f"engine.nonfinite={policy}", "cadence.log_every=1")
    if policy == "raise":
        with pytest.raises(NonFinite):
            run(config, tmp_path, parts=parts)
    else:
        run(config, tmp_path, parts=parts)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    outcome = replay(tmp_path, STEP, parts=parts)
    assert repr(float(outcome.features.loss)) == incident(tmp_path)["loss"] == "nan"
    assert not bool(outcome.finite)
    losses = [json.loads(line)["loss"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    for step in (0, 2, 3):  # from the start, and from the checkpoint of step 3
        assert float(replay(tmp_path, step, parts=parts).features.loss) == losses[step]
    assert len(set(losses[:4])) == 4
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_replay_passes_over_a_damaged_checkpoint(tmp_path):
    run(tiny("digits", "cadence.log_every=1", "cadence.keep_last=9"), tmp_path)
    losses = [json.loads(line)["loss"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    (tmp_path / "checkpoints" / "step-00000006" / "generator.safetensors").write_bytes(b"")
    assert float(replay(tmp_path, 7).features.loss) == losses[7]


@pytest.mark.parametrize(
    ("step", "given", "message"),
    [
        (-1, {}, "step is -1; must be from 0 to 7; "),
        (8, {}, "step is 8; must be from 0 to 7; "),
        (4, {"parts": Parts(encoder=GoesInfinite())}, r"the run has parts \{\} and was given .*GoesInfinite.*; .*; "),
        (4, {"device": "tpu"}, "device 'tpu' is unknown"),
    ],
)
def test_what_replay_refuses(tmp_path, step, given, message):
    run(tiny("digits"), tmp_path)
    with pytest.raises(UserError, match=message):
        replay(tmp_path, step, **given)


def test_the_command_ends_with_status_1_and_one_line(tmp_path, monkeypatch, capsys, parts):
    monkeypatch.setattr(setup, "build_encoder", lambda options, sample_shape: poisoned_module(parts))
    settings = [each for setting in SETTINGS for each in ("--set", setting)]
    assert main(["train", "digits", *settings, "--device", "cpu", "--out", str(tmp_path / "run")]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    start, failure = said.err.splitlines()
    assert start.startswith("truedrift: digits: 8 steps in ")
    assert failure.startswith("truedrift: step 4: loss or gradient is not finite; the batch is described in ")
    assert failure.endswith("; no weight was changed; inspect the batch, or set engine.nonfinite=skip")
    assert incident(tmp_path / "run")["step"] == STEP


SETTINGS = (
    "batch.n=3",
    "generator.width=16",
    "cadence.epochs=1",
    "cadence.steps_per_epoch=8",
    "cadence.grid_every=none",
)


def poisoned_module(parts):
    from truedrift.encoders.base import Pixels, PixelsOptions

    class Module(Pixels):
        def features(self, values):
            return parts.encoder(values)

    return Module(PixelsOptions(), sample_shape=(1, 8, 8))


def test_steps_between_two_looks_are_told_by_their_numbers():
    """On a GPU values are read once in a while; every step since then is known all the same."""
    watch = NonFiniteMonitor(4, torch.device("cpu"))
    finite = {6: False, 8: False}
    found = {}
    for step in range(5, 12):
        watch.record(step, torch.tensor(finite.get(step, True)))
        if (step + 1) % 4 == 0 or step == 9:
            found[step] = watch.nonfinite_steps(step)
    assert found == {7: [6], 9: [8], 11: []}


def test_replay_refuses_data_that_have_changed(tmp_path, monkeypatch):
    run(tiny(), tmp_path)

    def changed(*arguments, **options):
        samples = load(*arguments, **options)
        return dataclasses.replace(samples, values=samples.values.flip(0))

    monkeypatch.setattr(setup, "load", changed)
    with pytest.raises(UserError, match=r"holds another run, which differs in data\.sha256"):
        replay(tmp_path, 1)
