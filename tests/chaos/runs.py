"""Small runs of `truedrift train digits` to attack, and their comparison with an uninterrupted run."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from oracles.outcomes import Outcome, read_outcome

from .commands import Before, Ended, Process, find_problem, run
from .operations import AtOperation, read_operations

STEPS = 12
SETTINGS = {
    "generator.width": 16,
    "generator.depth": 1,
    "batch.n": 6,
    "batch.generated": 4,
    "optimizer.warmup_steps": 2,
    "optimizer.ema": 0.8,
    "cadence.epochs": 1,
    "cadence.steps_per_epoch": STEPS,
    "cadence.log_every": 2,
    "cadence.checkpoint_every": 3,
    "cadence.keep_last": 2,
    "cadence.grid_every": 6,
    "evaluation.samples": 20,
}
"""Twelve steps: logged every second step, saved every third, drawn every sixth, evaluated at the end."""


class Bench:
    """A directory with runs that were not attacked, made when they are needed, and an empty cache of its own.

    Args:
        root: An empty directory.
        is_quick: Leave out what takes most of the time and is rarely attacked, such as the drawing of figures.
    """

    def __init__(self, root: Path, *, is_quick: bool = False) -> None:
        self.root, self.is_quick = root, is_quick
        self._numbers = itertools.count()

    @property
    def environment(self) -> dict[str, str]:
        return {"TRUEDRIFT_CACHE": str(self.root / "cache")}

    def new_folder(self) -> Path:
        """Make an empty folder for a try."""
        folder = self.root / f"try-{next(self._numbers)}"
        folder.mkdir(parents=True)
        return folder

    def start(self, arguments: Sequence[str], folder: Path, before: Sequence[Before] = ()) -> Process:
        """Start a command with the cache of this bench."""
        return Process(arguments, folder / f"output-{next(self._numbers)}", before, self.environment)

    def run(self, arguments: Sequence[str], folder: Path, before: Sequence[Before] = ()) -> Ended:
        """Run a command with the cache of this bench."""
        return run(arguments, folder / f"output-{next(self._numbers)}", before, self.environment)

    # ---- Runs that were not attacked ----

    @cached_property
    def complete(self) -> Path:
        """A complete run. Its operations are logged."""
        path = self.root / "complete" / "run"
        path.parent.mkdir()
        ended = self.run(train_arguments(path), path.parent, [AtOperation(path, self._operations_log)])
        assert ended.status == 0, ended.err
        return path

    @property
    def _operations_log(self) -> Path:
        return self.root / "operations.txt"

    @cached_property
    def operations(self) -> list[str]:
        """The file operations of the complete run, in order."""
        assert self.complete
        return read_operations(self._operations_log)

    @cached_property
    def outcome(self) -> Outcome:
        return read_outcome(self.complete)

    @cached_property
    def half(self) -> Path:
        """A run that was killed after its second checkpoint, when it logged step 8."""
        path = self.root / "half" / "run"
        path.parent.mkdir()
        saved = self.operations.index("rename checkpoints/step-00000006/.manifest.json.writing")
        number = self.operations.index("write metrics.jsonl", saved) + 1
        ended = self.run(train_arguments(path), path.parent, [AtOperation(path, path.parent / "log", number)])
        assert ended.status == -9, ended.err
        return path

    @cached_property
    def evaluated(self) -> Path:
        """The complete run, evaluated by `truedrift evaluate` as well."""
        path = Path(shutil.copytree(self.complete, self.root / "evaluated" / "run"))
        ended = self.run(["evaluate", str(path), "--samples", "20", "--device", "cpu"], path.parent)
        assert ended.status == 0, ended.err
        return path

    def copy(self, run: Path, folder: Path) -> Path:
        """Copy a run into the folder of a try."""
        return Path(shutil.copytree(run, folder / "run", symlinks=True))

    # ---- Comparison ----

    def find_difference(self, run: Path) -> str | None:
        """Return how a run differs from the complete one: state, metrics, pictures, files that are left over."""
        try:
            outcome = read_outcome(run)
        except ValueError as error:  # a UserError, or a line that is not JSON
            return f"the run cannot be read: {error}"
        if outcome.state != self.outcome.state:
            return "the final state differs"
        if outcome.metrics != self.outcome.metrics:
            return f"metrics.jsonl differs: {len(outcome.metrics)} and {len(self.outcome.metrics)} lines"
        names, expected = list_files(run), list_files(self.complete)
        if names != expected:
            return f"left over: {sorted(names - expected)}, missing: {sorted(expected - names)}"
        for name in sorted(names):
            if (
                name.endswith((".png", "config.json"))
                and (run / name).read_bytes() != (self.complete / name).read_bytes()
            ):
                return f"{name} differs"
        return None

    def resume(self, run: Path, before: Sequence[Before] = (), least: int = 0) -> str | None:
        """Run the same command to its end; return what was lost.

        Args:
            run: The run directory.
            before: Called in the process of the command.
            least: The step of a checkpoint that was complete; the run must resume there or later.
        """
        ended = self.run(train_arguments(run), run.parent, before)
        problem = find_problem(ended, allowed=(0,))
        if problem is not None:
            return problem
        found = re.search(r"resuming at step (\d+)|all (\d+) steps", ended.err)
        step = int(found[1] or found[2]) if found else 0
        if step < least:
            return f"the run resumed at step {step}, and step {least} was saved"
        return self.find_difference(run)


def train_arguments(out: Path, *more: str, **settings: object) -> list[str]:
    """Return the arguments of a small run of the digits."""
    flags = [flag for name, value in (SETTINGS | settings).items() for flag in ("--set", f"{name}={value}")]
    return ["train", "digits", *flags, "--device", "cpu", "--out", str(out), *more]


def list_files(run: Path) -> set[str]:
    """Return the files and directories of a run, without those of TensorBoard: every process writes its own."""
    return {name for path in run.rglob("*") if not (name := str(path.relative_to(run))).startswith("tensorboard/")}
