"""`tab:overhead`: memory, time of an epoch and parameters of standard and ABC, and the paper's values.

The spread is over epochs of one process: it tells how steady the clock was, not what another process would give. So a
difference has no interval; what is said is whether the slowest epoch of one is faster than the fastest of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from truedrift.records import Cost, Overhead
from truedrift.report.cell import Cell, Number, Row, shown
from truedrift.report.comparison import spread_cell
from truedrift.report.over_seeds import mean_and_deviation
from truedrift.report.table import Table
from truedrift.validation import mistake

NAME = "tab_overhead"
MEMORY = {
    "cpu": "growth of the process's resident memory from before the first step to its peak",
    "mps": "most that the driver held for the process after an epoch, since mps counts no peak",
}
"""What was measured, by device; a CUDA GPU, which has a name of its own, tells its peak."""
MODES = {False: "eager", True: "compiled"}

PAPER = {
    "memory, eager": (4729.0, 4731.0, 2.0),
    "epoch, eager": (37.1, 42.8, 5.7),
    "epoch, compiled": (38.0, 37.0, -1.0),
    "parameters": (26.6, 26.6, None),
}
"""Standard, ABC and difference as the paper prints them: MB (it does not say in which mode), seconds, millions."""


def cost_of(record: Overhead, estimator: str, *, compiled: bool) -> Cost | None:
    """What was measured, if it was."""
    return next((c for c in record.costs if c.estimator == estimator and c.compiled is compiled), None)


def save(record: Overhead, directory: Path) -> list[Path]:
    """The table as Markdown, LaTeX and CSV."""
    return table(record).save(directory, NAME)


def table(record: Overhead) -> Table:
    """Memory and time in both modes, and parameters."""
    if not record.costs:
        raise mistake(
            "the record of tab:overhead has no cost",
            "allowed is a record of one process or more",
            f"run {record.provenance.command!r} to its end",
        )
    epochs = sorted({len(cost.epoch_seconds) for cost in record.costs})
    memory = MEMORY.get(record.device, "peak memory of the device")
    return Table(
        caption=(
            f"Cost of the correction: {record.recipe} on {record.data}, n = {record.n}, {record.device}, "
            f"{record.threads} threads, {record.steps_per_epoch} steps an epoch, mean ± largest deviation over "
            f"{', '.join(map(str, epochs))} epochs after the first. Memory is the {memory}. "
            "Paper: DriftDiT-Small on CIFAR-10, n = 8, one A100."
        ),
        label="tab:overhead",
        header=("", "standard", "ABC", "ABC − standard", "standard, paper", "ABC, paper", "difference, paper"),
        groups=[_memory_rows(record), _time_rows(record), [_parameters_row(record)]],
    )


def _memory_rows(record: Overhead) -> list[Row]:
    return [
        (
            f"memory, {mode}, MB",
            *_three([_memory(cost) for cost in _both(record, compiled)], ".1f"),
            *_paper("memory", mode),
        )
        for compiled, mode in MODES.items()
    ]


def _time_rows(record: Overhead) -> list[Row]:
    rows: list[Row] = []
    for compiled, mode in MODES.items():
        seconds = [cost.epoch_seconds if cost else () for cost in _both(record, compiled)]
        spec = _digits([each for epochs in seconds for each in epochs])
        means = [mean_and_deviation(epochs)[0] if epochs else None for epochs in seconds]
        cells: list[Cell] = [*(spread_cell(epochs, spec) for epochs in seconds), Number(_minus(means), spec)]
        rows.append((f"epoch, {mode}, s", *cells, *_paper("epoch", mode)))
    return rows


def _digits(values: Sequence[float]) -> str:
    return ".1f" if min(values, default=10.0) >= 10 else ".3f"


def _parameters_row(record: Overhead) -> Row:
    counts = [next((cost.parameters for cost in pair if cost), None) for pair in _by_estimator(record)]
    return ("parameters (paper: millions)", *_three(counts, ",.0f"), *_paper("parameters", ""))


def _by_estimator(record: Overhead) -> list[list[Cost | None]]:
    return [[cost_of(record, name, compiled=mode) for mode in MODES] for name in ("standard", "abc")]


def _both(record: Overhead, compiled: bool) -> list[Cost | None]:
    return [cost_of(record, name, compiled=compiled) for name in ("standard", "abc")]


def _memory(cost: Cost | None) -> float | None:
    return None if cost is None else cost.memory_megabytes


def _three(pair: Sequence[float | None], spec: str) -> list[Cell]:
    return [*(Number(value, spec) for value in pair), Number(_minus(pair), spec)]


def _minus(pair: Sequence[float | None]) -> float | None:
    standard, abc = pair
    return None if standard is None or abc is None else abc - standard


def _paper(row: str, mode: str) -> list[Cell]:
    printed = PAPER.get(f"{row}, {mode}" if mode else row, (None, None, None))
    return [Number(value, ".0f" if row == "memory" else ".1f") for value in printed]


def verdicts(record: Overhead) -> list[str]:
    """One sentence for the time in each mode that was measured, and one for the memory."""
    said = []
    for compiled, mode in MODES.items():
        standard, abc = _both(record, compiled)
        if standard and abc and standard.epoch_seconds and abc.epoch_seconds:
            said += [_time_verdict(mode, standard, abc), _memory_verdict(mode, standard, abc)]
    return said


def _time_verdict(mode: str, standard: Cost, abc: Cost) -> str:
    first, second = (mean_and_deviation(cost.epoch_seconds)[0] for cost in (standard, abc))
    apart = min(abc.epoch_seconds) > max(standard.epoch_seconds) or max(abc.epoch_seconds) < min(standard.epoch_seconds)
    spec = _digits([*standard.epoch_seconds, *abc.epoch_seconds])
    both = "do not overlap" if apart else "overlap: within the spread of the clock"
    return (
        f"{mode}: an epoch takes {shown(second, spec)} s with ABC and {shown(first, spec)} s with standard "
        f"({_signed(second / first - 1, '.1%')}), and the epochs of both {both}"
    )


def _memory_verdict(mode: str, standard: Cost, abc: Cost) -> str:
    first, second = (f"{cost.memory_megabytes:.1f} MB" for cost in (standard, abc))
    return f"{mode}: memory is {second} with ABC and {first} with standard"


def _signed(value: float, spec: str) -> str:
    return shown(value, f"+{spec}")


def summary(record: Overhead) -> str:
    """The table for the screen, and the verdicts."""
    return table(record).screen("tab:overhead", verdicts(record))
