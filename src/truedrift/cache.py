"""Where what is fetched lives: $TRUEDRIFT_CACHE, else $XDG_CACHE_HOME/truedrift, else ~/.cache/truedrift."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory(name: str = "") -> Path:
    """The directory of the cache, or that of one data set in it. It need not exist."""
    own = os.environ.get("TRUEDRIFT_CACHE")
    if own:
        return Path(own).expanduser() / name
    # A relative XDG_CACHE_HOME is to be ignored, as its specification says.
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "truedrift" / name
