"""What a study found, as typed records: one JSON object a line, with where it came from.

An experiment computes and appends; a report reads and draws. A record is a frozen dataclass of numbers, strings,
tuples and further records, and comes back from the file as it was: floats are written with all their digits. Only
JSON is read, and every field is checked against its type, so that a file from elsewhere cannot do harm.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, BinaryIO, TypeVar, get_args, get_origin, get_type_hints

import torch

Record = TypeVar("Record")
Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where a record came from. `commit` ends in "-dirty" if files were changed since, and is None outside a clone."""

    version: str
    commit: str | None
    python: str
    torch: str
    platform: str
    seed: int
    wall_seconds: float
    time: str


@dataclass(frozen=True, kw_only=True)
class Illustration:
    """One query, `draws` minibatches of n references, and the centroids of draw 0 (`fig:illustration`).

    `mean_*` is the centroid averaged over the draws, `noise_*` the Monte-Carlo standard error of that mean,
    √(tr Σ̂ / draws), None for a single draw; `rms_*` is the root mean square distance to T*, and `share_nearer` the
    share of draws with ‖T_n^ABC − T*‖ < ‖T_n − T*‖. `cloud` is a sample of the clusters, to be drawn behind.
    """

    n: int
    draws: int
    tau: float
    query: Point
    modes: tuple[Point, ...]
    std: float
    cloud: tuple[Point, ...]
    pool_points: int
    T_star: Point
    references: tuple[Point, ...]
    T_standard: Point
    T_abc: Point
    mean_standard: Point
    mean_abc: Point
    noise_standard: float | None
    noise_abc: float | None
    rms_standard: float
    rms_abc: float
    share_nearer: float
    provenance: Provenance

    @property
    def distance_standard(self) -> float:
        """‖T_n − T*‖ of draw 0."""
        return math.dist(self.T_standard, self.T_star)

    @property
    def distance_abc(self) -> float:
        """‖T_n^ABC − T*‖ of draw 0."""
        return math.dist(self.T_abc, self.T_star)

    @property
    def bias_standard(self) -> float:
        """‖mean of T_n − T*‖."""
        return math.dist(self.mean_standard, self.T_star)

    @property
    def bias_abc(self) -> float:
        """‖mean of T_n^ABC − T*‖."""
        return math.dist(self.mean_abc, self.T_star)


def append(path: Path, record: Any) -> None:
    """Add the record as the file's last line."""
    line = json.dumps({"record": type(record).__name__, **asdict(record)}, ensure_ascii=False, allow_nan=False)
    with path.open("ab+") as file:
        if _torn(file):  # by a crash: what follows must not join it
            file.write(b"\n")
        file.write(line.encode() + b"\n")


def _torn(file: BinaryIO) -> bool:
    """Whether the file ends in the middle of a line."""
    if file.seek(0, os.SEEK_END) == 0:
        return False
    file.seek(-1, os.SEEK_END)
    return file.read() != b"\n"


def read(path: Path, kind: type[Record]) -> list[Record]:
    """The records of that kind, in the order of the file; those of other kinds are passed over."""
    found = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                entry = json.loads(line.decode(), parse_constant=_refuse)
                if entry.pop("record") == kind.__name__:
                    found.append(_build(kind, entry, kind.__name__))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise ValueError(
                    f"{path}, line {number} is not a record ({type(error).__name__}: {error}); "
                    "allowed is one JSON object a line as truedrift writes it; remove that line or the file"
                ) from None
    return found


def _refuse(constant: str) -> None:
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
    hints = get_type_hints(kind)
    if value.keys() != hints.keys():
        raise TypeError(f"{where} lacks or does not know {sorted(value.keys() ^ hints.keys())}")
    return kind(**{name: _build(hint, value[name], name) for name, hint in hints.items()})


def provenance(*, seed: int, wall_seconds: float) -> Provenance:
    """The provenance of a result that is ready now."""
    return Provenance(
        version=sys.modules["truedrift"].__version__,  # loaded before any of its modules; importing it would point up
        commit=_commit(),
        python=platform.python_version(),
        torch=str(torch.__version__),
        platform=platform.platform(),
        seed=seed,
        wall_seconds=wall_seconds,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _commit() -> str | None:
    """The commit of the clone that this file is part of: None if it is installed elsewhere or git is not there."""
    here = Path(__file__)
    git = ["git", "--no-optional-locks", "-C", str(here.parent)]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", here.name], check=True, capture_output=True, timeout=10)
        describe = [*git, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
        answer = subprocess.run(describe, check=True, capture_output=True, timeout=10, text=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


def writable_directory(path: Path) -> Path:
    """The directory, made if it is missing, after a trial that files can be written there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        reason = "it is a file" if path.is_file() else error.strerror
        raise ValueError(
            f"the directory {str(path)!r} cannot be written ({reason}); "
            "allowed is a directory that exists or can be made; name another one"
        ) from None
    return path
