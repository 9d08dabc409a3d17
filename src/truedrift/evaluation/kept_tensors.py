"""Named tensors in the cache: a safetensors file with the sha256 of its content beside it, written in one step.

What is not whole, or not of this machine's making, reads as not there: it is computed again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from truedrift.axes import Tensor
from truedrift.files import write_atomically


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """The file first, then its hash."""
    from safetensors.torch import save  # noqa: PLC0415  an extra

    content = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    write_atomically(_beside(path), f"{hashlib.sha256(content).hexdigest()}\n".encode())


def keep_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """The same, where a cache that cannot be written costs time and nothing else."""
    with suppress(OSError):
        write_tensors(path, tensors)


def sha256_of(tensors: Mapping[str, Tensor]) -> str:
    """Over names, shapes and values, in the order of the names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def read_tensors(path: Path) -> dict[str, Tensor] | None:
    """The tensors, if they are there as they were written."""
    from safetensors.torch import load  # noqa: PLC0415  an extra

    try:
        content, expected = path.read_bytes(), _beside(path).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return load(content) if hashlib.sha256(content).hexdigest() == expected else None


def remove_tensors(path: Path) -> None:
    """If they are there."""
    _beside(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")
