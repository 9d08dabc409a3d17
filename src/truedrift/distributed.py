"""Processes and devices: collective operations, which are the identity in a single process, and `resolve_device`.

A batch of `total` rows is divided in order: process r of k holds rows ⌊r·total/k⌋ to ⌊(r+1)·total/k⌋, for any k and any
total. Rows are gathered without gradient, since the target of the drift loss has none.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist

from truedrift.axes import Tensor
from truedrift.errors import UserError

DEVICES = ("auto", "cpu", "cuda", "mps")


def rank() -> int:
    """Return the number of this process, counted from 0."""
    return dist.get_rank() if _is_initialized() else 0


def size() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if _is_initialized() else 1


def _is_initialized() -> bool:
    return dist.is_available() and dist.is_initialized()


def row_range(total: int, r: int | None = None) -> tuple[int, int]:
    """Return the first row and the end of the rows of process r, by default this one."""
    r = rank() if r is None else r
    return r * total // size(), (r + 1) * total // size()


def gather_rows(rows: Tensor, total: int) -> Tensor:
    """Gather the rows of every process in order, [total, ...], without gradient."""
    rows = rows.detach()
    if size() == 1:
        return rows
    counts = [end - start for start, end in (row_range(total, r) for r in range(size()))]
    padded = rows.new_zeros(max(counts), *rows.shape[1:])
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


def all_reduce_sum(tensors: Sequence[Tensor]) -> None:
    """Replace every tensor by its sum over the processes, with one message per dtype."""
    if size() == 1:
        return
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):  # a set would have no fixed order
        group = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.reshape(-1) for tensor in group])
        dist.all_reduce(flat)
        for tensor, part in zip(group, flat.split([tensor.numel() for tensor in group]), strict=True):
            tensor.copy_(part.view_as(tensor))


def broadcast_tensors(tensors: Sequence[Tensor]) -> None:
    """Replace every tensor by that of process 0."""
    if size() > 1:
        for tensor in tensors:
            dist.broadcast(tensor, 0)


def broadcast_ints(numbers: Sequence[int]) -> tuple[int, ...]:
    """Return the integers of process 0."""
    if size() == 1:
        return tuple(numbers)
    values = torch.tensor(numbers, dtype=torch.int64, device=_device())
    dist.broadcast(values, 0)
    return tuple(values.tolist())


def any_process(flag: bool) -> bool:
    """Return whether the flag is set in any process."""
    if size() == 1:
        return flag
    count = torch.tensor(int(flag), device=_device())
    dist.all_reduce(count)
    return bool(count)


def _device() -> torch.device:
    """Return the device for messages: NCCL sends only tensors on a GPU."""
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")


@contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """Connect the processes that torchrun started; without torchrun do nothing."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or _is_initialized():
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def resolve_device(device: str | torch.device) -> torch.device:
    """Return the device of that name. Each process of torchrun gets its own GPU.

    Args:
        device: `auto` for a GPU if there is one, `cpu`, `cuda`, `mps`, or a device, which is returned.

    Raises:
        UserError: If the device is unknown or not available.
    """
    if isinstance(device, torch.device):
        return device
    if device not in DEVICES:
        raise UserError(f"device {device!r} is unknown", f"known: {', '.join(DEVICES)}", "pass one of these")
    available = ["cpu"]
    if torch.backends.mps.is_available():
        available.insert(0, "mps")
    if torch.cuda.is_available():
        available.insert(0, "cuda")
    kind = available[0] if device == "auto" else device
    if kind not in available:
        raise UserError(
            f"device {device!r} is not available", f"available: {', '.join(available)}", "pass one of these or 'auto'"
        )
    return _local_gpu() if kind == "cuda" else torch.device(kind)


def _local_gpu() -> torch.device:
    """Return the GPU of this process. torchrun numbers the processes of a machine."""
    number, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if number >= count:
        raise UserError(
            f"no GPU is left for process {number + 1} on this machine",
            f"available GPUs: {count}",
            f"start torchrun with --nproc-per-node {count} or fewer",
        )
    return torch.device("cuda", number)
