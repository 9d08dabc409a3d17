"""`tab:overhead`: cost of the correction at n = 8, as time per epoch, memory and parameters, with the paper's values.

Standard and ABC are each measured in a separate process, eager and then compiled. The two processes of a pair run their
epochs in turn, so that other load on the machine affects both. The first epoch warms up (and compiles) and is not
counted; ten follow, or two at `smoke`.

The deviation is over the epochs of one process. It shows how stable the timing was within this process, not how much
another process would differ. A difference therefore has no interval. The finding states whether the epochs overlap,
that is, whether the slowest epoch of one estimator is slower than the fastest epoch of the other.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from truedrift.distributed import resolve_device
from truedrift.errors import UserError
from truedrift.grids.benchmarks import IMAGES, benchmark_setting
from truedrift.grids.estimate import ABC_EPOCH_SECONDS, STANDARD_EPOCH_SECONDS, STEPS, format_duration, seconds_per_step
from truedrift.grids.options import Scale, StudyOptions
from truedrift.grids.plan import missing_requirements
from truedrift.recipes.overrides import recipe
from truedrift.recipes.recipes import PAPER_FIELD
from truedrift.records.provenance import Provenance, provenance
from truedrift.report.item import Item
from truedrift.report.statistics import mean_cell
from truedrift.report.table import Cell, Number, Row, Table, format_number
from truedrift.training.config import RunConfig
from truedrift.training.setup import Parts, load_samples

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
    """CUDA: peak memory. MPS, which has no peak counter: the largest driver allocation measured after an epoch. CPU:
    the growth of the resident memory from before the first step to its peak."""
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

    def __post_init__(self) -> None:
        measured = {(cost.compiled, cost.estimator) for cost in self.costs}
        modes = {False, *(compiled for compiled, _ in measured)}
        if not measured >= {(compiled, estimator) for compiled in modes for estimator in ESTIMATORS}:
            raise UserError(
                f"the record of {LABEL} is incomplete (costs: {len(self.costs)})",
                "must have the costs of standard and abc in every mode",
                f"run truedrift reproduce {LABEL} again",
            )


LABEL = "tab:overhead"
N = 8
ESTIMATORS = ("standard", "abc")
EPOCHS, SMOKE_EPOCHS = 10, 2


def configs(setting: StudyOptions) -> list[RunConfig]:
    """Return the configurations of the four measurements, in pairs; nothing is evaluated."""
    on = benchmark_setting(setting, IMAGES, LABEL)
    return [
        recipe(
            on.recipe,
            given={"n": N, "seed": on.seeds[0], "estimator": estimator},
            tree=PAPER_FIELD,
            settings=(f"engine.compiled={compiled}", "evaluation.extractor=none"),
        )
        for compiled in ("false", "true")
        for estimator in ESTIMATORS
    ]


def epoch_count(scale: Scale) -> int:
    """Return the number of epochs per measurement, including the warm-up."""
    return 1 + (SMOKE_EPOCHS if scale == "smoke" else EPOCHS)


def study(setting: StudyOptions) -> Overhead:
    """Measure both pairs, one after the other."""
    started = time.monotonic()
    every = configs(setting)
    eager, machine = _measure_pair(every[:2], setting, first=True)
    compiled, _ = _measure_pair(every[2:], setting, first=False)
    return Overhead(
        scale=setting.scale,
        data=every[0].data.name,
        recipe=every[0].recipe,
        n=N,
        steps_per_epoch=every[0].cadence.steps_per_epoch,
        device=machine["device"],
        threads=machine["threads"],
        costs=(*eager, *compiled),
        provenance=provenance(seed=setting.seed, wall_seconds=time.monotonic() - started),
    )


def _measure_pair(pair: list[RunConfig], setting: StudyOptions, *, first: bool) -> tuple[list[Cost], dict[str, Any]]:
    """Run the processes of a pair, which take their epochs in turn; return the costs and the first answer."""
    # Time the epochs.
    epochs = epoch_count(setting.scale)
    done = 0 if first else len(pair) * epochs
    seconds: list[list[float]] = [[] for _ in pair]
    with ExitStack() as stack:
        requests = [stack.enter_context(_measuring_process(config, setting.device)) for config in pair]
        for _ in range(epochs):
            for request, times in zip(requests, seconds, strict=True):
                times.append(request("epoch"))
                done += 1
                setting.progress(LABEL, done, 2 * len(pair) * epochs)
        answers = [request("end") for request in requests]
    # Leave out the first epoch, which warms up.
    costs = [
        Cost(
            estimator=config.objective.estimator_pos,
            compiled=config.engine.compiled,
            epoch_seconds=tuple(times[1:]),
            memory_megabytes=answer["memory_megabytes"],
            parameters=answer["parameters"],
        )
        for config, times, answer in zip(pair, seconds, answers, strict=True)
    ]
    return costs, answers[0]


@contextmanager
def _measuring_process(config: RunConfig, device: str) -> Iterator[Callable[[str], Any]]:
    """Start the process; yield a function that sends one word and returns the answer, one line of JSON."""
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile("w+") as errors:
        path = Path(scratch) / "config.json"
        path.write_text(json.dumps(config.tree()), encoding="utf-8")
        pipe = subprocess.PIPE
        with subprocess.Popen(_command(path, device), stdin=pipe, stdout=pipe, stderr=errors, text=True) as process:

            def request(word: str) -> Any:
                assert process.stdout is not None
                try:
                    print(word, file=process.stdin, flush=True)
                    return json.loads(process.stdout.readline())
                except (BrokenPipeError, ValueError):  # the process has ended
                    status = process.wait()
                # Report the last line that it wrote to stderr.
                errors.seek(0)
                last = errors.read().strip().splitlines()[-1:]
                problem = f"a measurement ended with status {status} ({' '.join(last) or 'no output'})"
                fix = "fix the cause and run it again"
                raise UserError(problem, "the machine must be able to train and compile", fix)

            try:
                yield request
            finally:
                process.kill()


def _command(config: Path, device: str) -> list[str]:
    return [sys.executable, "-m", "truedrift.paper.overhead_worker", str(config), device]


def describe_measurements(setting: StudyOptions) -> str:
    """Return what `--dry-run` prints."""
    # List the measurements.
    every, epochs = configs(setting), epoch_count(setting.scale)
    config = every[0]
    lines = [f"{each.objective.estimator_pos:10}{MODES[each.engine.compiled]}" for each in every]
    lines += [
        "",
        f"{LABEL} at scale {setting.scale} on {config.data.name}, n = {N}: {len(every)} measurements, {epochs} epochs "
        f"of {config.cadence.steps_per_epoch} steps each; the first epoch is not counted",
    ]
    # Estimate their time.
    if setting.scale == "paper":
        seconds, source = (
            epochs * 2 * (STANDARD_EPOCH_SECONDS + ABC_EPOCH_SECONDS),
            "on one A100, from the paper's times",
        )
    elif (missing := missing_requirements(config)) is not None:
        return "\n".join((*lines, f"no estimate: {missing}"))
    else:
        per_step = seconds_per_step(config, load_samples(config, Parts()), resolve_device(setting.device))
        seconds = epochs * config.cadence.steps_per_epoch * len(every) * per_step
        source = f"from {STEPS} steps of the first measurement"
    return "\n".join((*lines, f"estimate: {format_duration(seconds)} {source}; compilation takes additional time"))


MEMORY = {
    "cpu": "growth of the process's resident memory from before the first step to its peak",
    "mps": "largest driver allocation of the process after an epoch (MPS has no peak counter)",
}
"""Device → what memory means; a CUDA GPU, which has its own name, reports its peak."""
MODES = {False: "eager", True: "compiled"}


def _find_costs(record: Overhead, compiled: bool) -> tuple[Cost, Cost]:
    """Return the costs of standard and ABC in one mode."""
    costs = {cost.estimator: cost for cost in record.costs if cost.compiled is compiled}
    return costs["standard"], costs["abc"]


def table(record: Overhead) -> Table:
    """Return memory and time in both modes, and parameters."""
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
        groups=_groups(record),
    )


def _groups(record: Overhead) -> list[list[Row]]:
    memory, times = [], []
    for compiled, mode in MODES.items():
        costs = _find_costs(record, compiled)
        megabytes = [cost.memory_megabytes for cost in costs]
        memory.append(_row(f"memory, {mode}", ", MB", megabytes, ".1f", paper_spec=".0f"))
        spec = _seconds_format([each for cost in costs for each in cost.epoch_seconds])
        cells = [mean_cell(cost.epoch_seconds, spec) for cost in costs]
        times.append(_row(f"epoch, {mode}", ", s", [fmean(cost.epoch_seconds) for cost in costs], spec, cells))
    parameters = [cost.parameters for cost in _find_costs(record, compiled=False)]
    return [memory, times, [_row("parameters", " (paper: millions)", parameters, ",.0f")]]


def _row(
    name: str,
    unit: str,
    values: Sequence[float],
    spec: str,
    cells: Sequence[Cell] | None = None,
    paper_spec: str = ".1f",
) -> Row:
    """Return standard, ABC and their difference, then the same from the paper; `cells` replace plain numbers."""
    standard, abc = values
    return (
        name + unit,
        *(cells or [Number(value, spec) for value in values]),
        Number(abc - standard, spec),
        *(Number(value, paper_spec) for value in PAPER.get(name, (None, None, None))),
    )


def _seconds_format(values: Sequence[float]) -> str:
    return ".1f" if min(values) >= 10 else ".3f"


def findings(record: Overhead) -> list[str]:
    """Return one sentence on time and one on memory per mode."""
    sentences = []
    for compiled, mode in MODES.items():
        standard, abc = _find_costs(record, compiled)
        # Time
        one, other = standard.epoch_seconds, abc.epoch_seconds
        mean, other_mean, spec = fmean(one), fmean(other), _seconds_format([*one, *other])
        apart = min(other) > max(one) or max(other) < min(one)
        sentences.append(
            f"{mode}: an epoch takes {format_number(other_mean, spec)} s with ABC and {format_number(mean, spec)} s "
            f"with standard ({format_number(other_mean / mean - 1, '+.1%')}), and the epochs of both "
            + ("do not overlap" if apart else "overlap: the difference is within the timing noise")
        )
        # Memory
        first, second = (f"{cost.memory_megabytes:.1f} MB" for cost in (standard, abc))
        sentences.append(f"{mode}: memory is {second} with ABC and {first} with standard")
    return sentences


ITEM = Item(
    LABEL,
    Overhead,
    "Memory, time per epoch and parameters of standard and ABC, with the paper's values.",
    table=table,
    findings=findings,
)
