"""A description of the machine."""

from __future__ import annotations

import platform
from pathlib import Path

import torch


def describe() -> str:
    """Return one line with processor, threads, system, Python and torch."""
    return (
        f"{_processor()}, {torch.get_num_threads()} threads, {platform.system()}, "
        f"Python {platform.python_version()}, torch {torch.__version__}"
    )


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
