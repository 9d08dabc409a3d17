"""The few operations between processes that the library needs; in one process each is the identity.

A batch of `total` rows is dealt out in order: process r of k holds rows ⌊r·total/k⌋ to ⌊(r+1)·total/k⌋, so that any k
and any total fit. Rows are gathered without gradient, since the target of the drift loss has none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist

from truedrift.axes import Tensor


def rank() -> int:
    """The number of this process, 0 where there is one."""
    return dist.get_rank() if _joined() else 0


def size() -> int:
    """How many processes work together."""
    return dist.get_world_size() if _joined() else 1


def _joined() -> bool:
    return dist.is_available() and dist.is_initialized()


def row_range(total: int, r: int | None = None) -> tuple[int, int]:
    """First row and end of the rows of process r, this one if none is named."""
    r = rank() if r is None else r
    return r * total // size(), (r + 1) * total // size()


def gather_rows(rows: Tensor, total: int) -> Tensor:
    """The rows of every process in order, [total, ...], without gradient."""
    rows = rows.detach()
    if size() == 1:
        return rows
    each = [end - start for start, end in (row_range(total, r) for r in range(size()))]
    padded = rows.new_zeros(max(each), *rows.shape[1:])
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in each]
    dist.all_gather(parts, padded)
    return torch.cat([part[:count] for part, count in zip(parts, each, strict=True)])


def all_reduce_sum(tensors: Sequence[Tensor]) -> None:
    """Every tensor is replaced by its sum over the processes, in one message a dtype."""
    if size() == 1:
        return
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):  # in one order everywhere, which a set has not
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        joined = torch.cat([tensor.reshape(-1) for tensor in alike])
        dist.all_reduce(joined)
        for tensor, part in zip(alike, joined.split([tensor.numel() for tensor in alike]), strict=True):
            tensor.copy_(part.view_as(tensor))


def broadcast_tensors(tensors: Sequence[Tensor]) -> None:
    """Every tensor is replaced by that of process 0."""
    if size() > 1:
        for tensor in tensors:
            dist.broadcast(tensor, 0)


def broadcast_ints(numbers: Sequence[int]) -> tuple[int, ...]:
    """The whole numbers that process 0 has."""
    if size() == 1:
        return tuple(numbers)
    told = torch.tensor(numbers, dtype=torch.int64, device=_device())
    dist.broadcast(told, 0)
    return tuple(told.tolist())


def any_process(flag: bool) -> bool:
    """Whether the flag is set in any process."""
    if size() == 1:
        return flag
    count = torch.tensor(int(flag), device=_device())
    dist.all_reduce(count)
    return bool(count)


def wait() -> None:
    """Until every process is here."""
    if size() > 1:
        dist.barrier()


def _device() -> torch.device:
    """Where messages live: NCCL moves only what is on a GPU."""
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")


@contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """Inside, the processes that torchrun started work together; without torchrun nothing happens."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or _joined():
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()
