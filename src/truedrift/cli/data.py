"""`truedrift data list` and `truedrift data fetch NAME…`: data sets and weights in the cache."""

import textwrap
from collections.abc import Callable
from functools import partial

from truedrift.cli.options.tools import Data
from truedrift.data.fetch import fetch, is_present
from truedrift.data.images import find_idx
from truedrift.data.load import NAMES
from truedrift.data.registry import REMOTE_ASSETS, RemoteAsset
from truedrift.errors import UserError, suggest_name
from truedrift.generators.pretrained import find_pretrained, pretrained_names
from truedrift.progress_display import ProgressDisplay
from truedrift.storage import cache_directory

BUILT_IN = tuple(name for name in NAMES if name not in REMOTE_ASSETS)
"""Data sets that need no download."""


def prepare(command: Data) -> Callable[[], str]:
    """Check the names."""
    if command.action == "list":
        if command.names:
            problem = f"list was given {' '.join(command.names)}"
            raise UserError(problem, "list takes no names", f"run truedrift data fetch {' '.join(command.names)}")
        return _list_assets
    unknown = [name for name in command.names if name not in (*REMOTE_ASSETS, *BUILT_IN)]
    if unknown or not command.names:
        problem = f"{unknown[0]!r} cannot be fetched" if unknown else "no name was given"
        fix = suggest_name(unknown[0] if unknown else "", REMOTE_ASSETS, "run truedrift data list")
        raise UserError(problem, f"available: {', '.join(REMOTE_ASSETS)}", fix)
    return partial(_fetch_all, tuple(dict.fromkeys(command.names)))


def _fetch_all(names: tuple[str, ...]) -> str:
    """Fetch the names one after the other; return one line per name."""
    lines = []
    with ProgressDisplay() as progress:
        for name in names:
            if name in REMOTE_ASSETS:
                source = fetch(name, progress)
                result = "already in the cache and valid" if source is None else f"from {source}, verified"
                lines.append(f"{name}: {result}: {cache_directory(name)}")
            elif name == "folder":
                lines.append("folder: nothing to fetch; pass your own directory with --data DIR")
            else:
                lines.append(f"{name}: nothing to fetch; it is part of the library")
    return "\n".join(lines)


def _list_assets() -> str:
    assets = "\n".join(map(_describe_asset, REMOTE_ASSETS.values()))
    built_in = f"no download needed: {', '.join(BUILT_IN[:-1])}, and {BUILT_IN[-1]} (--data DIR)"
    models = "\n".join(map(_describe_model, pretrained_names()))
    return f"{assets}\n\nin the package, for truedrift sample NAME:\n{models}\n\n{built_in}\ncache: {cache_directory()}"


def _describe_model(name: str) -> str:
    indent = " " * 19
    summary = textwrap.fill(find_pretrained(name).summary, 115, initial_indent=indent, subsequent_indent=indent)
    return f"{name}\n{summary}"


def _describe_asset(asset: RemoteAsset) -> str:
    if is_present(asset, cache_directory(asset.name)):
        state = "present"
    else:
        state = "installed" if any(map(find_idx, asset.system_directories)) else "–"
    sources = ", ".join(source.title for source in asset.sources)
    return f"{asset.name:19}{state:11}{asset.size / 1e6:5.0f} MB  {asset.what}\n{'':19}from {sources}"
