"""Reading of a user's arrays by name: .npy (one array), .npz (several, no pickles) or .safetensors.

Nothing in a file is executed: object arrays, which NumPy would unpickle, are refused. A size that a header claims is
compared with the size of the file before any memory is allocated, and so is the sum of all arrays: a small compressed
file may unfold to more than the memory. Every defect of a file is one `UserError`.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import torch

from truedrift.axes import Tensor
from truedrift.errors import UserError, error_text, import_package, require_file
from truedrift.tensor_checks import require_finite

if TYPE_CHECKING:
    import numpy as np

ONLY = "array"
"""Name of the single array of a .npy file."""

LARGEST_GIGABYTES = 8.0
"""Default limit for all arrays of a file together."""
LARGEST_RATIO, ALWAYS_ALLOWED = 100, 1 << 28
"""Arrays may take 100 times the bytes of a compressed file, and 256 MiB in any case."""


def read_arrays(path: Path, *, largest_gigabytes: float = LARGEST_GIGABYTES) -> dict[str, Tensor]:
    """Read every array of a file.

    Args:
        path: A .npy, .npz or .safetensors file.
        largest_gigabytes: Limit for all arrays together, in units of 10⁹ bytes.

    Returns:
        The arrays by name; the array of a .npy file is named `ONLY`. Floating-point arrays keep their dtype, integers
        and booleans become float64.

    Raises:
        UserError: If the file is missing, damaged, or holds anything but finite real numbers.
    """
    # Choose the reader by the extension.
    readers = {".npy": _read_npy, ".npz": _read_npz, ".safetensors": _read_safetensors}
    require_file(path, readers)
    size = path.stat().st_size
    if size == 0:
        raise UserError(f"{str(path)!r} is empty", "must hold one or more arrays", "save it again")
    budget = _Budget(path, int(largest_gigabytes * 1e9), max(LARGEST_RATIO * size, ALWAYS_ALLOWED))
    # Read and check the arrays.
    try:
        arrays = {
            name: _validate_array(f"{name} in {str(path)!r}", tensor)
            for name, tensor in readers[path.suffix](path, budget)
        }
    except UserError:
        raise
    except Exception as error:  # NumPy, zipfile and their decoders raise almost anything for a damaged file
        raise UserError(
            f"{str(path)!r} cannot be read as {path.suffix} ({error_text(error)})",
            "must be a complete file without pickled objects",
            "save it again with numpy.save, numpy.savez or safetensors",
        ) from None
    if not arrays:
        raise UserError(f"{str(path)!r} holds no arrays", "must hold one or more", "save them again")
    return arrays


@dataclass
class _Budget:
    """The bytes that the arrays of a file may take in memory."""

    path: Path
    largest: int
    largest_by_file: int
    taken: int = 0

    def take(self, size: int) -> None:
        """Count the bytes of one more array before it is read."""
        self.taken += size
        if self.taken > self.largest:
            problem = f"{str(self.path)!r} claims arrays of {self.taken / 1e9:.3g} GB"
            limit = f"must be at most {self.largest / 1e9:g} GB"
            raise UserError(problem, limit, "save a sample of the rows, or raise the limit with --largest-gigabytes")
        if self.taken > self.largest_by_file:
            problem = (
                f"{str(self.path)!r} claims arrays {self.taken / self.path.stat().st_size:,.0f} times its own size"
            )
            raise UserError(problem, f"must be at most {LARGEST_RATIO} times", "save it with numpy.savez")


def _read_npy(path: Path, budget: _Budget) -> Iterator[tuple[str, Tensor]]:
    with path.open("rb") as file:
        yield ONLY, _read_array(path, file, path.stat().st_size, budget)


def _read_npz(path: Path, budget: _Budget) -> Iterator[tuple[str, Tensor]]:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            with archive.open(entry) as file:
                yield entry.filename.removesuffix(".npy"), _read_array(path, file, entry.file_size, budget)


def _read_array(path: Path, file: Any, size: int, budget: _Budget) -> Tensor:
    """Read one array in NumPy's format; `size` is the number of bytes of the file, headers included."""
    import numpy as np  # noqa: PLC0415  an extra

    # Check the header before any memory is allocated.
    shape, fortran, dtype = _read_header(np.lib.format, file)
    if dtype.hasobject or dtype.kind not in "fiub":
        content = "pickled Python objects" if dtype.hasobject else f"entries of type {dtype}"
        raise UserError(f"{str(path)!r} holds {content}", "must hold real numbers", "convert them with .astype(float)")
    claimed = math.prod(shape) * dtype.itemsize
    budget.take(math.prod(shape) * max(dtype.itemsize, 8 if dtype.kind != "f" else 0))  # integers become float64
    if claimed > size:
        raise EOFError(f"its header claims {claimed} bytes of data and the file has {size}")
    # Copy the values in native byte order; other types than float16, float32 and float64 become float64.
    values = np.frombuffer(file.read(claimed), dtype=dtype).reshape(shape, order="F" if fortran else "C")
    keeps_dtype = dtype.kind == "f" and dtype.itemsize in (2, 4, 8)
    native = values.astype(dtype.newbyteorder("=") if keeps_dtype else "float64", order="C", copy=True)
    return torch.from_numpy(native)


def _read_header(numpy_format: Any, file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = numpy_format.read_magic(file)
    read = {(1, 0): numpy_format.read_array_header_1_0, (2, 0): numpy_format.read_array_header_2_0}
    if version not in read:
        raise ValueError(f"version {version[0]}.{version[1]} of the format is unknown")
    shape, fortran, dtype = read[version](file)
    return shape, fortran, dtype


def _read_safetensors(path: Path, budget: _Budget) -> Iterator[tuple[str, Tensor]]:
    budget.take(path.stat().st_size)
    safetensors = import_package("safetensors", "a .safetensors file", "app")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  not a dictionary
                yield name, file.get_tensor(name)
    except safetensors.SafetensorError as error:
        raise ValueError(str(error)) from None


def _validate_array(name: str, tensor: Tensor) -> Tensor:
    """Require real, finite, not empty; return the array in a floating-point dtype that the library computes with."""
    if tensor.is_complex():
        raise UserError("is complex", "must be real", "save its real part", field=name)
    if tensor.numel() == 0:
        raise UserError(f"has shape {list(tensor.shape)}", "must not be empty", "save one or more rows", field=name)
    if tensor.dtype not in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        tensor = tensor.to(torch.float64)
    require_finite(**{name: tensor})
    return tensor
