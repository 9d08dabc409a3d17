"""Start of the command: processor time of help, lists and typos, which import no torch, each in a new process.

The seconds are those of the processor, user and system, of the fastest of five processes. The ratio compares with a
process that only imports torch.
"""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.results import Result

TITLE = "Start: help, lists and typos"
MOST_SECONDS = 0.5
CALLS = ("--help", "recipes", "train --help", "reproduce --help", "trian", "train digts", "train digits --sedd 1")
PROCESSES = 5


def measure() -> list[Result]:
    """Return the seconds of every call, and its ratio to `import torch`."""
    base = _processor_seconds("-c", "import torch")
    results = [Result("`python -c 'import torch'`", base, "s")]
    for call in CALLS:
        seconds = _processor_seconds("-m", "truedrift", *call.split())
        results.append(Result(f"`truedrift {call}`", seconds, "s", "≤", MOST_SECONDS))
        results.append(Result(f"`truedrift {call}` / `import torch`", seconds / base))
    return results


def _processor_seconds(*arguments: str) -> float:
    """Return the smallest processor time of several processes."""
    return min(_run_once(arguments) for _ in range(PROCESSES))


def _run_once(arguments: tuple[str, ...]) -> float:
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0  # it was waited for
    return usage.ru_utime + usage.ru_stime
