"""Records in JSON-lines files: one record per line, with the name of its kind under "record".

Floats are written with all their digits. Reading checks every field against its type, so untrusted files are safe
to read.
"""

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from truedrift.errors import UserError
from truedrift.options import from_dict
from truedrift.storage import append_json_line, decode_json_line, open_to_read

Record = TypeVar("Record")
RECORDS = "records.jsonl"
"""The name of a directory's file of records."""


def kind_name(kind: type) -> str:
    """Return the name of a kind of record in files: its attribute `KIND`, else the name of the class."""
    return getattr(kind, "KIND", kind.__name__)


def append(path: Path, record: Any) -> None:
    """Append a record to a file.

    Args:
        path: The file. It is made if it is missing.
        record: A dataclass of numbers, strings, tuples and further dataclasses.

    Raises:
        ValueError: If a number is not finite, which JSON does not allow.
    """
    append_json_line(path, {"record": kind_name(type(record)), **asdict(record)})


def read(path: Path, *kinds: type[Record]) -> list[Record]:
    """Read the records of these kinds, in the order of the file.

    Args:
        path: The file.
        kinds: The classes of the records. Records of other kinds are skipped.

    Returns:
        The records. Fields that a line does not have take their defaults.

    Raises:
        UserError: If a line is not a record.
    """
    records, problems = read_lenient(path, *kinds)
    for number, problem in problems.items():
        raise UserError(
            f"{path}, line {number} is not a record ({problem})",
            "must be one JSON object per line, as truedrift writes it",
            "name a file of records, or remove that line",
        )
    return records


def read_lenient(path: Path, *kinds: type[Record]) -> tuple[list[Record], dict[int, str]]:
    """Read the records of these kinds and skip what cannot be read.

    Args:
        path: The file.
        kinds: The classes of the records. Records of other kinds are skipped.

    Returns:
        The records, and the problem of each unreadable line by its number, counted from 1.
    """
    by_name = {kind_name(kind): kind for kind in kinds}
    records: list[Record] = []
    problems: dict[int, str] = {}
    with open_to_read(path) as lines:
        for number, line in enumerate(lines, start=1):
            try:
                entry = decode_json_line(line)
                kind = by_name.get(str(entry.pop("record")))
                if kind is not None:
                    records.append(from_dict(kind, entry))
            except UserError as error:
                problems[number] = f"{error.summary}, {error.allowed}"
            except (ValueError, KeyError, RecursionError) as error:
                problems[number] = f"{type(error).__name__}: {error}"
    return records, problems


def writable_directory(path: Path) -> Path:
    """Make the directory if it is missing, and check that files and records can be written to it.

    Args:
        path: The directory. Missing parents are made as well.

    Returns:
        The same path.

    Raises:
        UserError: If the directory cannot be made or written to.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
        if (path / RECORDS).exists():
            (path / RECORDS).open("ab").close()
    except OSError as error:
        reason = "is a file" if path.is_file() else error.strerror
        raise UserError(
            f"the directory {str(path)!r} cannot be written ({reason})",
            "must be a directory that exists or can be made",
            "name another one",
        ) from None
    return path
