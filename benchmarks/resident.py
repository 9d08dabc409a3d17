"""Growth of the resident set of a process during a call, from /proc on Linux.

`getrusage` cannot be used in a child process, where its maximum starts at that of the parent.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

STATUS = Path("/proc/self/status")


def growth_bytes(run: Callable[[], object]) -> int:
    """Return the peak resident set minus that before `run`, in a process that was not larger before."""
    before = _bytes("VmRSS")
    run()
    return _bytes("VmHWM") - before


def _bytes(name: str) -> int:
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])
