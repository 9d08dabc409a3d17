"""`tab:overhead` as a record: what a correction costs in memory, time and parameters."""

from __future__ import annotations

from dataclasses import dataclass

from truedrift.records.origin import Provenance


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One estimator, eager or compiled, in a process of its own."""

    estimator: str
    compiled: bool
    epoch_seconds: tuple[float, ...]
    """Of every epoch after the first, which warms up."""
    memory_megabytes: float
    """Of a CUDA GPU its peak; on mps, which counts no peak, the most that the driver held for the process after an
    epoch; of a CPU by how much the process grew from before the first step to its peak."""
    parameters: int


@dataclass(frozen=True, kw_only=True)
class Overhead:
    """Standard and ABC, eager and compiled, at one n."""

    scale: str
    data: str
    recipe: str
    n: int
    steps_per_epoch: int
    device: str
    """"cpu", "mps", or the name of the GPU."""
    threads: int
    costs: tuple[Cost, ...]
    provenance: Provenance
