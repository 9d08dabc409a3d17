"""Errors caused by the user's input, and the checks that raise them.

A message is one sentence with three parts: the problem, what is allowed, how to fix it. Public functions call the
checks once; internal functions do not check again. `tensor_checks.py` has the checks of tensors; this module needs no
torch.
"""

from __future__ import annotations

import difflib
import math
import numbers
import operator
import os
import unicodedata
from collections.abc import Collection, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

LONGEST_NAME = 100
"""Characters of a name that are compared with known names."""
LEAST_SIMILARITY = 0.68
"""Least similarity of a suggested name, from 0 to 1: "fig:bias" suggests fig:bias_loglog, the class "10" not "1"."""

LARGEST_SAMPLE = 1 << 26
"""Limit for the numbers in one sample, 67 million: an image of 4096×4096 pixels has 50 million."""

_DIRECTIONS = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Characters that change the direction of the text after them."""


class UserError(ValueError):
    """An error in the user's input, reported as one line. Any other exception is a bug in this library.

    Args:
        problem: What is wrong. With `field`, the predicate of that field: `"is -1"`.
        allowed: What is allowed instead.
        fix: What the user can do.
        field: The option or argument that is wrong, for example `optimizer.learning_rate`.

    Example:
        >>> print(UserError("is -1", "must be greater than 0", "pass a positive number", field="learning_rate"))
        learning_rate is -1; must be greater than 0; pass a positive number
    """

    def __init__(self, problem: str, allowed: str = "", fix: str = "", *, field: str | None = None) -> None:
        super().__init__(problem, allowed, fix)
        self.problem, self.allowed, self.fix, self.field = problem, allowed, fix, field

    @property
    def summary(self) -> str:
        """The field and the problem, without what is allowed and the fix."""
        return self.problem if self.field is None else f"{self.field} {self.problem}"

    def __str__(self) -> str:
        text = "; ".join(part for part in (self.summary, self.allowed, self.fix) if part)
        return " ".join(line.strip() for line in text.splitlines())  # the repr of a tensor has several

    def in_section(self, section: str) -> UserError:
        """Return this error with `section` put before its field, or before its problem if it has no field."""
        if self.field is None:
            return UserError(f"{section}: {self.problem}", self.allowed, self.fix)
        return UserError(self.problem, self.allowed, self.fix, field=f"{section}.{self.field}")

    def with_prefix(self, prefix: str) -> UserError:
        """Return this error with `prefix` put before its problem, for example the file that contains the mistake."""
        return UserError(f"{prefix}: {self.summary}", self.allowed, self.fix)


def error_text(error: object, longest: int = 300) -> str:
    """Return the message of an exception on one line, to be quoted in a `UserError`.

    Example:
        >>> error_text(FileNotFoundError(2, "No such file or directory"))
        'No such file or directory'
    """
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:longest]


def printable(text: str) -> str:
    r"""Escape control characters, which would otherwise act on the terminal; newlines and tabs stay.

    File names, class names and contents of files may hold any character. Everything that is printed goes through this
    function once.

    Example:
        >>> printable("red: " + chr(27) + "[31m")
        'red: \\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or not _acts_on_terminal(c) else ascii(c)[1:-1] for c in text)


def _acts_on_terminal(character: str) -> bool:
    """Return whether it is a control character, a surrogate, or changes the direction of the text."""
    return unicodedata.category(character) in ("Cc", "Cs") or character in _DIRECTIONS


def list_names(names: Collection[str], most: int = 10) -> str:
    """Join names by commas; of many, the first ones and the number of the others.

    Example:
        >>> list_names(["a", "b", "c"]), list_names([str(i) for i in range(20_000)], most=2)
        ('a, b, c', '0, 1, … and 19,998 more')
    """
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(list(names)[:most])}, … and {len(names) - most:,} more"


def read_number(value: object) -> float:
    """Return a number as float; NaN for what torch cannot compute with: a bool, a Fraction, an int beyond 64 bits.

    Example:
        >>> read_number(2), read_number(True), read_number(10**400)
        (2.0, nan, nan)
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return math.nan
    if isinstance(value, numbers.Rational) and not (isinstance(value, numbers.Integral) and abs(int(value)) < 1 << 63):
        return math.nan
    return float(value)


def short_repr(value: object, longest: int = 60) -> str:
    """Return the repr of a value, cut in the middle if it is long.

    Example:
        >>> short_repr(10**400, longest=12)
        '100000…000000'
    """
    try:
        text = repr(value)
    except ValueError:
        return "an integer with too many digits to be printed"
    return text if len(text) <= longest else f"{text[: longest // 2]}…{text[-(longest // 2) :]}"


def suggest_name(value: object, names: Collection[str], otherwise: str) -> str:
    """Return the fix for a name that does not exist: the most similar name if there is one, else `otherwise`.

    Example:
        >>> suggest_name("digts", ("toy", "digits"), "choose one of these")
        "did you mean 'digits'?"
    """
    by_lowercase = {str(name).lower(): name for name in names}
    # What all names begin with, such as "pretrained:", does not make them similar.
    common = os.path.commonprefix(list(by_lowercase)) if len(by_lowercase) > 1 else ""  # noqa: RUF071  no paths
    endings = {name.removeprefix(common): name for name in by_lowercase}
    ending = str(value)[:LONGEST_NAME].lower().removeprefix(common)
    similar = difflib.get_close_matches(ending, endings, n=1, cutoff=LEAST_SIMILARITY)
    return f"did you mean {by_lowercase[endings[similar[0]]]!r}?" if similar else otherwise


def require_choice(field: str, value: object, choices: Collection[str]) -> None:
    """Require that `value` is one of `choices`.

    Example:
        >>> require_choice("estimator", "best", ("abc", "standard"))
        Traceback (most recent call last):
            ...
        truedrift.errors.UserError: estimator is 'best'; must be one of 'abc', 'standard'; choose one of these
    """
    if not isinstance(value, str) or value not in choices:
        allowed = f"must be one of {', '.join(map(repr, choices))}"
        fix = suggest_name(value, choices, "choose one of these")
        raise UserError(f"is {value!r}", allowed, fix, field=field)


def read_integer(value: object) -> int | None:
    """Return an integer of any library as an int; None for a bool and for what is no integer.

    Example:
        >>> read_integer(2), read_integer(True), read_integer(2.0)
        (2, None, None)
    """
    dtype = getattr(value, "dtype", None)
    if isinstance(value, bool) or (dtype is not None and "bool" in str(dtype)):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):  # arrays and tensors of several numbers
        return None


def require_integer(field: str, value: object, minimum: int, example: int) -> int:
    """Require an integer of at least `minimum`, and return it as an int.

    Args:
        field: The argument, for the message.
        value: An int, or an integer of NumPy or another library.
        minimum: The smallest allowed integer.
        example: The value that the message suggests.

    Example:
        >>> require_integer("n", 0, 1, 8)
        Traceback (most recent call last):
            ...
        truedrift.errors.UserError: n is 0; must be an integer ≥ 1; pass for example 8
    """
    number = read_integer(value)
    if number is None or number < minimum:
        allowed = f"must be an integer ≥ {minimum}"
        raise UserError(f"is {short_repr(value)}", allowed, f"pass for example {example}", field=field)
    return number


def require_integers(
    field: str, value: object, minimum: int, maximum: int | None = None, *, ascending: bool = False
) -> tuple[int, ...]:
    """Require one or more integers from `minimum` to `maximum`, ascending if asked for; return them as ints."""
    if not isinstance(value, (tuple, list)) or not value:
        raise UserError(f"is {value!r}", "must be one or more integers", "pass for example 2,4,8", field=field)
    integers = tuple(
        require_integer(f"{field}[{position}]", number, minimum, max(minimum, 1))
        for position, number in enumerate(value)
    )
    if ascending and (list(integers) != sorted(set(integers)) or (maximum is not None and integers[-1] > maximum)):
        upper = "" if maximum is None else f" and ≤ {maximum}"
        allowed = f"must be strictly ascending integers ≥ {minimum}{upper}"
        raise UserError(f"is {value!r}", allowed, "sort them and pass each one once", field=field)
    return integers


def require_even(field: str, value: int, example: int) -> None:
    """Require an even integer, for features that are half cosines and half sines."""
    if value % 2:
        allowed = "must be even, half for cosines and half for sines"
        raise UserError(f"is {value}", allowed, f"pass for example {example}", field=field)


def require_file(path: Path, suffixes: Collection[str]) -> None:
    """Require an existing file with one of these extensions."""
    allowed = f"must be a file that ends in {', '.join(suffixes)}"
    if path.is_dir():
        raise UserError(f"{str(path)!r} is a directory", allowed, "pass a file")
    if path.suffix not in suffixes:
        problem = f"ends in {path.suffix!r}" if path.suffix else "has no extension"
        raise UserError(f"{str(path)!r} {problem}", allowed, "pass such a file")
    if not path.exists():
        raise UserError(f"{str(path)!r} does not exist", allowed, "check the path")
    if not path.is_file():
        raise UserError(f"{str(path)!r} is a FIFO or a device", allowed, "pass a regular file")


def import_package(module: str, purpose: str, extra: str) -> Any:
    """Import an optional package; `purpose` is what needs it, `extra` the extra of truedrift that installs it."""
    try:
        return import_module(module)
    except ImportError:
        fix = f"run pip install 'truedrift[{extra}]'"
        raise UserError(f"{module} is not installed", f"{purpose} requires it", fix) from None


def require_sample_shape(sample_shape: Sequence[int]) -> None:
    """Require the shape of one sample: (D,) for points or (C, H, W) for images, with sizes ≥ 1."""
    sizes = tuple(sample_shape)
    if len(sizes) not in (1, 3) or not all(type(size) is int and size >= 1 for size in sizes):
        problem = f"sample_shape is {sizes}" if len(sizes) <= 3 else f"sample_shape has {len(sizes)} entries"
        raise UserError(problem, "must be (D,) for points or (C, H, W) for images", "pass the shape of one sample")
    if math.prod(sizes) > LARGEST_SAMPLE:
        allowed = f"must have at most {LARGEST_SAMPLE:,} numbers per sample"
        raise UserError(f"sample_shape is {sizes}", allowed, "pass the shape of one sample")
