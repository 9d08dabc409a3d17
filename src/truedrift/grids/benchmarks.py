"""On what an image experiment is tried: a recipe, its n, its seeds and how long its runs are, by scale and data set.

Every run of a ground sees the same number of positives of each class, as in the paper: the smaller n is, the more steps
it takes.

| scale | data set      | n             | positives a class | seeds | judged by                                 |
|-------|---------------|---------------|-------------------|-------|-------------------------------------------|
| paper | cifar10       | 8, 16, 32, 64 | 6 240 000         | 42–44 | inception, 50 000 samples                 |
| paper | cifar100      | 8, 16, 32     | as the paper has  | 42    | inception, 50 000 samples                 |
| cpu   | digits        | 8, 16, 32, 64 | 20 480            | 0–4   | digits, 2 000 samples                     |
| cpu   | fashion-mnist | 8, 16, 32, 64 | 81 920            | 0–2   | encoder:efficientnet-lite0, 1 000 samples |
| cpu   | cifar10       | 8, 16, 32, 64 | 12 800            | 0–2   | inception, 1 000 samples                  |
| cpu   | cifar100      | 8, 16, 32     | 2 560             | 0     | inception, 1 000 samples                  |
| smoke | as cpu        | 8, 16         | 1/32 of that      | 0, 1  | as cpu, 100 samples against 200 images    |

Who judges does not depend on what the cache holds: it is part of a run's id, and another network would begin the grid
anew. `--extractor` names another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from truedrift.errors import UserError, require_choice
from truedrift.evaluation.catalog import EXTRACTORS
from truedrift.grids.options import Scale, StudyOptions
from truedrift.recipes.overrides import recipe
from truedrift.recipes.recipes import CIFAR10_EPOCHS, CIFAR10_SEEDS, CIFAR100_EPOCHS, CIFAR100_SEEDS
from truedrift.training.config import RunConfig

SMOKE_SHARE = 32
SMOKE_SIZES, SMOKE_SEEDS = (8, 16), 2
SMOKE_JUDGED = {"samples": 100, "reference": 200}


@dataclass(frozen=True, kw_only=True)
class BenchmarkSetting:
    """Where runs of one experiment come from."""

    data: str
    recipe: str
    sizes: tuple[int, ...]
    seeds: tuple[int, ...]
    positives: int | None
    """Of each class that a run sees; none: the recipe says how long it is."""
    options: Mapping[str, Any]
    """Over the recipe's, as a tree."""
    judge: str
    """The extractor by which its runs are evaluated."""

    def config(self, *, n: int, seed: int, **objective: Any) -> RunConfig:
        """The run with n references and that seed; further options are those of the objective."""
        evaluation = {**self.options["evaluation"], "extractor": self.judge}
        tree: dict[str, Any] = {**self.options, "objective": objective, "evaluation": evaluation}
        if self.positives is not None:
            tree["cadence"] = self._cadence(self.positives // n)
        return recipe(self.recipe, given={"n": n, "seed": seed}, tree=tree)

    def _cadence(self, steps: int) -> dict[str, Any]:
        cadence = self.options["cadence"]
        return {**cadence, "epochs": steps // cadence["steps_per_epoch"], "grid_every": steps}


SMALL = {"steps_per_epoch": 20, "log_every": 20, "checkpoint_every": 320, "evaluate_every_epochs": 2}
DIGITS = BenchmarkSetting(
    data="digits",
    recipe="digits",
    sizes=(8, 16, 32, 64),
    seeds=tuple(range(5)),
    positives=20_480,
    options={
        "optimizer": {"ema": 0.98, "warmup_steps": 20},
        "cadence": SMALL,
        "evaluation": {"samples": 2_000},
    },
    judge="digits",
)
FASHION = BenchmarkSetting(
    data="fashion-mnist",
    recipe="fashion-mnist",
    sizes=(8, 16, 32, 64),
    seeds=tuple(range(3)),
    positives=81_920,
    options={
        "optimizer": {"ema": 0.99, "warmup_steps": 50},
        "cadence": SMALL | {"evaluate_every_epochs": 12},
        "evaluation": {"samples": 1_000},
    },
    judge="encoder:efficientnet-lite0",  # fair, since it trains on pixels, and much cheaper on a CPU than inception
)
CIFAR10_CPU = BenchmarkSetting(
    data="cifar10",
    recipe="cifar10-cpu",
    sizes=(8, 16, 32, 64),
    seeds=tuple(range(3)),
    positives=12_800,
    options={
        "batch": {"generated": None},  # n on both sides, as in the paper
        "optimizer": {"ema": 0.98, "warmup_steps": 20},
        "cadence": SMALL | {"checkpoint_every": 40},
        "evaluation": {"samples": 1_000},
    },
    judge="inception",  # it trains on EfficientNet-Lite0, which would judge its own pupil
)
CIFAR100_CPU = replace(
    CIFAR10_CPU,
    data="cifar100",
    sizes=(8, 16, 32),
    seeds=(0,),
    positives=2_560,
    options={**CIFAR10_CPU.options, "data": {"name": "cifar100"}, "cadence": SMALL | {"steps_per_epoch": 5}},
)
PAPER = {"evaluation": {"samples": 50_000}}
CIFAR10 = BenchmarkSetting(
    data="cifar10",
    recipe="cifar10",
    sizes=tuple(CIFAR10_EPOCHS),
    seeds=CIFAR10_SEEDS,
    positives=None,
    options=PAPER,
    judge="inception",
)
CIFAR100 = replace(CIFAR10, data="cifar100", recipe="cifar100", sizes=tuple(CIFAR100_EPOCHS), seeds=CIFAR100_SEEDS)

GROUNDS: Mapping[Scale, Mapping[str, BenchmarkSetting]] = {
    "paper": {each.data: each for each in (CIFAR10, CIFAR100)},
    "cpu": {each.data: each for each in (DIGITS, FASHION, CIFAR10_CPU, CIFAR100_CPU)},
}


def benchmark_setting(setting: StudyOptions, data_sets: tuple[str, ...], item: str) -> BenchmarkSetting:
    """The ground of the setting, for an item that may be tried on `data_sets`; the first of them if none is named."""
    grounds = GROUNDS["paper" if setting.scale == "paper" else "cpu"]
    allowed = [name for name in data_sets if name in grounds]
    name = setting.dataset or allowed[0]
    if name not in allowed:
        came = f"the data set is {name!r} for {item} at scale {setting.scale}"
        raise UserError(came, f"allowed are {', '.join(allowed)}", "choose one of them, or another scale")
    found = grounds[name]
    if setting.extractor is not None:
        require_choice("the extractor", setting.extractor, EXTRACTORS)
        found = replace(found, judge=setting.extractor)
    return _with_seeds(_smoke(found) if setting.scale == "smoke" else found, setting)


def _smoke(found: BenchmarkSetting) -> BenchmarkSetting:
    positives = None if found.positives is None else found.positives // SMOKE_SHARE
    seeds, options = found.seeds[:SMOKE_SEEDS], {**found.options, "evaluation": SMOKE_JUDGED}
    return replace(found, sizes=SMOKE_SIZES, positives=positives, seeds=seeds, options=options)


def _with_seeds(found: BenchmarkSetting, setting: StudyOptions) -> BenchmarkSetting:
    """As many seeds as asked for, from the ground's first one on, `setting.seed` further."""
    first, count = found.seeds[0] + setting.seed, setting.seeds or len(found.seeds)
    return replace(found, seeds=tuple(range(first, first + count)))


IMAGES = ("digits", "fashion-mnist", "cifar10")
