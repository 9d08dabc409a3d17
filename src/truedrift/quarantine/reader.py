"""python -I reader.py SOURCE TARGET BYTES PLACE…: the tensors of a pickle as safetensors, in a process of its own.

Stands alone, imports nothing of the package, and is started by `conversion.py` only. Nested dictionaries and lists
become dotted names; numbers and words go to the metadata as JSON. A complaint is one JSON object on stdout, status 2.
PLACE is where the starting process has torch from, in case `-I` does not look there.
"""

from __future__ import annotations

import json
import pickle
import re
import sys
from typing import Any

DEEPEST = 12
MOST = 200_000
"""Entries: a small pickle may unfold to more than there is room for."""
MEMORY_BYTES = 12 << 30
"""For the interpreter and torch, which map more than they use."""
MEMORY_FOR_EACH_BYTE = 5
"""Of the file: as read, as copied, as written."""


class RejectedFile(Exception):
    """What is wrong with the file."""


def set_resource_limits(size: int) -> None:
    """Bounds on memory and on written bytes, where the system has them."""
    try:
        import resource  # noqa: PLC0415  not on Windows
    except ImportError:
        return
    memory = MEMORY_BYTES + MEMORY_FOR_EACH_BYTE * size
    for kind, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, memory), (resource.RLIMIT_CORE, 0)):
        try:
            resource.setrlimit(kind, (most, most))
        except (ValueError, OSError):
            continue  # a stricter one is in place, or the system knows no such bound


def load_weights_only(source: str) -> Any:
    """The object, if it is made of tensors and plain values."""
    import torch  # noqa: PLC0415  after the limits

    try:
        return torch.load(source, map_location="cpu", weights_only=True, mmap=False)
    except pickle.UnpicklingError as error:
        found = re.search(r"(?:GLOBAL|global|class) ([\w.]+\.[\w.]+)", str(error))
        unknown = "it is no checkpoint of PyTorch, or asks for more than tensors and plain values"
        raise RejectedFile(f"it wants to call {found[1]}" if found else unknown) from None
    except Exception as error:
        raise RejectedFile(safe_message(error)) from None


def safe_message(error: Exception) -> str:
    """Never those of torch, which advise to read the file without any safety."""
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return "it does not fit in memory"
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"it is damaged, or no checkpoint of PyTorch: {type(error).__name__}"


def flatten(value: Any, name: str = "", depth: int = 0) -> Any:
    """(dotted name, leaf) of every leaf."""
    if depth > DEEPEST:
        raise RejectedFile(f"it is nested deeper than {DEEPEST} levels")
    if isinstance(value, dict):
        entries = list(value.items())
    elif isinstance(value, (list, tuple)):
        entries = list(enumerate(value))
    else:
        yield name, value
        return
    for key, entry in entries:
        if not isinstance(key, (str, int)):
            raise RejectedFile(f"it has a key of type {type(key).__name__}")
        yield from flatten(entry, f"{name}.{key}" if name else str(key), depth + 1)


def tensor_parts(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors and plain values by name."""
    import torch  # noqa: PLC0415

    tensors: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    for count, (name, leaf) in enumerate(flatten(value)):
        if count >= MOST:
            raise RejectedFile(f"it has more than {MOST} entries")
        if name in tensors or name in plain:
            raise RejectedFile(f"it has two entries named {name}")
        if isinstance(leaf, torch.Tensor):
            if leaf.layout != torch.strided or leaf.is_quantized or leaf.device.type != "cpu":
                raise RejectedFile(f"{name} is no plain tensor")
            tensors[name] = leaf.detach().clone(memory_format=torch.contiguous_format)  # none shares its memory
        elif leaf is None or isinstance(leaf, (bool, int, float, str)):
            plain[name] = leaf
        elif isinstance(leaf, (torch.dtype, torch.device)):
            plain[name] = str(leaf)
        else:
            raise RejectedFile(f"{name or 'the whole'} is a {type(leaf).__name__}")
    if not tensors:
        raise RejectedFile("it holds no tensors")
    return tensors, plain


def main(source: str, target: str, size: str, *places: str) -> None:
    set_resource_limits(int(size))
    sys.path.extend(place for place in places if place not in sys.path)
    try:
        tensors, plain = tensor_parts(load_weights_only(source))
        from safetensors.torch import save_file  # noqa: PLC0415

        save_file(tensors, target, metadata={"scalars": json.dumps(plain)})
    except RejectedFile as complaint:
        say = str(complaint)
    except Exception as error:
        say = safe_message(error)
    else:
        return
    print(json.dumps({"complaint": say}))
    raise SystemExit(2)


if __name__ == "__main__":
    main(*sys.argv[1:])
