"""Names and counts as a person writes them: run 2 before run 10, one run, two runs.

What a run directory tells of its run: metrics, evaluations, history and pictures.

Its config.json must be that of a run. Everything else may be missing, torn or from elsewhere: what cannot be read is
left out and becomes a sentence on the page (`problems`).

How near a run's samples are to the data: where its training ended, its best, and what `truedrift evaluate` found.

Configurations side by side: what differs, and all of it.

Many runs: their order, and which are drawn: as many as there are colors, of all configurations if that allows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truedrift.errors import UserError
from truedrift.evaluation.record import EVALUATIONS, EvaluationRecord, Protocol
from truedrift.options import from_dict
from truedrift.records.store import read_lenient
from truedrift.storage import parse_json_line
from truedrift.training.config import RunConfig
from truedrift.training.run_directory import CONFIG, HISTORY, METRICS, SAMPLES, open_run

_DIGITS = re.compile(r"([0-9]{1,18})")


def natural_key(name: str) -> tuple[tuple[str, int], ...]:
    """A key to sort by, in which numbers inside of names count as numbers."""
    parts = [*_DIGITS.split(name), "-1"]
    return tuple((text, int(digits)) for text, digits in zip(parts[::2], parts[1::2], strict=True))


def pluralize(count: int, noun: str) -> str:
    """1 run, 2 runs."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


_PICTURE = re.compile(r"step-(\d{1,12})\.png")
_NO_PROTOCOL = "of unknown protocol"
LARGEST, SMALLEST = 1e100, 1e-100
"""Beyond these the arithmetic of axes overflows, or underflows."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Numbers of one step, and how they came about; None where the file does not say it in full."""

    step: int
    metrics: Mapping[str, Any]
    protocol: Protocol | None

    @property
    def distance(self) -> float | None:
        """FID or another Fréchet distance."""
        return number(self.metrics.get("fid"))

    @property
    def distance_name(self) -> str:
        """By its protocol."""
        return self.protocol.distance_name if self.protocol else f"FD ({_NO_PROTOCOL})"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run as the page tells it."""

    name: str
    config: RunConfig
    classes: tuple[str, ...]
    data_sha256: str
    version: str
    commit: str
    telemetry: Sequence[Mapping[str, Any]]
    evaluations: Sequence[Evaluation]
    history: Sequence[Mapping[str, Any]]
    judged: Sequence[EvaluationRecord]
    """By `truedrift evaluate`, after the training."""
    pictures: Sequence[tuple[int, Path]]
    """Step and file, in the order of steps."""
    problems: Sequence[str]

    @property
    def last(self) -> Mapping[str, Any]:
        """The last logged step."""
        return self.telemetry[-1] if self.telemetry else {}


def number(value: Any) -> float | None:
    """A number that can be drawn, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not abs(value) <= LARGEST:  # nor if it is NaN
        return None
    return float(value) if abs(value) >= SMALLEST else 0.0


def step_of(entry: Mapping[str, Any]) -> int | None:
    """The step of a line, if it has one."""
    step = number(entry.get("step"))
    return None if step is None or step < 0 else int(step)


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """The runs, each with a name of its own: that of its directory, with as many of those above as it takes."""
    full = [path.resolve().parts for path in paths]
    depths = (next(d for d in range(1, len(own) + 1) if _is_unique(own[-d:], full)) for own in full)
    return [read_run(path, "/".join(own[-depth:])) for path, own, depth in zip(paths, full, depths, strict=True)]


def _is_unique(ending: tuple[str, ...], full: Sequence[tuple[str, ...]]) -> bool:
    return len({each for each in full if each[-len(ending) :] == ending}) == 1


def read_run(path: Path, name: str) -> Run:
    """The run of that directory; a Mistake where its config.json is not one that this version reads."""
    opened = open_run(path)
    lines, complaint = _lines(path / METRICS)
    history, of_history = _lines(path / HISTORY)
    evaluations, of_evaluations = _evaluations(lines)
    judged, of_judged = _read_evaluations(path / EVALUATIONS)
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
        judged=judged,
        pictures=_pictures(path / SAMPLES),
        problems=[each for each in (complaint, of_history, *of_evaluations, *of_judged) if each],
    )


def _lines(path: Path) -> tuple[list[dict[str, Any]], str | None]:
    """The JSON objects of the file, and what is wrong with the rest."""
    try:
        written = path.read_bytes().splitlines()
    except OSError as error:
        return [], f"{path.name} cannot be read ({error.strerror})."
    entries = [entry for entry in map(parse_json_line, written) if entry is not None]
    left_out = len(written) - len(entries)
    return entries, f"{left_out} of {len(written)} lines of {path.name} cannot be read." if left_out else None


def _evaluations(lines: Sequence[Mapping[str, Any]]) -> tuple[list[Evaluation], list[str]]:
    """Those of the training whose distance can be one, and what is wrong with others."""
    all_of_them = [
        _evaluation(line) for line in lines if isinstance(line.get("evaluation"), dict) and step_of(line) is not None
    ]
    kept = [each for each in all_of_them if each.distance is None or each.distance >= 0]
    unknown = sum(each.protocol is None for each in kept)
    do = "does" if unknown == 1 else "do"
    said = f"{pluralize(unknown, 'evaluation')} of {METRICS} {do} not say by which protocol, and cannot be compared."
    return kept, [*_negative(len(all_of_them) - len(kept), METRICS), *([said] if unknown else [])]


def _read_evaluations(path: Path) -> tuple[list[EvaluationRecord], list[str]]:
    """The evaluations of a file that need not be there, and what is wrong with it."""
    try:
        found, wrong = read_lenient(path, EvaluationRecord) if path.is_file() else ([], {})
    except OSError as error:
        return [], [f"{path.name} cannot be read ({error.strerror})."]
    kept = [each for each in found if each.metrics.fid >= 0]
    unread = [f"{pluralize(len(wrong), 'line')} of {path.name} cannot be read."] if wrong else []
    return kept, [*unread, *_negative(len(found) - len(kept), path.name)]


def _negative(count: int, file: str) -> list[str]:
    return [f"{pluralize(count, 'evaluation')} of {file} left out: a distance is never negative."] if count else []


def _evaluation(line: Mapping[str, Any]) -> Evaluation:
    return Evaluation(step=step_of(line) or 0, metrics=line["evaluation"], protocol=_protocol(line.get("protocol")))


def _protocol(tree: Any) -> Protocol | None:
    try:
        return from_dict(Protocol, tree)
    except UserError:
        return None


def _pictures(directory: Path) -> list[tuple[int, Path]]:
    if not directory.is_dir():
        return []
    named = ((_PICTURE.fullmatch(path.name), path) for path in directory.iterdir())
    return sorted((int(found[1]), path) for found, path in named if found)


@dataclass(frozen=True, kw_only=True)
class FinalDistance:
    """A last word on a run by one protocol, in its training or by `truedrift evaluate` after it."""

    distance: float
    distance_name: str
    step: int | None
    protocol: Protocol | None
    in_training: bool


def last_evaluation(run: Run) -> Evaluation | None:
    """The last evaluation in the training that has a distance."""
    return next((each for each in reversed(run.evaluations) if each.distance is not None), None)


def best_evaluation(run: Run) -> Evaluation | None:
    """The smallest distance by the protocol that the training ended with; None if it is not known."""
    last = last_evaluation(run)
    if last is None or last.protocol is None:
        return None
    same = [each for each in run.evaluations if each.distance is not None and each.protocol == last.protocol]
    return min(same, key=lambda each: each.distance or 0.0)


def final_distances(run: Run) -> list[FinalDistance]:
    """The training's, then the last of every protocol of `truedrift evaluate`."""
    last = last_evaluation(run)
    trained = [] if last is None or last.distance is None else [_from_training(last, last.distance)]
    after = {each.protocol: each for each in run.judged}
    return trained + [
        FinalDistance(
            distance=each.metrics.fid,
            distance_name=protocol.distance_name,
            step=each.step,
            protocol=protocol,
            in_training=False,
        )
        for protocol, each in after.items()
    ]


def _from_training(of: Evaluation, distance: float) -> FinalDistance:
    return FinalDistance(
        distance=distance, distance_name=of.distance_name, step=of.step, protocol=of.protocol, in_training=True
    )


def differing_paths(trees: Sequence[Mapping[str, Any]]) -> list[str]:
    """Dotted paths at which not all trees hold the same."""
    paths = dict.fromkeys(path for tree in trees for path in tree)
    return [path for path in paths if len({format_value(tree, path) for tree in trees}) > 1]


def flatten(tree: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """A tree of groups as one level: section.option → value."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{where}.{name}" if where else name
        found |= flatten(value, path) if isinstance(value, Mapping) else {path: value}
    return found


def format_value(tree: Mapping[str, Any], path: str) -> str:
    """An option's value as text."""
    if path not in tree:
        return "–"
    value = tree[path]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


MOST = 6
"""Runs that are told one by one."""
_CHANCE = "seed"
"""The option that makes another run of the same configuration."""


def is_overview(runs: Sequence[Run]) -> bool:
    """Too many for a card, a color and a column each."""
    return len(runs) > MOST


def sort_runs(runs: Sequence[Run]) -> list[Run]:
    """Few as they are named; many by the options that differ, seeds last, since names with hashes say nothing."""
    paths = [*(path for path in differing_options(runs) if path != _CHANCE), _CHANCE]
    return sorted(runs, key=lambda run: _place(run, paths)) if is_overview(runs) else list(runs)


def _place(run: Run, paths: Sequence[str]) -> list[tuple[int, Any]]:
    tree = flatten(run.config.tree())
    return [_rank(tree.get(path)) for path in paths]


def _rank(value: Any) -> tuple[int, Any]:
    """Numbers by size, then rows of numbers, then the others by their text."""
    if isinstance(value, int | float):
        return 0, value
    if isinstance(value, list | tuple) and all(isinstance(each, int | float) for each in value):
        return 1, list(value)
    return 2, json.dumps(value)


def runs_to_draw(runs: Sequence[Run]) -> list[Run]:
    """All, or of many the first of each configuration apart from its seed, then others, in the order of `runs`."""
    kinds = [_run_kind(run) for run in runs]
    first = [k for k, kind in enumerate(kinds) if kind not in kinds[:k]]
    later = [k for k in range(len(runs)) if k not in first]
    return [runs[k] for k in sorted([*first, *later][:MOST])] if is_overview(runs) else list(runs)


def describe_drawn(runs: Sequence[Run]) -> str:
    """Which of many are drawn, in a sentence."""
    few = len(runs_to_draw(runs))
    return f"{few} of the {len(runs)} runs: the first of each configuration, apart from its seed, and then others."


def _run_kind(run: Run) -> str:
    tree = {path: value for path, value in flatten(run.config.tree()).items() if path != _CHANCE}
    return json.dumps(tree, sort_keys=True)


def differing_options(runs: Sequence[Run]) -> list[str]:
    """Options in which not all runs are the same."""
    return differing_paths([flatten(run.config.tree()) for run in runs])
