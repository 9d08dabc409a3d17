"""Runs as the report shows them: the content of a run directory, read from its files.

    config.json        configuration, data, version and commit; must be readable
    metrics.jsonl      telemetry and the evaluations made during training
    history.jsonl      started, interrupted, resumed, complete
    evaluations.jsonl  evaluations made afterward by `truedrift evaluate`, and nearest training images
    neighbors.png      samples beside their nearest training images
    samples/           step-N.png

A process that was killed, or a full disk, may leave any file but config.json missing or truncated. Unreadable
parts are left out and described in `Run.problems`.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from truedrift.evaluation.neighbors import NeighborsRecord
from truedrift.evaluation.record import EVALUATIONS, EvaluationRecord, Metrics, Protocol
from truedrift.page.run_log import AVERAGE, Evaluation, Level, RunLog, read_log
from truedrift.records.store import read_lenient
from truedrift.report.neighbors import NEIGHBORS
from truedrift.report.sweeps import Quantity, Sweep
from truedrift.storage import parse_json_line, read_regular
from truedrift.training.config import RunConfig
from truedrift.training.journal import is_log_intact
from truedrift.training.run_directory import CONFIG, HISTORY, METRICS, REAL, SAMPLES, open_run
from truedrift.training.status import RunStatus, run_status

MOST_RUNS = 6
"""Number of runs that are shown one by one; there is one line color per run."""
SEED = "seed"
"""The option in which repeated runs of one configuration differ."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """The content of a run directory."""

    name: str
    """On the page: the name of its directory, or what sets it apart from the other runs (`label_runs`)."""
    config: RunConfig
    classes: tuple[str, ...]
    data_sha256: str
    version: str
    commit: str
    telemetry: Sequence[Mapping[str, Any]]
    """The lines of logged steps. Of more than 1000, some are left out, and never the first or the last."""
    logged_steps: int
    """Number of all logged steps."""
    confidence: Mapping[tuple[str, int], Mapping[Level, int]]
    """Side and index of a temperature → number of all logged steps by level of confidence."""
    evaluations: Sequence[Evaluation]
    """Made during training."""
    later_evaluations: Sequence[Evaluation]
    """Made by `truedrift evaluate`."""
    history: Sequence[Mapping[str, Any]]
    pictures: Sequence[tuple[int, Path]]
    """Step and file, ordered by step."""
    problems: Sequence[str]
    average_evaluations: Sequence[Evaluation] = ()
    """Made during training, of the further averages (`optimizer.more_ema`). Their protocols name the decay."""
    neighbors: NeighborsRecord | None = None
    """The last record of `truedrift evaluate --neighbors`."""
    neighbors_picture: Path | None = None
    """Its picture."""
    real_picture: Path | None = None
    """A picture of training images, arranged as those of samples."""

    @property
    def last(self) -> Mapping[str, Any]:
        """The last logged step."""
        return self.telemetry[-1] if self.telemetry else {}

    @property
    def status(self) -> RunStatus:
        """The status according to the history."""
        return run_status(self.history, self.config.cadence.steps)

    @property
    def has_collapsed(self) -> bool:
        """Whether the last logged step reports a collapse."""
        return self.last.get("collapsed") is True

    @cached_property
    def options(self) -> Mapping[str, Any]:
        """The configuration as `section.option` → value."""
        return flatten(self.config.tree())


# Reading


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Read run directories.

    Args:
        paths: The run directories.

    Returns:
        The runs in the same order. A run whose directory was named by the user has that name, with as many parent
        directories as make it unique. The others are named by what sets them apart (`label_runs`).

    Raises:
        UserError: If a directory is not a run.
    """
    full = [path.resolve().parts for path in paths]

    def is_unique(ending: tuple[str, ...]) -> bool:
        return len({each for each in full if each[-len(ending) :] == ending}) == 1

    endings = [next(own[-depth:] for depth in range(1, len(own) + 1) if is_unique(own[-depth:])) for own in full]
    return label_runs([read_run(path, "/".join(ending)) for path, ending in zip(paths, endings, strict=True)])


_DEFAULT_NAME = re.compile(r"(.*/)?[a-z0-9-]+-([0-9a-f]{6}|[0-9a-f]{12})")
"""Name of a run directory that ends in a hash, which `truedrift train` chose and nobody wants to read."""
MOST_OPTIONS = 4
"""Number of options in the label of a run."""
_ESTIMATORS = ("objective.estimator_pos", "objective.estimator_neg")


def label_runs(runs: Sequence[Run]) -> list[Run]:
    """Name runs by the recipe and the options in which they differ, such as "digits · standard · seed 0".

    Args:
        runs: Runs that are named by their directories.

    Returns:
        The same runs. Those in directories that the user named, and those that no label would tell apart, keep their
        names.
    """
    paths = [path for path in find_differences(runs) if path not in ("recipe", "data.root")]
    paths = paths or [_ESTIMATORS[0], "batch.n", SEED]  # of a single run
    labels = [_label_run(run, paths) if _DEFAULT_NAME.fullmatch(run.name) else run.name for run in runs]
    return [
        replace(run, name=label) if labels.count(label) == 1 else run for run, label in zip(runs, labels, strict=True)
    ]


def _label_run(run: Run, paths: Sequence[str]) -> str:
    """Join the recipe and short words for the options."""
    words: dict[str, None] = {}
    for path in sorted(paths, key=lambda each: (each == SEED, each not in _ESTIMATORS)):
        value = format_option(run.options, path).strip('"')
        words[value if path in _ESTIMATORS else f"{path.rpartition('.')[2]} {value}"] = None
    shown = list(words)
    if len(shown) > MOST_OPTIONS:
        shown = [*shown[: MOST_OPTIONS - 1], shown[-1] if SEED in paths else shown[MOST_OPTIONS - 1]]
    return " · ".join((run.config.recipe, *shown))


def read_run(path: Path, name: str) -> Run:
    """Read one run directory.

    Args:
        path: The run directory.
        name: The name of the run on the page.

    Returns:
        The run. Files and lines that cannot be read are left out and described in `Run.problems`.

    Raises:
        UserError: If its config.json is missing or not that of a run.
    """
    opened = open_run(path)
    tree = json.loads(read_regular(path / CONFIG).decode())
    problems: list[str] = []
    log = _read_log(path / METRICS, len(opened.config.objective.temperatures), problems)
    if log.lines and not is_log_intact(opened):
        problems.append(f"{METRICS} is not as it was when the last checkpoint was saved; some numbers may be wrong.")
    later_evaluations, neighbors = _read_later_evaluations(path / EVALUATIONS, problems)
    return Run(
        name=name,
        config=opened.config,
        classes=tuple(map(str, opened.data["classes"])),
        data_sha256=opened.data.get("sha256", "unknown"),
        version=tree.get("version", "unknown"),
        commit=tree.get("commit") or "unknown",
        telemetry=log.telemetry,
        logged_steps=log.logged_steps,
        confidence=log.confidence,
        evaluations=log.evaluations,
        average_evaluations=log.average_evaluations,
        later_evaluations=later_evaluations,
        history=_read_history(path / HISTORY, problems),
        pictures=sorted(
            (int(match[1]), picture)
            for picture in (path / SAMPLES).glob("step-*.png")
            if (match := re.fullmatch(r"step-(\d+)\.png", picture.name))
        ),
        problems=problems,
        neighbors=neighbors,
        neighbors_picture=path / NEIGHBORS if (path / NEIGHBORS).is_file() else None,
        real_picture=path / SAMPLES / REAL if (path / SAMPLES / REAL).is_file() else None,
    )


def _read_log(path: Path, temperatures: int, problems: list[str]) -> RunLog:
    """Read metrics.jsonl, and describe what cannot be read."""
    try:
        log = read_log(path, temperatures)
    except OSError as error:
        problems.append(f"{path.name} cannot be read ({error.strerror}).")
        return RunLog(temperatures)
    if log.unreadable_lines:
        problems.append(f"{log.unreadable_lines} of {log.lines} lines of {path.name} cannot be read.")
    if log.unreadable_evaluations:
        problems.append(f"{pluralize(log.unreadable_evaluations, 'evaluation')} in {path.name} cannot be read.")
    return log


def _read_history(path: Path, problems: list[str]) -> list[dict[str, Any]]:
    try:
        written = read_regular(path).splitlines()
    except OSError as error:
        problems.append(f"{path.name} cannot be read ({error.strerror}).")
        return []
    entries = [entry for entry in map(parse_json_line, written) if entry is not None]
    if len(entries) < len(written):
        problems.append(f"{len(written) - len(entries)} of {len(written)} lines of {path.name} cannot be read.")
    return entries


def _read_later_evaluations(path: Path, problems: list[str]) -> tuple[list[Evaluation], NeighborsRecord | None]:
    """Return the evaluations of `truedrift evaluate`, and the last record of nearest training images."""
    if not path.is_file():
        return [], None
    records, unreadable = read_lenient(path, EvaluationRecord, NeighborsRecord)  # type: ignore[arg-type]
    if unreadable:
        problems.append(f"{pluralize(len(unreadable), 'line')} of {path.name} cannot be read.")
    evaluations = [
        Evaluation(step=each.step, metrics=each.metrics, protocol=each.protocol, in_training=False)
        for each in records
        if isinstance(each, EvaluationRecord)
    ]
    neighbors = [each for each in records if isinstance(each, NeighborsRecord)]
    return evaluations, neighbors[-1] if neighbors else None


# Distances


def best_evaluation(run: Run) -> Evaluation | None:
    """Return the evaluation during training with the smallest distance.

    Args:
        run: A run as `read_run` returns it.

    Returns:
        The best one among those with the protocol of the last one; None if the run was not evaluated.
    """
    comparable = [each for each in run.evaluations if each.protocol == run.evaluations[-1].protocol]
    return min(comparable, key=lambda each: each.metrics.fid, default=None)


def final_evaluations(run: Run) -> list[Evaluation]:
    """Return the last evaluation during training, then per protocol that of the last step by `truedrift evaluate`."""
    last = {each.protocol: each for each in sorted(run.later_evaluations, key=lambda each: each.step or 0)}
    in_order = dict.fromkeys(each.protocol for each in run.later_evaluations)
    return [*run.evaluations[-1:], *(last[protocol] for protocol in in_order)]


def find_sweeps(run: Run) -> list[Sweep]:
    """Find evaluations that differ in one quantity only: the average of the weights, the strength, or the step.

    Args:
        run: A run as `read_run` returns it.

    Returns:
        Sweeps of two values or more, by quantity in this order. Those over averages begin with the last step that was
        evaluated during training; all others are of `truedrift evaluate`. An evaluation that was repeated counts once,
        as the last one.
    """
    last = [each.step for each in run.evaluations[-1:]]
    in_training = [each for each in (*run.evaluations[-1:], *run.average_evaluations) if each.step in last]
    later = run.later_evaluations
    sweeps = [
        *_group("decay", (*in_training, *later), lambda each: _parse_decay(each.protocol.weights, run.config)),
        *group_strengths(later),
        *_group("step", later, lambda each: each.step),
    ]
    return [sweep for sweep in sweeps if len(sweep.evaluated) > 1]


def group_strengths(evaluations: Sequence[Evaluation]) -> list[Sweep]:
    """Group evaluations that differ in the guidance strength only, in the order of the first of each group."""
    return _group("strength", evaluations, lambda each: each.protocol.strength)


COMMON_PROTOCOL: Mapping[Quantity, Callable[[Protocol], Protocol]] = {
    "strength": lambda protocol: replace(protocol, strength=0.0),
    "decay": lambda protocol: replace(protocol, weights=""),
    "step": lambda protocol: protocol,
}
"""What evaluations that differ in a quantity only have in common."""


def _group(
    quantity: Quantity, evaluations: Sequence[Evaluation], value: Callable[[Evaluation], float | None]
) -> list[Sweep]:
    """Group evaluations that differ in a quantity only. Those without a value are left out."""
    groups: dict[tuple[int | None, Protocol], dict[float, tuple[Metrics, Protocol]]] = {}
    for each in evaluations:
        own = value(each)
        if own is None:
            continue
        key = None if quantity == "step" else each.step, COMMON_PROTOCOL[quantity](each.protocol)
        groups.setdefault(key, {})[own] = each.metrics, each.protocol
    return [Sweep(quantity, group, step) for (step, _), group in groups.items()]


def _parse_decay(weights: str, config: RunConfig) -> float | None:
    """Return the decay of the weights of a protocol; 0 for weights that are no average, None if it is not known."""
    if weights in (AVERAGE, "model"):
        return float(config.optimizer.ema) if weights == AVERAGE else 0.0
    try:
        return float(weights.removeprefix(f"{AVERAGE} "))
    except ValueError:
        return None


# Options


def flatten(tree: Mapping[str, Any], section: str = "") -> dict[str, Any]:
    """Flatten nested sections: `section.option` → value."""
    options: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{section}.{name}" if section else name
        options |= flatten(value, path) if isinstance(value, Mapping) else {path: value}
    return options


def format_option(options: Mapping[str, Any], path: str) -> str:
    """Return the value of an option as text."""
    value = options.get(path, "–")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def find_differences(runs: Sequence[Run]) -> list[str]:
    """Find the options in which runs differ.

    Args:
        runs: Runs as `read_runs` returns them.

    Returns:
        Paths such as `batch.n`, in the order of the configuration.
    """
    trees = [run.options for run in runs]
    paths = dict.fromkeys(path for tree in trees for path in tree)
    return [path for path in paths if len({format_option(tree, path) for tree in trees}) > 1]


# Many runs


def is_overview(runs: Sequence[Run]) -> bool:
    """Return whether there are too many runs for one card, color and column per run.

    Args:
        runs: The runs of the page.

    Returns:
        True if there are more than 6.
    """
    return len(runs) > MOST_RUNS


def sort_runs(runs: Sequence[Run]) -> list[Run]:
    """Sort the runs of an overview.

    Args:
        runs: Runs as `read_runs` returns them.

    Returns:
        Up to 6 runs in the given order. More runs are sorted by the options in which they differ, with the seed last.
    """
    if not is_overview(runs):
        return list(runs)
    paths = [*(path for path in find_differences(runs) if path != SEED), SEED]

    def sorting_key(value: Any) -> tuple[int, Any]:
        """Order numbers by size, then tuples of numbers, then everything else by its text."""
        if isinstance(value, int | float):
            return 0, value
        if isinstance(value, tuple) and all(isinstance(each, int | float) for each in value):
            return 1, value
        return 2, json.dumps(value)

    return sorted(runs, key=lambda run: [sorting_key(run.options.get(path)) for path in paths])


def runs_to_draw(runs: Sequence[Run]) -> list[Run]:
    """Choose the runs that are drawn.

    Args:
        runs: Runs as `read_runs` returns them.

    Returns:
        At most 6 runs, in the given order: one per configuration apart from its seed, then others.
    """
    configurations = [json.dumps({**run.options, SEED: 0}, sort_keys=True) for run in runs]
    first = [configurations.index(each) for each in dict.fromkeys(configurations)]
    others = [k for k in range(len(runs)) if k not in first]
    return [runs[k] for k in sorted([*first, *others][:MOST_RUNS])]


def describe_drawn(runs: Sequence[Run]) -> str:
    """State which of many runs are drawn."""
    count = len(runs_to_draw(runs))
    return f"{count} of the {len(runs)} runs: the first of each configuration (apart from its seed), then others."


# Words


def natural_key(name: str) -> list[str | int]:
    """Return a sorting key in which digits count as numbers: run2 before run10."""
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if position % 2 else part for position, part in enumerate(parts)]


def pluralize(count: int, noun: str) -> str:
    """Write a count with its noun: 1 run, 2 runs."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
