"""Options of a generator: a frozen dataclass of whole numbers, checked where it is made and where it is read."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from truedrift.validation import mistake

T = TypeVar("T")


def options_of(options_type: type[T], values: Any) -> T:
    """The options that config.json tells; every field is there or has a default, and no other one is."""
    if isinstance(values, options_type):
        return values
    known = {field.name: field for field in dataclasses.fields(options_type)}  # type: ignore[arg-type]
    if not isinstance(values, dict) or not set(values) <= set(known):
        came = f"has {', '.join(map(repr, values))}" if isinstance(values, dict) else f"is {values!r}"
        raise mistake(
            f"options of {options_type.__name__} {came}",
            f"allowed are {', '.join(name for name in known if name != 'kind')}",
            "take the config.json that save_pretrained wrote",
        )
    return options_type(**values)
