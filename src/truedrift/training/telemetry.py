"""Timing, memory and TensorBoard.

Values that depend on the speed of the machine are separate, under `timing`. All other metrics are identical in a
resumed run.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch


def finite_or_none(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None, also inside lists and dictionaries."""
    if isinstance(value, Mapping):
        return {name: finite_or_none(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_none(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def timing(images: int, since: float, device: torch.device) -> dict[str, float]:
    """Return generated images per second since that time, and the peak memory so far."""
    seconds = time.monotonic() - since
    return {"images_per_second": images / max(seconds, 1e-9), "memory_megabytes": peak_memory(device) / 2**20}


def peak_memory(device: torch.device) -> int:
    """Return the peak memory in bytes, of the device on a GPU and of the process elsewhere."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    if sys.platform == "win32":
        return 0
    import resource  # noqa: PLC0415  Windows has none

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def tensorboard_scalars(metrics: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield tags and values for TensorBoard, one per temperature, or per scale and temperature. None is left out."""
    yield from ((tag, float(value)) for tag, value in _flatten_tags(metrics) if value is not None)


def _flatten_tags(metrics: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    taus = [f"tau-{tau:g}" for tau in metrics.get("temperatures", ())]
    for name, value in metrics.items():
        if name in ("step", "temperatures", "protocol"):
            continue
        if name == "force":
            yield from (
                (f"force/scale-{s}/{tau}", f) for s, row in enumerate(value) for tau, f in zip(taus, row, strict=True)
            )
        elif isinstance(value, Mapping):
            yield from ((f"{name}/{key}", each) for key, each in value.items())
        elif isinstance(value, list):
            yield from ((f"{name}/{tau}", each) for tau, each in zip(taus, value, strict=True))
        else:
            yield name, value


class TensorBoard:
    """A copy of the metrics in RUN/tensorboard. Does nothing without the package or a writable directory."""

    def __init__(self, directory: os.PathLike[str], first_step: int, notify: Callable[[str], None]) -> None:
        self._writer: Any = None
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  an extra

            # Hide what a killed process wrote after the checkpoint.
            self._writer = SummaryWriter(os.fspath(directory), purge_step=first_step + 1)
        except ImportError:
            pass
        except OSError as error:
            notify(f"TensorBoard is off: {os.fspath(directory)!r} cannot be written ({error.strerror or error})")

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Write all numbers of a step."""
        if self._writer is not None:
            for tag, value in tensorboard_scalars(metrics):
                self._writer.add_scalar(tag, value, metrics["step"])

    def close(self) -> None:
        """Write buffered values and close the file."""
        if self._writer is not None:
            self._writer.close()
