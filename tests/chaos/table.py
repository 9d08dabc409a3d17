"""Attacks, their negative controls, and the table attack → tries → survived → negative control."""

from __future__ import annotations

import random
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .commands import Before


@dataclass(frozen=True)
class Attack:
    """An attack in many cases, and a broken variant of the program that must not survive it."""

    name: str
    draw: Callable[[random.Random, int], Any]
    """Returns case number k, counted from 0."""
    attempt: Callable[[Any, Sequence[Before]], str | None]
    """Attacks the program, after these functions were called in its process. Returns what was lost or wrong; None if
    the program survived."""
    control: str
    """What is broken in the negative control."""
    broken: Before
    """Breaks the program."""
    control_draw: Callable[[random.Random, int], Any] | None = None
    """Cases of the control; None: those of the attack."""
    cases: int | None = None
    """Number of cases; None: as many as there is time for."""
    control_tries: int = 6
    """The control must be red after at most this many tries."""
    quick_tries: int = 1
    """Number of tries in the short version."""
    weight: float = 1.0
    """Share of the time of the long version."""


@dataclass
class Row:
    """The result of an attack."""

    name: str
    control: str
    tries: int = 0
    failures: list[str] = field(default_factory=list)
    control_tries: int = 0
    red: str | None = None
    """What the broken variant lost."""

    @property
    def survived(self) -> int:
        return self.tries - len(self.failures)

    @property
    def passed(self) -> bool:
        """Whether every try survived, and the control did not."""
        return self.tries > 0 and not self.failures and self.red is not None


def run_attack(attack: Attack, *, seed: int, tries: int | None = None, seconds: float = 1e9, first: int = 0) -> Row:
    """Run the control until it is red, then the attack.

    Args:
        attack: The attack.
        seed: Seed of the cases. Case k is a function of the seed, the name of the attack and k.
        tries: Number of tries; None: as many as there is time for.
        seconds: No try begins after that time; at least one is made.
        first: Number of the first case.
    """
    row, end = Row(attack.name, attack.control), time.monotonic() + seconds
    draw = attack.control_draw or attack.draw
    while row.red is None and row.control_tries < attack.control_tries:
        case = draw(random.Random(f"{seed} control {attack.name} {row.control_tries}"), row.control_tries)
        row.red = attack.attempt(case, (attack.broken,))
        row.control_tries += 1
    last = min(first + (tries or sys.maxsize), sys.maxsize if attack.cases is None else max(attack.cases, first + 1))
    for number in range(first, last):
        if number > first and time.monotonic() > end:
            break
        case = attack.draw(random.Random(f"{seed} {attack.name} {number}"), number)
        try:
            lost = attack.attempt(case, ())
        except Exception:
            lost = f"the harness failed: {traceback.format_exc(limit=-3)}"
        row.tries += 1
        if lost is not None:
            row.failures.append(f"{attack.name}, seed {seed}, case {number}: {case}: {lost}")
    return row


HEADER = ("attack", "tries", "survived", "negative control", "control")


def format_table(rows: Sequence[Row]) -> str:
    """Return the table as Markdown."""
    cells = [
        HEADER,
        *((row.name, str(row.tries), str(row.survived), row.control, "red" if row.red else "NOT RED") for row in rows),
        ("all", str(sum(row.tries for row in rows)), str(sum(row.survived for row in rows)), "", ""),
    ]
    lines = [f"| {' | '.join(line)} |" for line in cells]
    return "\n".join((lines[0], "|---|---|---|---|---|", *lines[1:]))
