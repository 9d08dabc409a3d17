"""`python -m benchmarks [NAME …]`: run the benchmarks, print their tables, and write them to benchmarks/RESULTS.md."""

from __future__ import annotations

import datetime
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks import (
    cached_positives,
    calls,
    cifar10_step,
    compiled_step,
    corrected_centroid,
    digits_step,
    evaluation,
    exact_bias,
    feature_maps,
    gradient_caching,
    grouped_loss,
    load,
    matched_loss,
    operators,
    start,
    streaming,
    whole_class,
)
from benchmarks.machine import describe
from benchmarks.results import Result, table

RESULTS = Path(__file__).parent / "RESULTS.md"

HEAD = """# Benchmarks

`make bench` measures these ratios. The variants of a section run alternately, in several windows; the time of a variant
is the smallest median of a window. For the grouped loss, the table gives the median of three processes. Memory is what
torch allocates on top of what was allocated before the call. The section on load measures whole commands, once each:
their seconds and their largest memory, imports included. `python -m benchmarks NAME` measures one section again.
Two runs on the same machine differ by 10 % or more. If a bound is met or missed by less than that, one run does not
decide it. Sections may come from different machines; each names its own.
"""

SECTIONS: dict[str, tuple[str, Callable[[], list[Result]]]] = {
    "grouped_loss": (grouped_loss.TITLE, lambda: [result for n in (8, 64) for result in grouped_loss.measure(n)]),
    "matched_loss": (matched_loss.TITLE, matched_loss.measure),
    "calls": (calls.TITLE, calls.measure),
    "corrected_centroid": (corrected_centroid.TITLE, corrected_centroid.measure),
    "streaming": (streaming.TITLE, streaming.measure),
    "exact_bias": (exact_bias.TITLE, exact_bias.measure),
    "operators": (operators.TITLE, operators.measure),
    "digits_step": (digits_step.TITLE, digits_step.measure),
    "cifar10_step": (cifar10_step.TITLE, cifar10_step.measure),
    "feature_maps": (feature_maps.TITLE, feature_maps.measure),
    "compiled_step": (compiled_step.TITLE, compiled_step.measure),
    "cached_positives": (cached_positives.TITLE, cached_positives.measure),
    "gradient_caching": (gradient_caching.TITLE, gradient_caching.measure),
    "whole_class": (whole_class.TITLE, whole_class.measure),
    "evaluation": (evaluation.TITLE, evaluation.measure),
    "load": (load.TITLE, load.measure),
    "start": (start.TITLE, start.measure),
}


def main(names: list[str]) -> int:
    """Run the sections; return 0 if every bound holds, 1 if not, 2 if a name is unknown."""
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        print(f"unknown section {', '.join(unknown)}; known: {', '.join(SECTIONS)}", file=sys.stderr)
        return 2
    warnings.filterwarnings("ignore", category=FutureWarning)
    torch.set_num_threads(2)
    sections, missed = _read_sections(), []
    for name in names or SECTIONS:
        title, measure = SECTIONS[name]
        start = time.perf_counter()
        results = measure()
        minutes = (time.perf_counter() - start) / 60
        when = f"Measured {datetime.date.today().isoformat()}, in {minutes:.1f} minutes, on {describe()}."
        sections[title] = f"{table(title, results)}\n\n{when}"
        print(sections[title], end="\n\n", flush=True)
        missed += [result.what for result in results if result.holds is False]
        _write(sections)
    print(f"written to {RESULTS.name}; " + (f"missed: {', '.join(missed)}" if missed else "every bound holds"))
    return 1 if missed else 0


def _write(sections: dict[str, str]) -> None:
    """Write the file after every section, so that a later failure loses nothing."""
    known = [sections[title] + "\n" for title, _ in SECTIONS.values() if title in sections]
    RESULTS.write_text("\n".join([HEAD, *known]))


def _read_sections() -> dict[str, str]:
    """Return the sections of the file by title."""
    if not RESULTS.exists():
        return {}
    parts = RESULTS.read_text().split("\n## ")[1:]
    return {part.split("\n", 1)[0]: "## " + part.rstrip() for part in parts}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
