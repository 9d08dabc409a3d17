"""`tab:overhead`: cost of the correction at n = 8, as time per epoch, memory and parameters, with the paper's values.

Standard and ABC are each measured in a separate process, eager and then compiled. The two processes of a pair run their
epochs in turn, so that other load on the machine affects both. The first epoch warms up (and compiles) and is not
counted; ten follow, or two at `smoke`.

The deviation is over epochs of one process: it shows how stable the clock was, not what another process would measure.
So a difference has no interval; the finding is whether the slowest epoch of one is faster than the fastest of the
other.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truedrift.errors import UserError
from truedrift.grids.benchmarks import IMAGES, benchmark_setting
from truedrift.grids.estimate import ABC_EPOCH_SECONDS, STANDARD_EPOCH_SECONDS, STEPS, format_duration, seconds_per_step
from truedrift.grids.options import Scale, StudyOptions
from truedrift.paper.grid_tables import mean_and_deviation, mean_cell
from truedrift.recipes.overrides import recipe
from truedrift.records.provenance import Provenance, provenance
from truedrift.report.item import Item
from truedrift.report.table import Cell, Number, Row, Table, format_number
from truedrift.training.config import RunConfig
from truedrift.training.setup import Parts, load_samples, resolve_device

PAPER = {
    "memory, eager": (4729.0, 4731.0, 2.0),
    "epoch, eager": (37.1, 42.8, 5.7),
    "epoch, compiled": (38.0, 37.0, -1.0),
    "parameters": (26.6, 26.6, None),
}
"""Standard, ABC and difference as the paper prints them: MB (the mode is not stated), seconds, millions."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of one estimator, eager or compiled, measured in a separate process."""

    estimator: str
    compiled: bool
    epoch_seconds: tuple[float, ...]
    """Seconds of every epoch after the first, which warms up."""
    memory_megabytes: float
    """Peak memory of a CUDA GPU. On mps, which has no peak counter: the most that the driver held after an epoch. On a
    CPU: the growth of the resident memory from before the first step to its peak."""
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


LABEL = "tab:overhead"
N = 8
ESTIMATORS = ("standard", "abc")
EPOCHS, SMOKE_EPOCHS = 10, 2


def configs(setting: StudyOptions) -> list[RunConfig]:
    """Return the configurations of the four measurements, in pairs."""
    on = benchmark_setting(setting, IMAGES, LABEL)
    return [
        recipe(
            on.recipe,
            given={"n": N, "seed": on.seeds[0], "estimator": estimator},
            settings=(f"engine.compiled={'true' if compiled else 'false'}",),
        )
        for compiled in (False, True)
        for estimator in ESTIMATORS
    ]


def epoch_count(scale: Scale) -> int:
    """Return the number of epochs per measurement, including the warm-up."""
    return 1 + (SMOKE_EPOCHS if scale == "smoke" else EPOCHS)


def require_ready(setting: StudyOptions) -> None:
    """Require that the data set is allowed and available, before anything starts."""
    load_samples(configs(setting)[0], Parts())


def study(setting: StudyOptions) -> Overhead:
    """Measure both pairs, one after the other."""
    started = time.monotonic()
    found = configs(setting)
    epochs = epoch_count(setting.scale)
    eager = _read_measurement(found[:2], epochs, 0, setting)
    compiled = _read_measurement(found[2:], epochs, 2 * epochs, setting)
    machine = eager[0].final
    return Overhead(
        scale=setting.scale,
        data=found[0].data.name,
        recipe=found[0].recipe,
        n=N,
        steps_per_epoch=found[0].cadence.steps_per_epoch,
        device=machine["device"],
        threads=machine["threads"],
        costs=tuple(map(_cost, found, (*eager, *compiled))),
        provenance=provenance(seed=setting.seed, wall_seconds=time.monotonic() - started),
    )


@dataclass
class MeasuredCost:
    """What a process has measured so far."""

    seconds: list[float] = field(default_factory=list)
    """Seconds of every epoch."""
    final: dict[str, Any] = field(default_factory=dict)
    """Final answer: memory_megabytes, parameters, device, threads."""


def _cost(config: RunConfig, measured: MeasuredCost) -> Cost:
    return Cost(
        estimator=config.objective.estimator_pos,
        compiled=config.engine.compiled,
        epoch_seconds=tuple(measured.seconds[1:]),
        memory_megabytes=measured.final["memory_megabytes"],
        parameters=measured.final["parameters"],
    )


def _read_measurement(pair: list[RunConfig], epochs: int, before: int, setting: StudyOptions) -> list[MeasuredCost]:
    """Run the processes of a pair, which take their epochs in turn."""
    found = [MeasuredCost() for _ in pair]
    with ExitStack() as stack:
        processes = [stack.enter_context(_process(config, setting.device)) for config in pair]
        for epoch in range(epochs):
            for number, process in enumerate(processes):
                found[number].seconds.append(process.request("epoch"))
                setting.progress(LABEL, before + len(pair) * epoch + number + 1, 4 * epochs)
        for each, process in zip(found, processes, strict=True):
            each.final = process.request("end")
    return found


class MeasuringProcess:
    """A process that answers each word with one line of JSON."""

    def __init__(self, process: subprocess.Popen[str], errors: Any) -> None:
        self._process, self._errors = process, errors

    def request(self, word: str) -> Any:
        """Send the word; return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(word + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._error() from None
        line = self._process.stdout.readline()
        if not line:
            raise self._error()
        return json.loads(line)

    def _error(self) -> Exception:
        self._process.wait()
        self._errors.seek(0)
        last = self._errors.read().strip().splitlines()[-1:]
        problem = f"a measurement ended with status {self._process.returncode} ({' '.join(last) or 'no output'})"
        return UserError(problem, "the machine must be able to train and compile", "fix the cause and run it again")


@contextmanager
def _process(config: RunConfig, device: str) -> Iterator[MeasuringProcess]:
    """Start the process, and stop it on exit."""
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile("w+") as errors:
        path = Path(scratch) / "config.json"
        path.write_text(json.dumps(config.tree()), encoding="utf-8")
        pipe = subprocess.PIPE
        with subprocess.Popen(_command(path, device), stdin=pipe, stdout=pipe, stderr=errors, text=True) as process:
            try:
                yield MeasuringProcess(process, errors)
            finally:
                process.kill()


def _command(config: Path, device: str) -> list[str]:
    return [sys.executable, "-m", "truedrift.paper.overhead_worker", str(config), device]


def measurements(setting: StudyOptions) -> str:
    """Return what `--dry-run` prints."""
    found, epochs = configs(setting), epoch_count(setting.scale)
    each = f"{epochs} epochs of {found[0].cadence.steps_per_epoch} steps each, the first of them not counted"
    return "\n".join(
        (
            *map(_line, found),
            "",
            f"{LABEL} at scale {setting.scale} on {found[0].data.name}, n = {N}: {len(found)} measurements, {each}",
            _cost_line(found, epochs, setting),
        )
    )


def _line(config: RunConfig) -> str:
    return f"{config.objective.estimator_pos:10}{'compiled' if config.engine.compiled else 'eager'}"


def _cost_line(found: list[RunConfig], epochs: int, setting: StudyOptions) -> str:
    compiling = "compiling comes on top"
    if setting.scale == "paper":
        seconds = epochs * 2 * (STANDARD_EPOCH_SECONDS + ABC_EPOCH_SECONDS)
        return f"estimate: {format_duration(seconds)} on one A100, from the paper's times; {compiling}"
    try:
        samples = load_samples(found[0], Parts())
    except UserError as error:
        return f"no estimate: {error}"
    steps = epochs * found[0].cadence.steps_per_epoch * len(found)
    seconds = steps * seconds_per_step(found[0], samples, resolve_device(setting.device))
    return f"estimate: {format_duration(seconds)} from {STEPS} steps of the first; {compiling}"


MEMORY = {
    "cpu": "growth of the process's resident memory from before the first step to its peak",
    "mps": "most that the driver held for the process after an epoch, since mps counts no peak",
}
"""Device → what memory means; a CUDA GPU, which has its own name, reports its peak."""
MODES = {False: "eager", True: "compiled"}


def find_cost(record: Overhead, estimator: str, *, compiled: bool) -> Cost | None:
    """Return the cost of an estimator in one mode, or None."""
    return next((c for c in record.costs if c.estimator == estimator and c.compiled is compiled), None)


def table(record: Overhead) -> Table:
    """Return memory and time in both modes, and parameters."""
    if not record.costs:
        raise UserError(
            "the record of tab:overhead has no cost",
            "must have one cost or more",
            f"run {record.provenance.command!r} to its end",
        )
    epochs = sorted({len(cost.epoch_seconds) for cost in record.costs})
    memory = MEMORY.get(record.device, "peak memory of the device")
    return Table(
        caption=(
            f"Cost of the correction: {record.recipe} on {record.data}, n = {record.n}, {record.device}, "
            f"{record.threads} threads, {record.steps_per_epoch} steps per epoch, mean ± largest deviation over "
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
        cells: list[Cell] = [*(mean_cell(epochs, spec) for epochs in seconds), Number(_minus(means), spec)]
        rows.append((f"epoch, {mode}, s", *cells, *_paper("epoch", mode)))
    return rows


def _digits(values: Sequence[float]) -> str:
    return ".1f" if min(values, default=10.0) >= 10 else ".3f"


def _parameters_row(record: Overhead) -> Row:
    counts = [next((cost.parameters for cost in pair if cost), None) for pair in _by_estimator(record)]
    return ("parameters (paper: millions)", *_three(counts, ",.0f"), *_paper("parameters", ""))


def _by_estimator(record: Overhead) -> list[list[Cost | None]]:
    return [[find_cost(record, name, compiled=mode) for mode in MODES] for name in ("standard", "abc")]


def _both(record: Overhead, compiled: bool) -> list[Cost | None]:
    return [find_cost(record, name, compiled=compiled) for name in ("standard", "abc")]


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
    """Return one sentence on time and one on memory per measured mode."""
    sentences = []
    for compiled, mode in MODES.items():
        standard, abc = _both(record, compiled)
        if standard and abc and standard.epoch_seconds and abc.epoch_seconds:
            sentences += [_time_verdict(mode, standard, abc), _memory_verdict(mode, standard, abc)]
    return sentences


def _time_verdict(mode: str, standard: Cost, abc: Cost) -> str:
    first, second = (mean_and_deviation(cost.epoch_seconds)[0] for cost in (standard, abc))
    apart = min(abc.epoch_seconds) > max(standard.epoch_seconds) or max(abc.epoch_seconds) < min(standard.epoch_seconds)
    spec = _digits([*standard.epoch_seconds, *abc.epoch_seconds])
    both = "do not overlap" if apart else "overlap: within the variation of the clock"
    return (
        f"{mode}: an epoch takes {format_number(second, spec)} s with ABC and {format_number(first, spec)} s "
        f"with standard ({_signed(second / first - 1, '.1%')}), and the epochs of both {both}"
    )


def _memory_verdict(mode: str, standard: Cost, abc: Cost) -> str:
    first, second = (f"{cost.memory_megabytes:.1f} MB" for cost in (standard, abc))
    return f"{mode}: memory is {second} with ABC and {first} with standard"


def _signed(value: float, spec: str) -> str:
    return format_number(value, f"+{spec}")


ITEM = Item(
    label=LABEL,
    record=Overhead,
    description="Memory, time per epoch and parameters of standard and ABC, with the paper's values.",
    table=table,
    findings=verdicts,
)
