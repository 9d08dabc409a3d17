"""Options of a study or a grid: scale, seeds, data set, extractor, device, directory and progress."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from truedrift.errors import require_integer
from truedrift.progress import Progress, no_progress
from truedrift.seeding import require_seed

Scale = Literal["smoke", "cpu", "paper"]


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """Options of a study; scale `smoke` takes seconds, `cpu` minutes on two cores, `paper` is the size of the paper."""

    scale: Scale = "cpu"
    seed: int = 0
    progress: Progress = no_progress
    directory: Path | None = None
    """Where a study saves intermediate results to resume from; None: nowhere."""
    dataset: str | None = None
    """Data set of an image experiment; None: that of its scale."""
    seeds: int | None = None
    """Number of seeds of an image experiment; None: that of its scale."""
    extractor: str | None = None
    """Extractor that evaluates the runs of an image experiment; None: that of its scale and data set."""
    device: str = "auto"
    """Device of an image experiment."""

    def __post_init__(self) -> None:
        require_seed(self.seed)
        if self.seeds is not None:
            require_integer("seeds", self.seeds, 1, 3)

    def command(self, item: str) -> str:
        """Return the command that computes the item with these options."""
        given = {"seed": self.seed, "dataset": self.dataset, "seeds": self.seeds, "extractor": self.extractor}
        options = "".join(f" --{name} {value}" for name, value in given.items() if value)
        return f"truedrift reproduce {item} --scale {self.scale}{options}"
