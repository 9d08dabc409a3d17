"""Processes and devices: collective operations, which are the identity in a single process, and `resolve_device`.

A batch of `total` rows is divided in order: process r of k holds rows ⌊r·total/k⌋ to ⌊(r+1)·total/k⌋, for any k and any
total. Rows are gathered without gradient, since the target of the drift loss has none.

Every process waits for the others in each collective operation. If one of them ends or does not answer, the others
raise `PeerLost`, which names it if it is known: see `process_group`.
"""

import os
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from truedrift.axes import Tensor
from truedrift.errors import UserError

DEVICES = ("auto", "cpu", "cuda", "mps")

TIMEOUT_MINUTES = 10.0
"""Default for the time that a process waits for an answer of the others."""


def rank() -> int:
    """Return the number of this process, counted from 0."""
    return dist.get_rank() if _is_initialized() else 0


def size() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if _is_initialized() else 1


def expected_size() -> int:
    """Return the number of processes, also before they are connected."""
    return size() if _is_initialized() else int(os.environ.get("WORLD_SIZE", "1"))


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


def gather_texts(text: str) -> list[str]:
    """Gather a text of every process, in order."""
    if size() == 1:
        return [text]
    content = torch.tensor(list(text.encode()), dtype=torch.uint8, device=_device())
    lengths = [torch.zeros(1, dtype=torch.int64, device=_device()) for _ in range(size())]
    dist.all_gather(lengths, torch.tensor([len(content)], device=_device()))
    padded = content.new_zeros(max(map(int, lengths)))
    padded[: len(content)] = content
    parts = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(parts, padded)
    texts = (part[: int(length)] for part, length in zip(parts, lengths, strict=True))
    return [bytes(each.tolist()).decode() for each in texts]


def _device() -> torch.device:
    """Return the device for messages: NCCL sends only tensors on a GPU."""
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")


# ---- Connection ----


class PeerLost(RuntimeError):
    """Another process of the run has ended, or does not answer. `signal` is the one that asked this process to stop."""

    signal: str | None = None


@contextmanager
def process_group(device: torch.device, timeout_minutes: float = TIMEOUT_MINUTES) -> Iterator[None]:
    """Connect the processes that torchrun started; without torchrun do nothing.

    Args:
        device: The device of this process: NCCL connects GPUs, gloo everything else.
        timeout_minutes: How long to wait for an answer of the other processes.

    Raises:
        PeerLost: If another process ends, or does not answer in time.
    """
    if expected_size() == 1 or _is_initialized():
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    timeout = timedelta(minutes=timeout_minutes)
    peers: list[str] = []
    try:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timeout)
        peers = gather_texts(f"{os.getpid()} {socket.gethostname()}")
        yield
    except (RuntimeError, ConnectionError) as error:
        started = re.search(r"(\d+)/(\d+) clients joined", str(error))
        if started:
            problem = f"only {started[1]} of {started[2]} processes started within {timeout_minutes:g} minutes"
            raise PeerLost(problem) from None
        reason = _connection_problem(str(error), timeout_minutes)
        if reason is None:
            raise
        raise PeerLost(f"{_name_lost_ranks(peers) or 'another process'} {reason}") from None
    finally:
        if _is_initialized():
            dist.destroy_process_group()


_SILENCE = ("Timed out", "timed out", "Timeout", "timeout")
_LOSS = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Connection refused", "NCCL", "gloo")


def _connection_problem(message: str, minutes: float) -> str | None:
    """Return what happened to another process, by the message of gloo or NCCL; None if it is another error."""
    if any(text in message for text in _LOSS):
        if any(text in message for text in _SILENCE):
            return f"has not answered for {minutes:g} minutes"
        return "ended"
    return None


def _name_lost_ranks(peers: Sequence[str], wait_seconds: float = 2.0) -> str:
    """Name the ranks whose processes on this machine have ended; torchrun may need a moment to notice."""
    deadline = time.monotonic() + wait_seconds
    processes = (each.split(" ", 1) for each in peers)
    local = [(number, int(pid)) for number, (pid, host) in enumerate(processes) if host == socket.gethostname()]
    while local and time.monotonic() < deadline:
        ended = [str(number) for number, pid in local if not _is_alive(pid)]
        if ended:
            return f"rank {', '.join(ended)}"
        time.sleep(0.05)
    return ""


def _is_alive(pid: int) -> bool:
    """Return whether a process runs. One that has ended and is still listed, a zombie, does not."""
    try:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2]
    except ProcessLookupError:
        return False
    except OSError:  # a process of another user, or a system without /proc
        return True
    return not status.startswith((b"Z", b"X"))


# ---- Devices ----


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
