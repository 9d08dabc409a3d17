"""The run directory: whose it is, what it refuses, what stays when the disk does not take any more."""

import errno
import json
import os
import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from kills import end_of
from short_runs import Dropped, ask, at, drop, end, run, tiny

from truedrift.cli.main import main
from truedrift.data.samples import Samples
from truedrift.errors import UserError
from truedrift.training import checkpoint, loop
from truedrift.training import run_directory as run_module
from truedrift.training.checkpoint import CheckpointNotSaved
from truedrift.training.config import run_id
from truedrift.training.journal import read_metrics
from truedrift.training.run_directory import open_run
from truedrift.training.setup import Parts
from truedrift.training.train import run_directory

train_module = import_module("truedrift.training.train")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "run"
    run(tiny(), out)
    return out


def files(out):
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_what_a_run_leaves(trained):
    assert {path.name for path in trained.iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "history.jsonl",
        "lock",
        "checkpoints",
        "tensorboard",
    }
    written = json.loads((trained / "config.json").read_text())
    assert written["schema"] == 1
    assert written["config"] == json.loads(json.dumps(tiny().tree()))
    assert written["data"]["classes"] == list("0123456789")
    assert written["data"]["sample_shape"] == [1, 8, 8]
    events = [json.loads(line) for line in (trained / "history.jsonl").read_text().splitlines()]
    assert [(event["event"], event["step"]) for event in events] == [("started", 0), ("complete", 8)]


def test_opened_as_it_was_written(trained):
    opened = open_run(trained)
    assert opened.config == tiny()
    assert opened.id == run_directory(tiny(), Parts(), trained).id
    assert opened.parts == {}


def test_the_name_is_the_recipe_and_a_hash_of_what_decides_a_step():
    default = run_directory(tiny(), Parts(), None)
    assert str(default.path) == f"runs/digits-{default.id}"
    decides = tiny().tree()
    del decides["cadence"], decides["evaluation"], decides["engine"]["micro_batch"], decides["engine"]["nonfinite"]
    assert default.id == run_id({"config": decides, "parts": {}})
    for free in (
        "cadence.epochs=3",
        "evaluation.samples=9",
        "cadence.log_every=7",
        "engine.micro_batch=5",
        "engine.nonfinite=skip",
    ):
        assert run_directory(tiny("digits", free), Parts(), None).id == default.id
    others = [tiny("digits", "seed=1"), tiny("digits", "optimizer.ema=0.81"), tiny("toy")]
    ids = {default.id, *(run_directory(other, Parts(), None).id for other in others)}
    assert len({*ids, run_directory(tiny(), Parts(kernel=abs), None).id}) == 5


def test_another_configuration_is_refused_with_the_fields(trained):
    before = files(trained)
    other = tiny("digits", "optimizer.learning_rate=0.5", "batch.n=2", "cadence.keep_every=2")
    with pytest.raises(UserError) as caught:
        run(other, trained)
    assert str(caught.value) == (
        f"{str(trained)!r} holds another run, which differs in batch.n (3 and 2); "
        "optimizer.learning_rate (0.001 and 0.5); must have the same configuration and data; "
        "choose another directory with --out"
    )
    assert files(trained) == before


def test_it_is_refused_before_any_work(trained, monkeypatch):
    monkeypatch.setattr(train_module, "build_setup", lambda *_: pytest.fail("work was begun"))
    with pytest.raises(UserError, match=r"differs in seed \(0 and 1\)"):
        run(tiny("digits", "seed=1"), trained)


def test_other_data_and_other_parts_are_refused(tmp_path):
    def samples(shift):
        from truedrift.data.load import load

        mine = load("two-moons")
        return Samples(mine.values + shift, mine.labels, mine.classes, "moons", flips=False)

    config = tiny("toy")
    run(config, tmp_path, parts=Parts(samples=samples(0.0)))
    with pytest.raises(
        UserError, match=r"differs in data.sha256 \(.*\); parts.samples \('moons .*' and 'moons .*'\); "
    ):
        run(config, tmp_path, parts=Parts(samples=samples(1.0)))
    with pytest.raises(UserError, match=r"parts.samples \('moons .*' and None\)"):
        run(config, tmp_path)
    with pytest.raises(UserError, match=r"parts.encoder \(None and '.*flat'\)"):
        run(config, tmp_path, parts=Parts(samples=samples(0.0), encoder=flat))
    assert run(config, tmp_path, parts=Parts(samples=samples(0.0)))[-1].complete


def flat(values):
    return (values.flatten(1),)


@pytest.mark.parametrize("name", ["notes.txt", "checkpoints"])
def test_a_directory_with_foreign_files_is_refused(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(UserError, match=rf"holds '{name}' and no config.json; must be a run or an empty directory; "):
        run(tiny(), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {name}


def test_hidden_files_and_a_stale_lock_are_no_obstacle(tmp_path):
    (tmp_path / ".DS_Store").touch()
    (tmp_path / ".config.json.writing").write_text("{")
    (tmp_path / "lock").write_text("1 elsewhere\n")
    assert run(tiny(), tmp_path)[-1].complete


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"schema": 2, "version": "9.9"}', r"has schema 2; this version \(.*\) reads schema 1; use truedrift 9.9"),
        ('{"schema": 1}', r"is not the configuration of a run \(KeyError\); .*; restore it"),
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
def test_a_config_that_is_none(tmp_path, content, message):
    (tmp_path / "config.json").write_text(content)
    for attempt in (lambda: run(tiny(), tmp_path), lambda: open_run(tmp_path)):
        with pytest.raises(UserError, match=message):
            attempt()
    assert (tmp_path / "config.json").read_text() == content


def test_an_option_of_another_version_is_named_with_the_file(tmp_path, trained):
    tree = json.loads((trained / "config.json").read_text())
    tree["config"]["batch"]["m"] = 3
    (tmp_path / "config.json").write_text(json.dumps(tree))
    with pytest.raises(UserError, match=r"config\.json': batch\.m is unknown; "):
        open_run(tmp_path)


def test_no_run_at_all(tmp_path):
    with pytest.raises(UserError, match=r"is not a run; must be a directory with config.json; "):
        open_run(tmp_path)
    with pytest.raises(UserError, match=r"does not exist; "):
        open_run(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot be created or locked \(it is a file\); "):
        run(tiny(), tmp_path / "file")


SETTINGS = (
    "cadence.epochs=1",
    "cadence.steps_per_epoch=8",
    "generator.width=16",
    "cadence.checkpoint_every=3",
    "batch.n=3",
    "cadence.log_every=1",
)


def command(out):
    return [
        "train",
        "digits",
        *(each for one in SETTINGS for each in ("--set", one)),
        "--device",
        "cpu",
        "--out",
        str(out),
    ]


def test_a_full_disk_is_one_line_and_the_old_checkpoint_stays(tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    assert main(command(tmp_path / "whole")) == 0
    real = checkpoint.save

    def refuse(directory, saved, *, run):
        if saved.step > 3:
            raise CheckpointNotSaved(
                "the checkpoint of step 6 cannot be written (No space left on device); …; free some space"
            )
        return real(directory, saved, run=run)

    monkeypatch.setattr(checkpoint, "save", refuse)
    capsys.readouterr()
    assert main(command(out)) == 2
    start, failure = capsys.readouterr().err.splitlines()
    assert start.startswith("truedrift: digits: 8 steps in ")
    assert failure.startswith("truedrift: error: the checkpoint of step 6 cannot be written (No space left on device)")
    assert checkpoint.steps(out / "checkpoints") == (3,)
    monkeypatch.undo()
    assert main(command(out)) == 0
    assert end_of(out) == end_of(tmp_path / "whole")


@pytest.mark.parametrize("call", ["write_atomically", "write_sample_picture", "note"])
def test_a_disk_that_is_full_elsewhere_is_one_line_too(tmp_path, monkeypatch, capsys, call):
    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if call == "note":
        (tmp_path / "run" / "history.jsonl").mkdir(parents=True)
        (tmp_path / "run" / "config.json").write_text(json.dumps(config_of_command(tmp_path)))
    else:
        monkeypatch.setattr(run_module if call == "write_atomically" else loop, call, refuse)
    assert main(command(tmp_path / "run")) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    reason = "Is a directory" if call == "note" else "No space left on device"
    assert f"cannot be written ({reason}); must be writable and have free space; free some space" in said
    assert "Traceback" not in said


def config_of_command(tmp_path):
    assert main(command(tmp_path / "other")) == 0
    return json.loads((tmp_path / "other" / "config.json").read_text())


def scripted(values):
    """An evaluation that gives these FIDs one after the other, and what it was called with."""
    called = []

    def evaluate(generator, step):
        called.append((step, generator.training))
        return {"fid": values[len(called) - 1], "is": 2.0}

    return evaluate, called


CADENCE = (
    "cadence.epochs=6",
    "cadence.steps_per_epoch=2",
    "cadence.checkpoint_every=4",
    "cadence.evaluate_every_epochs=2",
)
"""Twelve steps; evaluated after 4, 8 and 12."""


def steps_left(out):
    return checkpoint.steps(out / "checkpoints")


def test_evaluation_is_called_at_its_epochs_and_written(tmp_path):
    evaluate, called = scripted([9.0, 5.0, 7.0])
    run(tiny("digits", *CADENCE), tmp_path, evaluate=evaluate)
    assert called == [(4, False), (8, False), (12, False)]
    entries = [line for line in read_metrics(tmp_path / "metrics.jsonl") if "evaluation" in line]
    assert entries == [
        {"step": step, "evaluation": {"fid": fid, "is": 2.0}} for step, fid in ((4, 9.0), (8, 5.0), (12, 7.0))
    ]


@pytest.mark.parametrize(
    ("values", "settings", "left"),
    [
        ([9.0, 5.0, 7.0], ("cadence.keep_last=1",), (8, 12)),
        ([4.0, 5.0, 7.0], ("cadence.keep_last=1",), (4, 12)),
        ([9.0, 5.0, 1.0], ("cadence.keep_last=1",), (12,)),
        ([9.0, 9.0, 9.0], ("cadence.keep_last=1",), (4, 12)),  # the first of equals
        ([float("nan"), 8.0, float("inf")], ("cadence.keep_last=1",), (8, 12)),
        ([9.0, 5.0, 7.0], ("cadence.keep_last=2", "cadence.checkpoint_every=1"), (8, 11, 12)),
        ([9.0, 5.0, 1.0], ("cadence.keep_last=1", "cadence.checkpoint_every=1", "cadence.keep_every=5"), (5, 10, 12)),
        (
            [4.0, 5.0, 7.0],
            ("cadence.keep_last=1", "cadence.checkpoint_every=5"),
            (4, 12),
        ),  # saved since it was evaluated
    ],
)
def test_which_checkpoints_stay(tmp_path, values, settings, left):
    evaluate, _ = scripted(values)
    run(tiny("digits", *CADENCE, *settings), tmp_path, evaluate=evaluate)
    assert steps_left(tmp_path) == left


def test_the_best_is_remembered_across_a_stop(tmp_path):
    config = tiny("digits", *CADENCE, "cadence.keep_last=1")
    fids = {4: 9.0, 8: 5.0, 12: 7.0}

    def evaluate(generator, step):
        return {"fid": fids[step]}

    with pytest.raises(Dropped):
        run(config, tmp_path / "run", evaluate=evaluate, progress=at(10, drop))
    assert end(config, tmp_path / "run", evaluate=evaluate) == end(config, tmp_path / "whole", evaluate=evaluate)
    assert steps_left(tmp_path / "run") == (8, 12)


def test_without_a_hook_nothing_is_evaluated(tmp_path):
    run(tiny("digits", *CADENCE, "cadence.keep_last=9"), tmp_path)
    assert steps_left(tmp_path) == (4, 8, 12)
    assert not [line for line in read_metrics(tmp_path / "metrics.jsonl") if "evaluation" in line]


def judged(out):
    return [
        (line["step"], line["evaluation"]["fid"])
        for line in read_metrics(out / "metrics.jsonl")
        if "evaluation" in line
    ]


def test_a_complete_run_without_its_last_evaluation_is_judged_once(tmp_path):
    config = tiny("digits", *CADENCE, "cadence.keep_last=1")
    run(config, tmp_path)
    before = end_of(tmp_path)
    evaluate, called = scripted([6.0, 1.0, 1.0])
    told = []
    run(config, tmp_path, evaluate=evaluate, notify=told.append)
    assert called == [(12, False)]
    assert judged(tmp_path) == [(12, 6.0)]
    assert "step 12 is the last and has no evaluation: evaluating it now" in told
    run(config, tmp_path, evaluate=evaluate)  # it stays in the log, though the checkpoint is older
    run(config, tmp_path)
    assert (called, judged(tmp_path)) == ([(12, False)], [(12, 6.0)])
    assert replace(end_of(tmp_path), metrics=before.metrics) == before
    longer = tiny("digits", *CADENCE, "cadence.keep_last=1", "cadence.epochs=8")
    run(longer, tmp_path, evaluate=lambda generator, step: {"fid": 7.0})
    assert judged(tmp_path) == [(12, 6.0), (16, 7.0)]
    assert steps_left(tmp_path) == (12, 16)  # the late one is the best


def test_a_last_evaluation_that_was_lost_is_made_again(tmp_path):
    config = tiny("digits", *CADENCE)
    fids = {4: 9.0, 8: 5.0, 12: 7.0}

    def evaluate(generator, step):
        return {"fid": fids[step]}

    run(config, tmp_path, evaluate=evaluate)
    path = tmp_path / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b'{"step": 12, "eval') + 9])
    run(config, tmp_path, evaluate=evaluate)
    assert path.read_bytes() == whole


def test_a_start_tells_when_the_one_before_last_wrote(tmp_path):
    config = tiny("digits", *CADENCE)
    with pytest.raises(Dropped):
        run(config, tmp_path, progress=at(10, drop))
    os.utime(tmp_path / "metrics.jsonl", (1_700_000_000, 1_700_000_000))
    history = tmp_path / "history.jsonl"
    history.write_text(history.read_text() + '{"event": "compl')  # a kill in mid-append
    run(config, tmp_path)
    started, torn, resumed, _ = history.read_text().splitlines()
    assert (json.loads(started)["event"], torn) == ("started", '{"event": "compl')
    assert json.loads(resumed)["event"] == "resumed"
    assert json.loads(resumed)["last_written"] == "2023-11-14T22:13:20+00:00"


def test_a_run_of_another_name_is_another_run():
    assert run_id(tiny().tree()) != run_id(replace(tiny(), recipe="mine").tree())


@pytest.fixture
def own(trained, tmp_path):
    """A copy that a test may change."""
    return Path(shutil.copytree(trained, tmp_path / "own"))


def test_what_decides_no_step_may_change_and_a_run_can_be_made_longer(own, tmp_path):
    longer = tiny("digits", "cadence.epochs=6", "cadence.log_every=3", "engine.nonfinite=skip")
    (*_, last) = run(longer, own)
    assert (last.step, last.steps, last.complete) == (12, 12, True)
    assert json.loads((own / "config.json").read_text())["config"] == json.loads(json.dumps(longer.tree()))
    history = [json.loads(line) for line in (own / "history.jsonl").read_text().splitlines()]
    (changed,) = (entry for entry in history if entry["event"] == "changed")
    assert any(option.startswith("cadence.epochs (") for option in changed["options"])
    whole = tmp_path / "whole"
    run(longer, whole)
    assert end_of(own).state == end_of(whole).state  # as if it had been that long from the beginning
    (*_, again) = run(tiny(), own)  # and the shorter one is complete
    assert again.complete


def test_checkpoints_that_are_all_damaged_are_not_written_over(own):
    for manifest in (own / "checkpoints").glob("*/manifest.json"):
        manifest.write_text(manifest.read_text().replace('"step"', '"stop"'))
    before = files(own)
    with pytest.raises(
        UserError, match=r"none of the \d checkpoints in .* can be used \(.*; restore one, or remove them"
    ):
        run(tiny("digits", "cadence.epochs=6"), own)
    assert {name: content for name, content in files(own).items() if "checkpoints" in name} == {
        name: content for name, content in before.items() if "checkpoints" in name
    }


def test_a_lost_log_of_metrics_does_not_cost_the_weights(own):
    (own / "metrics.jsonl").unlink()
    said = []
    (*_, last) = run(tiny("digits", "cadence.epochs=6"), own, notify=said.append)
    assert last.step == 12
    assert any("metrics.jsonl" in sentence and "continuing with the lines that exist" in sentence for sentence in said)


def test_a_signal_while_features_are_made_is_answered_before_the_first_step(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "cache"))

    def stop(what, done, total):
        if what.startswith("features"):
            ask()

    config = tiny("digits", "encoder.kind=convnet", "encoder.channels=4,6")
    (report,) = run(config, tmp_path / "run", progress=stop)
    assert (report.interrupted, report.step, report.complete) == ("SIGTERM", 0, False)
    left = {path.suffix for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert left == {".lock", ".writing", ".pieces"}  # to go on from
    (*_, last) = run(config, tmp_path / "run")
    assert last.complete
