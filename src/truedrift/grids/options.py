"""What a study is asked: how large, on what, from which seed, where it may keep what is half done, and whom to tell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from truedrift.errors import UserError, require_integer
from truedrift.progress import Progress, no_progress

Scale = Literal["smoke", "cpu", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """`smoke` takes seconds, `cpu` minutes on two cores, `paper` is the paper's own size."""

    scale: Scale = "cpu"
    seed: int = 0
    progress: Progress = no_progress
    directory: Path | None = None
    """For what a study keeps to go on from, if it is interrupted; nothing is kept without one."""
    dataset: str | None = None
    """Of an image experiment; none: the one of its scale."""
    seeds: int | None = None
    """How many runs of an image experiment differ in the seed alone; none: as many as its scale has."""
    extractor: str | None = None
    """What judges the runs of an image experiment; none: that of its scale and data set."""
    device: str = "auto"
    """Of an image experiment."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 1 << 31:
            raise UserError(f"seed is {self.seed}", f"allowed is 0 to {(1 << 31) - 1}", "take for example 0")
        if self.seeds is not None:
            require_integer("seeds", self.seeds, 1, 3)

    def command(self, item: str) -> str:
        """What a user writes to have it computed so."""
        given = {
            "seed": self.seed or None,
            "dataset": self.dataset,
            "seeds": self.seeds,
            "extractor": self.extractor,
        }
        options = "".join(f" --{name} {value}" for name, value in given.items() if value is not None)
        return f"truedrift reproduce {item} --scale {self.scale}{options}"
