"""Named tensors of a user's file: .npy (one array), .npz (several, no pickles) or .safetensors.

Nothing in a file is executed: object arrays, which NumPy would unpickle, are refused, and a size that a header only
claims is compared with the file before any memory is taken. Whatever is wrong with a file is one ValueError of three
parts.
"""

from __future__ import annotations

import contextlib
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import torch

from truedrift.axes import Tensor
from truedrift.errors import UserError, require_finite

if TYPE_CHECKING:
    import numpy as np

ONLY = "array"
"""The name of the single array of a .npy file."""

LARGEST_BYTES = 1 << 33
"""Of one array, 8 GiB."""

_OF_ARCHIVES = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError)
"""A damaged archive; one with a password (RuntimeError); one with another compression."""


def read_arrays(path: Path) -> dict[str, Tensor]:
    """Every array of the file by name: floating-point as stored, integers and booleans as float64."""
    reader = _reader(path)
    try:
        arrays = {name: _check_array(f"{name} in {str(path)!r}", tensor) for name, tensor in reader(path)}
    except OSError as error:
        raise _unreadable_file(path, error.strerror or str(error)) from None
    except MemoryError:
        raise _unreadable_file(path, "it does not fit in memory") from None
    if not arrays:
        raise UserError(f"{str(path)!r} holds no arrays", "allowed is a file with one or more", "save them again")
    return arrays


def _reader(path: Path) -> Callable[[Path], Iterator[tuple[str, Tensor]]]:
    """By the file's extension, after a look at what the path is."""
    readers: Mapping[str, Callable[[Path], Iterator[tuple[str, Tensor]]]] = {
        ".npy": _npy,
        ".npz": _npz,
        ".safetensors": _safetensors,
    }
    if path.is_dir():
        raise UserError(
            f"{str(path)!r} is a directory", "allowed is a file", f"name one that ends in {_join_or(readers)}"
        )
    if path.suffix not in readers:
        came = f"{str(path)!r} ends in {path.suffix!r}" if path.suffix else f"{str(path)!r} has no extension"
        raise UserError(came, f"allowed are {_join_or(readers)}", "save the arrays as one of these")
    if not path.exists():
        raise UserError(
            f"{str(path)!r} does not exist", f"allowed is a file that ends in {_join_or(readers)}", "check its name"
        )
    if path.stat().st_size == 0:
        raise UserError(f"{str(path)!r} is empty", "allowed is a file with one array or more", "save it again")
    return readers[path.suffix]


def _join_or(names: Mapping[str, Any]) -> str:
    return ", ".join(names)


def _unreadable_file(path: Path, why: str) -> ValueError:
    return UserError(
        f"{str(path)!r} cannot be read as {path.suffix} ({' '.join(why.split())})",
        "allowed is a complete file without pickled objects",
        "save it again with numpy.save, numpy.savez or safetensors",
    )


def _npy(path: Path) -> Iterator[tuple[str, Tensor]]:
    with path.open("rb") as file:
        yield ONLY, _array(path, file, path.stat().st_size)


def _npz(path: Path) -> Iterator[tuple[str, Tensor]]:
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                with archive.open(entry) as file:
                    yield entry.filename.removesuffix(".npy"), _array(path, file, entry.file_size)
    except _OF_ARCHIVES as error:
        raise _unreadable_file(path, str(error)) from None


def _array(path: Path, file: Any, size: int) -> Tensor:
    """One array in NumPy's format; its header's claim is held against `size`, the bytes that there are."""
    import numpy as np  # noqa: PLC0415  an extra

    with _describe_dtype(path):
        shape, fortran, dtype = _header(np.lib.format, file)
    _require_numeric(path, dtype)
    claimed = math.prod(shape) * dtype.itemsize
    if claimed > LARGEST_BYTES:
        came = f"{str(path)!r} claims an array of {claimed / 2**30:.3g} GiB"
        raise UserError(came, f"allowed are {LARGEST_BYTES >> 30} GiB", "save a sample of its rows")
    with _describe_dtype(path):
        if claimed > size:
            raise EOFError(f"its header claims {claimed} bytes of data and the file has {size}")
        values = np.frombuffer(file.read(claimed), dtype=dtype)
        return _tensor(values.reshape(shape, order="F" if fortran else "C"))


@contextlib.contextmanager
def _describe_dtype(path: Path) -> Iterator[None]:
    """What NumPy and zipfile raise over a damaged file, as a mistake."""
    try:
        yield
    except (ValueError, EOFError, SyntaxError, TypeError, KeyError, *_OF_ARCHIVES) as error:
        raise _unreadable_file(path, str(error) or type(error).__name__) from None


def _header(numpy_format: Any, file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = numpy_format.read_magic(file)
    read = {(1, 0): numpy_format.read_array_header_1_0, (2, 0): numpy_format.read_array_header_2_0}
    if version not in read:
        raise ValueError(f"version {version[0]}.{version[1]} of the format")
    shape, fortran, dtype = read[version](file)
    return shape, fortran, dtype


def _require_numeric(path: Path, dtype: np.dtype[Any]) -> None:
    if dtype.hasobject or dtype.kind not in "fiub":
        came = "pickled Python objects" if dtype.hasobject else f"entries of type {dtype}"
        raise UserError(f"{str(path)!r} holds {came}", "allowed are real numbers", "convert them with .astype(float)")


def _tensor(array: Any) -> Tensor:
    """float16, float32 and float64 as they are, everything else as float64; native bytes, a copy of its own."""
    kind = array.dtype.kind == "f" and array.dtype.itemsize in (2, 4, 8)
    native = array.astype(array.dtype.newbyteorder("=") if kind else "float64", order="C", copy=True)
    return torch.from_numpy(native)


def _safetensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    try:
        from safetensors import SafetensorError, safe_open  # noqa: PLC0415  an extra
    except ModuleNotFoundError:
        came = f"{str(path)!r} needs safetensors, which is not installed"
        raise UserError(came, "allowed without it are .npy and .npz", "run pip install 'truedrift[app]'") from None
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  it is no dictionary
                yield name, file.get_tensor(name)
    except SafetensorError as error:
        raise _unreadable_file(path, str(error)) from None


def _check_array(what: str, tensor: Tensor) -> Tensor:
    """Real, not empty, finite, and floating-point of a kind that the library computes with."""
    if tensor.is_complex():
        raise UserError(f"{what} is complex", "allowed are real numbers", "save its real part")
    if tensor.numel() == 0:
        raise UserError(
            f"{what} has shape {list(tensor.shape)}, which holds nothing", "allowed is no axis of 0", "save rows"
        )
    if tensor.dtype not in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        tensor = tensor.to(torch.float64)
    require_finite(**{what: tensor})
    return tensor
