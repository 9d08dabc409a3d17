"""Many runs: their order, and which are drawn: as many as there are colors, of all configurations if that allows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from truedrift.report.page.configuration import differing_paths, dotted
from truedrift.report.page.run_files import Run

MOST = 6
"""Runs that are told one by one."""
_CHANCE = "seed"
"""The option that makes another run of the same configuration."""


def are_many(runs: Sequence[Run]) -> bool:
    """Too many for a card, a color and a column each."""
    return len(runs) > MOST


def ordered(runs: Sequence[Run]) -> list[Run]:
    """Few as they are named; many by the options that differ, seeds last, since names with hashes say nothing."""
    paths = [*(path for path in differing(runs) if path != _CHANCE), _CHANCE]
    return sorted(runs, key=lambda run: _place(run, paths)) if are_many(runs) else list(runs)


def _place(run: Run, paths: Sequence[str]) -> list[tuple[int, Any]]:
    tree = dotted(run.config.tree())
    return [_rank(tree.get(path)) for path in paths]


def _rank(value: Any) -> tuple[int, Any]:
    """Numbers by size, then rows of numbers, then the others by their text."""
    if isinstance(value, int | float):
        return 0, value
    if isinstance(value, list | tuple) and all(isinstance(each, int | float) for each in value):
        return 1, list(value)
    return 2, json.dumps(value)


def drawn(runs: Sequence[Run]) -> list[Run]:
    """All, or of many the first of each configuration apart from its seed, then others, in the order of `runs`."""
    kinds = [_kind(run) for run in runs]
    first = [k for k, kind in enumerate(kinds) if kind not in kinds[:k]]
    later = [k for k in range(len(runs)) if k not in first]
    return [runs[k] for k in sorted([*first, *later][:MOST])] if are_many(runs) else list(runs)


def which_drawn(runs: Sequence[Run]) -> str:
    """Which of many are drawn, in a sentence."""
    few = len(drawn(runs))
    return f"{few} of the {len(runs)} runs: the first of each configuration, apart from its seed, and then others."


def _kind(run: Run) -> str:
    tree = {path: value for path, value in dotted(run.config.tree()).items() if path != _CHANCE}
    return json.dumps(tree, sort_keys=True)


def differing(runs: Sequence[Run]) -> list[str]:
    """Options in which not all runs are the same."""
    return differing_paths([dotted(run.config.tree()) for run in runs])
