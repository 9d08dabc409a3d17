"""One measurement of `tab:overhead`: `python -m truedrift.paper.overhead_worker CONFIG DEVICE`.

Each line "epoch" on standard input is answered with the seconds of one epoch, the line "end" with memory, parameters,
device and threads. Memory is the peak of a CUDA GPU. On MPS, which has no peak counter, it is the largest driver
allocation measured after an epoch. On a CPU, it is the growth of the resident set from before the first step to its
peak.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from truedrift.distributed import resolve_device
from truedrift.options import from_dict
from truedrift.progress import no_progress
from truedrift.training.config import RunConfig
from truedrift.training.setup import Parts, TrainingSetup, build_setup, load_samples
from truedrift.training.telemetry import peak_memory

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
FORGET_PEAK = "5"


class Measurement:
    """A sequence of timed epochs, without a run directory."""

    def __init__(self, config: RunConfig, device: torch.device) -> None:
        self.config, self.device, self._next, self._driver = config, device, 0, 0
        self.setup: TrainingSetup = build_setup(config, Parts(), load_samples(config, Parts()), device, no_progress)
        self._before = _reset_peak(device)

    def epoch(self) -> float:
        """Run the next epoch; return its seconds."""
        start = time.perf_counter()
        for _ in range(self.config.cadence.steps_per_epoch):
            self.setup.step(self._next)
            self._next += 1
        _wait_for(self.device)
        seconds = time.perf_counter() - start
        if self.device.type == "mps":
            self._driver = max(self._driver, torch.mps.driver_allocated_memory())
        return seconds

    def end(self) -> dict[str, Any]:
        """Return memory, parameters, device and threads."""
        on_gpu = self.device.type == "cuda"
        return {
            "memory_megabytes": (self._peak() - self._before) / 2**20,
            "parameters": sum(each.numel() for each in self.setup.state.generator.parameters()),
            "device": torch.cuda.get_device_name(self.device) if on_gpu else self.device.type,
            "threads": torch.get_num_threads(),
        }

    def _peak(self) -> int:
        if self.device.type == "mps":
            return self._driver
        resident = _resident("VmHWM") if self.device.type == "cpu" else None
        return resident or peak_memory(self.device)


def _wait_for(device: torch.device) -> None:
    """Wait until the queued steps are done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def _reset_peak(device: torch.device) -> int:
    """Reset the peak; return the bytes that do not count."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    if device.type != "cpu":
        return 0
    if CLEAR.exists():
        CLEAR.write_text(FORGET_PEAK)
    return _resident("VmRSS") or peak_memory(device)


def _resident(field: str) -> int | None:
    """Return a field of /proc/self/status in bytes; None on systems other than Linux."""
    if not STATUS.exists():
        return None
    lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines() if ":" in line)
    return int(lines[field].split()[0]) * 1024


def main(config: str, device: str) -> None:
    """Answer requests until the input ends."""
    tree = json.loads(Path(config).read_text(encoding="utf-8"))
    measurement = Measurement(from_dict(RunConfig, tree), resolve_device(device))
    for line in sys.stdin:
        answer = measurement.epoch() if line.strip() == "epoch" else measurement.end()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
