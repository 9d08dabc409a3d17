"""`python -m benchmarks`: every benchmark, the table printed and written to benchmarks/RESULTS.md."""

from __future__ import annotations

import datetime
import sys
import time
import warnings
from pathlib import Path

import torch

from benchmarks import corrected_centroid, exact_bias, grouped_loss, streaming
from benchmarks.machine import describe
from benchmarks.results import Result, table

RESULTS = Path(__file__).parent / "RESULTS.md"

HEAD = """# Benchmarks

Ratios measured in one run of `make bench`; the variants take turns, and a variant's time is the best of several window
medians; for the grouped loss the median of three processes is given. Memory is what torch allocates above what was held
before the call.
Two runs on the same machine differ by 10 % or more; a bound that is met or missed by less is not settled by one run.

Machine: {machine}. Measured {date}, in {minutes:.0f} minutes.
"""


def main() -> int:
    """0 if every bound holds, else 1."""
    warnings.filterwarnings("ignore", category=FutureWarning)
    torch.set_num_threads(2)
    start = time.perf_counter()
    sections: list[tuple[str, list[Result]]] = []
    for title, run in (
        (grouped_loss.TITLE, lambda: [result for n in (8, 64) for result in grouped_loss.measure(n)]),
        (corrected_centroid.TITLE, corrected_centroid.measure),
        (streaming.TITLE, streaming.measure),
        (exact_bias.TITLE, exact_bias.measure),
    ):
        sections.append((title, run()))
        print(table(*sections[-1]), end="\n\n", flush=True)
    head = HEAD.format(
        machine=describe(), date=datetime.date.today().isoformat(), minutes=(time.perf_counter() - start) / 60
    )
    RESULTS.write_text("\n".join([head, "\n\n".join(table(*section) for section in sections), ""]))
    missed = [result.what for _, results in sections for result in results if result.holds is False]
    print(f"written to {RESULTS.name}; " + (f"missed: {', '.join(missed)}" if missed else "every bound holds"))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
