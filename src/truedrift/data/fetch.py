"""name → files in the cache: every source is tried in turn, and only what has the pinned sum gets in.

Files are made in a temporary directory beside their place and renamed into it, so that whoever looks into the cache
sees a whole file or none. What is there already and has its sum is not fetched again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from truedrift.data.download import CHUNK_BYTES, Pinned, Undelivered, digest_of, in_words, write
from truedrift.data.registry import OFFERS, Offer
from truedrift.data.sources import Source
from truedrift.errors import Mistake, mistake, require_choice
from truedrift.progress import Progress, silent
from truedrift.storage import cache_directory

Convert = Callable[[Path, Path], None]
SUM = ".sha256"
"""Beside a converted file: its sum, as it was when it was made."""


@dataclass(frozen=True)
class Fetched:
    """Where the files are, and what they came from; None if they were there already."""

    name: str
    directory: Path
    source: str | None


def fetch(name: str, progress: Progress = silent, *, convert: Convert | None = None) -> Fetched:
    """Bring the data set or the weights into the cache, unless they are there. `convert` is for tests."""
    require_choice("the name", name, OFFERS)
    offer = OFFERS[name]
    directory = cache_directory(name)
    if is_valid(offer, directory):
        return Fetched(name, directory, None)
    reasons = []
    for source in offer.sources:
        with _scratch(directory) as scratch:
            try:
                _collect(source, offer, scratch, progress)
            except Undelivered as reason:
                reasons.append(f"{source.title}: {reason}")
                continue
            _place(offer, scratch, directory, convert)
        return Fetched(name, directory, source.title)
    raise _nowhere(offer, reasons)


def is_present(offer: Offer, directory: Path) -> bool:
    """Whether files of the right names and sizes are there; their content is not looked at."""
    if offer.product:
        return (directory / offer.product).is_file()
    return all(_size(directory / file.name) == file.size for file in offer.files)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1


def is_valid(offer: Offer, directory: Path) -> bool:
    """Whether every file is there with its sum."""
    if not is_present(offer, directory):
        return False
    if offer.product:
        beside = directory / (offer.product + SUM)
        made = beside.read_bytes().strip() if beside.is_file() else b""
        return made == digest_of(directory / offer.product).encode()
    return all(digest_of(directory / file.name) == file.sha256 for file in offer.files)


@contextmanager
def _scratch(directory: Path) -> Iterator[Path]:
    """A temporary directory on the disk of the cache, with the place `ready` for what is verified."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        made = tempfile.TemporaryDirectory(prefix=".fetching-", dir=directory, ignore_cleanup_errors=True)
    except OSError as error:
        raise mistake(
            f"the cache {str(directory)!r} cannot be written ({in_words(error)})",
            "allowed is a directory that exists or can be made",
            "name another place by TRUEDRIFT_CACHE",
        ) from None
    with made as scratch:
        (Path(scratch) / "ready").mkdir()
        yield Path(scratch)


def _collect(source: Source, offer: Offer, scratch: Path, progress: Progress) -> None:
    """All files of the offer into scratch/ready, each one verified."""
    missing = {file.name for file in offer.files}
    try:
        for file, stream in source.deliver(offer.files, scratch, progress):
            _keep(file, stream, scratch / "ready" / file.name)
            missing.discard(file.name)
    except (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, NotImplementedError) as error:
        raise Undelivered(f"what it sent is damaged ({in_words(error)})") from None
    if missing:
        raise Undelivered(f"it has no {', '.join(sorted(missing))}")


def _keep(file: Pinned, stream: IO[bytes], target: Path) -> None:
    """Copy at most the pinned size and check the sum."""
    sha256, left = hashlib.sha256(), file.size + 1
    with target.open("wb") as kept:
        while left and (chunk := stream.read(min(left, CHUNK_BYTES))):
            sha256.update(chunk)
            write(kept, chunk)
            left -= len(chunk)
    if left != 1 or sha256.hexdigest() != file.sha256:
        raise Undelivered(f"{file.name} is not the known file: its size or sha256 differs")


def _place(offer: Offer, scratch: Path, directory: Path, convert: Convert | None) -> None:
    """What is ready, converted if need be, by renaming."""
    ready = scratch / "ready"
    names = [file.name for file in offer.files]
    if offer.product:
        (convert or _quarantined)(ready / names[0], ready / offer.product)
        names = [offer.product, offer.product + SUM]
        (ready / names[1]).write_text(digest_of(ready / names[0]) + "\n", encoding="ascii")
        shutil.copymode(ready / names[1], ready / names[0])  # safetensors writes for the owner alone
    for name in names:
        os.replace(ready / name, directory / name)


def _quarantined(source: Path, target: Path) -> None:
    """A torch pickle → safetensors, in the one place that may read a pickle."""
    from truedrift.quarantine.convert import convert_pickle  # type: ignore[import-not-found]  # noqa: PLC0415  rarely needed

    convert_pickle(source, target)


def _nowhere(offer: Offer, reasons: list[str]) -> Mistake:
    again = f"connect to one and run truedrift data fetch {offer.name} again"
    return mistake(
        f"{offer.name} could not be fetched ({', '.join(reasons)})",
        "allowed is any one of these sources",
        f"{again}, or pass your own copy with --data DIR" if offer.is_data else again,
    )
