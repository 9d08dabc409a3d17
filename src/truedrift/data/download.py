"""Download of a URL to a file: streamed, limited in size, with progress and a timeout; and hashes of files."""

import hashlib
import http.client
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from truedrift.errors import UserError
from truedrift.progress import Progress

SILENCE_SECONDS = 20.0
"""Time without a byte after which a URL counts as unreachable."""

CHUNK_BYTES = 1 << 18
PROGRESS_SECONDS = 0.2
"""Interval of progress updates."""


class SourceFailed(Exception):
    """Reason why a source could not deliver, in a few words; the next source is tried."""


def host_name(url: str) -> str:
    """Return the host of a URL."""
    return urlsplit(url).netloc or url


def download(url: str, target: Path, largest: int, progress: Progress) -> Path:
    """Download at most `largest` bytes to the file `target`; raise `SourceFailed` if the source is at fault."""
    request = urllib.request.Request(url, headers={"User-Agent": "truedrift"})
    try:
        with urllib.request.urlopen(request, timeout=SILENCE_SECONDS) as response, target.open("wb") as file:
            expected = int(response.headers.get("Content-Length") or 0)
            if expected > largest:
                raise SourceFailed(f"it offers {expected} bytes, more than the limit of {largest}")
            title = f"{host_name(url)} {target.name}"
            done = _copy_stream(response, file, largest, expected or largest, title, progress)
    except UserError:  # the disk, not the source
        raise
    except urllib.error.HTTPError as error:
        error.close()
        raise SourceFailed(f"HTTP status {error.code}") from None
    except urllib.error.URLError as error:
        raise SourceFailed(error_text(error.reason)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise SourceFailed(error_text(error)) from None
    if expected and done != expected:
        raise SourceFailed(f"the connection ended after {done} of {expected} bytes")
    return target


def _copy_stream(response: IO[bytes], file: IO[bytes], largest: int, total: int, title: str, progress: Progress) -> int:
    """Copy the response to the file; return the number of bytes."""
    done, last_update = 0, 0.0
    while chunk := response.read(CHUNK_BYTES):
        done += len(chunk)
        if done > largest:
            raise SourceFailed(f"it sends more than the limit of {largest} bytes")
        write_chunk(file, chunk)
        if time.monotonic() - last_update >= PROGRESS_SECONDS:
            progress(title, done, total)
            last_update = time.monotonic()
    progress(title, total, total)
    return done


def write_chunk(file: IO[bytes], chunk: bytes) -> None:
    """Write to the disk; a failure is a UserError, because no other source can help."""
    try:
        file.write(chunk)
    except OSError as error:
        raise UserError(
            f"{getattr(file, 'name', 'a file')!r} cannot be written ({error.strerror or error})",
            "needs a disk with free space",
            "free some space, or set TRUEDRIFT_CACHE to another directory",
        ) from None


def error_text(error: object) -> str:
    """Return the message of an error on one line."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())


def hash_file(path: Path, algorithm: str = "sha256") -> str:
    """Compute the hash of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


@dataclass(frozen=True)
class PinnedFile:
    """A file whose content is known exactly: its name, size in bytes and sha256."""

    name: str
    size: int
    sha256: str
