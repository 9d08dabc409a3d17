"""An address → a file: streamed, bounded in size, with progress and a time limit on silence."""

from __future__ import annotations

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
"""Without a byte, after which an address counts as unreachable."""

CHUNK_BYTES = 1 << 18
TOLD_SECONDS = 0.2


class SourceFailed(Exception):
    """Why a source did not deliver, in a few words; the next one is tried."""


def host_name(url: str) -> str:
    """The part of an address that a reader knows it by."""
    return urlsplit(url).netloc or url


def download(url: str, target: Path, largest: int, progress: Progress) -> Path:
    """The content of the address, of at most `largest` bytes, as the file `target`."""
    request = urllib.request.Request(url, headers={"User-Agent": "truedrift"})
    try:
        with urllib.request.urlopen(request, timeout=SILENCE_SECONDS) as answer, target.open("wb") as file:
            expected = int(answer.headers.get("Content-Length") or 0)
            if expected > largest:
                raise SourceFailed(f"it offers {expected} bytes, more than the {largest} that are allowed")
            done = _copy_stream(answer, file, largest, expected or largest, f"{host_name(url)} {target.name}", progress)
    except UserError:
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


def _copy_stream(answer: IO[bytes], file: IO[bytes], largest: int, total: int, what: str, progress: Progress) -> int:
    done, told = 0, 0.0
    while chunk := answer.read(CHUNK_BYTES):
        done += len(chunk)
        if done > largest:
            raise SourceFailed(f"it sends more than the {largest} bytes that are allowed")
        write(file, chunk)
        if time.monotonic() - told >= TOLD_SECONDS:
            progress(what, done, total)
            told = time.monotonic()
    progress(what, total, total)
    return done


def write(file: IO[bytes], chunk: bytes) -> None:
    """Write to the disk; if that fails, no other source can help."""
    try:
        file.write(chunk)
    except OSError as error:
        raise UserError(
            f"{getattr(file, 'name', 'a file')!r} cannot be written ({error.strerror or error})",
            "allowed is a disk with room",
            "make room, or name another place by TRUEDRIFT_CACHE",
        ) from None


def error_text(error: object) -> str:
    """What an error says, on one line."""
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(said).split())


def digest_of(path: Path, algorithm: str = "sha256") -> str:
    """The sum of the file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


@dataclass(frozen=True)
class PinnedFile:
    """A file that is known byte for byte."""

    name: str
    size: int
    sha256: str
