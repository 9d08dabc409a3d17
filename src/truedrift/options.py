"""Dataclasses from JSON and back: options and records.

The type of a field is its rule: `Annotated[float, Within(0, 1)]`, `Literal["a", "b"]`, `tuple[X, ...]`, `tuple[X, Y]`,
`X | None`, another dataclass, or a union of dataclasses with a field `kind` that selects one. An error names the field
by its dotted path, as in `optimizer.learning_rate is -1`.
"""

import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from truedrift.errors import UserError, read_integer, suggest_name

Options = TypeVar("Options")
LARGEST_INTEGER = (1 << 63) - 1
"""The largest integer of torch and NumPy."""


@dataclass(frozen=True)
class Within:
    """The rule that a number is at least `low` and at most `high`.

    Args:
        low: The smallest allowed number.
        high: The largest allowed number.
        above: Exclude `low` itself.
    """

    low: float
    high: float = math.inf
    above: bool = False

    def holds(self, value: float) -> bool:
        """Return whether the number is allowed."""
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        low = f"must be {'greater than' if self.above else 'at least'} {_format_number(self.low)}"
        return low if self.high == math.inf else f"{low} and at most {_format_number(self.high)}"


@dataclass(frozen=True)
class NonEmpty:
    """The rule that a tuple has at least one entry."""

    def holds(self, value: tuple[Any, ...]) -> bool:
        """Return whether the tuple is allowed."""
        return len(value) > 0

    def __str__(self) -> str:
        return "must have at least one entry"


def _format_number(number: float) -> str:
    """Write whole numbers with all their digits."""
    return str(int(number)) if float(number).is_integer() else f"{number:g}"


def from_dict(kind: Callable[..., Options], tree: Any, where: str = "") -> Options:
    """Build a dataclass from dictionaries and lists, and check every field against its type.

    Args:
        kind: The dataclass.
        tree: Its fields by name. Missing fields take their defaults.
        where: The dotted path of `tree`, for error messages.

    Returns:
        An instance of `kind`. Integers become floats and lists become tuples where the type asks for it.

    Raises:
        UserError: If a field is unknown, missing without a default, or has a value that its type does not allow.

    Example:
        >>> @dataclass(frozen=True)
        ... class Optimizer:
        ...     learning_rate: Annotated[float, Within(0, above=True)]
        ...     betas: tuple[float, float] = (0.9, 0.95)
        >>> from_dict(Optimizer, {"learning_rate": 1})
        Optimizer(learning_rate=1.0, betas=(0.9, 0.95))
        >>> from_dict(Optimizer, {"learning_rate": -1})
        Traceback (most recent call last):
        truedrift.errors.UserError: learning_rate is -1.0; must be greater than 0; set learning_rate to an allowed value
    """
    if not isinstance(tree, Mapping):
        raise UserError(
            f"is {_short_repr(tree)}", "must be a mapping", "write {name: value}", field=where or "the input"
        )
    hints = _hints(kind)

    # Look for unknown fields.
    for name in tree:
        if name not in hints:
            path = _truncate(_join_path(where, str(name)), 200)
            fix = suggest_name(name, hints, "use one of these")
            raise UserError("is unknown", f"known: {', '.join(hints)}", fix, field=path)
    # Convert the values, and look for missing fields.
    values = {name: _value(hints[name], value, _join_path(where, name)) for name, value in tree.items()}
    for each in fields(kind):  # type: ignore[arg-type]
        if each.name not in values and each.default is MISSING and each.default_factory is MISSING:
            raise UserError("is missing", "it has no default", "set it", field=_join_path(where, each.name))
    # Let the dataclass check itself.
    try:
        return kind(**values)
    except UserError as error:
        raise (error.in_section(where) if where else error) from None


def validated(options: Options) -> Options:
    """Return the same options after checking every field against its type."""
    return from_dict(type(options), asdict(options))  # type: ignore[call-overload]


def use_plain_integers(options: object) -> None:
    """Replace the integers of NumPy and other libraries in a frozen dataclass by ints, which JSON can hold.

    Example:
        >>> @dataclass(frozen=True)
        ... class Size:
        ...     width: int
        ...     def __post_init__(self):
        ...         use_plain_integers(self)
        >>> import numpy as np
        >>> Size(np.int64(8))
        Size(width=8)
    """
    for name, value in vars(options).items():
        if isinstance(value, tuple):
            plain = tuple(each if (number := read_integer(each)) is None else number for each in value)
            object.__setattr__(options, name, plain)
        elif (number := read_integer(value)) is not None:
            object.__setattr__(options, name, number)


def differences(a: Mapping[str, Any], b: Mapping[str, Any], where: str = "") -> list[str]:
    """List the dotted paths at which two trees differ, with both values.

    Example:
        >>> differences({"seed": 1, "batch": {"n": 8}}, {"seed": 1, "batch": {"n": 16}})
        ['batch.n (8 and 16)']
    """
    result = []
    for name in sorted(a.keys() | b.keys()):
        path, left, right = _join_path(where, name), a.get(name), b.get(name)
        values = [list(each) if isinstance(each, tuple) else each for each in (left, right)]
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            result += differences(left, right, path)
        elif values[0] != values[1]:
            result.append(f"{path} ({_short_repr(left)} and {_short_repr(right)})")
    return result


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _join_path(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _value(kind: Any, value: Any, where: str) -> Any:
    """Convert a value to its type, or raise an error that names `where`."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        converted = _value(parts[0], value, where)
        for rule in parts[1:]:
            if converted is not None and not rule.holds(converted):
                raise UserError(f"is {converted!r}", str(rule), f"set {where} to an allowed value", field=where)
        return converted
    if origin in (UnionType, Union):
        return _union(parts, value, where)
    if origin is Literal:
        return _choice(parts, value, where)
    if origin is tuple:
        return _tuple(parts, value, where)
    if isinstance(kind, type) and is_dataclass(kind):
        return from_dict(kind, value, where)
    return _scalar(kind, value, where)


def _union(parts: tuple[Any, ...], value: Any, where: str) -> Any:
    kinds = [part for part in parts if part is not NoneType]
    if value is None and NoneType in parts:
        return None
    if len(kinds) == 1:
        return _value(kinds[0], value, where)
    by_name = {_hints(part)["kind"].__args__[0]: part for part in kinds}
    if not isinstance(value, Mapping) or "kind" not in value:
        raise UserError(f"is {_short_repr(value)}", f"must have a kind: {', '.join(by_name)}", "add kind", field=where)
    return from_dict(by_name[_choice(tuple(by_name), value["kind"], _join_path(where, "kind"))], value, where)


def _choice(choices: tuple[Any, ...], value: Any, where: str) -> Any:
    if not isinstance(value, str) or value not in choices:
        names = ", ".join(map(str, choices))
        fix = suggest_name(value, choices, "choose one of these")
        raise UserError(f"is {_short_repr(value)}", f"must be one of {names}", fix, field=where)
    return value


def _tuple(parts: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if parts[-1] is Ellipsis and type(value) in (int, float):  # one number, as in optimizer.more_ema=0.999
        value = [value]
    if not isinstance(value, (list, tuple)):
        raise UserError(f"is {_short_repr(value)}", "must be a list", "write it as [a, b]", field=where)
    kinds = parts[:1] * len(value) if parts[-1] is Ellipsis else parts
    if len(kinds) != len(value):
        allowed = f"must have {len(kinds)} entries"
        raise UserError(f"is {_short_repr(value)}", allowed, "add or remove entries", field=where)
    return tuple(_value(kinds[i], each, f"{where}[{i}]") for i, each in enumerate(value))


def _scalar(kind: Any, value: Any, where: str) -> Any:
    if kind is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:
        return float(value)
    if kind is int and (number := read_integer(value)) is not None and abs(number) <= LARGEST_INTEGER:
        return number
    if kind is bool and type(value) is bool:
        return value
    # Text may become a file name: no NUL, and no lone surrogates, which UTF-8 cannot encode.
    if kind is str and type(value) is str and not re.search("[\0\ud800-\udfff]", value):
        return value
    names = {bool: "true or false", int: "an integer", float: "a finite number", str: "text without NUL or surrogates"}
    raise UserError(f"is {_short_repr(value)}", f"must be {names[kind]}", f"set {where} to {names[kind]}", field=where)


def _short_repr(value: Any) -> str:
    try:
        return _truncate(repr(value), 60)
    except (RecursionError, ValueError):  # deep nesting, or a number with thousands of digits
        return f"a {type(value).__name__} too long to show"


def _truncate(text: str, length: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 3] + "..."
