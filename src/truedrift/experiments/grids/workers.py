"""Workers of this machine: how many, and the cores and the GPU of each."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch

from truedrift.training.assembly import find_device

THREADS = "OMP_NUM_THREADS"


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_count(device: str, asked: int | None, tasks: int) -> int:
    """As many as asked for, else one a GPU or core; never more than there is to do."""
    kind = find_device(device).type
    own = len(_gpus()) if kind == "cuda" else 1 if kind == "mps" else cores()
    return max(1, min(asked or own, tasks))


def threads_of_each(workers: int) -> int:
    """Its share of the cores, or fewer if the environment asks for that."""
    asked = os.environ.get(THREADS, "")
    share = max(1, cores() // workers)
    return min(share, int(asked)) if asked.isdecimal() and int(asked) else share


def places(device: str, workers: int) -> list[Mapping[str, str]]:
    """What each worker finds in its environment: its share of the cores, and its GPU."""
    threads = {THREADS: str(threads_of_each(workers))}
    if find_device(device).type != "cuda":
        return [threads] * workers
    gpus = _gpus()
    return [threads | {"CUDA_VISIBLE_DEVICES": gpus[place % len(gpus)]} for place in range(workers)]


def _gpus() -> list[str]:
    """As the driver numbers them, of those that this process may see."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return seen.split(",") if seen else [str(number) for number in range(torch.cuda.device_count())]
