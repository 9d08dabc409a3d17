"""Recipes by name, with what the user changes of them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from truedrift.errors import UserError, require_choice
from truedrift.options import from_dict
from truedrift.recipes.recipes import cifar10, cifar10_cpu, cifar100, digits, fashion_mnist, folder, toy
from truedrift.training.config import RunConfig, validated_config

RECIPES: dict[str, Callable[..., RunConfig]] = {
    "toy": toy,
    "digits": digits,
    "fashion-mnist": fashion_mnist,
    "folder": folder,
    "cifar10-cpu": cifar10_cpu,
    "cifar10": cifar10,
    "cifar100": cifar100,
}


FLAG_PATHS: dict[str, tuple[tuple[str, ...], ...]] = {
    "n": (("batch", "n"),),
    "seed": (("seed",),),
    "estimator": (("objective", "estimator_pos"), ("objective", "estimator_neg")),
    "data": (("data", "name"), ("data", "root")),
}
"""Where in the configuration an argument of a recipe ends up."""


def recipe(
    name: str,
    *,
    given: Mapping[str, Any] | None = None,
    tree: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
) -> RunConfig:
    """The recipe of that name: its defaults, a file's tree, what was `given`, `a.b=c` settings, each over those before.

    `given` are arguments of the recipe (n, seed, estimator, data); those that are None stay the recipe's own.
    """
    require_choice("the recipe", name, RECIPES)
    function = RECIPES[name]
    arguments = {key: value for key, value in (given or {}).items() if value is not None}
    unknown = [key for key in arguments if key not in inspect.signature(function).parameters]
    if unknown:
        came = f"{unknown[0]} was given for the recipe {name}"
        raise UserError(came, f"it takes {', '.join(inspect.signature(function).parameters)}", "leave it out")
    own = function(**arguments).tree()
    whole = _merge(_merge(own, tree or {}), _select(own, [path for key in arguments for path in FLAG_PATHS[key]]))
    for setting in settings:
        whole = _merge(whole, _setting(setting))
    return validated_config(from_dict(RunConfig, whole))


def _select(tree: Mapping[str, Any], paths: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """The tree with these leaves alone."""
    some: dict[str, Any] = {}
    for path in paths:
        *groups, name = path
        below, above = some, tree
        for group in groups:
            below, above = below.setdefault(group, {}), above[group]
        below[name] = above[name]
    return some


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`, group by group; a group of another kind replaces the whole group."""
    joined = dict(below)
    for name, value in above.items():
        old = joined.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            same_kind = value.get("kind", old.get("kind")) == old.get("kind")
            joined[name] = _merge(old, value) if same_kind else dict(value)
        else:
            joined[name] = value
    return joined


def _setting(text: str) -> dict[str, Any]:
    """`a.b=c` as {"a": {"b": c}}; c is JSON if it can be, `none` is no value, else text."""
    path, equals, value = text.partition("=")
    names = path.strip().split(".")
    if not equals or not all(names):
        raise UserError(f"the setting is {text!r}", "allowed is section.option=value", "write optimizer.clip=1.0, say")
    tree: Any = _parse_value(value.strip())
    for name in reversed(names):
        tree = {name: tree}
    return dict(tree)


def _parse_value(text: str) -> Any:
    if text.lower() == "none":
        return None
    for form in (text, f"[{text}]"):  # 0.1,0.5 is a list; a,b may be the name of a directory
        try:
            return json.loads(form)
        except (ValueError, RecursionError):
            continue
    return text
