"""`python -I reader.py SOURCE TARGET BYTES PATH…`: convert a pickle to safetensors in a separate process.

This script imports nothing from the package, and only `convert.py` starts it. It ends when its standard input ends: the
process that started it is gone then. Nested dictionaries and lists become
dotted names; numbers and strings go to the metadata as JSON. An error is one JSON object on stdout, with status 2.
PATH is where the parent process imports torch from, in case `-I` does not look there.
"""

import json
import os
import pickle
import re
import resource
import sys
import threading
from typing import Any

MAX_DEPTH = 12
MAX_ENTRIES = 200_000
"""A small pickle may unfold to more entries than fit in memory."""
MEMORY_BYTES = 6 << 30
"""Address space for the interpreter and torch, which map more memory than they use."""
MEMORY_PER_FILE_BYTE = 5
"""For the tensors as they are read, copied and written."""
WRITTEN_BYTES = 1 << 24
"""For names and values beside the tensors, and for small files."""


class RejectedFile(Exception):
    """The file is not a checkpoint of tensors and plain values."""


def set_resource_limits(size: int) -> None:
    """Limit memory and written bytes by the size of the source."""
    limits = {
        resource.RLIMIT_AS: MEMORY_BYTES + MEMORY_PER_FILE_BYTE * size,
        resource.RLIMIT_FSIZE: largest_output(size) + WRITTEN_BYTES,
    }
    for kind, limit in limits.items():
        try:
            resource.setrlimit(kind, (limit, limit))
        except (ValueError, OSError):
            continue  # a stricter limit is set, or the system has no such limit


def largest_output(size: int) -> int:
    """Return the largest size of all tensors. Tensors that share memory are written once each."""
    return WRITTEN_BYTES + 2 * size


def end_with_parent() -> None:
    """Wait for the end of the standard input, and end this process."""
    while os.read(0, 1):
        pass
    os._exit(1)


def load_weights_only(source: str) -> Any:
    """Load the object, which may only contain tensors and plain values."""
    import torch  # noqa: PLC0415  after the limits

    try:
        return torch.load(source, map_location="cpu", weights_only=True, mmap=False)
    except pickle.UnpicklingError as error:
        call = re.search(r"(?:GLOBAL|global|class) ([\w.]+\.[\w.]+)", str(error))
        unknown = "it is not a PyTorch checkpoint, or holds more than tensors and plain values"
        raise RejectedFile(f"it wants to call {call[1]}" if call else unknown) from None
    except Exception as error:
        raise RejectedFile(safe_message(error)) from None


def safe_message(error: Exception) -> str:
    """Describe an error without the text of torch, which advises to load the file without protection."""
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return "it does not fit in memory"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"it is damaged or not a PyTorch checkpoint: {type(error).__name__}"


def flatten(value: Any, name: str = "", depth: int = 0) -> Any:
    """Yield (dotted name, leaf) of every leaf."""
    if depth > MAX_DEPTH:
        raise RejectedFile(f"it is nested deeper than {MAX_DEPTH} levels")
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


def split_tensors(value: Any, largest: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tensors and the plain values by name. All tensors together may take `largest` bytes."""
    import torch  # noqa: PLC0415

    tensors: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    taken = 0
    # Sort the leaves by their type.
    for count, (name, leaf) in enumerate(flatten(value)):
        if count >= MAX_ENTRIES:
            raise RejectedFile(f"it has more than {MAX_ENTRIES} entries")
        if name in tensors or name in plain:
            raise RejectedFile(f"it has two entries named {name}")
        if isinstance(leaf, torch.Tensor):
            if leaf.layout != torch.strided or leaf.is_quantized or leaf.device.type != "cpu":
                raise RejectedFile(f"{name} is not a plain tensor")
            if leaf.numel() * leaf.element_size() > leaf.untyped_storage().nbytes():
                raise RejectedFile(f"{name} is larger than its stored values")
            taken += leaf.numel() * leaf.element_size()
            if taken > largest:
                raise RejectedFile("its tensors are much larger than the file")
            tensors[name] = leaf.detach().clone(memory_format=torch.contiguous_format)  # tensors may share memory
        elif leaf is None or isinstance(leaf, (bool, int, float, str)):
            plain[name] = leaf
        elif isinstance(leaf, (torch.dtype, torch.device)):
            plain[name] = str(leaf)
        else:
            raise RejectedFile(f"{name or 'the object'} is a {type(leaf).__name__}")
    if not tensors:
        raise RejectedFile("it has no tensors")
    return tensors, plain


def main(source: str, target: str, size: str, *paths: str) -> None:
    """Convert SOURCE to TARGET, or print an error and exit with status 2."""
    set_resource_limits(int(size))
    threading.Thread(target=end_with_parent, daemon=True).start()
    sys.path.extend(path for path in paths if path not in sys.path)
    try:
        tensors, plain = split_tensors(load_weights_only(source), largest_output(int(size)))
        from safetensors.torch import save_file  # noqa: PLC0415

        save_file(tensors, target, metadata={"scalars": json.dumps(plain)})
    except RejectedFile as error:
        message = str(error)
    except Exception as error:
        message = safe_message(error)
    else:
        return
    print(json.dumps({"error": message}))
    raise SystemExit(2)


if __name__ == "__main__":
    main(*sys.argv[1:])
