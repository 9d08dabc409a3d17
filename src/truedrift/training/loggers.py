"""Loggers: copies of the metrics of a run for TensorBoard, Weights & Biases and MLflow.

metrics.jsonl holds all numbers of a run. A logger receives the same numbers, one scalar per tag, the configuration and
the pictures of samples. A logger that fails is reported once and dropped; the run goes on without it.

A resumed run continues in the same run of wandb or MLflow, whose identifier is in RUN/wandb/run_id or
RUN/mlflow/run_id. The steps that a killed process took after its last checkpoint are taken again with the same
results. TensorBoard shows them once, the other two show them twice.

Nothing is written through a link: a logger whose folder is or contains one is dropped. So is a logger whose files were
moved or removed while the run trains.

Nothing needs an account: without a key wandb writes to RUN/wandb, and without MLFLOW_TRACKING_URI MLflow writes to
RUN/mlflow.
"""

import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from truedrift.errors import UserError, error_text, require_choice
from truedrift.storage import read_regular, write_atomically

PROJECT = "truedrift"
"""Project of wandb and experiment of MLflow, if WANDB_PROJECT and MLFLOW_EXPERIMENT_NAME do not name another."""
RUN_ID = "run_id"
UPLOAD_SECONDS = 60.0
"""How long wandb may upload at the end of a run. `wandb sync` uploads the rest."""
MLFLOW_DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # MLflow's own default waits four minutes for a server that is down
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
"""Environment variables of MLflow that are set if the user has not set them."""
MLFLOW_QUIET = ("mlflow.store.db.utils", "alembic")
"""Python loggers of MLflow that print the traceback of an error that is raised as well."""
MLFLOW_BATCH, MLFLOW_LONGEST_VALUE = 100, 6000

PER_SCALE = ("energy", "energy_error")
"""Lists with one entry per scale."""


# ---- Scalars ----


def flatten_scalars(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a line of metrics by tag: one per scale, per temperature, or per both. None is left out.

    Example:
        >>> flatten_scalars({"step": 3, "temperatures": [0.5, 2.0], "loss": 1.5, "n_eff_pos": [4.0, None]})
        {'loss': 1.5, 'n_eff_pos/tau-0.5': 4.0}
    """
    return {tag: float(value) for tag, value in _flatten(metrics) if value is not None}


def _flatten(metrics: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    taus = [f"tau-{tau:g}" for tau in metrics.get("temperatures", ())]
    for name, value in metrics.items():
        if name in ("step", "temperatures", "protocol"):
            continue
        if name == "force":
            yield from (
                (f"force/scale-{s}/{tau}", f) for s, row in enumerate(value) for tau, f in zip(taus, row, strict=True)
            )
        elif name in PER_SCALE:
            yield from ((f"{name}/scale-{s}", each) for s, each in enumerate(value))
        elif isinstance(value, Mapping):
            yield from ((f"{name}/{tag}", each) for tag, each in _flatten(value))
        elif isinstance(value, list):
            yield from ((f"{name}/{tau}", each) for tau, each in zip(taus, value, strict=True))
        else:
            yield name, value


# ---- Files ----


def _make_folder(path: Path) -> Path:
    """Make the folder of a logger, and return it.

    Raises:
        OSError: If it is a link, or cannot be made.
    """
    path.mkdir(exist_ok=True)
    if path.is_symlink():
        raise _is_link(path)
    return path


def _refuse_links(folder: Path) -> None:
    """Raise OSError if the folder contains a link, at any depth."""
    for path in folder.rglob("*"):
        if path.is_symlink():
            raise _is_link(path)


def _is_link(path: Path) -> OSError:
    return OSError(f"{path.name!r} is a link, and nothing is written through links")


class _Places:
    """Files and folders of a logger, which must stay where they are.

    A file that was moved or removed can still be written, but nobody finds it. A link in its place leads elsewhere.

    Args:
        paths: Existing files and folders.
    """

    def __init__(self, *paths: Path) -> None:
        self._found = {path: os.lstat(path) for path in paths}

    def check(self) -> None:
        """Raise OSError if one of them was moved, removed or replaced."""
        for path, found in self._found.items():
            if not os.path.lexists(path):
                raise OSError(f"{path.name!r} was moved or removed")
            if not os.path.samestat(os.lstat(path), found):
                raise OSError(f"another file is in the place of {path.name!r}")


# ---- Loggers ----


class Logger(Protocol):
    """An open logger. Every method may raise; `Loggers` reports it."""

    location: str | None
    """Where the user finds the numbers, to be told at the start; None if nothing needs to be told."""

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Write the numbers of the step `metrics["step"]`."""

    def add_picture(self, step: int, path: Path) -> None:
        """Write a picture of samples, a PNG."""

    def close(self) -> None:
        """Write what is buffered, and close."""


class TensorBoard:
    """Event files in RUN/tensorboard.

    Events are written at once and in this thread: the writer of TensorBoard uses a thread of its own, whose failure
    prints a traceback and may block the run.

    Args:
        run: The run directory.
        config: The configuration, which TensorBoard does not show.
        step: The step at which the run starts. Events of later steps, which a killed process wrote, are hidden.
    """

    location: str | None = None

    def __init__(self, run: Path, config: Mapping[str, Any], step: int) -> None:
        from tensorboard.compat.proto import event_pb2  # noqa: PLC0415  an extra

        directory = _make_folder(run / "tensorboard")
        path = directory / f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._file = path.open("xb")
        self._places = _Places(directory, path)
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        try:
            self._write(event_pb2.Event(step=step + 1, file_version="brain.Event:2"))
            self._write(event_pb2.Event(step=step + 1, session_log=start))
        except OSError:
            with suppress(OSError):
                self._file.close()
            raise

    def add(self, metrics: Mapping[str, Any]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415

        scalars = flatten_scalars(metrics).items()
        self._add_values(metrics["step"], [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars])

    def add_picture(self, step: int, path: Path) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415

        image = Summary.Image(encoded_image_string=path.read_bytes(), colorspace=3)
        self._add_values(step, [Summary.Value(tag="samples", image=image)])

    def close(self) -> None:
        self._file.close()

    def _add_values(self, step: int, values: Sequence[Any]) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2  # noqa: PLC0415

        self._places.check()
        self._write(event_pb2.Event(wall_time=time.time(), step=step, summary=summary_pb2.Summary(value=values)))

    def _write(self, event: Any) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter  # noqa: PLC0415

        record = RecordWriter(self._file)
        record.write(event.SerializeToString())
        record.flush()


class Wandb:
    """A run of Weights & Biases: online if a key is configured, otherwise files in RUN/wandb.

    The step is a metric of its own and the x-axis of all others: wandb's own steps must rise, and a resumed run starts
    before the last one that was written.

    Args:
        run: The run directory.
        config: The configuration.
        step: The step at which the run starts.
    """

    def __init__(self, run: Path, config: Mapping[str, Any], step: int) -> None:
        import wandb  # noqa: PLC0415  an extra

        directory = _make_folder((run / "wandb").absolute())
        mode: Any = os.environ.get("WANDB_MODE")
        if mode is None and not wandb.login(prompt=False, verify=False):
            mode = "offline"
        stored = _read_run_id(directory)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=run.absolute().name,
            id=stored,
            resume="allow",
            dir=directory.parent,
            config=dict(config),
            mode=mode,
            settings=wandb.Settings(silent=True, console="off", finish_timeout=UPLOAD_SECONDS),
        )
        if stored is None:
            _write_run_id(directory, self._run.id)
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")
        self._image = wandb.Image
        files = Path(self._run.dir).parent
        self._places = _Places(directory, *(path for path in (files,) if path.exists()))
        self.location: str | None = f"`wandb sync {files}` uploads it" if self._run.offline else self._run.url

    def add(self, metrics: Mapping[str, Any]) -> None:
        self._places.check()
        self._run.log({"step": metrics["step"], **flatten_scalars(metrics)})

    def add_picture(self, step: int, path: Path) -> None:
        self._places.check()
        self._run.log({"step": step, "samples": self._image(str(path))})

    def close(self) -> None:
        import wandb  # noqa: PLC0415

        try:
            self._run.finish()
        except Exception:
            with suppress(Exception):  # wandb's process is lost, which wandb would report when Python ends
                wandb.teardown()
            raise


class MLflow:
    """A run of MLflow: at MLFLOW_TRACKING_URI, otherwise in the database RUN/mlflow/mlflow.db.

    Args:
        run: The run directory.
        config: The configuration, whose options become parameters such as `batch.n`.
        step: The step at which the run starts.
    """

    def __init__(self, run: Path, config: Mapping[str, Any], step: int) -> None:
        for name, value in MLFLOW_DEFAULTS.items():
            os.environ.setdefault(name, value)
        from mlflow.tracking import MlflowClient  # noqa: PLC0415  an extra

        for name in MLFLOW_QUIET:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        directory = self._directory = _make_folder((run / "mlflow").absolute())
        _refuse_links(directory)
        local = f"sqlite:///{directory / 'mlflow.db'}"
        uri = os.environ.get("MLFLOW_TRACKING_URI") or None
        self._client = MlflowClient(tracking_uri=uri or local)
        artifacts = None if uri else (directory / "artifacts").as_uri()
        self._id = self._resume(directory) or self._start(directory, run.absolute().name, config, artifacts)
        self._places = _Places() if uri else _Places(directory, directory / "mlflow.db")
        # A run directory that was moved has an artifact folder that is no longer its own.
        folder = self._client.get_run(self._id).info.artifact_uri
        self._keeps_pictures = artifacts is None or folder.startswith(artifacts)
        self.location: str | None = (
            f"run {self._id} at MLFLOW_TRACKING_URI" if uri else f"`mlflow ui --backend-store-uri {local}` shows it"
        )

    def add(self, metrics: Mapping[str, Any]) -> None:
        from mlflow.entities import Metric  # noqa: PLC0415

        self._places.check()
        now = time.time_ns() // 1_000_000
        entries = [Metric(tag, value, now, metrics["step"]) for tag, value in flatten_scalars(metrics).items()]
        for batch in _batches(entries):
            self._client.log_batch(self._id, metrics=batch)

    def add_picture(self, step: int, path: Path) -> None:
        if self._keeps_pictures:
            self._places.check()
            _refuse_links(self._directory)
            self._client.log_artifact(self._id, str(path), "samples")

    def close(self) -> None:
        self._places.check()
        self._client.set_terminated(self._id)

    def _resume(self, directory: Path) -> str | None:
        """Return the identifier of the run that the directory names; None if the store does not have it."""
        from mlflow.exceptions import MlflowException  # noqa: PLC0415

        stored = _read_run_id(directory)
        if stored is not None:
            try:
                self._client.update_run(stored, status="RUNNING")
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
                return None
        return stored

    def _start(self, directory: Path, name: str, config: Mapping[str, Any], artifacts: str | None) -> str:
        """Create a run with the options as parameters; return its identifier."""
        from mlflow.entities import Param  # noqa: PLC0415

        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self._client.get_experiment_by_name(experiment)
        number = self._client.create_experiment(experiment, artifacts) if found is None else found.experiment_id
        started: str = self._client.create_run(number, run_name=name).info.run_id
        options = [Param(name, str(value)[:MLFLOW_LONGEST_VALUE]) for name, value in _flatten_options(config)]
        for batch in _batches(options):
            self._client.log_batch(started, params=batch)
        _write_run_id(directory, started)
        return started


def _batches(entries: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield the entries in batches of at most as many as MLflow accepts."""
    yield from (entries[first : first + MLFLOW_BATCH] for first in range(0, len(entries), MLFLOW_BATCH))


def _flatten_options(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flatten_options(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _read_run_id(directory: Path) -> str | None:
    """Return the identifier of the run that an earlier process started; None if there is none, or it is damaged."""
    try:
        text = read_regular(directory / RUN_ID).decode(errors="replace").strip()
    except OSError:
        return None
    return text if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", text) else None


def _write_run_id(directory: Path, run_id: str) -> None:
    write_atomically(directory / RUN_ID, f"{run_id}\n".encode())


# ---- The loggers of a run ----

LOGGERS: dict[str, Callable[[Path, Mapping[str, Any], int], Logger]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "mlflow": MLflow,
}
TITLES = {"tensorboard": "TensorBoard", "wandb": "wandb", "mlflow": "MLflow"}
EXTRAS = {"tensorboard": "app", "wandb": "wandb", "mlflow": "mlflow"}


def resolve_loggers(log: Sequence[str] | None) -> tuple[str, ...]:
    """Check the names of loggers, and that their packages are installed.

    Args:
        log: `tensorboard`, `wandb`, `mlflow`, or several of them. Empty or `("none",)` for no logger. None for
            TensorBoard if it is installed.

    Returns:
        The names, each once.

    Raises:
        UserError: If a logger is unknown or its package is not installed.

    Example:
        >>> resolve_loggers(["none"])
        ()
    """
    if log is None:
        return ("tensorboard",) if find_spec("tensorboard") else ()
    if isinstance(log, str):
        log = (log,)
    if tuple(log) == ("none",):
        return ()
    for name in log:
        require_choice("log", name, (*LOGGERS, "none"))
        if name == "none":
            raise UserError("names none and a logger", "none stands alone", "pass one or the other", field="log")
        if find_spec(name) is None:
            fix = f"run pip install 'truedrift[{EXTRAS[name]}]'"
            raise UserError(f"{name} is not installed", f"the logger {name} requires it", fix)
    return tuple(dict.fromkeys(log))


class Loggers:
    """The open loggers of a run.

    Args:
        names: Names of loggers, as `resolve_loggers` returns them.
        run: The run directory.
        config: The configuration as nested dictionaries.
        step: The step at which the run starts.
        notify: Called with a message if a logger fails, and with the place of its numbers.
    """

    def __init__(
        self, names: Sequence[str], run: Path, config: Mapping[str, Any], step: int, notify: Callable[[str], None]
    ) -> None:
        self._notify, self._open = notify, dict[str, Logger]()
        for name in names:
            with self._drop_on_failure(name):
                self._open[name] = logger = LOGGERS[name](run, config, step)
                if logger.location is not None:
                    notify(f"{TITLES[name]}: {logger.location}")

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Write all numbers of a step."""
        self._call(lambda logger: logger.add(metrics))

    def add_picture(self, step: int, path: Path) -> None:
        """Write a picture of samples."""
        self._call(lambda logger: logger.add_picture(step, path))

    def close(self) -> None:
        """Close all loggers."""
        self._call(lambda logger: logger.close())
        self._open.clear()

    def _call(self, method: Callable[[Logger], None]) -> None:
        for name, logger in list(self._open.items()):
            with self._drop_on_failure(name):
                method(logger)

    @contextmanager
    def _drop_on_failure(self, name: str) -> Iterator[None]:
        """Go on without the logger if it fails."""
        try:
            yield
        except Exception as error:
            failed = self._open.pop(name, None)
            if failed is not None:
                with suppress(Exception):
                    failed.close()
            problem = f"{TITLES[name]} is off ({error_text(_find_cause(error))})"
            self._notify(f"{problem}; the run goes on, and metrics.jsonl has all numbers")


def _find_cause(error: BaseException) -> object:
    """Return the error of the database, which MLflow quotes together with the SQL of the query; else the error."""
    cause: BaseException | None = error
    while cause is not None:
        if (original := getattr(cause, "orig", None)) is not None:
            return original
        cause = cause.__cause__
    return error
