"""What a study is asked: how large, from which seed, where it may keep what is half done, and whom to tell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from truedrift.progress import Progress, silent
from truedrift.validation import mistake

Scale = Literal["smoke", "cpu", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """`smoke` takes seconds, `cpu` minutes on two cores, `paper` is the paper's own size."""

    scale: Scale = "cpu"
    seed: int = 0
    progress: Progress = silent
    directory: Path | None = None
    """For what a study keeps to go on from, if it is interrupted; nothing is kept without one."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 1 << 31:
            raise mistake(f"seed is {self.seed}", f"allowed is 0 to {(1 << 31) - 1}", "take for example 0")
