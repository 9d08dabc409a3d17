"""The plan of a grid: its runs with their variants, their commands and files, and what they need before they start.

The id of a run is a hash of its whole configuration, so that two items that need the same run share it. Unlike the id
that `truedrift train` chooses for a run directory, it includes the length and the evaluation of the run: a grid
compares evaluations, not only weights. Each run is a `truedrift train` command in its own process; the same command
resumes it.

RUNS/<recipe>-<id>.json   configuration              RUNS/<recipe>-<id>.log   output
RUNS/<recipe>-<id>/       run directory              RUNS/<recipe>-<id>.job   job on a cluster

Before any run starts, its data, the network that evaluates it and the one it trains on must be available.
"""

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
    """What the item compares, for example "abc", "row/abc2" or "abc/0.5"."""
    config: RunConfig
    called: str | None = None
    """Name of the run directory; None: recipe and id."""

    @property
    def id(self) -> str:
        """Hash of the whole configuration."""
        return run_id(self.config.tree())

    @property
    def name(self) -> str:
        """Name of the run directory and of its sidecar files."""
        return self.called or f"{self.config.recipe}-{self.id}"

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.config.cadence.steps


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All runs of an item."""

    item: str
    scale: Scale
    data: str
    command: str
    """Command that makes this plan."""
    tasks: tuple[Task, ...]

    @property
    def steps(self) -> int:
        """Steps of all runs."""
        return sum(task.steps for task in self.tasks)


def distinct_tasks(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Return the tasks after a check that no two of them are the same run."""
    if len({task.id for task in tasks}) < len(tasks):
        raise AssertionError("two variants of a grid are the same run")
    return tuple(tasks)


LAST_BYTES = 4096


def run_path(task: Task, runs: Path) -> Path:
    """Return the run directory."""
    return runs / task.name


def sidecar_path(task: Task, runs: Path, kind: str) -> Path:
    """Return the file with suffix `kind` next to the run directory."""
    return runs / f"{task.name}.{kind}"


def train_command(task: Task, runs: Path, device: str) -> list[str]:
    """Write the configuration of the run; return the command that starts or resumes it."""
    make_directory(runs)
    config = sidecar_path(task, runs, "json")
    write_atomically(config, (json.dumps(task.config.tree(), indent=2) + "\n").encode())
    train = (sys.executable, "-m", "truedrift", "train", task.config.recipe)
    return [*train, "--config", str(config), "--out", str(run_path(task, runs)), "--device", device]


def last_log_line(log: Path) -> str:
    """Return the last line of the log, which says why the run ended."""
    try:
        lines = log.read_bytes()[-LAST_BYTES:].decode(errors="replace").split("\n")
    except OSError:
        return "no output"
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output")


ENCODER = "encoder:"
HUB = "its weights come from the Hugging Face hub, or from encoder.folder"


@dataclass(frozen=True)
class MissingRequirement:
    """Data, a network or a package that is not available."""

    what: str
    fetch: str | None
    """Name for `truedrift data fetch`; None: it is a package."""
    do: str = ""
    """How to install a package."""


def missing_requirements(plan: Plan) -> UserError | None:
    """Return one error that lists everything missing and how to get it, or None."""
    config = plan.tasks[0].config
    absent = [*_missing_extractor(config), *_missing_encoder(config), *_missing_data(config.data)]
    if not absent:
        return None
    names = dict.fromkeys(each.fetch for each in absent if each.fetch)
    fetched = [f"run truedrift data fetch {' '.join(names)}"] if names else []
    return UserError(
        " and ".join(each.what for each in absent),
        "everything that the runs use must be available before they start",
        ", and ".join([*(a.do for a in absent if a.do), *fetched]),
    )


def require_available(plan: Plan) -> None:
    """Require that everything the runs need is available."""
    missing = missing_requirements(plan)
    if missing is not None:
        raise missing


def extractor_is_available(extractor: str) -> bool:
    """Return whether the weights are in the cache or come with an installed package."""
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
        yield MissingRequirement(what, None, "install the version for your torch, or use the extractor inception")
    else:
        yield _missing_network(name, f"evaluates {config.recipe}")


def _missing_encoder(config: RunConfig) -> Iterator[MissingRequirement]:
    if not _is_available(config.encoder.kind):
        yield _missing_network(config.encoder.kind, f"computes the features of {config.recipe}")


def _missing_network(name: str, role: str) -> MissingRequirement:
    if name == "dinov2":
        what = f"the network dinov2, which {role}, needs transformers, which is not installed ({HUB})"
        return MissingRequirement(what, None, "run pip install 'truedrift[dinov2]'")
    return MissingRequirement(f"the network {name}, which {role}, is not in the cache", name)


def _missing_data(data: DataOptions) -> Iterator[MissingRequirement]:
    try:
        load(data.name, root=None if data.root is None else Path(data.root), image_size=data.image_size)
    except UserError as error:
        yield MissingRequirement(error.summary, data.name)
