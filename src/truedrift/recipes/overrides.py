"""`recipe(name, …)`: a configuration from a recipe, with the changes of the user."""

import inspect
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from truedrift.errors import UserError, require_choice
from truedrift.options import LARGEST_INTEGER
from truedrift.recipes.arrays import array
from truedrift.recipes.recipes import (
    cifar10,
    cifar10_cpu,
    cifar10_own,
    cifar100,
    digits,
    fashion_mnist,
    fashion_mnist_pixels,
    folder,
    toy,
)
from truedrift.training.config import RunConfig
from truedrift.training.config_checks import config_from_dict

RECIPES: dict[str, Callable[..., RunConfig]] = {
    "array": array,
    "toy": toy,
    "digits": digits,
    "fashion-mnist": fashion_mnist,
    "fashion-mnist-pixels": fashion_mnist_pixels,
    "folder": folder,
    "cifar10-cpu": cifar10_cpu,
    "cifar10-own": cifar10_own,
    "cifar10": cifar10,
    "cifar100": cifar100,
}
"""Recipes by name."""

FLAG_PATHS: dict[str, tuple[tuple[str, ...], ...]] = {
    "n": (("batch", "n"),),
    "seed": (("seed",),),
    "estimator": (("objective", "estimator_pos"), ("objective", "estimator_neg")),
    "data": (("data", "name"), ("data", "root")),
    "classes": (("data", "classes"),),
    "steps": (("cadence", "steps_per_epoch"),),
}
"""The options that each argument of a recipe sets."""

NAME_LISTS = (("data", "classes"),)
"""Options that are lists of names. In a setting, a,b is such a list; a name may look like a number."""


def recipe(
    name: str,
    *,
    given: Mapping[str, Any] | None = None,
    tree: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
) -> RunConfig:
    """Return the configuration of a recipe. Later sources override earlier ones: recipe, tree, given, settings.

    Args:
        name: One of `RECIPES`.
        given: Arguments of the recipe: n, seed, estimator, data, classes. None keeps the recipe's own value.
        tree: Options as nested dictionaries, such as the content of a JSON file.
        settings: Single options as "section.option=value".

    Returns:
        The configuration, after all checks.

    Raises:
        UserError: If a name is unknown, or an option has a value that is not allowed.

    Example:
        >>> config = recipe("digits", given={"n": 16}, settings=["optimizer.clip=1.0"])
        >>> config.batch.n, config.optimizer.clip
        (16, 1.0)
    """
    require_choice("the recipe", name, RECIPES)
    function = RECIPES[name]

    # Arguments of the recipe
    arguments = {key: value for key, value in (given or {}).items() if value is not None}
    parameters = inspect.signature(function).parameters
    if "classes" not in parameters and "classes" in arguments:  # every data set has classes, also in other recipes
        settings = (f"data.classes={json.dumps(arguments.pop('classes'))}", *settings)
    arguments |= _data_arguments(parameters, arguments, tree or {}, settings)
    arguments |= _steps_argument(parameters, arguments, tree or {}, settings)
    unknown = [key for key in arguments if key not in parameters]
    if unknown:
        raise UserError(
            f"is not an argument of the recipe {name}",
            f"arguments: {', '.join(parameters)}",
            "leave it out",
            field=unknown[0],
        )
    defaults = function(**arguments).tree()

    # Overrides
    given_options = _select(defaults, [path for key in arguments for path in FLAG_PATHS[key]])
    merged = _merge(_merge(defaults, tree or {}), given_options)
    return config_from_dict(apply_settings(merged, settings))


def _data_arguments(
    parameters: Collection[str], given: Mapping[str, Any], tree: Mapping[str, Any], settings: Sequence[str]
) -> dict[str, Any]:
    """Return the classes and the directory of the data where they were given as options, not as arguments.

    Length and guidance of a recipe with the argument `classes` depend on them.
    """
    found: dict[str, Any] = {}
    if "classes" not in parameters:
        return found
    for options, overrides in ((tree, False), (apply_settings({}, settings), True)):
        data = options.get("data")
        for argument, option in (("classes", "classes"), ("data", "root")):
            value = data.get(option) if isinstance(data, Mapping) else None
            right_type = isinstance(value, str if option == "root" else (list, tuple))
            if value and right_type and (overrides or argument not in given):
                found[argument] = value if option == "root" else tuple(value)
    return found


def _steps_argument(
    parameters: Collection[str], given: Mapping[str, Any], tree: Mapping[str, Any], settings: Sequence[str]
) -> dict[str, Any]:
    """Return the number of steps where it was given as an option, not as an argument.

    Warm-up and intervals of a recipe with the argument `steps` depend on it.
    """
    found: dict[str, Any] = {}
    if "steps" not in parameters:
        return found
    for options, overrides in ((tree, False), (apply_settings({}, settings), True)):
        cadence = options.get("cadence")
        steps = cadence.get("steps_per_epoch") if isinstance(cadence, Mapping) else None
        if type(steps) is int and 1 <= steps <= LARGEST_INTEGER and (overrides or "steps" not in given):
            found["steps"] = steps  # other values are refused with the configuration
    return found


def apply_settings(tree: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Return the options with some of them replaced.

    Args:
        tree: Options as nested dictionaries.
        settings: Single options as "section.option=value". A section of another `kind` replaces the whole section.

    Returns:
        New dictionaries; values are not checked.

    Raises:
        UserError: If a setting has another form.

    Example:
        >>> apply_settings({"seed": 0, "batch": {"n": 8}}, ["batch.n=16"])
        {'seed': 0, 'batch': {'n': 16}}
    """
    merged = dict(tree)
    for setting in settings:
        merged = _merge(merged, _parse_setting(setting))
    return merged


def _select(tree: Mapping[str, Any], paths: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """Return the part of the tree at these paths."""
    selected: dict[str, Any] = {}
    for *sections, name in paths:
        target, source = selected, tree
        for section in sections:
            target, source = target.setdefault(section, {}), source[section]
        target[name] = source[name]
    return selected


def _merge(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Merge section by section. A section of another `kind` replaces the whole section."""
    merged = dict(base)
    for name, value in overrides.items():
        old = merged.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            same_kind = value.get("kind", old.get("kind")) == old.get("kind")
            merged[name] = _merge(old, value) if same_kind else dict(value)
        else:
            merged[name] = value
    return merged


def _parse_setting(text: str) -> dict[str, Any]:
    """Parse "a.b=c" as {"a": {"b": c}}."""
    path, equals, value = text.partition("=")
    names = path.strip().split(".")
    if not equals or not all(names):
        raise UserError(
            f"the setting is {text!r}", "must be section.option=value", "write for example optimizer.clip=1.0"
        )
    tree: Any = _parse_names(value.strip()) if tuple(names) in NAME_LISTS else _parse_value(value.strip())
    for name in reversed(names):
        tree = {name: tree}
    return dict(tree)


def _parse_names(text: str) -> Any:
    """Parse a list of names: JSON if it begins with a bracket, else names with commas between them."""
    if text.startswith("["):
        return _parse_value(text)
    return [name.strip() for name in text.split(",")] if text else []


def _parse_value(text: str) -> Any:
    """Parse a value: None for "none", else JSON, else a list in JSON without its brackets, else text."""
    if text.lower() == "none":
        return None
    for form in (text, f"[{text}]"):  # 0.1,0.5 is a list; a,b stays text, as it may name a directory
        try:
            return json.loads(form)
        except (ValueError, RecursionError):
            continue
    return text
