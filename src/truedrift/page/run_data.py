"""Runs as the report shows them: the one module that knows the files of a run directory.

    config.json        configuration, data, version and commit; must be readable
    metrics.jsonl      telemetry and the evaluations made during training
    history.jsonl      started, interrupted, resumed, complete
    evaluations.jsonl  evaluations made afterward by `truedrift evaluate`
    samples/           step-N.png

Everything except config.json may be missing, truncated or written by another program. What cannot be read is left out
and becomes a sentence in `Run.problems`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any

from truedrift.errors import UserError
from truedrift.evaluation.record import EVALUATIONS, EvaluationRecord, Protocol
from truedrift.options import from_dict
from truedrift.records.store import read_lenient
from truedrift.storage import parse_json_line
from truedrift.training.config import RunConfig
from truedrift.training.run_directory import CONFIG, HISTORY, METRICS, SAMPLES, open_run

LARGEST, SMALLEST = 1e100, 1e-100
"""Magnitudes outside this range overflow or underflow in the arithmetic of axes."""
MOST_RUNS = 6
"""Number of runs that are shown one by one; there is one line color per run."""
SEED = "seed"
"""The option in which repeated runs of one configuration differ."""
_PICTURE = re.compile(r"step-(\d{1,12})\.png")
_DIGITS = re.compile(r"([0-9]{1,18})")


class RunStatus(Enum):
    """State of a run according to its history."""

    COMPLETE = auto()
    STOPPED = auto()
    """The run was saved before its last step."""
    UNFINISHED = auto()
    """The run is still training or was killed."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Metrics of one step during training; `protocol` is None if the file does not state it completely."""

    step: int
    metrics: Mapping[str, Any]
    protocol: Protocol | None

    @property
    def distance(self) -> float | None:
        """The Fréchet distance."""
        return to_number(self.metrics.get("fid"))

    @property
    def distance_name(self) -> str:
        """FID, or FD with the name of its feature extractor."""
        return self.protocol.distance_name if self.protocol else "FD (unknown protocol)"


@dataclass(frozen=True, kw_only=True)
class FinalDistance:
    """The last distance of a run under one protocol, from its training or from `truedrift evaluate`."""

    distance: float
    distance_name: str
    step: int | None
    protocol: Protocol | None
    in_training: bool


@dataclass(frozen=True, kw_only=True)
class Run:
    """The content of a run directory."""

    name: str
    config: RunConfig
    classes: tuple[str, ...]
    data_sha256: str
    version: str
    commit: str
    telemetry: Sequence[Mapping[str, Any]]
    evaluations: Sequence[Evaluation]
    """Made during training."""
    history: Sequence[Mapping[str, Any]]
    later_evaluations: Sequence[EvaluationRecord]
    """Made by `truedrift evaluate`."""
    pictures: Sequence[tuple[int, Path]]
    """Step and file, ordered by step."""
    problems: Sequence[str]

    @property
    def last(self) -> Mapping[str, Any]:
        """The last logged step."""
        return self.telemetry[-1] if self.telemetry else {}

    @property
    def has_collapsed(self) -> bool:
        """Whether the last logged step reports a collapse."""
        return self.last.get("collapsed") is True

    @property
    def options(self) -> dict[str, Any]:
        """The configuration as `section.option` → value."""
        return flatten(self.config.tree())


# Reading


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Read runs; each is named by its directory, with as many parent directories as make the name unique."""
    full = [path.resolve().parts for path in paths]
    depths = (next(d for d in range(1, len(own) + 1) if _is_unique(own[-d:], full)) for own in full)
    return [read_run(path, "/".join(own[-depth:])) for path, own, depth in zip(paths, full, depths, strict=True)]


def _is_unique(ending: tuple[str, ...], full: Sequence[tuple[str, ...]]) -> bool:
    return len({each for each in full if each[-len(ending) :] == ending}) == 1


def read_run(path: Path, name: str) -> Run:
    """Read one run directory; raise `UserError` if its config.json is not that of a run."""
    opened = open_run(path)
    lines, metrics_problems = _read_lines(path / METRICS)
    history, history_problems = _read_lines(path / HISTORY)
    evaluations, evaluation_problems = _parse_evaluations(lines)
    later, later_problems = _read_later_evaluations(path / EVALUATIONS)
    tree = json.loads((path / CONFIG).read_text(encoding="utf-8"))
    return Run(
        name=name,
        config=opened.config,
        classes=tuple(str(each) for each in opened.data["classes"]),
        data_sha256=str(opened.data.get("sha256", "unknown")),
        version=str(tree.get("version", "unknown")),
        commit=str(tree.get("commit") or "unknown"),
        telemetry=[line for line in lines if "positives_seen" in line and step_of(line) is not None],
        evaluations=evaluations,
        history=history,
        later_evaluations=later,
        pictures=_find_pictures(path / SAMPLES),
        problems=[*metrics_problems, *history_problems, *evaluation_problems, *later_problems],
    )


def _read_lines(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The JSON objects of the file, and the problems with the rest."""
    try:
        written = path.read_bytes().splitlines()
    except OSError as error:
        return [], [f"{path.name} cannot be read ({error.strerror})."]
    entries = [entry for entry in map(parse_json_line, written) if entry is not None]
    count = len(written) - len(entries)
    return entries, [f"{count} of {len(written)} lines of {path.name} cannot be read."] if count else []


def _parse_evaluations(lines: Sequence[Mapping[str, Any]]) -> tuple[list[Evaluation], list[str]]:
    """The evaluations made during training whose distance is possible, and the problems with the others."""
    parsed = [
        Evaluation(step=step, metrics=line["evaluation"], protocol=_parse_protocol(line.get("protocol")))
        for line in lines
        if isinstance(line.get("evaluation"), dict) and (step := step_of(line)) is not None
    ]
    usable = [each for each in parsed if each.distance is None or each.distance >= 0]
    unknown = sum(each.protocol is None for each in usable)
    verb = "does" if unknown == 1 else "do"
    problem = f"{pluralize(unknown, 'evaluation')} in {METRICS} {verb} not state a protocol and cannot be compared."
    return usable, [*_negative_distances(len(parsed) - len(usable), METRICS), *([problem] if unknown else [])]


def _parse_protocol(tree: Any) -> Protocol | None:
    try:
        return from_dict(Protocol, tree)
    except UserError:
        return None


def _read_later_evaluations(path: Path) -> tuple[list[EvaluationRecord], list[str]]:
    """The records of an optional file, and the problems with it."""
    try:
        records, unreadable = read_lenient(path, EvaluationRecord) if path.is_file() else ([], {})
    except OSError as error:
        return [], [f"{path.name} cannot be read ({error.strerror})."]
    usable = [each for each in records if each.metrics.fid >= 0]
    problems = [f"{pluralize(len(unreadable), 'line')} of {path.name} cannot be read."] if unreadable else []
    return usable, [*problems, *_negative_distances(len(records) - len(usable), path.name)]


def _negative_distances(count: int, file: str) -> list[str]:
    return [f"{pluralize(count, 'evaluation')} in {file} left out: a distance is never negative."] if count else []


def _find_pictures(directory: Path) -> list[tuple[int, Path]]:
    if not directory.is_dir():
        return []
    matches = ((_PICTURE.fullmatch(path.name), path) for path in directory.iterdir())
    return sorted((int(match[1]), path) for match, path in matches if match)


def to_number(value: Any) -> float | None:
    """Convert to a number that can be drawn; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not abs(value) <= LARGEST:  # true for NaN as well
        return None
    return float(value) if abs(value) >= SMALLEST else 0.0


def step_of(entry: Mapping[str, Any]) -> int | None:
    """The step of a line, if it has one."""
    step = to_number(entry.get("step"))
    return None if step is None or step < 0 else int(step)


# Status and distances


def last_event(run: Run) -> Mapping[str, Any]:
    """The last entry of the history that says whether the run trains; empty if there is none."""
    events = ("started", "resumed", "interrupted", "complete")
    return next((entry for entry in reversed(run.history) if entry.get("event") in events), {})


def run_status(run: Run) -> RunStatus:
    """Decide the status from the last event of the history."""
    last = last_event(run)
    if last.get("event") == "complete" and (step_of(last) or 0) >= run.config.cadence.steps:
        return RunStatus.COMPLETE
    return RunStatus.STOPPED if last.get("event") in ("complete", "interrupted") else RunStatus.UNFINISHED


def last_evaluation(run: Run) -> Evaluation | None:
    """The last evaluation during training that has a distance."""
    return next((each for each in reversed(run.evaluations) if each.distance is not None), None)


def best_evaluation(run: Run) -> Evaluation | None:
    """The evaluation with the smallest distance under the protocol of the last one; None if that is unknown."""
    last = last_evaluation(run)
    if last is None or last.protocol is None:
        return None
    comparable = [each for each in run.evaluations if each.distance is not None and each.protocol == last.protocol]
    return min(comparable, key=lambda each: each.distance or 0.0)


def final_distances(run: Run) -> list[FinalDistance]:
    """The last distance of the training, then the last one per protocol of `truedrift evaluate`."""
    last = last_evaluation(run)
    later = {each.protocol: each for each in run.later_evaluations}
    distances = [
        FinalDistance(
            distance=each.metrics.fid,
            distance_name=protocol.distance_name,
            step=each.step,
            protocol=protocol,
            in_training=False,
        )
        for protocol, each in later.items()
    ]
    if last is not None and last.distance is not None:
        own = FinalDistance(
            distance=last.distance,
            distance_name=last.distance_name,
            step=last.step,
            protocol=last.protocol,
            in_training=True,
        )
        distances.insert(0, own)
    return distances


# Options


def flatten(tree: Mapping[str, Any], section: str = "") -> dict[str, Any]:
    """Flatten nested sections: `section.option` → value."""
    options: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{section}.{name}" if section else name
        options |= flatten(value, path) if isinstance(value, Mapping) else {path: value}
    return options


def format_option(options: Mapping[str, Any], path: str) -> str:
    """The value of an option as text."""
    if path not in options:
        return "–"
    value = options[path]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def find_differences(runs: Sequence[Run]) -> list[str]:
    """Return the paths of the options in which the runs differ."""
    trees = [run.options for run in runs]
    paths = dict.fromkeys(path for tree in trees for path in tree)
    return [path for path in paths if len({format_option(tree, path) for tree in trees}) > 1]


# Many runs


def is_overview(runs: Sequence[Run]) -> bool:
    """Whether there are too many runs for one card, color and column per run."""
    return len(runs) > MOST_RUNS


def sort_runs(runs: Sequence[Run]) -> list[Run]:
    """Keep the given order of few runs; sort many by the options that differ, with the seed last."""
    if not is_overview(runs):
        return list(runs)
    paths = [*(path for path in find_differences(runs) if path != SEED), SEED]
    return sorted(runs, key=lambda run: [_option_key(run.options.get(path)) for path in paths])


def _option_key(value: Any) -> tuple[int, Any]:
    """Order numbers by size, then lists of numbers, then everything else by its text."""
    if isinstance(value, int | float):
        return 0, value
    if isinstance(value, list | tuple) and all(isinstance(each, int | float) for each in value):
        return 1, list(value)
    return 2, json.dumps(value)


def runs_to_draw(runs: Sequence[Run]) -> list[Run]:
    """Choose at most `MOST_RUNS` runs: first one per configuration apart from its seed, then others, in order."""
    configurations = [
        json.dumps({path: value for path, value in run.options.items() if path != SEED}, sort_keys=True) for run in runs
    ]
    first = [k for k, configuration in enumerate(configurations) if configuration not in configurations[:k]]
    others = [k for k in range(len(runs)) if k not in first]
    return [runs[k] for k in sorted([*first, *others][:MOST_RUNS])]


def describe_drawn(runs: Sequence[Run]) -> str:
    """State which of many runs are drawn."""
    count = len(runs_to_draw(runs))
    return f"{count} of the {len(runs)} runs: the first of each configuration (apart from its seed), then others."


# Words


def natural_key(name: str) -> tuple[tuple[str, int], ...]:
    """Sorting key in which digits count as numbers: run2 before run10."""
    parts = [*_DIGITS.split(name), "-1"]
    return tuple((text, int(digits)) for text, digits in zip(parts[::2], parts[1::2], strict=True))


def pluralize(count: int, noun: str) -> str:
    """Count with noun: 1 run, 2 runs."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
