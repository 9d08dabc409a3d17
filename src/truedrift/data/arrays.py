"""A user's arrays X [N, …] and y [N], or a file of them → standardized samples with their units."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from truedrift.axes import Tensor
from truedrift.data.array_files import ONLY, read_labeled_arrays
from truedrift.data.samples import Samples
from truedrift.data.units import Units
from truedrift.errors import UserError, import_package, list_names, short_repr

LARGEST_DIMENSION = 1 << 16


def samples_from_arrays(X: Any, y: Any = None, *, name: str = "array") -> Samples:
    """Return standardized samples of a user's arrays.

    Args:
        X: Numbers [N, …] with N ≥ 2: a tensor, a NumPy array, or lists.
        y: One label per sample [N]: numbers or text; None: one class.
        name: Name of the data.

    Returns:
        Points [N, D] with their units; D is the number of entries per sample, and the classes are the sorted labels.

    Raises:
        UserError: If X has no finite numbers or y does not fit.
    """
    values = to_finite_tensor(X)
    units = Units.of(values)
    labels, classes = _encode_labels(y, len(values))
    return Samples(units.to_model(values), labels, classes, name, flips=False, units=units)


def read_array_samples(path: Path) -> Samples:
    """Read the arrays of a file: X, and optionally y with one label per sample.

    Args:
        path: A .npz or .safetensors file with the arrays X and y, or a .npy file with one array. In a .npz file, y may
            be text of fixed length (dtype U or S).

    Returns:
        Standardized samples, as `samples_from_arrays` returns them.

    Raises:
        UserError: If the file is missing or damaged, or has other arrays.
    """
    arrays, y = read_labeled_arrays(path, "y")
    X = arrays.get("X", arrays.get(ONLY))
    others = set(arrays) - {"X", ONLY}
    if X is None or others:
        problem = f"{str(path)!r} holds {list_names(sorted([*arrays, *([] if y is None else ['y'])]))}"
        raise UserError(problem, "must hold X and, for classes, y", "save it with numpy.savez(path, X=X, y=y)")
    return samples_from_arrays(X, y)


def to_finite_tensor(X: Any) -> Tensor:
    """Return a user's array X as a tensor [N, …] on the CPU.

    Args:
        X: Numbers [N, …] with N ≥ 2: a tensor, an array or table of any library, or lists.

    Returns:
        Its values; memory is shared where possible.

    Raises:
        UserError: If X has no finite numbers.
    """
    allowed = "must be finite numbers [N, …] with N ≥ 2"
    try:
        values = X.detach().cpu() if isinstance(X, Tensor) else torch.from_numpy(_to_numbers(X))
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        text = str(error).partition("\n")[0][:100]
        raise UserError(f"cannot be read as numbers ({text})", allowed, "pass an array of numbers", field="X") from None
    if values.ndim == 0 or len(values) < 2 or values.numel() == 0:
        raise UserError(f"has shape {list(values.shape)}", allowed, "pass at least two samples", field="X")
    if values[0].numel() > LARGEST_DIMENSION:
        limit = f"must be at most {LARGEST_DIMENSION:,} entries per sample"
        raise UserError(f"has {values[0].numel():,} per sample", limit, "use a recipe with an encoder", field="X")
    if values.is_complex():
        raise UserError("is complex", allowed, "pass its real and imaginary parts as columns", field="X")
    wrong = values.numel() - int(torch.isfinite(values).sum())
    if wrong:
        fix = "remove these rows or fill them in"
        raise UserError(f"has {wrong} entries that are NaN or infinite", allowed, fix, field="X")
    return values


def _to_numbers(X: Any) -> Any:
    """Return lists, or an array or table of any library, as a NumPy array that torch can share."""
    numpy = import_package("numpy", "arrays", "train")
    array = numpy.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X)
    entries = array.flat if array.dtype.kind == "O" else ()
    if array.dtype.kind in "mM" or any(isinstance(each, (numpy.datetime64, numpy.timedelta64)) for each in entries):
        raise TypeError("it has dates or times")  # NumPy would convert them to numbers of an arbitrary unit
    if array.dtype.kind not in "fiubc":
        array = array.astype("float64")  # columns of several types; fails for text
    is_known = array.dtype.name in ("float16", "float32", "float64", "uint8", "int64", "complex128")
    # A copy unless torch takes it as it is: writable, native, without negative strides.
    dtype = array.dtype.newbyteorder("=") if is_known else "float64"
    return numpy.require(array, dtype, ["C_CONTIGUOUS", "WRITEABLE", "ALIGNED"])


def name_class(label: Any) -> str:
    """Return the name of the class of a label: text, bytes, or a number of any library.

    Example:
        >>> name_class(3), name_class(3.0), name_class(True), name_class(b"a"), name_class("a")
        ('3', '3', '1', 'a', 'a')
    """
    value = label.item() if hasattr(label, "item") else label
    if isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    if isinstance(value, (int, float)) and (isinstance(value, int) or value.is_integer()):
        value = int(value)
    return str(value).encode(errors="backslashreplace").decode()  # no lone surrogates, which cannot be saved


def _encode_labels(y: Any, count: int) -> tuple[Tensor, tuple[str, ...]]:
    """Return label numbers [N] and the names of the classes, in sorted order."""
    if y is None:
        return torch.zeros(count, dtype=torch.int64), ("all",)
    listed = y.tolist() if hasattr(y, "tolist") else y
    if isinstance(listed, (str, bytes)) or not isinstance(listed, Iterable):
        raise UserError(f"is {short_repr(y)}", "must have one label per sample", "pass a column of labels", field="y")
    given = list(listed)
    if len(given) != count or any(isinstance(each, (list, tuple, dict)) for each in given):
        problem = f"has {len(given)} entries for {count} samples" if len(given) != count else "has several columns"
        raise UserError(problem, "must have one label per sample", "pass a column of labels", field="y")
    if any(isinstance(each, float) and not each.is_integer() for each in given):
        allowed = "must be classes: integers or text"
        raise UserError("has numbers with fractions", allowed, "append a continuous target to X", field="y")
    names = [name_class(each) for each in given]
    try:
        ordered = sorted(
            set(names), key=lambda each: (0, int(each), "") if each.lstrip("-").isdecimal() else (1, 0, each)
        )
    except ValueError:
        ordered = sorted(set(names))
    numbers = {each: number for number, each in enumerate(ordered)}
    labels = torch.tensor([numbers[each] for each in names])
    rare = [each for each, size in zip(ordered, torch.bincount(labels).tolist(), strict=True) if size < 2]
    if rare:
        problem = f"has {len(rare)} classes with one sample ({list_names(rare)})"
        raise UserError(problem, "must have two or more samples per class", "merge or remove them", field="y")
    return labels, tuple(ordered)
