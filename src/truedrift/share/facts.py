"""Facts on a model for its card: data, training and metrics, as its files state them.

| source             | facts                                                                          |
|--------------------|--------------------------------------------------------------------------------|
| a run              | configuration, metrics.jsonl, evaluations.jsonl and history.jsonl of the run   |
| `pretrained:NAME`  | record.json of the model                                                       |
| an exported folder | export.json, which holds the facts of the export                               |
| another folder     | nothing but the network                                                        |

Only evaluations of the exported weights are stated: those of the averaged weights at the exported step.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from truedrift.errors import UserError
from truedrift.evaluation.record import Metrics, Protocol
from truedrift.generators.pretrained import find_pretrained, is_pretrained
from truedrift.options import from_dict
from truedrift.page.run_data import final_evaluations, read_run
from truedrift.report.neighbors import describe_neighbors
from truedrift.storage import read_regular
from truedrift.training.config import RunConfig
from truedrift.training.load import load_generator
from truedrift.training.run_directory import is_run
from truedrift.training.status import wall_seconds

EXPORT = "export.json"
"""The file of an exported folder that holds its facts."""


@dataclass(frozen=True, kw_only=True)
class MeasuredMetrics:
    """Metrics and how they were computed."""

    metrics: Metrics
    protocol: Protocol


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the card of a model states. All texts are plain and are escaped where they are printed."""

    name: str
    license: str = "unknown"
    """License of the weights, as the Hub spells it."""
    data: tuple[tuple[str, str], ...] = ()
    """Labels and texts on the data."""
    training: tuple[tuple[str, str], ...] = ()
    """Labels and texts on the training."""
    evaluations: tuple[MeasuredMetrics, ...] = ()
    neighbors: str | None = None
    """One sentence on nearest training images."""


def find_facts(source: Path, license_name: str | None = None) -> Facts:
    """Collect the facts on a model.

    Args:
        source: A run directory, `pretrained:NAME`, or a folder of a saved or exported model.
        license_name: License of the weights; None: that of the source, or "unknown".

    Returns:
        The facts.

    Raises:
        UserError: If export.json of the folder is damaged.
    """
    if is_pretrained(source):
        facts = _pretrained_facts(source)
    elif is_run(source):
        facts = _run_facts(source)
    elif (source / EXPORT).is_file():
        facts = _read_facts(source / EXPORT)
    else:
        facts = Facts(name=source.resolve().name)
    return facts if license_name is None else replace(facts, license=license_name)


def _read_facts(path: Path) -> Facts:
    try:
        return from_dict(Facts, json.loads(read_regular(path).decode()))
    except (OSError, ValueError, RecursionError) as error:  # UserError is a ValueError
        summary = error.summary if isinstance(error, UserError) else "it is not JSON"
        allowed, fix = "must be the file that truedrift export wrote", "export the model again"
        raise UserError(f"{str(path)!r} is damaged ({summary})", allowed, fix) from None


def _pretrained_facts(source: Path) -> Facts:
    record = find_pretrained(source).record
    data = record["data"]
    return Facts(
        name=str(record["name"]).partition(":")[2],
        license="mit",
        data=(
            ("data", f"{data['title']}: {data['source']}"),
            ("license of the data", data["license"]),
            ("sha256 of the data", data["sha256"]),
        ),
        training=(
            *_describe_config(from_dict(RunConfig, record["config"])),
            ("command", record["command"]),
            ("steps", f"{record['steps']:,}, averaged weights (decay {record['decay']:g})"),
            ("time", f"{record['seconds']:,.0f} s on {record['machine']}"),
            ("version", f"truedrift {record['version']}, commit {record['commit']}"),
        ),
        evaluations=tuple(from_dict(MeasuredMetrics, each) for each in record["evaluations"]),
        neighbors=record["neighbors"],
    )


def _run_facts(source: Path) -> Facts:
    run, step = read_run(source, source.resolve().name), load_generator(source).step
    config = run.config
    found = [each for each in final_evaluations(run) if (each.step, each.protocol.weights) == (step, "ema")]
    neighbors = run.neighbors
    if neighbors is not None and (neighbors.step, neighbors.protocol.weights) != (step, "ema"):
        neighbors = None
    data = ("data", config.data.name), ("sha256 of the data", run.data_sha256)
    return Facts(
        name=run.name,
        data=data,
        training=(
            *_describe_config(config),
            ("steps", f"{step:,} of {config.cadence.steps:,}, averaged weights (decay {config.optimizer.ema:g})"),
            ("time", f"{wall_seconds(source):,.0f} s"),
            ("version", f"truedrift {run.version}, commit {run.commit}"),
        ),
        evaluations=tuple(MeasuredMetrics(metrics=each.metrics, protocol=each.protocol) for each in found),
        neighbors=None if neighbors is None else describe_neighbors(neighbors),
    )


def _describe_config(config: RunConfig) -> Iterable[tuple[str, str]]:
    """Describe the recipe, the features and the field."""
    objective, batch = config.objective, config.batch
    kinds = [config.encoder.kind, *(each.kind for each in config.encoders), *["pixels"] * objective.pixels]
    yield "recipe", f"{config.recipe}, seed {config.seed}"
    yield "features", ", ".join(dict.fromkeys(kinds))
    yield "estimator", f"{objective.estimator_pos} of positives, {objective.estimator_neg} of negatives"
    references = f"{batch.n} positives and {config.generated} generated samples per class"
    yield "references", f"{references}, {'matched' if objective.matched else 'not matched'}"
    yield "temperatures", ", ".join(f"{tau:g}" for tau in objective.temperatures)


def to_json(facts: Mapping[str, Any]) -> bytes:
    """Return the content of export.json."""
    return (json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()
