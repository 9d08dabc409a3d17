"""The log of a run, metrics.jsonl, read line by line, so that a file of a million lines needs little memory.

| part of the file | what is kept                                                                  |
|------------------|-------------------------------------------------------------------------------|
| logged steps     | the first, every 2ᵏ-th, and the last: at most `MOST_STEPS` and the last        |
| their number     | all of them are counted, also by the confidence of their bias indicators      |
| evaluations      | all                                                                           |
| unreadable lines | their number                                                                  |

k is 0 for a run of at most `MOST_STEPS` logged steps. A line of a chart has at most 240 points in any case.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from truedrift.errors import UserError
from truedrift.evaluation.record import Metrics, Protocol
from truedrift.options import from_dict
from truedrift.storage import open_to_read, parse_json_line

LARGEST, SMALLEST = 1e100, 1e-100
"""Magnitudes outside this range overflow or underflow in the arithmetic of axes."""
MOST_STEPS = 1000
"""Largest number of logged steps in memory, apart from the last; an even number."""
AVERAGE = "ema"
"""Weights of the main average in a protocol. Those of another average are "ema" with its decay, such as "ema 0.99"."""
SIDES = ("positive", "negative")
FEW = 3.0
"""n_eff below which the confidence is medium."""
Level = Literal["high", "medium", "low", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Metrics of a run, made during training or by `truedrift evaluate`; the step is None for saved weights."""

    step: int | None
    metrics: Metrics
    protocol: Protocol
    in_training: bool


class RunLog:
    """What the page needs of a metrics.jsonl, collected from its lines.

    Args:
        temperatures: Number of temperatures of the run, which have bias indicators each.
    """

    def __init__(self, temperatures: int) -> None:
        self.lines = 0
        self.unreadable_lines = 0
        self.unreadable_evaluations = 0
        self.logged_steps = 0
        self.confidence: dict[tuple[str, int], Counter[Level]] = {
            (side, index): Counter() for side in SIDES for index in range(temperatures)
        }
        """Side and index of the temperature → logged steps by level of confidence."""
        self.evaluations: list[Evaluation] = []
        self.average_evaluations: list[Evaluation] = []
        self._temperatures = temperatures
        self._steps: list[Mapping[str, Any]] = []
        self._stride = 1
        self._last: Mapping[str, Any] | None = None
        self._protocols: dict[Protocol, Protocol] = {}

    @property
    def telemetry(self) -> list[Mapping[str, Any]]:
        """The logged steps that are kept, in order."""
        if self._last is None or (self.logged_steps - 1) % self._stride == 0:
            return self._steps
        return [*self._steps, self._last]

    def add_line(self, line: bytes) -> None:
        """Add one line of the file."""
        self.lines += 1
        entry = parse_json_line(line)
        if entry is None:
            self.unreadable_lines += 1
            return
        if "evaluation" in entry or "more_ema" in entry:
            self._add_evaluations(entry)
        if number_at(entry, "positives_seen") is not None:
            self._add_step(entry)

    def _add_step(self, entry: Mapping[str, Any]) -> None:
        """Keep every stride-th step. The stride doubles whenever there are too many."""
        if len(self._steps) == MOST_STEPS and self.logged_steps % self._stride == 0:
            del self._steps[1::2]
            self._stride *= 2
        if self.logged_steps % self._stride == 0:
            self._steps.append(entry)
        self.logged_steps += 1
        self._last = entry
        for side in SIDES:
            n_eff, dominated = entry.get(f"n_eff_{side[:3]}"), entry.get(f"dominated_{side[:3]}")
            for index in range(self._temperatures):
                level = rate_confidence(number_at(n_eff, index), number_at(dominated, index))
                self.confidence[side, index][level] += 1

    def _add_evaluations(self, entry: Mapping[str, Any]) -> None:
        """Add the evaluations of the main average and of further averages.

        A generator that diverged has no distance and is left out.
        """
        protocol, more = entry.get("protocol"), entry.get("more_ema")
        found = [(self.evaluations, entry.get("evaluation"), protocol)]
        if isinstance(more, dict) and isinstance(protocol, dict):  # these have the protocol of the main average
            averages = self.average_evaluations
            found += [(averages, each, protocol | {"weights": f"{AVERAGE} {decay}"}) for decay, each in more.items()]
        for evaluations, metrics, own_protocol in found:
            if not isinstance(metrics, dict) or metrics.get("fid") is None:
                continue
            tree = {"step": entry.get("step"), "metrics": metrics, "protocol": own_protocol, "in_training": True}
            try:
                parsed = from_dict(Evaluation, tree)
            except UserError:
                self.unreadable_evaluations += 1
                continue
            shared = self._protocols.setdefault(parsed.protocol, parsed.protocol)  # equal ones are one object
            evaluations.append(replace(parsed, protocol=shared))


def read_log(path: Path, temperatures: int) -> RunLog:
    """Read a metrics.jsonl.

    Args:
        path: The file.
        temperatures: Number of temperatures of the run.

    Returns:
        Its logged steps, thinned if there are many, its evaluations and the numbers of lines.

    Raises:
        OSError: If the file cannot be read.
    """
    log = RunLog(temperatures)
    with open_to_read(path) as file:
        for line in file:
            log.add_line(line)
    return log


def number_at(entry: Any, *path: str | int) -> float | None:
    """Return the number at the end of a path of names and positions; None if there is none that can be drawn."""
    value = entry
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    if type(value) not in (float, int) or not abs(value) <= LARGEST:  # also NaN
        return None
    return float(value) if abs(value) >= SMALLEST else 0.0


def rate_confidence(n_eff: float | None, dominated: float | None) -> Level:
    """Rate the weights of one batch; the thresholds are the rules of thumb of docs/telemetry.md.

    | confidence  | if                   | meaning                                                                  |
    |-------------|----------------------|--------------------------------------------------------------------------|
    | low         | dominated > ½        | the centroid is mostly the nearest reference; no correction helps        |
    | medium      | else, n_eff < FEW    | the bias is large, and its expansion in 1/n is rough                     |
    | high        | else                 | the leading bias, which ABC removes, is most of the bias                 |
    """
    if n_eff is None or dominated is None:
        return "unknown"
    if dominated > 0.5:
        return "low"
    return "medium" if n_eff < FEW else "high"
