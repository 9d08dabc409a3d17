"""The plan of a grid: its runs with their variants, commands and files, their progress, and what they need.

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
from truedrift.data.load import require_present
from truedrift.data.registry import REMOTE_ASSETS
from truedrift.errors import UserError
from truedrift.grids.options import Scale
from truedrift.storage import cache_directory, make_directory, write_atomically
from truedrift.training import status
from truedrift.training.config import RunConfig, drop_added_defaults, run_id


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
        return run_id(drop_added_defaults(self.config.tree()))

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


def distinct_tasks(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Check that no two tasks are the same run.

    Args:
        tasks: The runs of a grid.

    Returns:
        The same tasks as a tuple.

    Raises:
        AssertionError: If two tasks have the same configuration, which is a bug of the grid.
    """
    if len({task.id for task in tasks}) < len(tasks):
        raise AssertionError("two variants of a grid are the same run")
    return tuple(tasks)


# ---- Files of a run ----

LAST_LOG_BYTES = 4096


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
    content = log.read_bytes()[-LAST_LOG_BYTES:] if log.exists() else b""
    lines = [line.strip() for line in content.decode(errors="replace").split("\n")]
    return next(filter(None, reversed(lines)), "no output")


def steps_taken(task: Task, runs: Path) -> int:
    """Return the last logged step of the run.

    Args:
        task: A task of a plan.
        runs: The directory that contains its run directory.

    Returns:
        A number of steps, at most those of the whole run; 0 if nothing was logged yet.
    """
    return status.steps_taken(run_path(task, runs), task.config)


def is_done(task: Task, runs: Path) -> bool:
    """Return whether the run has taken and evaluated its last step.

    Args:
        task: A task of a plan.
        runs: The directory that contains its run directory.

    Returns:
        True if metrics.jsonl has the last step, with its evaluation unless the configuration has no extractor.
    """
    return status.is_done(run_path(task, runs), task.config)


# ---- Requirements ----

ENCODER = "encoder:"
HUB = "its weights come from the Hugging Face hub, or from encoder.folder"


def missing_requirements(config: RunConfig) -> UserError | None:
    """Return one error that lists everything missing for runs like this one and how to get it, or None."""
    missing = list(_find_missing(config))
    if not missing:
        return None
    fetched = " ".join(dict.fromkeys(name for _, name, _ in missing if name))
    fixes = [fix for *_, fix in missing if fix]
    return UserError(
        " and ".join(what for what, *_ in missing),
        "everything that the runs use must be available before they start",
        ", and ".join([*fixes, f"run truedrift data fetch {fetched}"] if fetched else fixes),
    )


def require_available(config: RunConfig) -> None:
    """Require that everything the runs need is available. Nothing is loaded.

    Args:
        config: The configuration of one of the runs.

    Raises:
        UserError: If the data, the encoder or the extractor is missing. The message says how to get all of them.
    """
    missing = missing_requirements(config)
    if missing is not None:
        raise missing


def extractor_is_available(extractor: str) -> bool:
    """Return whether the weights are in the cache or come with an installed package."""
    name = extractor.removeprefix(ENCODER)
    if name == "abc-release":
        return find_spec("torchvision") is not None
    return (name == "inception" and find_spec("torch_fidelity") is not None) or _is_available(name)


def _is_available(name: str) -> bool:
    if name == "dinov2":
        return find_spec("transformers") is not None
    return name not in REMOTE_ASSETS or is_present(REMOTE_ASSETS[name], cache_directory(name))


def _find_missing(config: RunConfig) -> Iterator[tuple[str, str, str]]:
    """Yield what is missing, its name for `truedrift data fetch` or "", and how to get it otherwise."""
    extractor, encoder = config.evaluation.extractor, config.encoder.kind
    if extractor is not None and not extractor_is_available(extractor):
        if extractor == "abc-release":
            what = "the extractor abc-release needs torchvision, which is not installed"
            yield what, "", "install the version for your torch, or use the extractor inception"
        else:
            yield _missing_network(extractor.removeprefix(ENCODER), f"evaluates {config.recipe}")
    if not _is_available(encoder):
        yield _missing_network(encoder, f"computes the features of {config.recipe}")
    try:
        require_present(config.data.name)
    except UserError as error:
        yield error.summary, config.data.name, ""


def _missing_network(name: str, role: str) -> tuple[str, str, str]:
    if name == "dinov2":
        what = f"the network dinov2, which {role}, needs transformers, which is not installed ({HUB})"
        return what, "", "run pip install 'truedrift[dinov2]'"
    return f"the network {name}, which {role}, is not in the cache", name, ""
