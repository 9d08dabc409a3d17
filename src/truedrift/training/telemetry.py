"""The energy distance since the last log, timing and memory.

    mean ē = Σ_t e_t / N,   standard error √(Σ_t (e_t − ē)² / (N (N − 1)))   over the N steps since the last log

Every step adds N, Σe and Σe² on the device, without synchronization. A checkpoint contains these sums, so that a run
that is interrupted between two logs reports the same numbers.

Values that depend on the speed of the machine are separate, under `timing`. All other metrics are identical in a
resumed run.
"""

import math
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import torch

from truedrift import distributed
from truedrift.axes import Float, Tensor
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


def describe_energy(metrics: Mapping[str, Any]) -> str:
    """Return the energy distance and its standard error, averaged over scales; empty if it is not known."""
    energy = [value for value in metrics.get("energy", ()) if value is not None]
    errors = [value for value in metrics.get("energy_error", ()) if value is not None]
    if not energy:
        return ""
    return f"energy distance {fmean(energy):.3g}" + (f" ± {fmean(errors):.1g}" if errors else "")
