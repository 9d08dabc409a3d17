"""Options as frozen dataclasses whose fields say what they allow; JSON in and out, and one sentence for every mistake.

A field's type is the rule: `Annotated[float, Within(0, 1)]`, `Literal[...]`, `tuple[X, ...]`, `X | None`, another
dataclass, or a union of dataclasses that are told apart by their field `kind`. Mistakes name the field by its dotted
path, as in `optimizer.learning_rate is -1`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from truedrift.errors import UserError

Options = TypeVar("Options")
LARGEST_INTEGER = 1 << 53
"""Beyond it JSON readers lose digits."""


@dataclass(frozen=True)
class Within:
    """Numbers from `low` to `high`; `above` leaves `low` itself out."""

    low: float
    high: float = math.inf
    above: bool = False

    def holds(self, value: float) -> bool:
        """Whether the number is allowed."""
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        low = (
            f"a number above {_plain_number(self.low)}"
            if self.above
            else f"a number of at least {_plain_number(self.low)}"
        )
        return low if self.high == math.inf else f"{low} and at most {_plain_number(self.high)}"


def _plain_number(number: float) -> str:
    """Whole numbers with all their digits."""
    return str(int(number)) if float(number).is_integer() else f"{number:g}"


def to_dict(options: Any) -> dict[str, Any]:
    """The options as what JSON can hold: dictionaries, lists, strings, numbers."""
    tree: dict[str, Any] = asdict(options)
    return tree


def from_dict(kind: Callable[..., Options], tree: Any, where: str = "") -> Options:
    """Options of that kind from dictionaries and lists; fields that are left out keep their defaults."""
    if not isinstance(tree, Mapping):
        raise UserError(
            f"{where or 'the configuration'} is {_short_repr(tree)}", "allowed is a group of options", "name them"
        )
    allowed = _hints(kind)
    for name in tree:
        if name not in allowed:
            known = ", ".join(allowed)
            came = f"{_below(where, name if isinstance(name, str) else repr(name))} is no option"
            raise UserError(_truncate(came, 200), f"allowed are {known}", "choose one of them")
    values = {name: _value(allowed[name], value, _below(where, name)) for name, value in tree.items()}
    missing = [each.name for each in fields(kind) if each.name not in values and _required(each)]  # type: ignore[arg-type]
    if missing:
        raise UserError(f"{_below(where, missing[0])} is missing", "it has no default", "set it")
    try:
        return kind(**values)
    except UserError as error:
        raise (error.in_section(where) if where else error) from None


def validated(options: Options) -> Options:
    """The same options after every field was held against its type, however they were made."""
    return from_dict(type(options), to_dict(options))


def differences(a: Mapping[str, Any], b: Mapping[str, Any], where: str = "") -> list[str]:
    """Dotted paths at which two trees differ, with both values."""
    found = []
    for name in sorted(a.keys() | b.keys()):
        path, left, right = _below(where, name), a.get(name), b.get(name)
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            found += differences(left, right, path)
        elif _plain(left) != _plain(right):
            found.append(f"{path} ({_short_repr(left)} and {_short_repr(right)})")
    return found


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _below(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _value(kind: Any, value: Any, where: str) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _within(_value(parts[0], value, where), parts[1:], where)
    if origin in (UnionType, Union):
        return _union(parts, value, where)
    if origin is Literal:
        return _choice(parts, value, where)
    if origin is tuple:
        return _items(parts[0], value, where)
    if isinstance(kind, type) and is_dataclass(kind):
        return from_dict(kind, value, where)
    return _scalar(kind, value, where)


def _within(value: Any, rules: tuple[Any, ...], where: str) -> Any:
    for rule in rules:
        if isinstance(rule, Within) and value is not None and not rule.holds(value):
            raise UserError(f"{where} is {value!r}", f"allowed is {rule}", "change it")
    return value


def _union(parts: tuple[Any, ...], value: Any, where: str) -> Any:
    kinds = [part for part in parts if part is not NoneType]
    if value is None and NoneType in parts:
        return None
    if len(kinds) == 1:
        return _value(kinds[0], value, where)
    by_name = {_hints(part)["kind"].__args__[0]: part for part in kinds}
    if not isinstance(value, Mapping) or "kind" not in value:
        raise UserError(
            f"{where} is {_short_repr(value)}", f"allowed are options with a kind: {', '.join(by_name)}", "add it"
        )
    return from_dict(by_name[_choice(tuple(by_name), value["kind"], _below(where, "kind"))], value, where)


def _choice(choices: tuple[Any, ...], value: Any, where: str) -> Any:
    if not isinstance(value, str) or value not in choices:
        names = ", ".join(map(str, choices))
        raise UserError(f"{where} is {_short_repr(value)}", f"allowed are {names}", "choose one of them")
    return value


def _items(kind: Any, value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)) or len(value) == 0:
        raise UserError(f"{where} is {_short_repr(value)}", "allowed is a list of one or more", "write it as [a, b]")
    return tuple(_value(kind, each, f"{where}[{position}]") for position, each in enumerate(value))


def _scalar(kind: Any, value: Any, where: str) -> Any:
    names = {bool: "true or false", int: "a whole number", float: "a finite number", str: "a text that can be written"}
    if kind is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:
        return float(value)
    if kind is int and type(value) is int and abs(value) <= LARGEST_INTEGER:
        return value
    if (kind is bool and type(value) is bool) or (kind is str and type(value) is str and _is_printable(value)):
        return value
    raise UserError(f"{where} is {_short_repr(value)}", f"allowed is {names[kind]}", "change it")


def _is_printable(text: str) -> bool:
    """A file's name has no NUL, and UTF-8 no lone surrogates."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def _short_repr(value: Any) -> str:
    try:
        return _truncate(repr(value), 60)
    except (RecursionError, ValueError):  # nested deeply, or a number of thousands of digits
        return f"a {type(value).__name__} too long to be shown"


def _truncate(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 3] + "..."
