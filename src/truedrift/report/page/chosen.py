"""Which of many runs are drawn: as many as there are colors, and of as many configurations as that allows."""

from __future__ import annotations

import json
from collections.abc import Sequence

from truedrift.report.page.configuration import differing_paths, dotted
from truedrift.report.page.run_files import Run

MOST = 6
"""Runs that are told one by one."""
_CHANCE = "seed"
"""The option that makes another run of the same configuration."""


def are_many(runs: Sequence[Run]) -> bool:
    """Too many for a card, a color and a column each."""
    return len(runs) > MOST


def drawn(runs: Sequence[Run]) -> list[Run]:
    """All, or of many the first of each configuration apart from its seed, then others, in the order of `runs`."""
    kinds = [_kind(run) for run in runs]
    first = [k for k, kind in enumerate(kinds) if kind not in kinds[:k]]
    later = [k for k in range(len(runs)) if k not in first]
    return [runs[k] for k in sorted([*first, *later][:MOST])] if are_many(runs) else list(runs)


def _kind(run: Run) -> str:
    tree = {path: value for path, value in dotted(run.config.tree()).items() if path != _CHANCE}
    return json.dumps(tree, sort_keys=True)


def differing(runs: Sequence[Run]) -> list[str]:
    """Options in which not all runs are the same."""
    return differing_paths([dotted(run.config.tree()) for run in runs])
