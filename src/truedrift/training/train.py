"""`train(config)`: start or resume a run, and yield a report at every logged step. `replay`: take one step again.

Everything that a step draws is a function of (seed, step). `replay` loads the newest checkpoint at or before a step,
takes the steps in between, and reproduces the step bit for bit on the same machine with the same number of threads. It
writes nothing, and the run may continue meanwhile.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from truedrift import distributed
from truedrift.data.samples import Samples
from truedrift.distributed import resolve_device
from truedrift.errors import UserError
from truedrift.progress import Progress, no_progress
from truedrift.training import checkpoint
from truedrift.training.config import RunConfig
from truedrift.training.config_checks import validated_config, warn_of_sizes
from truedrift.training.journal import Notify, RunJournal, describe_start, read_complete
from truedrift.training.loggers import resolve_loggers
from truedrift.training.loop import Evaluate, Loop, TrainingReport
from truedrift.training.ranks import require_equal_ranks
from truedrift.training.run_directory import RunDirectory, lock_run, open_run
from truedrift.training.setup import (
    Parts,
    build_setup,
    find_description,
    load_samples,
    memory_errors_as_user_errors,
)
from truedrift.training.signals import StopSignal
from truedrift.training.step import StepResult


@dataclass(frozen=True)
class Training:
    """A run that can start or resume: its directory and configuration, its data and its device."""

    run: RunDirectory
    parts: Parts
    samples: Samples
    device: torch.device

    def reports(
        self,
        *,
        evaluate: Evaluate | None,
        progress: Progress,
        notify: Notify,
        timeout_minutes: float = distributed.TIMEOUT_MINUTES,
        log: Sequence[str] | None = None,
    ) -> Iterator[TrainingReport]:
        """Take the remaining steps. The arguments are those of `train`."""
        run, log = self.run, resolve_loggers(log)
        with ExitStack() as stack:
            stop = stack.enter_context(StopSignal())
            stack.enter_context(_add_signal(stop))
            stack.enter_context(memory_errors_as_user_errors())
            stack.enter_context(distributed.process_group(self.device, timeout_minutes))
            require_equal_ranks(run, self.samples)
            # Build the networks and the feature cache, which may take minutes.
            run.require_same_run(self.samples)
            try:
                setup = build_setup(
                    run.config, self.parts, self.samples, self.device, _interruptible(progress, stop), notify
                )
            except InterruptedBeforeStart as signal:
                yield TrainingReport(run.path, 0, run.config.cadence.steps, {}, str(signal))
                return
            # Lock the directory and load the newest checkpoint, on rank 0 only.
            journal = None
            if distributed.rank() == 0:
                stack.enter_context(lock_run(run.path))
                run.write_config(self.samples, notify)
                journal = stack.enter_context(closing(RunJournal(run, setup.state, notify, log)))
                warning = warn_of_sizes(run.config)
                if warning is not None and journal.progress.step == 0:
                    notify(f"warning: {warning}")
            # Take the remaining steps.
            notify = notify if journal is not None else _ignore
            loop = Loop(run, setup, journal, evaluate=evaluate, progress=progress, notify=notify)
            yield from loop.reports(stop)


def train(
    config: RunConfig,
    *,
    parts: Parts | None = None,
    out: Path | None = None,
    device: str | torch.device = "auto",
    evaluate: Evaluate | None = None,
    progress: Progress = no_progress,
    notify: Notify | None = None,
    timeout_minutes: float = distributed.TIMEOUT_MINUTES,
    log: Sequence[str] | None = None,
) -> Iterator[TrainingReport]:
    """Start or resume the run of this configuration.

    Configuration, device and data are checked when the function is called; the steps are taken as the reports are
    requested.

    Args:
        config: The configuration of the run.
        parts: Python objects that replace those named in the configuration.
        out: The run directory; by default a directory in runs/ (`default_name`).
        device: `auto`, `cpu`, `cuda`, `mps`, or a device.
        evaluate: Called with the averaged generator and the step, every `cadence.evaluate_every_epochs` epochs and at
            the end. It returns numbers by name. The evaluated state is saved.
        progress: Called with a description, the amount done and the total.
        notify: Called with messages for the user.
        timeout_minutes: With several processes, how long to wait for an answer of the others.
        log: Loggers that get a copy of the metrics: `tensorboard`, `wandb`, `mlflow`; `()` for none. By default
            TensorBoard, if it is installed. The loggers do not change the run or its directory's name.

    Returns:
        An iterator over the reports, one per logged step and one at the end.

    Raises:
        UserError: If the configuration, the device, the data or the run directory cannot be used, a logger is unknown
            or not installed, or the processes of a run differ.
        PeerLost: If another process of the run ends, or does not answer in time.
        NonFinite: If a loss or gradient is NaN or infinite. No weight was changed. With `engine.nonfinite=skip` the
            step is skipped instead.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from truedrift.recipes import recipe
        >>> config = recipe("toy", settings=["cadence.epochs=1", "cadence.steps_per_epoch=2"])
        >>> with TemporaryDirectory() as out:
        ...     [report.step for report in train(config, out=Path(out), device="cpu")]
        [2]
    """
    config, parts, notify = validated_config(config), parts or Parts(), notify or _ignore
    device, log = resolve_device(device), resolve_loggers(log)
    complete = find_complete(run_directory(config, parts, out), evaluated=evaluate is not None, notify=notify)
    if complete is not None:
        return iter((complete,))
    training = load_training(config, parts=parts, out=out, device=device, progress=progress)
    return training.reports(
        evaluate=evaluate, progress=progress, notify=notify, timeout_minutes=timeout_minutes, log=log
    )


def find_complete(run: RunDirectory, *, evaluated: bool, notify: Notify) -> TrainingReport | None:
    """Return the last report of a complete run on a folder of images, without reading the images.

    Args:
        run: The run, as `run_directory` returns it.
        evaluated: Whether the last step must have an evaluation.
        notify: Called with a message if the run is complete.

    Returns:
        None if the run is not complete, or a file of the run or of the folder has changed: then `load_training` decides
        what to do. Several processes get None, since they compare their data first (`ranks.py`).
    """
    if distributed.expected_size() > 1 or not run.path.is_dir():
        return None
    data = find_description(run.config.data)
    if data is None or not run.is_described_by(data):
        return None
    progress = read_complete(run, evaluated=evaluated)
    if progress is None:
        return None
    notify(describe_start(run, progress.step))
    return TrainingReport(run.path, progress.step, run.config.cadence.steps, progress.metrics)


def load_training(
    config: RunConfig,
    *,
    parts: Parts | None = None,
    out: Path | None = None,
    device: str | torch.device = "auto",
    progress: Progress = no_progress,
) -> Training:
    """Load the data of a valid configuration, and find its device and its run directory. Nothing is written.

    Args:
        config: The configuration, as `recipe` or `validated_config` returns it.
        parts: Python objects that replace those named in the configuration.
        out: The run directory; by default a directory in runs/ (`default_name`).
        device: `auto`, `cpu`, `cuda`, `mps`, or a device.
        progress: Called with a description, the number of images read, and their number.

    Returns:
        A run that `Training.reports` starts or resumes.

    Raises:
        UserError: If the device is not available, or the data set is missing or damaged.
    """
    parts = parts or Parts()
    where, samples = resolve_device(device), load_samples(config, parts, progress)
    return Training(run_directory(config, parts, out), parts, samples, where)


def run_directory(config: RunConfig, parts: Parts, out: Path | None) -> RunDirectory:
    """Return the run in `out`, or in the directory that `default_name` names.

    A directory with the shorter name of earlier versions, runs/<recipe>-<hash>, is used if it exists.
    """
    run = RunDirectory(Path(out or ""), config, parts.names())
    if out is not None:
        return run
    earlier = Path("runs") / f"{config.recipe}-{run.id}"
    return dataclasses.replace(run, path=earlier if earlier.is_dir() else Path("runs") / default_name(run))


def default_name(run: RunDirectory) -> str:
    """Return a readable name for the directory of a run: recipe, estimators, n, seed, and a part of the hash.

    Example:
        >>> from truedrift.recipes import recipe
        >>> default_name(RunDirectory(Path(), recipe("digits"), {}))[:-6]
        'digits-abc-n120-seed0-'
    """
    objective = run.config.objective
    estimators = dict.fromkeys((objective.estimator_pos, objective.estimator_neg))
    words = (run.config.recipe, *estimators, f"n{run.config.batch.n}", f"seed{run.config.seed}", run.id[:6])
    return "-".join(words)


def _ignore(message: str) -> None:
    pass


@contextmanager
def _add_signal(stop: StopSignal) -> Iterator[None]:
    """Add the received signal to the error about a lost process: it may have ended because of the same signal."""
    try:
        yield
    except distributed.PeerLost as lost:
        lost.signal = stop.received
        raise


class InterruptedBeforeStart(Exception):
    """A signal arrived before the first step, during work that can be interrupted."""


def _interruptible(progress: Progress, stop: StopSignal) -> Progress:
    """Return the same progress function, which raises once a signal was received."""

    def report_or_stop(what: str, done: float, total: float) -> None:
        progress(what, done, total)
        if stop.received is not None:
            raise InterruptedBeforeStart(stop.received)

    return report_or_stop


def replay(run_path: Path, step: int, *, parts: Parts | None = None, device: str | torch.device = "cpu") -> StepResult:
    """Take a step of a run again.

    Args:
        run_path: The run directory. Nothing is written to it.
        step: The number of the step, counted from 0 as in RUN/incidents.
        parts: The parts that were given to `train`.
        device: The device, as for `train`.

    Returns:
        Loss, gradient and report of the step.

    Raises:
        UserError: If there is no such step, the parts or the data are not those of the run, or the directory is not a
            run.
    """
    run, parts = open_run(Path(run_path)), parts or Parts()
    last = run.config.cadence.steps - 1
    if not 0 <= step <= last:
        raise UserError(f"is {step}", f"must be from 0 to {last}", "use the step of the incident", field="step")
    if parts.names() != dict(run.parts):
        raise UserError(
            f"the run has parts {dict(run.parts)} and was given {parts.names()}",
            "the parts must have the same names",
            "pass the same parts= as to train",
        )
    # Build the run as `train` does.
    samples = load_samples(run.config, parts)
    run.require_same_run(samples)
    setup = build_setup(run.config, parts, samples, resolve_device(device), no_progress)
    # Start from the newest valid checkpoint of at most `step` steps.
    saved = _latest_until(run, step)
    if saved is not None:
        setup.state.load(saved.tensors)
    for number in range(0 if saved is None else saved.step, step):
        setup.step(number)
    return setup.step(step)


def _latest_until(run: RunDirectory, step: int) -> checkpoint.Checkpoint | None:
    """Return the newest valid checkpoint of at most `step` steps; None is the state before the first step."""
    for saved in reversed([saved for saved in checkpoint.steps(run.checkpoints) if saved <= step]):
        try:
            return checkpoint.load(run.checkpoints / checkpoint.directory_name(saved), run=run.id)
        except checkpoint.DamagedCheckpoint:
            continue
    return None
