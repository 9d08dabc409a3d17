"""Records in and out of a file: one JSON object a line.

Floats are written with all their digits. Only JSON is read, and every field is checked against its type, so that a file
from elsewhere cannot do harm.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, BinaryIO, TypeVar, get_args, get_origin, get_type_hints

from truedrift.errors import UserError

Record = TypeVar("Record")
RECORDS = "records.jsonl"
"""The file of a directory's records."""


def kind_name(kind: type) -> str:
    """The name of a kind of record in files: that of its class, or `KIND` where the class was renamed."""
    return getattr(kind, "KIND", kind.__name__)


def append(path: Path, record: Any) -> None:
    """Add the record as the file's last line."""
    line = json.dumps({"record": kind_name(type(record)), **asdict(record)}, ensure_ascii=False, allow_nan=False)
    with path.open("ab+") as file:
        if _ends_mid_line(file):  # by a crash: what follows must not join it
            file.write(b"\n")
        file.write(line.encode() + b"\n")


def _ends_mid_line(file: BinaryIO) -> bool:
    """Whether the file ends in the middle of a line."""
    if file.seek(0, os.SEEK_END) == 0:
        return False
    file.seek(-1, os.SEEK_END)
    return file.read() != b"\n"


def read(path: Path, kind: type[Record]) -> list[Record]:
    """The records of that kind, in the order of the file; those of other kinds are passed over."""
    found, wrong = read_lenient(path, kind)
    for number, reason in wrong.items():
        raise UserError(
            f"{path}, line {number} is not a record ({reason})",
            "must be one JSON object per line, as truedrift writes it",
            "pass a file of records, or remove that line",
        )
    return found


def read_lenient(path: Path, kind: type[Record]) -> tuple[list[Record], dict[int, str]]:
    """The records of that kind as `read` finds them, and what is wrong with each line that is none, by its number."""
    found: list[Record] = []
    wrong: dict[int, str] = {}
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                entry = json.loads(line.decode(), parse_constant=_reject_constant)
                if entry.pop("record") == kind_name(kind):
                    found.append(_build(kind, entry, kind_name(kind)))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                wrong[number] = f"{type(error).__name__}: {error}"
    return found, wrong


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _build(kind: Any, value: Any, where: str) -> Any:
    """`value` from JSON as an instance of `kind`, or a TypeError that says where it is not one."""
    if is_dataclass(kind) and isinstance(value, dict):
        return _build_fields(kind, value, where)
    if get_origin(kind) is tuple and isinstance(value, list):
        parts = get_args(kind)
        parts = parts[:1] * len(value) if parts[-1] is Ellipsis else parts
        return tuple(_build(part, each, where) for part, each in zip(parts, value, strict=True))
    if get_origin(kind) is UnionType and NoneType in get_args(kind):
        return None if value is None else _build(get_args(kind)[0], value, where)
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if kind in (int, str, bool) and type(value) is kind:
        return value
    raise TypeError(f"{where} is {str(value)[:40]!r}, not {getattr(kind, '__name__', kind)}")


def _build_fields(kind: Any, value: dict[str, Any], where: str) -> Any:
    """What the value lacks takes its default, if there is one: so records can gain fields."""
    hints = get_type_hints(kind)
    optional = {field.name for field in fields(kind) if field.default is not MISSING}
    wrong = (value.keys() ^ hints.keys()) - (optional - value.keys())
    if wrong:
        raise TypeError(f"{where} lacks or does not know {sorted(wrong)}")
    return kind(**{name: _build(hints[name], each, name) for name, each in value.items()})


def writable_directory(path: Path) -> Path:
    """The directory, made if it is missing, after a trial that files and records can be written there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
        if (path / RECORDS).exists():
            (path / RECORDS).open("ab").close()
    except OSError as error:
        reason = "it is a file" if path.is_file() else error.strerror
        raise UserError(
            f"directory {str(path)!r} cannot be written ({reason})",
            "must be a directory that exists or can be created",
            "pass another one",
        ) from None
    return path
