"""The energy distance since the last log, timing, memory and TensorBoard.

    mean ē = Σ_t e_t / N,   standard error √(Σ_t (e_t − ē)² / (N (N − 1)))   over the N steps since the last log

Every step adds N, Σe and Σe² on the device, without synchronization. A checkpoint contains these sums, so that a run
that is interrupted between two logs reports the same numbers.

Values that depend on the speed of the machine are separate, under `timing`. All other metrics are identical in a
resumed run.
"""

import math
import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import fmean
from typing import Any, BinaryIO

import torch

from truedrift import distributed
from truedrift.axes import Float, Tensor
from truedrift.errors import error_text
from truedrift.kernels.precision import to_widest


def finite_or_none(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None, also inside lists and dictionaries."""
    if isinstance(value, Mapping):
        return {name: finite_or_none(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_none(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class EnergyAverage:
    """The mean over steps of the energy distance of every scale.

    The summand of a step is the ratio of the energy distance to the mean distance, not its numerator and denominator
    separately: the expectation of each ratio is exactly 0 at equal distributions, every step has the same weight, and
    the steps give the standard error of the mean. A step whose energy distance is not finite is not counted.

    Args:
        scales: The number S of scales.
        device: The device of the run.

    Example:
        >>> average = EnergyAverage(1, torch.device("cpu"))
        >>> for energy in (0.25, 0.75):
        ...     average.add(torch.tensor([energy], dtype=torch.float64))
        >>> average.metrics()
        {'energy': [0.5], 'energy_error': [0.25]}
    """

    def __init__(self, scales: int, device: torch.device) -> None:
        self._sums = to_widest(torch.zeros(3, scales, device=device))  # rows N, Σe, Σe²

    def add(self, energy: Float[Tensor, " S"]) -> None:
        """Add the energy distance of a step, without waiting for the device."""
        finite = energy.isfinite()
        e = torch.where(finite, energy, 0).to(self._sums.dtype)
        self._sums += torch.stack((finite.to(e.dtype), e, e * e))

    def metrics(self) -> dict[str, list[float]]:
        """Return mean and standard error of every scale, NaN without a step and without two steps."""
        N, total, squares = self._sums
        mean = total / N
        variance = (squares - total * mean).clamp_min(0) / (N - 1)
        error = torch.where(N > 1, variance / N, torch.nan).sqrt()
        return {"energy": mean.tolist(), "energy_error": error.tolist()}

    def reset(self) -> None:
        """Start the next mean."""
        self._sums.zero_()

    def sums(self) -> list[list[float]]:
        """Return the sums for a checkpoint; as JSON they are exact."""
        values: list[list[float]] = self._sums.tolist()
        return values

    def load(self, sums: Sequence[Sequence[float]]) -> None:
        """Restore what `sums` returned. Sums of another number of scales, or none, start a new mean."""
        loaded = torch.tensor(sums, dtype=self._sums.dtype)
        self._sums.copy_(loaded if loaded.shape == self._sums.shape else torch.zeros_like(self._sums))

    def broadcast(self) -> None:
        """Give all processes the sums of rank 0."""
        distributed.broadcast_tensors([self._sums])


def timing(images: int, since: float, device: torch.device) -> dict[str, float]:
    """Return generated images per second since that time, and the peak memory so far."""
    seconds = time.monotonic() - since
    return {"images_per_second": images / max(seconds, 1e-9), "memory_megabytes": peak_memory(device) / 2**20}


def peak_memory(device: torch.device) -> int:
    """Return the peak memory in bytes, of the device on a GPU and of the process elsewhere."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


PER_SCALE = ("energy", "energy_error")
"""Lists with one entry per scale."""


def tensorboard_scalars(metrics: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield tags and values for TensorBoard: one per scale, per temperature, or per both. None is left out."""
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
        elif name in PER_SCALE:
            yield from ((f"{name}/scale-{s}", each) for s, each in enumerate(value))
        elif isinstance(value, Mapping):
            yield from ((f"{name}/{tag}", each) for tag, each in _flatten_tags(value))
        elif isinstance(value, list):
            yield from ((f"{name}/{tau}", each) for tau, each in zip(taus, value, strict=True))
        else:
            yield name, value


class TensorBoard:
    """A copy of the metrics in RUN/tensorboard. If it fails, this is reported once, and the run goes on without it.

    Events are written at once and in this thread: the writer of TensorBoard uses a thread of its own, whose failure
    prints a traceback and may block the run.

    Args:
        directory: RUN/tensorboard. It is made if it is missing.
        first_step: Events of later steps, which a killed process wrote, are hidden.
        notify: Called with a message if the file cannot be written.
    """

    def __init__(self, directory: Path, first_step: int, notify: Callable[[str], None]) -> None:
        self._directory, self._notify = directory, notify
        self._file: BinaryIO | None = None
        try:
            from tensorboard.compat.proto import event_pb2  # noqa: PLC0415  an extra
        except ImportError:
            return
        with self._drop_on_failure():
            directory.mkdir(exist_ok=True)
            name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
            self._path = directory / name
            self._file = self._path.open("xb")
            self._write(event_pb2.Event(step=first_step + 1, file_version="brain.Event:2"))
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._write(event_pb2.Event(step=first_step + 1, session_log=start))

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Write all numbers of a step."""
        if self._file is None:
            return
        from tensorboard.compat.proto import event_pb2, summary_pb2  # noqa: PLC0415

        values = [summary_pb2.Summary.Value(tag=tag, simple_value=x) for tag, x in tensorboard_scalars(metrics)]
        event = event_pb2.Event(wall_time=time.time(), step=metrics["step"], summary=summary_pb2.Summary(value=values))
        with self._drop_on_failure():
            # A file that was moved or removed can still be written, but nobody finds it.
            if not os.path.samestat(os.stat(self._path), os.fstat(self._file.fileno())):
                raise OSError("another file is in its place")
            self._write(event)

    def close(self) -> None:
        """Close the file. Nothing is buffered."""
        if self._file is not None:
            with self._drop_on_failure():
                self._file.close()

    def _write(self, event: Any) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter  # noqa: PLC0415

        record = RecordWriter(self._file)
        record.write(event.SerializeToString())
        record.flush()

    @contextmanager
    def _drop_on_failure(self) -> Iterator[None]:
        """Go on without the file if it fails; metrics.jsonl has all numbers."""
        try:
            yield
        except Exception as error:
            failed, self._file = self._file, None
            if failed is not None:
                with suppress(OSError):
                    failed.close()
            self._notify(f"TensorBoard is off: {str(self._directory)!r} cannot be written ({error_text(error)})")


def describe_energy(metrics: Mapping[str, Any]) -> str:
    """Return the energy distance and its standard error, averaged over scales; empty if it is not known."""
    energy = [value for value in metrics.get("energy", ()) if value is not None]
    errors = [value for value in metrics.get("energy_error", ()) if value is not None]
    if not energy:
        return ""
    return f"energy distance {fmean(energy):.3g}" + (f" ± {fmean(errors):.1g}" if errors else "")
