"""Benchmark settings of the image experiments: recipe, n, seeds and length of the runs, by scale and data set.

As in the paper, every run of a setting sees the same number of positives per class. Runs with a smaller n take more
steps. All runs use the paper's field (`PAPER_FIELD`), whatever the recipe has; the study `matching` sets its own.

| scale | data set      | n             | positives / class | seeds | evaluated by                              |
|-------|---------------|---------------|-------------------|-------|-------------------------------------------|
| paper | cifar10       | 8, 16, 32, 64 | 6 240 000         | 42–44 | inception, 50 000 samples                 |
| paper | cifar100      | 8, 16, 32     | as in the paper   | 42    | inception, 50 000 samples                 |
| cpu   | digits        | 8, 16, 32, 64 | 20 480            | 0–4   | digits, 2 000 samples                     |
| cpu   | fashion-mnist | 8, 16, 32, 64 | 81 920            | 0–2   | encoder:efficientnet-lite0, 1 000 samples |
| cpu   | cifar10       | 8, 16, 32, 64 | 12 800            | 0–2   | inception, 1 000 samples                  |
| cpu   | cifar100      | 8, 16, 32     | 2 560             | 0     | inception, 1 000 samples                  |
| smoke | as cpu        | 8, 16         | 1/32 of that      | 0, 1  | as cpu, 100 samples against 200 images    |

The extractor does not depend on the content of the cache: it is part of the id of a run, and another extractor would
require new runs. `--extractor` selects another one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from truedrift.errors import UserError, require_choice
from truedrift.evaluation.catalog import EXTRACTORS
from truedrift.grids.options import Scale, StudyOptions
from truedrift.recipes.overrides import recipe
from truedrift.recipes.recipes import (
    CIFAR10_EPOCHS,
    CIFAR10_SEEDS,
    CIFAR100_EPOCHS,
    CIFAR100_SEEDS,
    PAPER_FIELD,
    POOLED_FEATURES,
)
from truedrift.training.config import RunConfig

SMOKE_SHARE = 32
SMOKE_SIZES, SMOKE_SEEDS = (8, 16), 2
SMOKE_EVALUATION = {"samples": 100, "reference": 200}


@dataclass(frozen=True, kw_only=True)
class BenchmarkSetting:
    """What the runs of an experiment on one data set have in common."""

    data: str
    recipe: str
    sizes: tuple[int, ...]
    seeds: tuple[int, ...]
    positives: int | None
    """Positives per class in a run; None: the recipe determines the length."""
    options: Mapping[str, Any]
    """Options that replace those of the recipe, as a tree."""
    extractor: str
    """Extractor that evaluates the runs."""

    def config(self, *, n: int, seed: int, **objective: Any) -> RunConfig:
        """Return the configuration of the run with n references and this seed; further options are of the objective."""
        evaluation = {**self.options["evaluation"], "extractor": self.extractor}
        objective = {**self.options.get("objective", {}), **PAPER_FIELD["objective"], **objective}
        field = {"batch": PAPER_FIELD["batch"], "objective": objective}
        tree: dict[str, Any] = {**self.options, **field, "evaluation": evaluation}
        if self.positives is not None:
            steps, cadence = self.positives // n, self.options["cadence"]
            tree["cadence"] = {**cadence, "epochs": steps // cadence["steps_per_epoch"], "grid_every": steps}
        return recipe(self.recipe, given={"n": n, "seed": seed}, tree=tree)


SMALL = {"steps_per_epoch": 20, "log_every": 20, "checkpoint_every": 320, "evaluate_every_epochs": 2}
DIGITS = BenchmarkSetting(
    data="digits",
    recipe="digits",
    sizes=(8, 16, 32, 64),
    seeds=(0, 1, 2, 3, 4),
    positives=20_480,
    options={
        "optimizer": {"ema": 0.98, "warmup_steps": 20},
        "cadence": SMALL,
        "evaluation": {"samples": 2_000},
    },
    extractor="digits",
)
FASHION = replace(
    DIGITS,
    data="fashion-mnist",
    recipe="fashion-mnist-pixels",
    seeds=(0, 1, 2),
    positives=81_920,
    options={
        "optimizer": {"ema": 0.99, "warmup_steps": 50},
        "cadence": SMALL | {"evaluate_every_epochs": 12},
        "evaluation": {"samples": 1_000},
    },
    extractor="encoder:efficientnet-lite0",  # fair, as training uses pixels, and cheaper on a CPU than inception
)
CIFAR10_CPU = replace(
    FASHION,
    data="cifar10",
    recipe="cifar10-cpu",
    positives=12_800,
    options={
        **POOLED_FEATURES,
        "condition": {"label_dropout": 0.1, "strength_low": 1.0, "strength_high": 1.0},
        "optimizer": {
            "learning_rate": 1e-3,
            "schedule": "constant",
            "ema": 0.98,
            "ema_warmup": False,
            "warmup_steps": 20,
        },
        "cadence": SMALL | {"checkpoint_every": 40},
        "evaluation": {"samples": 1_000, "strength": None},
    },
    extractor="inception",  # training uses EfficientNet-Lite0, which would favor its own features
)
CIFAR100_CPU = replace(
    CIFAR10_CPU,
    data="cifar100",
    sizes=(8, 16, 32),
    seeds=(0,),
    positives=2_560,
    options={**CIFAR10_CPU.options, "data": {"name": "cifar100"}, "cadence": SMALL | {"steps_per_epoch": 5}},
)
CIFAR10 = BenchmarkSetting(
    data="cifar10",
    recipe="cifar10",
    sizes=tuple(CIFAR10_EPOCHS),
    seeds=CIFAR10_SEEDS,
    positives=None,
    options={"evaluation": {"samples": 50_000}},
    extractor="inception",
)
CIFAR100 = replace(CIFAR10, data="cifar100", recipe="cifar100", sizes=tuple(CIFAR100_EPOCHS), seeds=CIFAR100_SEEDS)

SETTINGS: Mapping[Scale, Mapping[str, BenchmarkSetting]] = {
    "paper": {each.data: each for each in (CIFAR10, CIFAR100)},
    "cpu": {each.data: each for each in (DIGITS, FASHION, CIFAR10_CPU, CIFAR100_CPU)},
}


IMAGES = ("digits", "fashion-mnist", "cifar10")
"""Data sets of the image experiments, the default first."""


def benchmark_setting(setting: StudyOptions, data_sets: tuple[str, ...], item: str) -> BenchmarkSetting:
    """Return the benchmark setting for an item that accepts `data_sets`; the first of them is the default.

    Raises:
        UserError: The data set or the extractor is not one of those allowed.
    """
    # Choose by scale and data set.
    by_data = SETTINGS["paper" if setting.scale == "paper" else "cpu"]
    allowed = [name for name in data_sets if name in by_data]
    if not allowed:
        others = ", ".join(scale for scale in ("smoke", "cpu", "paper") if scale != setting.scale)
        problem = f"is {setting.scale!r} for {item}"
        raise UserError(problem, f"must be one of {others}", "choose another scale", field="scale")
    name = setting.dataset or allowed[0]
    if name not in allowed:
        problem = f"is {name!r} for {item} at scale {setting.scale}"
        fix = "choose one of these, or another scale"
        raise UserError(problem, f"must be one of {', '.join(allowed)}", fix, field="dataset")
    benchmark = by_data[name]
    # Replace the extractor.
    if setting.extractor is not None:
        require_choice("extractor", setting.extractor, EXTRACTORS)
        benchmark = replace(benchmark, extractor=setting.extractor)
    # Shorten the runs.
    if setting.scale == "smoke":
        benchmark = replace(
            benchmark,
            sizes=SMOKE_SIZES,
            positives=benchmark.positives and benchmark.positives // SMOKE_SHARE,
            seeds=benchmark.seeds[:SMOKE_SEEDS],
            options={**benchmark.options, "evaluation": SMOKE_EVALUATION},
        )
    # Count the seeds from that of the benchmark plus that of the options.
    first, count = benchmark.seeds[0] + setting.seed, setting.seeds or len(benchmark.seeds)
    return replace(benchmark, seeds=tuple(range(first, first + count)))
