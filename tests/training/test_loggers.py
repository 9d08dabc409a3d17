"""Loggers: TensorBoard, wandb and MLflow get the numbers of metrics.jsonl; none of them can stop a run.

The real packages write to the run directory, without an account and without a network, and what they wrote is read
back: event files by TensorBoard, the log of wandb by its format, the database by MLflow's client.
"""

import json
import math
import os
import shutil
import struct
import time
from pathlib import Path

import pytest
from short_runs import SimulatedCrash, at_step, crash, run, short_config
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from truedrift.errors import UserError
from truedrift.training import loggers, read_metrics, telemetry

ENERGY = ("energy", "energy_error")
LISTS = ("n_eff_pos", "n_eff_neg", "dominated_pos", "dominated_neg", "correction_pos", "correction_neg")
ALL = ("tensorboard", "wandb", "mlflow")
OFFLINE = {"WANDB_API_KEY": None, "WANDB_MODE": None, "MLFLOW_TRACKING_URI": None, "NETRC": "/nonexistent"}

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of the packages


@pytest.fixture(scope="module")
def logged_run(tmp_path_factory):
    """A run with three scales and two temperatures, written by all loggers, which crashed once and was resumed."""
    pytest.importorskip("wandb")
    pytest.importorskip("mlflow")
    out = tmp_path_factory.mktemp("run") / "run"
    settings = ("encoder.kind=convnet", "encoder.channels=3,4,5", "objective.temperatures=0.05,0.5")
    config = short_config("digits", *settings, "objective.estimator_neg=standard", "cadence.grid_every=8")
    messages = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRUEDRIFT_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        for name, value in OFFLINE.items():
            patch.delenv(name, raising=False) if value is None else patch.setenv(name, value)
        with pytest.raises(SimulatedCrash):
            run(config, out, progress=at_step(5, crash), log=ALL, notify=messages.append)
        time.sleep(1.1)  # event files are read in the order of their names, which contain seconds
        run(config, out, log=ALL, notify=messages.append)
        assert not list(Path().iterdir())  # everything is in the run directory
    assert [message for message in messages if "is off" in message] == []
    return config, out, read_metrics(out / "metrics.jsonl")


def read_events(out):
    accumulator = EventAccumulator(str(out / "tensorboard"), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {tag: {e.step: e.value for e in accumulator.Scalars(tag)} for tag in accumulator.Tags()["scalars"]}


def expected_events(lines):
    """Return the expected values by tag and step, for two temperatures and three scales."""
    tags = {}
    for line in lines:
        values = {"timing/images_per_second": line["timing"]["images_per_second"]}
        values["timing/memory_megabytes"] = line["timing"]["memory_megabytes"]
        for name in (
            "epoch",
            "positives_seen",
            "loss",
            "gradient_norm",
            "learning_rate",
            "spread",
            "collapsed",
            "skipped",
        ):
            values[name] = float(line[name])
        for position, tau in enumerate(("tau-0.05", "tau-0.5")):
            values |= {f"{name}/{tau}": line[name][position] for name in LISTS}
            values |= {f"force/scale-{s}/{tau}": line["force"][s][position] for s in range(3)}
        values |= {f"{name}/scale-{s}": line[name][s] for name in ENERGY for s in range(3)}
        for tag, value in values.items():
            tags.setdefault(tag, {})[line["step"]] = pytest.approx(value, rel=1e-6)  # events are float32
    return tags


def test_tensorboard_has_the_same_values(logged_run):
    _, out, lines = logged_run
    assert read_events(out) == expected_events(lines)


def read_wandb(path):
    """Yield the records of a .wandb file: blocks of 32 KiB with parts of records, each with checksum, size and kind."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, position, parts = path.read_bytes(), 7, b""
    while position < len(content):
        if 32768 - position % 32768 < 7:  # no header fits
            position += 32768 - position % 32768
            continue
        _, size, kind = struct.unpack_from("<IHB", content, position)
        parts += content[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # a whole record, or its last part
            yield Record.FromString(parts)
            parts = b""


def read_history(records):
    """Return the rows of the history, as dictionaries by tag."""
    rows = [record.history.item for record in records if record.WhichOneof("record_type") == "history"]
    return [{item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in row} for row in rows]


def test_wandb_has_the_same_values(logged_run):
    config, out, lines = logged_run
    files = sorted(out.glob("wandb/offline-run-*/run-*.wandb"))
    logs = [list(read_wandb(path)) for path in files]
    assert len(logs) == 2  # the crashed process and the one that resumed
    # One run, with its configuration.
    runs = [record.run for log in logs for record in log if record.WhichOneof("record_type") == "run"]
    assert {each.run_id for each in runs} == {(out / "wandb" / "run_id").read_text().strip()}
    assert {each.project for each in runs} == {"truedrift"}
    options = {item.key: json.loads(item.value_json) for item in runs[0].config.update}
    assert options["batch"]["n"] == config.batch.n == 3
    # The same numbers; the crashed process took step 4 and the other took it again.
    first, second = ([row for row in read_history(log) if "loss" in row] for log in logs)
    assert [row["step"] for row in first] == [2, 4]
    assert [row["step"] for row in second] == [4, 6, 8]
    for line, row in zip(lines, [first[0], *second], strict=True):
        values = {tag: values[line["step"]] for tag, values in expected_events(lines).items()}
        assert {tag: value for tag, value in row.items() if tag != "step" and not tag.startswith("_")} == values
    # The picture of the last step.
    pictures = [row for row in read_history(logs[1]) if any(tag.startswith("samples") for tag in row)]
    assert [row["step"] for row in pictures] == [8]
    (copy,) = out.glob("wandb/offline-run-*/files/media/images/samples*.png")
    assert copy.read_bytes() == (out / "samples" / "step-00000008.png").read_bytes()


def test_mlflow_has_the_same_values(logged_run):
    from mlflow.tracking import MlflowClient

    config, out, lines = logged_run
    client = MlflowClient(tracking_uri=f"sqlite:///{out}/mlflow/mlflow.db")
    experiment = client.get_experiment_by_name("truedrift")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.run_id == (out / "mlflow" / "run_id").read_text().strip()
    assert (found.info.run_name, found.info.status) == ("run", "FINISHED")
    assert found.data.params["batch.n"] == str(config.batch.n)
    assert found.data.params["objective.temperatures"] == "(0.05, 0.5)"
    # The same numbers; the crashed process took step 4 and the other took it again.
    expected = expected_events(lines)
    assert set(found.data.metrics) == set(expected)
    for tag in ("loss", "force/scale-2/tau-0.5", "n_eff_pos/tau-0.05", "energy/scale-1"):
        history = client.get_metric_history(found.info.run_id, tag)
        assert sorted(each.step for each in history) == [2, 4, 4, 6, 8]
        assert {each.step: each.value for each in history} == expected[tag]
    (picture,) = client.list_artifacts(found.info.run_id, "samples")
    assert picture.path == "samples/step-00000008.png"


def test_loggers_do_not_change_the_run(logged_run, tmp_path):
    config, out, lines = logged_run
    run(config, tmp_path / "run", log=())
    assert not any((tmp_path / "run" / name).exists() for name in ALL)
    values = [{name: value for name, value in line.items() if name != "timing"} for line in lines]
    without = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [{name: value for name, value in line.items() if name != "timing"} for line in without] == values
    files = [path.relative_to(out) for path in out.glob("checkpoints/step-00000008/*.safetensors")]
    assert files
    assert all((out / file).read_bytes() == (tmp_path / "run" / file).read_bytes() for file in files)


def test_tensorboard_shows_each_step_once_after_a_crash(tmp_path):
    config = short_config("digits", "cadence.log_every=1")
    with pytest.raises(SimulatedCrash):
        run(config, tmp_path, progress=at_step(6, crash))
    time.sleep(1.1)  # files are read in the order of their names, which contain seconds
    run(config, tmp_path)
    events = read_events(tmp_path)
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert events["loss"] == {line["step"]: pytest.approx(line["loss"], rel=1e-6) for line in lines}
    assert list(events["loss"]) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_nonfinite_values_become_none_and_are_not_logged():
    assert telemetry.finite_or_none([1.0, math.nan, [math.inf, 2]]) == [1.0, None, [None, 2]]
    assert telemetry.finite_or_none(math.nan) is None
    assert telemetry.finite_or_none(False) is False
    metrics = {"step": 3, "temperatures": [0.1, 2.0], "loss": None, "force": [[None, 1.5]], "n_eff_pos": [1.0, None]}
    metrics |= {"evaluation": {"fid": 3.5, "kid": None}, "collapsed": True}
    assert loggers.flatten_scalars(metrics) == {
        "force/scale-0/tau-2": 1.5,
        "n_eff_pos/tau-0.1": 1.0,
        "evaluation/fid": 3.5,
        "collapsed": 1.0,
    }


def test_numbers_of_several_averages_have_tags():
    metrics = {"step": 3, "evaluation": {"fid": 3.5}, "more_ema": {"0.5": {"fid": 2.5, "kid": None}}, "protocol": {}}
    assert loggers.flatten_scalars(metrics) == {"evaluation/fid": 3.5, "more_ema/0.5/fid": 2.5}


@pytest.mark.parametrize("failure", ["removed", "renamed", "a file in its place", "another folder in its place"])
def test_a_run_goes_on_without_tensorboard(tmp_path, failure):
    """The folder disappears while the run trains: one message, and all steps are in metrics.jsonl."""
    out, messages = tmp_path / "run", []

    def break_tensorboard():
        if failure == "renamed":
            (out / "tensorboard").rename(out / "old")
        else:
            shutil.rmtree(out / "tensorboard")
        if failure == "a file in its place":
            (out / "tensorboard").write_text("")
        elif failure == "another folder in its place":
            (out / "tensorboard").mkdir()

    config = short_config("digits", "cadence.epochs=12", "cadence.log_every=1")
    run(config, out, progress=at_step(3, break_tensorboard), notify=messages.append)
    steps = [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, 25))
    # The open file could still be written, but nobody would find it.
    assert sum("TensorBoard is off" in message for message in messages) == 1


LINKS = [(name, name) for name in ALL] + [("mlflow", "mlflow/mlflow.db"), ("mlflow", "mlflow/artifacts")]


@pytest.fixture
def without_account(monkeypatch):
    for name, value in OFFLINE.items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)


@pytest.mark.parametrize(("name", "place"), LINKS)
def test_nothing_is_written_through_a_link(tmp_path, without_account, name, place):
    pytest.importorskip(name)
    path, elsewhere, messages = tmp_path / "run" / place, tmp_path / "elsewhere", []
    path.parent.mkdir(parents=True)
    if path.suffix:
        elsewhere.write_bytes(b"")
    else:
        elsewhere.mkdir()
    path.symlink_to(elsewhere)
    opened = loggers.Loggers([name], tmp_path / "run", {}, 0, messages.append)
    opened.add({"step": 1, "loss": 1.0})
    opened.close()
    note = f"{path.name!r} is a link, and nothing is written through links"
    assert messages == [f"{loggers.TITLES[name]} is off ({note}); the run goes on, and metrics.jsonl has all numbers"]
    assert (elsewhere.read_bytes() == b"") if path.suffix else not any(elsewhere.iterdir())


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("failure", ["removed", "renamed", "a link in its place"])
def test_a_lost_folder_is_reported_once(tmp_path, capfd, without_account, name, failure):
    pytest.importorskip(name)
    folder, elsewhere, messages = tmp_path / "run" / name, tmp_path / "elsewhere", []
    folder.parent.mkdir()
    elsewhere.mkdir()
    opened = loggers.Loggers([name], tmp_path / "run", {}, 0, messages.append)
    opened.add({"step": 1, "loss": 1.0})
    messages.clear()  # the place of its numbers
    folder.rename(tmp_path / "old")
    if failure == "removed":
        shutil.rmtree(tmp_path / "old")
    elif failure == "a link in its place":
        folder.symlink_to(elsewhere)
    for step in (2, 3):
        opened.add({"step": step, "loss": 1.0})
    opened.close()
    assert len(messages) == 1
    assert messages[0].startswith(f"{loggers.TITLES[name]} is off (")
    assert not any(elsewhere.iterdir())
    assert "".join(capfd.readouterr()) == ""


def test_a_damaged_database_is_one_line(tmp_path, capfd, without_account):
    """Neither tracebacks nor SQL: what the database says."""
    pytest.importorskip("mlflow")
    messages = []
    opened = loggers.Loggers(["mlflow"], tmp_path, {}, 0, messages.append)
    opened.add({"step": 1, "loss": 1.0})
    os.truncate(tmp_path / "mlflow" / "mlflow.db", 0)
    capfd.readouterr()
    opened.add({"step": 2, "loss": 1.0})
    opened.close()
    note = "the run goes on, and metrics.jsonl has all numbers"
    assert messages[1:] == [f"MLflow is off (no such table: runs); {note}"]
    assert "".join(capfd.readouterr()) == ""


def test_a_full_disk_is_reported_once(tmp_path):
    messages = []
    opened = loggers.Loggers(["tensorboard"], tmp_path, {}, 0, messages.append)
    board = opened._open["tensorboard"]
    board._file.close()
    board._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
    for step in range(3):
        opened.add({"step": step, "loss": 1.0})
    opened.close()
    note = "the run goes on, and metrics.jsonl has all numbers"
    assert messages == [f"TensorBoard is off (No space left on device); {note}"]


def test_a_run_goes_on_without_wandb(tmp_path, monkeypatch):
    """The process of wandb ends while the run trains."""
    pytest.importorskip("wandb")
    for name, value in OFFLINE.items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    import wandb

    log, calls = wandb.Run.log, []

    def lose_connection(self, values):
        calls.append(values["step"])
        if values["step"] >= 3:
            raise ConnectionResetError("Connection lost")
        log(self, values)

    monkeypatch.setattr(wandb.Run, "log", lose_connection)
    messages = []
    run(short_config("digits", "cadence.log_every=1"), tmp_path / "run", notify=messages.append, log=["wandb"])
    assert [message for message in messages if "wandb is off" in message] == [
        "wandb is off (Connection lost); the run goes on, and metrics.jsonl has all numbers"
    ]
    assert calls == [1, 2, 3]
    assert [line["step"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl")] == list(range(1, 9))


def test_a_run_goes_on_without_a_server(tmp_path, monkeypatch):
    """Nothing listens at MLFLOW_TRACKING_URI."""
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    messages = []
    run(short_config("digits"), tmp_path / "run", notify=messages.append, log=["mlflow"])
    assert sum("MLflow is off" in message for message in messages) == 1
    assert [line["step"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl")] == [2, 4, 6, 8]


def test_a_damaged_identifier_starts_another_run(tmp_path):
    (tmp_path / "run_id").write_text("../../etc\n")
    assert loggers._read_run_id(tmp_path) is None
    loggers._write_run_id(tmp_path, "abc123")
    assert loggers._read_run_id(tmp_path) == "abc123"


def test_loggers_are_checked_before_the_run_starts(tmp_path, monkeypatch):
    config = short_config("digits")
    with pytest.raises(UserError, match="log is 'comet'; must be one of 'tensorboard', 'wandb', 'mlflow', 'none'"):
        run(config, tmp_path / "run", log=["comet"])
    with pytest.raises(UserError, match="none stands alone"):
        run(config, tmp_path / "run", log=["tensorboard", "none"])
    monkeypatch.setattr(loggers, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"wandb is not installed; .* pip install 'truedrift\[wandb\]'"):
        run(config, tmp_path / "run", log=["wandb"])
    assert not (tmp_path / "run").exists()
    assert loggers.resolve_loggers(None) == ()  # TensorBoard is the default only if it is installed
    assert loggers.resolve_loggers(["none"]) == loggers.resolve_loggers([]) == ()


def test_a_logger_named_twice_opens_once():
    assert loggers.resolve_loggers(["tensorboard", "tensorboard"]) == ("tensorboard",)
    assert loggers.resolve_loggers("tensorboard") == ("tensorboard",)
