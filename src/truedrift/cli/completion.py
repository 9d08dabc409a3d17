"""`truedrift completion SHELL`: print a script that completes commands, options and names in bash or zsh."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, get_args, get_type_hints

import tyro

from truedrift.cli.main import COMMANDS, command_class
from truedrift.cli.options.tools import Completion
from truedrift.data.load import IMAGES
from truedrift.data.registry import REMOTE_ASSETS
from truedrift.encoders.catalog import OPTIONS
from truedrift.generators.pretrained import pretrained_names
from truedrift.paper.catalog import REPRODUCIBLE
from truedrift.recipes import DESCRIPTIONS

SCRIPT = """\
_truedrift() {{
  local line="${{COMP_LINE:0:COMP_POINT}}" names options words
  local current="${{line##* }}"
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  if (( COMP_CWORD == 1 )); then
    words={commands}
  elif [[ "$current" == -* ]]; then
    words="$options"
  elif [[ "${{COMP_WORDS[COMP_CWORD-1]}}" != -* ]]; then
    words="$names"
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  # The shell replaces only what follows the last colon, as in fig:bias_loglog.
  if [[ "$current" == *:* && "$COMP_WORDBREAKS" == *:* ]]; then
    COMPREPLY=("${{COMPREPLY[@]#"${{current%"${{current##*:}}"}}"}}")
  fi
}}
complete -o default -F _truedrift truedrift"""
"""Where no name fits, the shell completes paths."""

HEADS = {"bash": "", "zsh": "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"}


def prepare(command: Completion) -> Callable[[], str]:
    """Return the work; the parser has checked the shell."""
    return partial(completion_script, command.shell)


def completion_script(shell: str) -> str:
    """Return the script for a shell."""
    cases = "\n".join(_case(name) for name in COMMANDS)
    return HEADS[shell] + SCRIPT.format(cases=cases, commands=_words([*COMMANDS, "--help", "--version"]))


def positional_names() -> dict[str, Sequence[str]]:
    """Return the names that each command takes; a command that is not listed takes paths or none."""
    return {
        "train": tuple(DESCRIPTIONS),
        "recipes": tuple(DESCRIPTIONS),
        "sample": pretrained_names(),
        "evaluate": pretrained_names(),
        "train-encoder": IMAGES,
        "evaluate-encoder": tuple(name for name in OPTIONS if name != "own"),
        "data": ("list", "fetch", *REMOTE_ASSETS),
        "bias": ("four-modes", "three-clusters"),
        "reproduce": (*REPRODUCIBLE, "all"),
        "completion": tuple(HEADS),
    }


def option_names(kind: type[Any], prefix: str = "--") -> Iterator[str]:
    """Yield the flags of a class of options, and of the classes in it."""
    hints = get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        name, hint = f"{prefix}{each.name.replace('_', '-')}", hints[each.name]
        if isinstance(hint, type) and is_dataclass(hint):
            yield from option_names(hint, f"{name}.")
        elif tyro.conf.Positional not in get_args(hint):
            yield name


def _case(name: str) -> str:
    names, options = positional_names().get(name, ()), (*option_names(command_class(name)), "--help")
    return f"    {name}) names={_words(names)} options={_words(options)} ;;"


def _words(words: Sequence[str]) -> str:
    return shlex.quote(" ".join(words))
