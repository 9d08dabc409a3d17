"""The run directory: its files, which runs may use it, disk errors, evaluations, and kept checkpoints."""

import contextlib
import errno
import json
import os
import re
import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from oracles.outcomes import read_outcome
from short_runs import SimulatedCrash, at_step, crash, run, run_outcome, send_signal, short_config

from truedrift.cli import main
from truedrift.data import Samples, load
from truedrift.errors import UserError
from truedrift.training import CheckpointNotSaved, Parts, checkpoint, journal, loop, open_run, read_metrics, run_id
from truedrift.training import run_directory as run_module

train_module = import_module("truedrift.training.train")


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("trained_run") / "run"
    run(short_config(), out)
    return out


def read_files(out):
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_files_of_a_run(trained_run):
    assert {path.name for path in trained_run.iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "history.jsonl",
        "lock",
        "checkpoints",
        "tensorboard",
    }
    written = json.loads((trained_run / "config.json").read_text())
    assert written["schema"] == 1
    assert written["config"] == json.loads(json.dumps(short_config().tree()))
    assert written["data"]["classes"] == list("0123456789")
    assert written["data"]["sample_shape"] == [1, 8, 8]
    events = [json.loads(line) for line in (trained_run / "history.jsonl").read_text().splitlines()]
    assert [(event["event"], event["step"]) for event in events] == [("started", 0), ("complete", 8)]


def test_open_run_restores_the_configuration(trained_run):
    opened = open_run(trained_run)
    assert opened.config == short_config()
    assert opened.id == train_module.run_directory(short_config(), Parts(), trained_run).id
    assert opened.parts == {}


def test_a_run_of_an_earlier_version_is_found_by_its_shorter_name(tmp_path, monkeypatch):
    """Earlier versions named a directory by the recipe and the hash alone: the same command resumes it."""
    monkeypatch.chdir(tmp_path)
    run = train_module.run_directory(short_config(), Parts(), None)
    earlier = Path(f"runs/digits-{run.id}")
    earlier.mkdir(parents=True)
    assert train_module.run_directory(short_config(), Parts(), None).path == earlier


def test_directory_name_tells_recipe_estimators_n_and_seed():
    config = short_config("digits", "objective.estimator_neg=standard", "seed=7")
    name = train_module.default_name(train_module.run_directory(config, Parts(), None))
    assert re.fullmatch(r"digits-abc-standard-n3-seed7-[0-9a-f]{6}", name)


def test_directory_name_ends_in_the_hash_of_the_identity():
    default = train_module.run_directory(short_config(), Parts(), None)
    assert str(default.path) == f"runs/digits-abc-n3-seed0-{default.id[:6]}"
    identity = short_config().tree()
    del identity["cadence"], identity["evaluation"], identity["engine"]["micro_batch"], identity["engine"]["nonfinite"]
    # As before these options existed.
    del identity["batch"]["fresh_negatives"], identity["encoder"]["pooling"], identity["encoders"]
    del identity["data"]["mirror"], identity["generator"]["final_norm"], identity["generator"]["signs"]
    del identity["data"]["classes"], identity["batch"]["labels"], identity["condition"]["strength_one_fraction"]
    for name in ("schedule", "final_fraction", "more_ema", "ema_warmup"):
        del identity["optimizer"][name]
    del (
        identity["objective"]["matched"],
        identity["objective"]["share_normalization"],
        identity["objective"]["locations"],
    )
    assert default.id == run_id({"config": identity, "parts": {}})
    for setting in (
        "cadence.epochs=3",
        "evaluation.samples=9",
        "cadence.log_every=7",
        "engine.micro_batch=5",
        "engine.nonfinite=skip",
    ):
        assert train_module.run_directory(short_config("digits", setting), Parts(), None).id == default.id
    others = [short_config("digits", "seed=1"), short_config("digits", "optimizer.ema=0.81"), short_config("toy")]
    others.append(short_config("digits", "batch.fresh_negatives=3"))
    others.append(short_config("digits", "optimizer.ema_warmup=true"))
    ids = {default.id, *(train_module.run_directory(other, Parts(), None).id for other in others)}
    assert len({*ids, train_module.run_directory(short_config(), Parts(kernel=abs), None).id}) == 7


def test_other_configuration_is_rejected_with_the_differences(trained_run):
    before = read_files(trained_run)
    other = short_config("digits", "optimizer.learning_rate=0.5", "batch.n=2", "cadence.keep_every=2")
    with pytest.raises(UserError) as caught:
        run(other, trained_run)
    assert str(caught.value) == (
        f"{str(trained_run)!r} holds another run, which differs in batch.n (3 and 2); "
        "optimizer.learning_rate (0.001 and 0.5); must have the same configuration and data; "
        "choose another directory with --out"
    )
    assert read_files(trained_run) == before


def test_length_of_a_cosine_run_is_part_of_its_identity(tmp_path):
    """The learning rates depend on it; with the constant schedule a run may be continued."""
    cosine = "optimizer.schedule=cosine"
    messages = []
    run(short_config("digits", cosine), tmp_path / "run", notify=messages.append)
    assert messages[0] == (
        f"digits: 8 steps with a cosine schedule, which fixes the length of the run in {tmp_path / 'run'}"
    )
    before = read_files(tmp_path / "run")
    longer = short_config("digits", cosine, "cadence.epochs=6")
    with pytest.raises(UserError) as caught:
        run(longer, tmp_path / "run")
    assert str(caught.value) == (
        f"{str(tmp_path / 'run')!r} holds another run, which differs in steps of the cosine schedule (8 and 12); "
        "must have the same configuration and data; choose another directory with --out"
    )
    assert read_files(tmp_path / "run") == before
    # The directory of another length has another name; other options of the cadence may change.
    ids = [
        train_module.run_directory(short_config("digits", cosine, *settings), Parts(), None).id
        for settings in (
            (),
            ("cadence.epochs=6",),
            ("cadence.log_every=7",),
            ("cadence.epochs=2", "cadence.steps_per_epoch=4"),
        )
    ]
    assert ids[0] == ids[2] == ids[3] != ids[1]
    # Negative control: the constant schedule.
    run(short_config("digits"), tmp_path / "constant")
    assert run(short_config("digits", "cadence.epochs=6"), tmp_path / "constant")[-1].step == 12


def test_further_averages_and_classes_are_part_of_the_identity(tmp_path):
    run(short_config("digits", "optimizer.more_ema=[0.5]"), tmp_path)
    with pytest.raises(UserError, match=r"differs in optimizer.more_ema \(\[0.5\] and None\)"):
        run(short_config("digits"), tmp_path)
    with pytest.raises(UserError, match=r"differs in data.classes \(None and \['3'\]\); data.classes \(\['0', "):
        run(short_config("digits", "optimizer.more_ema=[0.5]", "data.classes=3"), tmp_path)


def test_directory_of_an_earlier_version_is_resumed(tmp_path):
    """Its config.json has no hash and none of the options that were added, and the checkpoint has one average."""
    config = short_config("digits")
    run(config, tmp_path, progress=at_step(3, send_signal))
    tree = json.loads((tmp_path / "config.json").read_text())
    del tree["sha256"], tree["config"]["data"]["classes"], tree["config"]["batch"]["labels"]
    for name in ("schedule", "final_fraction", "more_ema", "ema_warmup"):
        del tree["config"]["optimizer"][name]
    (tmp_path / "config.json").write_text(json.dumps(tree))
    assert open_run(tmp_path).id == train_module.run_directory(config, Parts(), None).id
    assert run(config, tmp_path)[-1].complete


def test_other_configuration_is_rejected_before_any_work(trained_run, monkeypatch):
    monkeypatch.setattr(train_module, "build_setup", lambda *_: pytest.fail("the networks were built"))
    with pytest.raises(UserError, match=r"differs in seed \(0 and 1\)"):
        run(short_config("digits", "seed=1"), trained_run)


def test_other_data_and_parts_are_rejected(tmp_path):
    def samples(shift):
        moons = load("two-moons")
        return Samples(moons.values + shift, moons.labels, moons.classes, "moons", flips=False)

    config = short_config("toy")
    run(config, tmp_path, parts=Parts(samples=samples(0.0)))
    with pytest.raises(
        UserError, match=r"differs in data.sha256 \(.*\); parts.samples \('moons .*' and 'moons .*'\); "
    ):
        run(config, tmp_path, parts=Parts(samples=samples(1.0)))
    with pytest.raises(UserError, match=r"parts.samples \('moons .*' and None\)"):
        run(config, tmp_path)
    with pytest.raises(UserError, match=r"parts.encoder \(None and '.*encode_pixels'\)"):
        run(config, tmp_path, parts=Parts(samples=samples(0.0), encoder=encode_pixels))
    assert run(config, tmp_path, parts=Parts(samples=samples(0.0)))[-1].complete


def encode_pixels(values):
    return (values.flatten(1),)


@pytest.mark.parametrize("name", ["notes.txt", "checkpoints"])
def test_directory_with_other_files_is_rejected(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(UserError, match=rf"holds '{name}' and no config.json; must be a run or an empty directory; "):
        run(short_config(), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {name}


def test_hidden_files_and_a_stale_lock_are_ignored(tmp_path):
    (tmp_path / ".DS_Store").touch()
    (tmp_path / ".config.json.writing").write_text("{")
    (tmp_path / "lock").write_text("1 elsewhere\n")
    assert run(short_config(), tmp_path)[-1].complete


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"schema": 2, "version": "9.9"}', r"has schema 2; this version \(.*\) reads schema 1; use truedrift 9.9"),
        ('{"schema": 1}', r"is not the configuration of a run \(it has no config\); .*; restore it"),
        ("{}", r"is not the configuration of a run \(KeyError\)"),
        ("[1]", r"is not the configuration of a run \(TypeError\)"),
        ("{", r"is not the configuration of a run \(JSONDecodeError\)"),
        ("[" * 100_000, r"is not the configuration of a run \(RecursionError\)"),
        (
            '{"schema": 1, "config": {}, "parts": {}, "data": {}}',
            r"differs in|is not the configuration of a run \(KeyError\)",
        ),
    ],
)
def test_invalid_config_file_is_rejected(tmp_path, content, message):
    (tmp_path / "config.json").write_text(content)
    for read in (lambda: run(short_config(), tmp_path), lambda: open_run(tmp_path)):
        with pytest.raises(UserError, match=message):
            read()
    assert (tmp_path / "config.json").read_text() == content


def test_unknown_option_error_names_the_file(tmp_path, trained_run):
    tree = json.loads((trained_run / "config.json").read_text())
    tree["config"]["batch"]["m"] = 3
    del tree["sha256"]
    (tmp_path / "config.json").write_text(json.dumps(tree))
    with pytest.raises(UserError, match=r"config\.json': batch\.m is unknown; "):
        open_run(tmp_path)


def test_path_without_a_run_is_rejected(tmp_path):
    with pytest.raises(UserError, match=r"is not a run; must be a directory with config.json; "):
        open_run(tmp_path)
    with pytest.raises(UserError, match=r"does not exist; "):
        open_run(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot be created or locked \(it is a file\); "):
        run(short_config(), tmp_path / "file")


SETTINGS = (
    "cadence.epochs=1",
    "cadence.steps_per_epoch=8",
    "generator.width=16",
    "cadence.checkpoint_every=3",
    "batch.n=3",
    "cadence.log_every=1",
)


def train_arguments(out):
    return [
        "train",
        "digits",
        *(flag for setting in SETTINGS for flag in ("--set", setting)),
        "--device",
        "cpu",
        "--out",
        str(out),
    ]


def test_full_disk_error_is_one_line_and_keeps_the_old_checkpoint(tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    assert main(train_arguments(tmp_path / "uninterrupted")) == 0
    save = checkpoint.save

    def fail_after_step_3(directory, saved, *, run):
        if saved.step > 3:
            raise CheckpointNotSaved(
                "the checkpoint of step 6 cannot be written (No space left on device); …; free some space"
            )
        return save(directory, saved, run=run)

    monkeypatch.setattr(checkpoint, "save", fail_after_step_3)
    capsys.readouterr()
    assert main(train_arguments(out)) == 2
    start, failure = capsys.readouterr().err.splitlines()
    assert start.startswith("truedrift: digits: 8 steps in ")
    assert failure.startswith("truedrift: error: the checkpoint of step 6 cannot be written (No space left on device)")
    assert checkpoint.steps(out / "checkpoints") == (3,)
    monkeypatch.undo()
    assert main(train_arguments(out)) == 0
    assert read_outcome(out) == read_outcome(tmp_path / "uninterrupted")


@pytest.mark.parametrize("call", ["write_atomically", "write_sample_picture", "note"])
def test_full_disk_error_of_other_files_is_one_line(tmp_path, monkeypatch, capsys, call):
    def raise_no_space(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if call == "note":
        (tmp_path / "run" / "history.jsonl").mkdir(parents=True)
        (tmp_path / "run" / "config.json").write_bytes(write_config(tmp_path))
    else:
        monkeypatch.setattr(run_module if call == "write_atomically" else loop, call, raise_no_space)
    assert main(train_arguments(tmp_path / "run")) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    reason = "Is a directory" if call == "note" else "No space left on device"
    assert f"cannot be written ({reason}); must be writable and have free space; free some space" in message
    assert "Traceback" not in message


def write_config(tmp_path):
    assert main(train_arguments(tmp_path / "other")) == 0
    return (tmp_path / "other" / "config.json").read_bytes()


def scripted_evaluation(values):
    """Return an evaluation that gives these FIDs in turn, and the list of its calls."""
    calls = []

    def evaluate(generator, step):
        calls.append((step, generator.training))
        return {"fid": values[len(calls) - 1], "is": 2.0}

    return evaluate, calls


CADENCE = (
    "cadence.epochs=6",
    "cadence.steps_per_epoch=2",
    "cadence.checkpoint_every=4",
    "cadence.evaluate_every_epochs=2",
)
"""Twelve steps; evaluated after 4, 8 and 12."""


def checkpoint_steps(out):
    return checkpoint.steps(out / "checkpoints")


def test_evaluations_are_called_and_logged_at_their_epochs(tmp_path):
    evaluate, calls = scripted_evaluation([9.0, 5.0, 7.0])
    run(short_config("digits", *CADENCE), tmp_path, evaluate=evaluate)
    assert calls == [(4, False), (8, False), (12, False)]
    entries = [line for line in read_metrics(tmp_path / "metrics.jsonl") if "evaluation" in line]
    assert entries == [
        {"step": step, "evaluation": {"fid": fid, "is": 2.0}} for step, fid in ((4, 9.0), (8, 5.0), (12, 7.0))
    ]


@pytest.mark.parametrize(
    ("values", "settings", "expected"),
    [
        ([9.0, 5.0, 7.0], ("cadence.keep_last=1",), (8, 12)),
        ([4.0, 5.0, 7.0], ("cadence.keep_last=1",), (4, 12)),
        ([9.0, 5.0, 1.0], ("cadence.keep_last=1",), (12,)),
        ([9.0, 9.0, 9.0], ("cadence.keep_last=1",), (4, 12)),  # the first of equal values
        ([float("nan"), 8.0, float("inf")], ("cadence.keep_last=1",), (8, 12)),
        ([9.0, 5.0, 7.0], ("cadence.keep_last=2", "cadence.checkpoint_every=1"), (8, 11, 12)),
        ([9.0, 5.0, 1.0], ("cadence.keep_last=1", "cadence.checkpoint_every=1", "cadence.keep_every=5"), (5, 10, 12)),
        (
            [4.0, 5.0, 7.0],
            ("cadence.keep_last=1", "cadence.checkpoint_every=5"),
            (4, 12),
        ),  # saved because it was evaluated
    ],
)
def test_kept_checkpoints(tmp_path, values, settings, expected):
    evaluate, _ = scripted_evaluation(values)
    run(short_config("digits", *CADENCE, *settings), tmp_path, evaluate=evaluate)
    assert checkpoint_steps(tmp_path) == expected


def test_best_step_is_restored_after_a_crash(tmp_path):
    config = short_config("digits", *CADENCE, "cadence.keep_last=1")
    fids = {4: 9.0, 8: 5.0, 12: 7.0}

    def evaluate(generator, step):
        return {"fid": fids[step]}

    with pytest.raises(SimulatedCrash):
        run(config, tmp_path / "run", evaluate=evaluate, progress=at_step(10, crash))
    assert run_outcome(config, tmp_path / "run", evaluate=evaluate) == run_outcome(
        config, tmp_path / "uninterrupted", evaluate=evaluate
    )
    assert checkpoint_steps(tmp_path / "run") == (8, 12)


def test_no_evaluation_without_a_function(tmp_path):
    run(short_config("digits", *CADENCE, "cadence.keep_last=9"), tmp_path)
    assert checkpoint_steps(tmp_path) == (4, 8, 12)
    assert not [line for line in read_metrics(tmp_path / "metrics.jsonl") if "evaluation" in line]


def read_fids(out):
    return [
        (line["step"], line["evaluation"]["fid"])
        for line in read_metrics(out / "metrics.jsonl")
        if "evaluation" in line
    ]


def test_complete_run_without_a_last_evaluation_is_evaluated_once(tmp_path):
    config = short_config("digits", *CADENCE, "cadence.keep_last=1")
    run(config, tmp_path)
    before = read_outcome(tmp_path)
    evaluate, calls = scripted_evaluation([6.0, 1.0, 1.0])
    messages = []
    run(config, tmp_path, evaluate=evaluate, notify=messages.append)
    assert calls == [(12, False)]
    assert read_fids(tmp_path) == [(12, 6.0)]
    assert "step 12 is the last step and has no evaluation; evaluating it now" in messages
    run(config, tmp_path, evaluate=evaluate)  # the evaluation stays in the log, which is longer than at the checkpoint
    run(config, tmp_path)
    assert (calls, read_fids(tmp_path)) == ([(12, False)], [(12, 6.0)])
    assert replace(read_outcome(tmp_path), metrics=before.metrics) == before
    longer = short_config("digits", *CADENCE, "cadence.keep_last=1", "cadence.epochs=8")
    run(longer, tmp_path, evaluate=lambda generator, step: {"fid": 7.0})
    assert read_fids(tmp_path) == [(12, 6.0), (16, 7.0)]
    assert checkpoint_steps(tmp_path) == (12, 16)  # the late evaluation is the best


def test_lost_last_evaluation_is_repeated(tmp_path):
    config = short_config("digits", *CADENCE)
    fids = {4: 9.0, 8: 5.0, 12: 7.0}

    def evaluate(generator, step):
        return {"fid": fids[step]}

    run(config, tmp_path, evaluate=evaluate)
    path = tmp_path / "metrics.jsonl"
    complete = path.read_bytes()
    path.write_bytes(complete[: complete.rindex(b'{"step": 12, "eval') + 9])
    run(config, tmp_path, evaluate=evaluate)
    assert path.read_bytes() == complete


def test_history_records_when_the_last_process_wrote(tmp_path):
    config = short_config("digits", *CADENCE)
    with pytest.raises(SimulatedCrash):
        run(config, tmp_path, progress=at_step(10, crash))
    os.utime(tmp_path / "metrics.jsonl", (1_700_000_000, 1_700_000_000))
    history = tmp_path / "history.jsonl"
    history.write_text(history.read_text() + '{"event": "compl')  # killed while appending
    run(config, tmp_path)
    started, torn, resumed, _ = history.read_text().splitlines()
    assert (json.loads(started)["event"], torn) == ("started", '{"event": "compl')
    assert json.loads(resumed)["event"] == "resumed"
    assert json.loads(resumed)["last_written"] == "2023-11-14T22:13:20+00:00"


def test_run_id_depends_on_the_recipe_name():
    assert run_id(short_config().tree()) != run_id(replace(short_config(), recipe="other").tree())


@pytest.fixture
def copied_run(trained_run, tmp_path):
    """A copy of the trained run that a test may change."""
    return Path(shutil.copytree(trained_run, tmp_path / "copy"))


def test_cadence_may_change_and_a_run_can_be_extended(copied_run, tmp_path):
    longer = short_config("digits", "cadence.epochs=6", "cadence.log_every=3", "engine.nonfinite=skip")
    (*_, last) = run(longer, copied_run)
    assert (last.step, last.steps, last.complete) == (12, 12, True)
    assert json.loads((copied_run / "config.json").read_text())["config"] == json.loads(json.dumps(longer.tree()))
    history = [json.loads(line) for line in (copied_run / "history.jsonl").read_text().splitlines()]
    (changed,) = (entry for entry in history if entry["event"] == "changed")
    assert any(option.startswith("cadence.epochs (") for option in changed["options"])
    uninterrupted = tmp_path / "uninterrupted"
    run(longer, uninterrupted)
    assert read_outcome(copied_run).state == read_outcome(uninterrupted).state
    (*_, last) = run(short_config(), copied_run)  # with fewer steps the run is complete
    assert last.complete


def test_run_with_only_damaged_checkpoints_is_rejected(copied_run):
    for manifest in (copied_run / "checkpoints").glob("*/manifest.json"):
        manifest.write_text(manifest.read_text().replace('"step"', '"stop"'))
    before = read_files(copied_run)
    with pytest.raises(
        UserError, match=r"none of the \d checkpoints in .* can be used \(.*; restore one, or remove them"
    ):
        run(short_config("digits", "cadence.epochs=6"), copied_run)
    assert {name: content for name, content in read_files(copied_run).items() if "checkpoints" in name} == {
        name: content for name, content in before.items() if "checkpoints" in name
    }


def test_run_resumes_without_its_metrics(copied_run):
    (copied_run / "metrics.jsonl").unlink()
    messages = []
    (*_, last) = run(short_config("digits", "cadence.epochs=6"), copied_run, notify=messages.append)
    assert last.step == 12
    assert any("metrics.jsonl" in text and "continuing with the lines that can be read" in text for text in messages)


def test_signal_while_features_are_cached_stops_before_the_first_step(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "cache"))

    def stop(what, done, total):
        if what.startswith("features"):
            send_signal()

    config = short_config("digits", "encoder.kind=convnet", "encoder.channels=4,6")
    (report,) = run(config, tmp_path / "run", progress=stop)
    assert (report.interrupted, report.step, report.complete) == ("SIGTERM", 0, False)
    suffixes = {path.suffix for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert suffixes == {".lock", ".writing", ".pieces"}  # from which the next start continues
    (*_, last) = run(config, tmp_path / "run")
    assert last.complete


# ---- Damage that costs no work ----

LONGER = "cadence.epochs=6"


def resume_and_compare(copied_run, tmp_path):
    """Resume the copy to 12 steps; require the state of an uninterrupted run; return the messages."""
    messages = []
    run(short_config("digits", LONGER), copied_run, notify=messages.append)
    run(short_config("digits", LONGER), tmp_path / "uninterrupted")
    assert read_outcome(copied_run).state == read_outcome(tmp_path / "uninterrupted").state
    return messages


def test_a_changed_digit_in_the_metrics_is_noticed(copied_run, tmp_path):
    """The line stays valid JSON. Only its hash shows the change."""
    path = copied_run / "metrics.jsonl"
    before = path.read_bytes()
    place = before.index(b'"loss": ') + len(b'"loss": ')
    damaged = before[:place] + (b"7" if before[place : place + 1] != b"7" else b"8") + before[place + 1 :]
    path.write_bytes(damaged)
    assert len(read_metrics(path)) == len(before.splitlines())
    messages = resume_and_compare(copied_run, tmp_path)
    (message,) = (each for each in messages if "does not match the checkpoint" in each)
    assert message.endswith(
        "continuing with the lines that can be read; the damaged file was kept as metrics.damaged-1.jsonl"
    )
    assert (copied_run / "metrics.damaged-1.jsonl").read_bytes() == damaged
    steps = [line["step"] for line in read_metrics(path)]
    assert steps == sorted(steps)
    assert steps[-1] == 12


def test_a_broken_line_in_the_metrics_costs_that_line_only(copied_run, tmp_path):
    path = copied_run / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"\x00" * 40 + b"\n", *lines[2:]]))
    assert any("metrics.damaged-1.jsonl" in each for each in resume_and_compare(copied_run, tmp_path))
    kept = [json.dumps(line) for line in read_metrics(path)]
    assert kept[0] == json.dumps(json.loads(lines[0]))
    assert json.dumps(json.loads(lines[1])) not in kept


def repeat(copied_run):
    """Run the same command on the complete run, and return its messages about the log."""
    messages = []
    run(short_config("digits"), copied_run, notify=messages.append)
    return [each for each in messages if "metrics" in each]


@pytest.mark.parametrize("inserted", ['"x": "\\ud800", ', '"x": 1e999, ', '"x": "ä", '])
def test_a_repaired_log_keeps_its_bytes_and_is_repaired_once(copied_run, inserted):
    """Also lines that Python cannot write again: a lone surrogate, and a number beyond the largest one."""
    path = copied_run / "metrics.jsonl"
    damaged = path.read_bytes().replace(b"{", b"{" + inserted.encode(), 1)
    path.write_bytes(damaged)
    (message,) = repeat(copied_run)
    assert message.endswith("the damaged file was kept as metrics.damaged-1.jsonl")
    assert path.read_bytes() == damaged  # every line can be read
    assert (copied_run / "metrics.damaged-1.jsonl").read_bytes() == damaged
    assert repeat(copied_run) == []
    assert not (copied_run / "metrics.damaged-2.jsonl").exists()


def test_a_crash_during_the_repair_leaves_the_log(copied_run, monkeypatch):
    path = copied_run / "metrics.jsonl"
    damaged = path.read_bytes().replace(b"{", b'{"x": 1, ', 1)
    path.write_bytes(damaged)

    def crash(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(journal, "write_atomically", crash)
        with pytest.raises(KeyboardInterrupt):
            run(short_config("digits"), copied_run)
    assert path.read_bytes() == damaged
    assert len(repeat(copied_run)) == 1


def test_a_dangling_link_in_the_place_of_the_log_is_replaced(copied_run, tmp_path):
    path = copied_run / "metrics.jsonl"
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    assert len(repeat(copied_run)) == 1
    assert path.is_file()
    assert not path.is_symlink()
    assert not (tmp_path / "nowhere").exists()


def test_a_lost_configuration_is_written_again(copied_run):
    before = json.loads((copied_run / "config.json").read_text())["config"]
    (copied_run / "config.json").unlink()
    run(short_config("digits"), copied_run)
    assert json.loads((copied_run / "config.json").read_text())["config"] == before
    (copied_run / "config.json").unlink()
    with pytest.raises(UserError, match=r"holds '.*' and no config.json"):  # another run
        run(short_config("digits", seed=5), copied_run)


def test_unfinished_files_of_killed_processes_are_removed(copied_run):
    (copied_run / ".config.json.writing").write_text("half")
    run(short_config("digits"), copied_run)
    assert not (copied_run / ".config.json.writing").exists()


@pytest.mark.parametrize("name", ["lock", "history.jsonl"])
def test_the_message_about_a_planted_file_names_it(copied_run, tmp_path, name):
    (copied_run / name).unlink(missing_ok=True)
    (copied_run / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(
        UserError, match=rf"{name}' cannot be used \(it is a link, .*\); must be a regular file.*; remove it"
    ):
        run(short_config("digits"), copied_run)
    assert not (tmp_path / "elsewhere").exists()


def test_a_log_that_cannot_be_written_does_not_count_as_damaged(copied_run, monkeypatch):
    before = (copied_run / "metrics.jsonl").read_bytes()

    def fail(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(journal, "sync_directory", fail)
    with pytest.raises(UserError, match=r"cannot be written \(Read-only file system\)"):
        run(short_config("digits", LONGER), copied_run)
    monkeypatch.undo()
    assert (copied_run / "metrics.jsonl").read_bytes() == before
    assert not list(copied_run.glob("metrics.damaged*"))


@pytest.mark.parametrize("content", [b"", b"{", b"\x00" * 100, b"[1]"])
def test_a_damaged_configuration_is_written_again(copied_run, tmp_path, content):
    before = json.loads((copied_run / "config.json").read_bytes())
    (copied_run / "config.json").write_bytes(content)
    messages = resume_and_compare(copied_run, tmp_path)
    assert any(each.endswith("the checkpoints are of this run, so it was written again") for each in messages)
    after = json.loads((copied_run / "config.json").read_bytes())
    assert (after["data"], after["parts"]) == (before["data"], before["parts"])


def test_a_changed_character_in_the_configuration_is_noticed(copied_run, tmp_path):
    """Names of classes and the commit are in no checkpoint. Only the hash of the file shows the change."""
    path = copied_run / "config.json"
    before = path.read_bytes()
    path.write_bytes(before.replace(b'      "3",', b'      "5",'))
    with pytest.raises(UserError, match=r"is not the configuration of a run \(its content is not what was written\)"):
        open_run(copied_run)
    messages = resume_and_compare(copied_run, tmp_path)
    assert any(each.endswith("the checkpoints are of this run, so it was written again") for each in messages)
    assert open_run(copied_run).data["classes"] == list("0123456789")


def test_a_damaged_configuration_of_another_run_is_refused(copied_run):
    (copied_run / "config.json").write_bytes(b"{")
    before = read_files(copied_run)
    with pytest.raises(UserError, match=r"is not the configuration of a run .*; restore it"):
        run(short_config("digits", LONGER, seed=5), copied_run)
    assert read_files(copied_run) == before


def test_a_checkpoint_of_other_shapes_is_skipped(copied_run, tmp_path):
    """Its hashes are right: a file of another network was saved in its place."""
    newest = checkpoint.steps(copied_run / "checkpoints")[-1]
    path = copied_run / "checkpoints" / checkpoint.directory_name(newest)
    saved = checkpoint.load(path, run=None)
    tensors = {
        name: {key: value[..., :1] if value.ndim else value for key, value in file.items()}
        for name, file in saved.tensors.items()
    }
    shutil.rmtree(path)
    checkpoint.save(path.parent, replace(saved, tensors=tensors), run=checkpoint.runs(path.parent).pop())
    (message,) = (each for each in resume_and_compare(copied_run, tmp_path) if "skipped" in each)
    assert message.startswith(f"checkpoint {path.name} was skipped: its content does not fit the run: ")


def test_a_checkpoint_that_was_being_removed_is_removed_by_the_next_start(copied_run):
    """Killed in the last pruning of a complete run: nothing is saved any more, so that the start has to remove it."""
    oldest = copied_run / "checkpoints" / "step-00000001"
    oldest.mkdir()
    (oldest / "ema.safetensors").write_bytes(b"1")
    (copied_run / "checkpoints" / ".writing-step-00000007").mkdir()
    run(short_config(), copied_run)
    names = sorted(os.listdir(copied_run / "checkpoints"))
    assert names == [checkpoint.directory_name(step) for step in checkpoint.steps(copied_run / "checkpoints")]


def test_a_checkpoint_that_was_to_be_removed_is_removed_by_the_next_start(copied_run):
    """Killed before the last pruning of a complete run."""
    directory = copied_run / "checkpoints"
    kept = checkpoint.steps(directory)
    saved = checkpoint.load(directory / checkpoint.directory_name(kept[0]), run=None)
    checkpoint.save(directory, replace(saved, step=1), run=checkpoint.runs(directory).pop())
    assert checkpoint.steps(directory) == (1, *kept)
    run(short_config(), copied_run)
    assert checkpoint.steps(directory) == kept


@pytest.mark.parametrize("name", ["lock", "metrics.jsonl", "history.jsonl", ".config.json.writing"])
def test_planted_links_are_not_followed(tmp_path, name):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(elsewhere)
    with contextlib.suppress(UserError):
        run(short_config(), tmp_path / "run")
    assert elsewhere.read_text() == "precious"


@pytest.mark.parametrize("name", ["lock", "metrics.jsonl", "history.jsonl", "config.json"])
def test_a_fifo_in_a_run_directory_is_refused(tmp_path, name):
    (tmp_path / "run").mkdir()
    os.mkfifo(tmp_path / "run" / name)
    with pytest.raises(UserError) as caught:
        run(short_config(), tmp_path / "run")
    assert str(caught.value).count("; ") == 2
