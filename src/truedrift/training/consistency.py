"""Whether the options of a run fit together: every field by itself, then all that must agree, before any work."""

from __future__ import annotations

import re
from typing import Any

from truedrift.data.catalog import NAMES, TOYS
from truedrift.options import checked
from truedrift.training.config import LARGEST_SIZE, ConditionOptions, DataOptions, RunConfig
from truedrift.validation import mistake


def require_consistent(config: RunConfig) -> RunConfig:
    """The configuration after every field and every pair of fields that must agree was looked at."""
    config = checked(config)
    _require_name(config.recipe)
    _require_place(config.data)
    _require_sizes("generator", config.generator)
    _require_sizes("encoder", config.encoder)
    _require_strengths(config.condition)
    if config.batch.unconditional > 0:
        _require_guidance(config)
    if config.objective.arithmetic == "abc-release":
        _require_release(config)
    return config


def _require_strengths(condition: ConditionOptions) -> None:
    low, high = condition.strength_low, condition.strength_high
    if low > high:
        came = f"condition.strength_low is {low} above condition.strength_high {high}"
        raise mistake(came, "allowed is at most that", "exchange them")


def _require_guidance(config: RunConfig) -> None:
    """Unconditional negatives need weights, a strength that gives them some, and an estimator that knows of them."""
    beside = f"with batch.unconditional {config.batch.unconditional}"
    estimator, generated = config.objective.estimator_neg, config.generated
    if estimator not in ("standard", "abc"):
        raise mistake(
            f"objective.estimator_neg is {estimator!r} {beside}",
            "its correction assumes one pool of references",
            'choose "abc", which is stratified there, or "standard"',
        )
    if generated < 2:
        raise mistake(
            f"batch.generated is {generated} {beside}",
            "weights of unconditional negatives count the other generated samples",
            "generate 2 or more a class",
        )
    if config.condition.strength_high == 1:
        raise mistake(
            f"condition.strength_high is 1 {beside}",
            "at strength 1 unconditional negatives weigh nothing",
            "set condition.strength_high=4, say",
        )


def _require_name(recipe: str) -> None:
    """It is part of the run directory's name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", recipe):
        came = f"recipe is {recipe[:80]!r}"
        raise mistake(came, "allowed are up to 64 letters, digits, _, . and -", "choose a name of these")


def _require_place(data: DataOptions) -> None:
    """Of data sets that are known by their name; others are Python objects of the user's (`Parts`)."""
    if data.name not in NAMES:
        return
    if data.root is not None and (data.name in TOYS or data.name == "digits"):
        came = f"data.root is {data.root[:80]!r} with data.name {data.name}"
        raise mistake(came, "that comes with the library and needs none", "leave it out, or take the recipe folder")
    if data.root == "":
        raise mistake("data.root is empty", "allowed is a directory or an archive", "name it, or leave it out")
    if data.image_size is not None and data.name != "folder":
        came = f"data.image_size is {data.image_size} with data.name {data.name}"
        raise mistake(came, "allowed is one for folder", "leave it out, or save the images to a folder")


def _require_sizes(section: str, options: Any) -> None:
    """No size of a network is beyond all memory; a seed is none."""
    for name, value in vars(options).items():
        numbers = value if isinstance(value, tuple) else (value,)
        if name != "seed" and any(isinstance(number, int) and number > LARGEST_SIZE for number in numbers):
            raise mistake(f"{section}.{name} is {value!r}", f"allowed is up to {LARGEST_SIZE}", "take less")


def _require_release(config: RunConfig) -> None:
    """The published arithmetic is one formula: what it has no place for is refused."""
    objective = config.objective
    fixed = {
        "normalization": "bidirectional",
        "form": "product",
        "feature_scale": "standardize-l2",
        "kernel": "laplace",
    }
    for name, value in fixed.items():
        if getattr(objective, name) != value:
            came = f"objective.{name} is {getattr(objective, name)!r} with objective.arithmetic abc-release"
            raise mistake(came, f"allowed is {value!r}", "leave it, or take the arithmetic stable")
    for side in ("estimator_pos", "estimator_neg"):
        if getattr(objective, side) not in ("standard", "abc", "abc2"):
            came = f"objective.{side} is {getattr(objective, side)!r} with objective.arithmetic abc-release"
            raise mistake(came, "allowed are standard, abc and abc2", "choose one, or take the arithmetic stable")
    if config.batch.unconditional > 0:
        came = f"batch.unconditional is {config.batch.unconditional} with objective.arithmetic abc-release"
        raise mistake(came, "allowed is 0", "take the arithmetic stable")
    if config.engine.precision == "float64":
        came = "engine.precision is float64 with objective.arithmetic abc-release"
        raise mistake(came, "that arithmetic is float32", "take the arithmetic stable")
