"""Reading of a user's arrays by name: .npy (one array), .npz (several, no pickles) or .safetensors.

Nothing in a file is executed: object arrays, which NumPy would unpickle, are refused. A size that a header claims is
compared with the size of the file before any memory is allocated, and so is the sum of all arrays: a small compressed
file may unfold to more than the memory. Every defect of a file is one `UserError`.

An array of labels keeps its integers, which float64 would merge beyond 2⁵³, and may be text of fixed length.
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
TEXT_OBJECT = 64
"""Bytes that a Python string takes in addition to its characters."""


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
    return dict(_read_file(path, largest_gigabytes))


def read_labeled_arrays(path: Path, labels: str = "y") -> tuple[dict[str, Tensor], Any]:
    """Read every array of a file, one of which may hold labels.

    Args:
        path: A .npy, .npz or .safetensors file.
        labels: Name of the array of labels: numbers, or text of fixed length (dtype U or S).

    Returns:
        The other arrays, as `read_arrays` returns them, and the labels: None, a tensor of floating-point numbers, or a
        NumPy array of integers or text, which keep their values.

    Raises:
        UserError: If `read_arrays` would raise it, or the labels are neither numbers nor text.
    """
    arrays: dict[str, Any] = dict(_read_file(path, LARGEST_GIGABYTES, labels))
    given = arrays.pop(labels, None)
    return arrays, given


def _read_file(path: Path, largest_gigabytes: float, labels: str | None = None) -> Iterator[tuple[str, Any]]:
    """Yield name and array: a tensor, or a NumPy array for labels that are integers or text."""
    # Choose the reader by the extension.
    readers = {".npy": _read_npy, ".npz": _read_npz, ".safetensors": _read_safetensors}
    require_file(path, readers)
    size = path.stat().st_size
    if size == 0:
        raise UserError(f"{str(path)!r} is empty", "must hold one or more arrays", "save it again")
    budget = _Budget(path, int(largest_gigabytes * 1e9), max(LARGEST_RATIO * size, ALWAYS_ALLOWED))
    # Read and check the arrays.
    try:
        names = set()
        for name, array in readers[path.suffix](path, budget, labels):
            if name in names:
                problem = f"{str(path)!r} holds two arrays named {name!r}"
                raise UserError(problem, "must have one array per name", "save it again with numpy.savez")
            names.add(name)
            validate = _validate_array if isinstance(array, Tensor) else _validate_labels
            yield name, validate(f"{name} in {str(path)!r}", array)
    except UserError:
        raise
    except Exception as error:  # NumPy, zipfile and their decoders raise almost anything for a damaged file
        raise UserError(
            f"{str(path)!r} cannot be read as {path.suffix} ({error_text(error)})",
            "must be a complete file without pickled objects",
            "save it again with numpy.save, numpy.savez or safetensors",
        ) from None
    if not names:
        raise UserError(f"{str(path)!r} holds no arrays", "must hold one or more", "save them again")


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


def _read_npy(path: Path, budget: _Budget, labels: str | None) -> Iterator[tuple[str, Any]]:
    with path.open("rb") as file:
        yield ONLY, _read_array(f"{str(path)!r}", file, path.stat().st_size, budget, is_labels=labels == ONLY)


def _read_npz(path: Path, budget: _Budget, labels: str | None) -> Iterator[tuple[str, Any]]:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            name = entry.filename.removesuffix(".npy")
            with archive.open(entry) as file:
                where = f"{name} in {str(path)!r}"
                yield name, _read_array(where, file, entry.file_size, budget, is_labels=name == labels)


def _read_array(where: str, file: Any, size: int, budget: _Budget, *, is_labels: bool) -> Any:
    """Read one array in NumPy's format; `size` is the number of bytes of the file, headers included."""
    import numpy as np  # noqa: PLC0415  an extra

    # Check the header before any memory is allocated.
    shape, fortran, dtype = _read_header(np.lib.format, file)
    if dtype.hasobject or dtype.kind not in ("fiubUS" if is_labels else "fiub"):
        content = "pickled Python objects" if dtype.hasobject else f"entries of type {dtype}"
        allowed, target = ("numbers or text of fixed length", "str") if is_labels else ("real numbers", "float")
        raise UserError(f"{where} holds {content}", f"must hold {allowed}", f"convert them with .astype({target})")
    is_text = dtype.kind in "US"
    claimed = math.prod(shape) * dtype.itemsize
    # Integers become float64, and text becomes Python strings.
    largest = dtype.itemsize + TEXT_OBJECT if is_text else max(dtype.itemsize, 8 if dtype.kind != "f" else 0)
    budget.take(math.prod(shape) * largest)
    if claimed > size:
        raise EOFError(f"its header claims {claimed} bytes of data and the file has {size}")
    # Copy the values in native byte order; other types than float16, float32 and float64 become float64.
    values = np.frombuffer(file.read(claimed), dtype=dtype).reshape(shape, order="F" if fortran else "C")
    if is_labels and dtype.kind != "f":
        return values.astype(dtype.newbyteorder("="))
    keeps_dtype = dtype.kind == "f" and dtype.itemsize in (2, 4, 8)
    native = values.astype(dtype.newbyteorder("=") if keeps_dtype else "float64", order="C", copy=True)
    return torch.from_numpy(native)


def _read_header(numpy_format: Any, file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = numpy_format.read_magic(file)
    read = {(1, 0): numpy_format.read_array_header_1_0, (2, 0): numpy_format.read_array_header_2_0}
    if version not in read:
        raise ValueError(f"version {version[0]}.{version[1]} of the format is unknown")
    shape, fortran, dtype = read[version](file)
    if any(length < 0 for length in shape):
        raise ValueError(f"its header claims the shape {shape}")
    return shape, fortran, dtype


def _read_safetensors(path: Path, budget: _Budget, labels: str | None) -> Iterator[tuple[str, Any]]:
    budget.take(path.stat().st_size)
    safetensors = import_package("safetensors", "a .safetensors file", "app")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  not a dictionary
                tensor = file.get_tensor(name)
                is_integer = not tensor.is_floating_point() and not tensor.is_complex()
                yield name, tensor.numpy() if name == labels and is_integer else tensor
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


def _validate_labels(name: str, labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Require labels, in valid text; return text of dtype S as dtype U."""
    import numpy as np  # noqa: PLC0415  an extra

    if labels.size == 0:
        raise UserError(f"has shape {list(labels.shape)}", "must not be empty", "save one or more labels", field=name)
    if labels.dtype.kind not in "US":
        return labels
    try:
        text = np.char.decode(labels, "utf-8") if labels.dtype.kind == "S" else labels
        is_valid = b"\0" not in "".join(text.ravel().tolist()).encode()
    except (ValueError, SystemError):  # NumPy raises SystemError for numbers that are no characters
        is_valid = False
    if not is_valid:
        allowed = "must be valid text without NUL"
        raise UserError("holds bytes that are not text", allowed, "save the labels as text or integers", field=name)
    return text
