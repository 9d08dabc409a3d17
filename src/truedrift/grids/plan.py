"""A plan is a list of runs, each with what the item calls it; its id is a hash of the whole configuration.

Two items that ask for the same run ask for the same id. Unlike the id of a run directory that `truedrift train` chooses
by itself, it holds how long the run is and how it is judged too: a grid compares evaluations, not weights alone.

A run of a grid as the project's own command, in a process of its own; the same command resumes it.

RUNS/<recipe>-<id>.json   its configuration          RUNS/<recipe>-<id>.log   what it said
RUNS/<recipe>-<id>/       its run directory          RUNS/<recipe>-<id>.job   of a cluster: its job

What runs need before any of them starts: their data, the network that judges them, and the one they train on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from truedrift.data.fetch import is_present
from truedrift.data.load import load
from truedrift.data.registry import REMOTE_ASSETS
from truedrift.errors import UserError
from truedrift.grids.options import Scale
from truedrift.storage import cache_directory, make_directory, write_atomically
from truedrift.training.config import DataOptions, RunConfig, run_id


@dataclass(frozen=True, kw_only=True)
class Task:
    """One run of a grid."""

    variant: str
    """What the item compares: standard or abc, "row/abc2", "abc/0.5"."""
    config: RunConfig
    called: str | None = None
    """Name of its directory; none: its recipe and id."""

    @property
    def id(self) -> str:
        """Hash of its whole configuration."""
        return run_id(self.config.tree())

    @property
    def name(self) -> str:
        """Of its directory, and of the files beside it."""
        return self.called or f"{self.config.recipe}-{self.id}"

    @property
    def steps(self) -> int:
        """Of the whole run."""
        return self.config.cadence.steps


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All runs of an item."""

    item: str
    scale: Scale
    data: str
    command: str
    """What a user writes to have it."""
    tasks: tuple[Task, ...]

    @property
    def steps(self) -> int:
        """Of all runs."""
        return sum(task.steps for task in self.tasks)


def distinct_tasks(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """The tasks; no two of them may be the same run."""
    if len({task.id for task in tasks}) < len(tasks):
        raise AssertionError("two variants of a grid are the same run")
    return tuple(tasks)


LAST_BYTES = 4096


def run_path(task: Task, runs: Path) -> Path:
    """Its run directory."""
    return runs / task.name


def sidecar_path(task: Task, runs: Path, kind: str) -> Path:
    """The file of that kind beside its run directory."""
    return runs / f"{task.name}.{kind}"


def train_command(task: Task, runs: Path, device: str) -> list[str]:
    """What starts the run or goes on with it; its configuration is written."""
    make_directory(runs)
    config = sidecar_path(task, runs, "json")
    write_atomically(config, (json.dumps(task.config.tree(), indent=2) + "\n").encode())
    train = (sys.executable, "-m", "truedrift", "train", task.config.recipe)
    return [*train, "--config", str(config), "--out", str(run_path(task, runs)), "--device", device]


def last_log_line(log: Path) -> str:
    """The last line that a run said, which tells why it ended."""
    try:
        said = log.read_bytes()[-LAST_BYTES:].decode(errors="replace").split("\n")
    except OSError:
        return "it said nothing"
    return next((line.strip() for line in reversed(said) if line.strip()), "it said nothing")


ENCODER = "encoder:"
HUB = "its weights come from the Hugging Face hub, or from encoder.folder"


@dataclass(frozen=True)
class MissingRequirement:
    """Something that is not here."""

    what: str
    fetch: str | None
    """What `truedrift data fetch` calls it; none: it is a package."""
    do: str = ""
    """How to get a package."""


def missing_requirements(plan: Plan) -> UserError | None:
    """Everything that is not here, in one sentence, with what gets it."""
    config = plan.tasks[0].config
    absent = [*_missing_extractor(config), *_encoder(config), *_data(config.data)]
    if not absent:
        return None
    names = dict.fromkeys(each.fetch for each in absent if each.fetch)
    fetched = [f"run truedrift data fetch {' '.join(names)}"] if names else []
    came = " and ".join(each.what for each in absent)
    return UserError(
        came,
        "a grid starts when everything that its runs use is here",
        ", and ".join([*(a.do for a in absent if a.do), *fetched]),
    )


def require_available(plan: Plan) -> None:
    """Everything that the runs need is here."""
    found = missing_requirements(plan)
    if found is not None:
        raise found


def extractor_is_available(extractor: str) -> bool:
    """Whether its weights are in the cache, or come with a package."""
    name = extractor.removeprefix(ENCODER)
    if name == "abc-release":
        return find_spec("torchvision") is not None
    if name == "inception" and find_spec("torch_fidelity") is not None:
        return True
    return _is_available(name)


def _is_available(name: str) -> bool:
    if name == "dinov2":
        return find_spec("transformers") is not None
    return name not in REMOTE_ASSETS or is_present(REMOTE_ASSETS[name], cache_directory(name))


def _missing_extractor(config: RunConfig) -> Iterator[MissingRequirement]:
    extractor = config.evaluation.extractor
    if extractor is None or extractor_is_available(extractor):
        return
    name = extractor.removeprefix(ENCODER)
    if name == "abc-release":
        what = "the extractor abc-release needs torchvision, which is not installed"
        yield MissingRequirement(what, None, "install one that fits your torch, or take the extractor inception")
    else:
        yield _network(name, f"judges {config.recipe}")


def _encoder(config: RunConfig) -> Iterator[MissingRequirement]:
    if not _is_available(config.encoder.kind):
        yield _network(config.encoder.kind, f"gives {config.recipe} its features")


def _network(name: str, role: str) -> MissingRequirement:
    if name == "dinov2":
        what = f"the network dinov2, which {role}, needs transformers, which is not installed ({HUB})"
        return MissingRequirement(what, None, "run pip install 'truedrift[dinov2]'")
    return MissingRequirement(f"the network {name}, which {role}, is not in the cache", name)


def _data(data: DataOptions) -> Iterator[MissingRequirement]:
    try:
        load(data.name, root=None if data.root is None else Path(data.root), image_size=data.image_size)
    except UserError as error:
        yield MissingRequirement(error.summary, data.name)
