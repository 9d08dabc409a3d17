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

from truedrift.data.download import CHUNK_BYTES, PinnedFile, SourceFailed, digest_of, error_text, write
from truedrift.data.registry import REMOTE_ASSETS, RemoteAsset
from truedrift.data.sources import Source
from truedrift.errors import UserError, require_choice
from truedrift.progress import Progress, no_progress
from truedrift.storage import cache_directory

Convert = Callable[[Path, Path], None]
SUM = ".sha256"
"""Beside a converted file: its sum, as it was when it was made."""


@dataclass(frozen=True)
class FetchResult:
    """Where the files are, and what they came from; None if they were there already."""

    name: str
    directory: Path
    source: str | None


def fetch(name: str, progress: Progress = no_progress, *, convert: Convert | None = None) -> FetchResult:
    """Bring the data set or the weights into the cache, unless they are there. `convert` is for tests."""
    require_choice("the name", name, REMOTE_ASSETS)
    offer = REMOTE_ASSETS[name]
    directory = cache_directory(name)
    if is_valid(offer, directory):
        return FetchResult(name, directory, None)
    reasons = []
    for source in offer.sources:
        with _scratch_directory(directory) as scratch:
            try:
                _collect(source, offer, scratch, progress)
            except SourceFailed as reason:
                reasons.append(f"{source.title}: {reason}")
                continue
            _install(offer, scratch, directory, convert)
        return FetchResult(name, directory, source.title)
    raise _all_sources_failed(offer, reasons)


def is_present(offer: RemoteAsset, directory: Path) -> bool:
    """Whether files of the right names and sizes are there; their content is not looked at."""
    if offer.product:
        return (directory / offer.product).is_file()
    return all(_size(directory / file.name) == file.size for file in offer.files)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1


def is_valid(offer: RemoteAsset, directory: Path) -> bool:
    """Whether every file is there with its sum."""
    if not is_present(offer, directory):
        return False
    if offer.product:
        beside = directory / (offer.product + SUM)
        made = beside.read_bytes().strip() if beside.is_file() else b""
        return made == digest_of(directory / offer.product).encode()
    return all(digest_of(directory / file.name) == file.sha256 for file in offer.files)


@contextmanager
def _scratch_directory(directory: Path) -> Iterator[Path]:
    """A temporary directory on the disk of the cache, with the place `ready` for what is verified."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        made = tempfile.TemporaryDirectory(prefix=".fetching-", dir=directory, ignore_cleanup_errors=True)
    except OSError as error:
        raise UserError(
            f"the cache {str(directory)!r} cannot be written ({error_text(error)})",
            "allowed is a directory that exists or can be made",
            "name another place by TRUEDRIFT_CACHE",
        ) from None
    with made as scratch:
        (Path(scratch) / "ready").mkdir()
        yield Path(scratch)


def _collect(source: Source, offer: RemoteAsset, scratch: Path, progress: Progress) -> None:
    """All files of the offer into scratch/ready, each one verified."""
    missing = {file.name for file in offer.files}
    try:
        for file, stream in source.deliver(offer.files, scratch, progress):
            _store_verified(file, stream, scratch / "ready" / file.name)
            missing.discard(file.name)
    except (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, NotImplementedError) as error:
        raise SourceFailed(f"what it sent is damaged ({error_text(error)})") from None
    if missing:
        raise SourceFailed(f"it has no {', '.join(sorted(missing))}")


def _store_verified(file: PinnedFile, stream: IO[bytes], target: Path) -> None:
    """Copy at most the pinned size and check the sum."""
    sha256, left = hashlib.sha256(), file.size + 1
    with target.open("wb") as kept:
        while left and (chunk := stream.read(min(left, CHUNK_BYTES))):
            sha256.update(chunk)
            write(kept, chunk)
            left -= len(chunk)
    if left != 1 or sha256.hexdigest() != file.sha256:
        raise SourceFailed(f"{file.name} is not the known file: its size or sha256 differs")


def _install(offer: RemoteAsset, scratch: Path, directory: Path, convert: Convert | None) -> None:
    """What is ready, converted if need be, by renaming."""
    ready = scratch / "ready"
    names = [file.name for file in offer.files]
    if offer.product:
        (convert or _convert_weights)(ready / names[0], ready / offer.product)
        names = [offer.product, offer.product + SUM]
        (ready / names[1]).write_text(digest_of(ready / names[0]) + "\n", encoding="ascii")
        shutil.copymode(ready / names[1], ready / names[0])  # safetensors writes for the owner alone
    for name in names:
        os.replace(ready / name, directory / name)


def _convert_weights(source: Path, target: Path) -> None:
    """A torch pickle → safetensors, in the one place that may read a pickle."""
    from truedrift.quarantine.convert import convert_pickle  # type: ignore[import-not-found]  # noqa: PLC0415  rarely needed

    convert_pickle(source, target)


def _all_sources_failed(offer: RemoteAsset, reasons: list[str]) -> UserError:
    again = f"connect to one and run truedrift data fetch {offer.name} again"
    return UserError(
        f"{offer.name} could not be fetched ({', '.join(reasons)})",
        "allowed is any one of these sources",
        f"{again}, or pass your own copy with --data DIR" if offer.is_data else again,
    )
