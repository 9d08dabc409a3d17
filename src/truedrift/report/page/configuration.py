"""Configurations side by side: what differs, and all of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from truedrift.report.page.markup import Content, element
from truedrift.report.page.run_files import Run
from truedrift.report.page.tables import table


def section(runs: Sequence[Run], differing: Sequence[str]) -> list[Content]:
    """The options that differ, then every option, folded."""
    trees = [dotted(run.config.tree()) for run in runs]
    header: list[Content] = ["option", *(element("bdi", run.name) for run in runs)]
    everything = table(header, _rows(dict.fromkeys(path for tree in trees for path in tree), trees))
    folded = element("details", element("summary", "The whole configuration"), everything, open=len(runs) == 1)
    if len(runs) == 1:
        return [folded]
    if not differing:
        return [element("p", "The configurations are the same."), folded]
    return [table(header, _rows(differing, trees)), folded]


def differing_paths(trees: Sequence[Mapping[str, Any]]) -> list[str]:
    """Dotted paths at which not all trees hold the same."""
    paths = dict.fromkeys(path for tree in trees for path in tree)
    return [path for path in paths if len({written(tree, path) for tree in trees}) > 1]


def dotted(tree: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """A tree of groups as one level: section.option → value."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{where}.{name}" if where else name
        found |= dotted(value, path) if isinstance(value, Mapping) else {path: value}
    return found


def _rows(paths: Sequence[str] | Mapping[str, Any], trees: Sequence[Mapping[str, Any]]) -> list[list[Content]]:
    return [[element("code", path), *(written(tree, path) for tree in trees)] for path in paths]


def written(tree: Mapping[str, Any], path: str) -> str:
    """An option's value as text."""
    if path not in tree:
        return "–"
    value = tree[path]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
