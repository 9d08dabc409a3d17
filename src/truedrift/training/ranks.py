"""Several processes take the same steps: their configurations, data and versions are compared at the start.

Every process draws all random numbers from (seed, step) and computes its rows of the batch. The sum of gradients is
that of one process only if all of them have the same configuration and the same data. A process with another learning
rate or another folder of images would train to the end, with a wrong result. So each process sends a description of its
run to all others, and all of them stop if two descriptions differ.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch

from truedrift import distributed
from truedrift._version import __version__
from truedrift.data.samples import Samples
from truedrift.errors import UserError
from truedrift.training.run_directory import RunDirectory

MAY_DIFFER = ("config.data.root", "config.engine.micro_batch")
"""Options that change no result: the place of the data, whose hash is compared, and the size of micro-batches."""
MOST_LISTED = 6


def require_equal_ranks(run: RunDirectory, samples: Samples) -> None:
    """Require that all processes have the same configuration, data, parts and versions.

    Args:
        run: The run of this process.
        samples: Its training data.

    Raises:
        UserError: If two processes differ, in all of them. The message lists what differs, and on which ranks.
    """
    if distributed.size() == 1:
        return
    own = {
        "truedrift": __version__,
        "torch": torch.__version__,
        "data": {"sha256": samples.digest(), "images": len(samples)},
        "parts": dict(run.parts),
        "config": run.config.tree(),
    }
    texts = distributed.gather_texts(json.dumps(own))
    differing = describe_differences([json.loads(text) for text in texts])
    if differing:
        more = f"; and {len(differing) - MOST_LISTED} more" if len(differing) > MOST_LISTED else ""
        raise UserError(
            f"the processes of this run differ: {'; '.join(differing[:MOST_LISTED])}{more}",
            "all of them must have the same options, data and version",
            "start all of them with one command, and check the data on every machine",
        )


def describe_differences(trees: list[dict[str, Any]]) -> list[str]:
    """List what differs between the descriptions of the ranks, and which ranks have which value.

    Example:
        >>> describe_differences([{"seed": 0}, {"seed": 1}, {"seed": 0}])
        ['seed is 0 on rank 0, 2 and 1 on rank 1']
    """
    flat = [_flatten(tree) for tree in trees]
    result = []
    for path in dict.fromkeys(path for tree in flat for path in tree):
        ranks: dict[str, list[str]] = {}
        for rank, tree in enumerate(flat):
            ranks.setdefault(json.dumps(tree.get(path), sort_keys=True), []).append(str(rank))
        if len(ranks) > 1 and path not in MAY_DIFFER:
            values = (f"{_cut(value)} on rank {', '.join(own)}" for value, own in ranks.items())
            result.append(f"{path.removeprefix('config.')} is {' and '.join(values)}")
    return result


def _cut(text: str, longest: int = 60) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"


def _flatten(tree: Mapping[str, Any], section: str = "") -> dict[str, Any]:
    """Return {"section.option": value}."""
    leaves: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{section}.{name}" if section else name
        leaves |= _flatten(value, path) if isinstance(value, Mapping) else {path: value}
    return leaves
