"""Fetching of data sets and weights into the cache: the sources are tried in turn, and every file must match its hash.

Files are collected and verified in a temporary directory inside the cache and then renamed, so that the cache never
contains an incomplete file. A file that is already there with the right hash is not fetched again.
"""

import hashlib
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from truedrift.data.registry import REMOTE_ASSETS, PinnedFile, RemoteAsset, Source
from truedrift.data.sources import CHUNK_BYTES, SourceFailed, deliver, write_chunk
from truedrift.errors import UserError, error_text, require_choice
from truedrift.progress import Progress, no_progress
from truedrift.quarantine import convert_pickle
from truedrift.storage import cache_directory, read_tensors, scratch_directory, write_tensors


def fetch(name: str, progress: Progress = no_progress) -> str | None:
    """Fetch a data set or weights into `cache_directory(name)`, unless they are already there.

    Args:
        name: A name in `REMOTE_ASSETS`.
        progress: Called with a title, bytes done and bytes in total.

    Returns:
        The title of the source; None if the files were already there.

    Raises:
        UserError: If no source delivers valid files, or the cache cannot be written.
    """
    require_choice("name", name, REMOTE_ASSETS)
    asset, directory = REMOTE_ASSETS[name], cache_directory(name)
    if _is_valid(asset, directory):
        return None
    # Install the files of the first source that delivers all of them.
    failures = []
    for source in asset.sources:
        with _scratch_directory(directory) as scratch:
            try:
                _collect(source, asset, scratch, progress)
            except SourceFailed as reason:
                failures.append(f"{source.title}: {reason}")
                continue
            _install(asset, scratch / "ready", directory)
        return source.title
    fix = f"connect to one and run truedrift data fetch {name} again"
    raise UserError(
        f"{name} could not be fetched ({', '.join(failures)})",
        "one of these sources must be reachable",
        f"{fix}, or pass your own copy with --data DIR" if asset.is_data else fix,
    )


def is_present(asset: RemoteAsset, directory: Path) -> bool:
    """Return whether files of the right names and sizes are there, without reading them."""
    if asset.product:
        return (directory / asset.product).is_file()
    paths = [directory / file.name for file in asset.files]
    return all(
        path.is_file() and path.stat().st_size == file.size for path, file in zip(paths, asset.files, strict=True)
    )


def _is_valid(asset: RemoteAsset, directory: Path) -> bool:
    """Return whether every file is there with the right hash."""
    if not is_present(asset, directory):
        return False
    if asset.product:
        return read_tensors(directory / asset.product) is not None
    return all(_hash_file(directory / file.name) == file.sha256 for file in asset.files)


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _scratch_directory(directory: Path) -> Iterator[Path]:
    """Make a temporary directory on the disk of the cache, with a subdirectory `ready` for verified files."""
    with ExitStack() as stack:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            scratch = stack.enter_context(scratch_directory(directory, ".fetching-"))
            (scratch / "ready").mkdir()
        except OSError as error:
            raise UserError(
                f"the cache {str(directory)!r} cannot be written ({error_text(error)})",
                "must be a writable directory",
                "set TRUEDRIFT_CACHE to another directory",
            ) from None
        yield scratch


def _collect(source: Source, asset: RemoteAsset, scratch: Path, progress: Progress) -> None:
    """Bring all files of the asset from one source to scratch/ready and verify each one."""
    missing = {file.name: file for file in asset.files}
    try:
        for name, stream in deliver(source, asset.files, scratch, progress):
            file = missing.pop(name, None)
            if file is not None:
                _store_verified(file, stream, scratch / "ready" / name)
    except (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, NotImplementedError) as error:
        raise SourceFailed(f"the download is damaged ({error_text(error)})") from None
    if missing:
        raise SourceFailed(f"it lacks {', '.join(sorted(missing))}")


def _store_verified(file: PinnedFile, stream: IO[bytes], target: Path) -> None:
    """Copy the stream to the file, up to one byte more than the known size, and check size and hash."""
    sha256, left = hashlib.sha256(), file.size + 1
    with target.open("wb") as output:
        while left and (chunk := stream.read(min(left, CHUNK_BYTES))):
            sha256.update(chunk)
            write_chunk(output, chunk)
            left -= len(chunk)
    if left != 1 or sha256.hexdigest() != file.sha256:
        raise SourceFailed(f"{file.name} has a wrong size or sha256")


def _install(asset: RemoteAsset, ready: Path, directory: Path) -> None:
    """Rename the verified files into the cache; or convert them, and write the result with its hash."""
    if asset.product:
        from safetensors.torch import load_file  # noqa: PLC0415  an extra

        convert_pickle(ready / asset.files[0].name, ready / asset.product)
        write_tensors(directory / asset.product, load_file(ready / asset.product))
    else:
        for file in asset.files:
            os.replace(ready / file.name, directory / file.name)
