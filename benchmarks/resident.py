"""How far a call raises the resident set of its process, from Linux's own account of its highest.

The highest of `getrusage` is no use in a process that another one started: it begins at the highest of that other one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

STATUS = Path("/proc/self/status")


def growth_bytes(run: Callable[[], object]) -> int:
    """The highest resident set less that before `run`; for a process that was not larger before."""
    before = _bytes("VmRSS")
    run()
    return _bytes("VmHWM") - before


def _bytes(name: str) -> int:
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])
