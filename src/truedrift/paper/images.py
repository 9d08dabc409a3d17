"""`images`, our own study: which options of `cifar10-cpu` make recognizable images?

Every variant differs in one respect from the base, which is the recipe without guidance. All train on the same classes
of CIFAR-10 and generate equally many images, so that their times differ only by the cost per image. They are compared
by KID, because the FID of few samples has a large bias.

| number       | is                                                                            |
|--------------|-------------------------------------------------------------------------------|
| KID, FID     | of the averaged weights at the end of the run                                 |
| ms per image | time per generated image in the fastest logged interval, without evaluations  |
"""

import statistics
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from truedrift.errors import UserError
from truedrift.grids.benchmarks import SMOKE_SIZES, BenchmarkSetting
from truedrift.grids.plan import Task
from truedrift.grids.record import ImageGrid, ImageRun
from truedrift.paper.grid_tables import protocol_line
from truedrift.recipes.overrides import recipe
from truedrift.recipes.recipes import POOLED_FEATURES
from truedrift.report.figure import ABC, MUTED, style_axes
from truedrift.report.item import Item
from truedrift.report.statistics import mean_cell
from truedrift.report.table import DASH, Cell, Table
from truedrift.training.config import RunConfig

CLASSES = ("automobile", "horse", "ship")
GENERATED = 16
IMAGES_PER_RUN = 12_000
"""Generated images per run: 750 steps of one class."""
SMOKE_IMAGES = 160
REFERENCE = 3_000
"""Real images in the evaluation."""

BASE = "base"
NO_GUIDANCE: Mapping[str, Mapping[str, Any]] = {
    "batch": {"unconditional": 0},
    "condition": {"strength_low": 1.0, "strength_high": 1.0},
}
GLOBAL_MEANS: Mapping[str, Any] = {
    "encoder": {"pooling": "mean"},
    "encoders": (),
    "objective": {"pixels": True, "share_normalization": "group", "locations": None},
}


def guidance(strength: float) -> Mapping[str, Any]:
    """Return the options of guidance by 16 unconditional negatives, always with this strength."""
    return {"batch": {"unconditional": 16}, "condition": {"strength_low": strength, "strength_high": strength}}


VARIANTS: Mapping[str, Mapping[str, Any]] = {
    BASE: {},
    # Field.
    "standard instead of ABC": {"objective": {"estimator_pos": "standard", "estimator_neg": "standard"}},
    "matched references": {
        "batch": {"n": 90},
        "objective": {"normalization": "row", "form": "separate", "matched": True},
    },
    "guidance of strength 1.5": guidance(1.5),
    "guidance of strength 2": guidance(2.0),
    "guidance of strength 3": guidance(3.0),
    "all classes in every step": {"batch": {"labels": None}},
    # Features.
    "encoder at 64 px": {"encoder": {"image_size": 64}},
    "global means": GLOBAL_MEANS,
    # Generator and optimizer.
    "wider generator": {"generator": {"widths": (256, 128, 96, 48)}},
    "label only as an input": {"generator": {"label_vector": False}},
    "DriftDiT": {"generator": POOLED_FEATURES["generator"]},
    "DriftDiT, global means": POOLED_FEATURES,
    "constant learning rate": {"optimizer": {"schedule": "constant"}},
}
"""Name of a variant → the options in which it differs from the base."""
SMOKE = (BASE, "standard instead of ABC")


def images_per_step(variant: str) -> int:
    """Return the number of images that a step of a variant generates."""
    labels = VARIANTS.get(variant, {}).get("batch", {}).get("labels", 1)  # a record may have others
    return GENERATED * (len(CLASSES) if labels is None else labels)


def config_of(variant: str, benchmark: BenchmarkSetting, seed: int) -> RunConfig:
    """Return the configuration of a variant."""
    changes = VARIANTS[variant]
    images = SMOKE_IMAGES if benchmark.sizes == SMOKE_SIZES else IMAGES_PER_RUN
    steps = images // images_per_step(variant)
    tree: dict[str, Any] = {
        **changes,
        **{section: {**options, **changes.get(section, {})} for section, options in NO_GUIDANCE.items()},
        "data": {"classes": CLASSES},
        "optimizer": {"warmup_steps": min(50, steps // 4), **changes.get("optimizer", {})},
        "cadence": {
            "epochs": 1,
            "steps_per_epoch": steps,
            "log_every": max(1, steps // 50),
            "checkpoint_every": max(1, steps // 5),
            "grid_every": steps,
            "evaluate_every_epochs": 1,
        },
        "evaluation": {"reference": REFERENCE, **benchmark.options["evaluation"], "extractor": benchmark.extractor},
    }
    return recipe(benchmark.recipe, given={"seed": seed}, tree=tree)


def tasks(benchmark: BenchmarkSetting) -> list[Task]:
    """Return the runs of every variant with every seed.

    Raises:
        UserError: The scale is that of the paper, which has no such recipe.
    """
    if benchmark.recipe != "cifar10-cpu":
        problem = "is 'paper' for images"
        raise UserError(problem, "must be one of smoke, cpu", "choose another scale", field="scale")
    variants = SMOKE if benchmark.sizes == SMOKE_SIZES else VARIANTS
    return [
        Task(variant=variant, config=config_of(variant, benchmark, seed))
        for seed in benchmark.seeds
        for variant in variants
    ]


# ---- Numbers of a run ----


def kernel_distance(run: ImageRun) -> float:
    """Return the KID at the end; NaN if there were too few samples."""
    kid = run.evaluations[-1].metrics.kid
    return float("nan") if kid is None else kid


def frechet_distance(run: ImageRun) -> float:
    """Return the FID at the end."""
    return run.distances[-1]


def by_variant(record: ImageGrid) -> dict[str, list[ImageRun]]:
    """Return the runs of every variant, in the order of the plan."""
    names = dict.fromkeys(run.variant for run in record.runs)
    return {name: [run for run in record.runs if run.variant == name] for name in names}


def mean_kid(runs: list[ImageRun]) -> float:
    """Return the mean KID over seeds."""
    return statistics.fmean(map(kernel_distance, runs))


# ---- Table, figure, findings ----


def table(record: ImageGrid) -> Table:
    """Return one row per variant: KID, FID, parameters, and time per generated image."""
    runs = by_variant(record)
    least = min(runs, key=lambda variant: mean_kid(runs[variant]))
    rows = [
        (
            variant,
            mean_cell([kernel_distance(run) for run in each], ".3f", bold=variant == least),
            mean_cell([frechet_distance(run) for run in each], ".1f"),
            f"{each[0].parameters / 1e6:.2f}",
            _milliseconds_per_image(each),
            str(len(each)),
        )
        for variant, each in runs.items()
    ]
    return Table(
        caption=(
            f"Options of {record.recipe} on {record.classes} classes, one change at a time; "
            f"{IMAGES_PER_RUN:,} generated images per run at scale cpu. Mean ± largest deviation over seeds. "
            f"{protocol_line(record)}"
        ),
        label="tab:images",
        header=("variant", "KID", "FID", "parameters, millions", "ms per image", "seeds"),
        groups=[rows],
    )


def _milliseconds_per_image(runs: list[ImageRun]) -> Cell:
    """Return the time per generated image in the fastest logged interval."""
    seconds = [run.step_seconds for run in runs if run.step_seconds is not None]
    return f"{1000 * min(seconds) / images_per_step(runs[0].variant):.0f}" if seconds else DASH


def draw(record: ImageGrid) -> Figure:
    """Draw the KID of every run: a line per variant, a dot per seed."""
    runs = by_variant(record)
    names = sorted(runs, key=lambda variant: -mean_kid(runs[variant]))
    figure = Figure(figsize=(6.6, 0.26 * len(names) + 0.8))
    axes = figure.subplots()
    for height, name in enumerate(names):
        values = [kernel_distance(run) for run in runs[name]]
        color = ABC if name == BASE else MUTED
        axes.plot(values, [height] * len(values), color=color, marker="o", linestyle="none", markersize=5)
    if BASE in runs:
        axes.axvline(mean_kid(runs[BASE]), color=ABC, linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_xlim(left=0)
    axes.set_ylim(-0.7, len(names) - 0.3)
    style_axes(axes, across="KID at the end of training (lower is better)")
    figure.tight_layout()
    return figure


def findings(record: ImageGrid) -> list[str]:
    """Return one sentence: KID of the base, the variants with a smaller one, and the worst."""
    means = {variant: mean_kid(runs) for variant, runs in by_variant(record).items()}
    own = means.pop(BASE, None)
    if own is None:
        return []
    worst = max(means, key=means.__getitem__)
    better = [f"{name} ({mean:.3f})" for name, mean in means.items() if mean < own]
    return [f"KID of the base: {own:.3f}; smaller: {', '.join(better) or 'none'}; worst: {worst} ({means[worst]:.3f})"]


ITEM = Item(
    "images",
    ImageGrid,
    "Options of the recipe cifar10-cpu and what each of them brings, by the KID of its images.",
    table=table,
    figure=draw,
    findings=findings,
)
