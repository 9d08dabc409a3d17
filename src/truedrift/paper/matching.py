"""`matching`, our own study: do matched references and fresh negatives make better samples?

A setting is written n/g, or n/g + r: n positives and g generated samples per class, and r fresh negatives. Every run
takes the same number of steps with the same generator. With equal g the cost of a step differs only in the loss and in
the forward pass of fresh negatives. The measured seconds give the comparison at equal wall time.

| number         | is                                                                                           |
|----------------|----------------------------------------------------------------------------------------------|
| end            | the distance of the last evaluation                                                          |
| s per step     | seconds per step in the fastest logged interval of the variant, without evaluations          |
| at equal time  | the distance when the baseline would end, interpolated between evaluations                   |
| steps to 0.30  | steps at the first evaluation with a distance of at most 0.30; times s per step: time to 0.30 |

The families of comparisons are chosen before the runs: matching at equal sizes, more positives, fresh negatives, and
ABC against standard. Intervals are corrected for the number of comparisons in all families together (Holm).
"""

import statistics
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from truedrift.field.spec import Form, Normalization
from truedrift.grids.benchmarks import SMOKE_SIZES, BenchmarkSetting
from truedrift.grids.plan import Task
from truedrift.grids.record import ImageGrid, ImageRun
from truedrift.paper.grid_tables import protocol_line
from truedrift.recipes.overrides import recipe
from truedrift.report.figure import ABC, INK, MUTED, STANDARD, legend_above, style_axes
from truedrift.report.item import Item
from truedrift.report.statistics import decimals, holm_paired, mean_cell
from truedrift.report.table import DASH, Row, Table
from truedrift.training.config import RunConfig

THRESHOLD = 0.30
"""Distance on the digits that counts as reached."""
LENGTHS = {"digits": (8, 5), "fashion-mnist": (64, 8)}
"""Data set → the positives of the benchmark per step of a run, and the epochs between two evaluations."""
STEPS_PER_EPOCH = 20

FIELDS: dict[str, tuple[Normalization, Form]] = {
    "row": ("row", "separate"),
    "bidirectional": ("bidirectional", "product"),
    "symmetric": ("symmetric", "product"),
}


@dataclass(frozen=True)
class Variant:
    """The options that the study compares."""

    n: int
    generated: int
    fresh: int
    field: str
    estimator: str
    matched: bool

    @property
    def sizes(self) -> str:
        """For example 126/8, or 128/8 + 64 with fresh negatives."""
        return f"{self.n}/{self.generated}" + (f" + {self.fresh}" if self.fresh else "")

    @property
    def name(self) -> str:
        """For example "126/8 row abc matched"."""
        return f"{self.sizes} {self.field} {self.estimator}{' matched' if self.matched else ''}"

    def config(self, benchmark: BenchmarkSetting, seed: int) -> RunConfig:
        """Return the configuration of the run with this seed."""
        normalization, form = FIELDS[self.field]
        base, evaluated = LENGTHS[benchmark.data]
        steps = (benchmark.positives or 0) // base
        epochs = max(1, steps // STEPS_PER_EPOCH)
        tree = {
            "batch": {"generated": self.generated, "fresh_negatives": self.fresh},
            "objective": {"normalization": normalization, "form": form, "matched": self.matched},
            "cadence": {
                "epochs": epochs,
                "steps_per_epoch": STEPS_PER_EPOCH,
                "log_every": STEPS_PER_EPOCH,
                "checkpoint_every": 320,
                "evaluate_every_epochs": min(evaluated, epochs),
                "grid_every": steps,
            },
            "evaluation": {**benchmark.options["evaluation"], "extractor": benchmark.extractor},
        }
        return recipe(benchmark.recipe, given={"n": self.n, "seed": seed, "estimator": self.estimator}, tree=tree)


def _variants(sizes: str, field: str, *, estimators: str = "standard abc", matched: str = "no yes") -> list[Variant]:
    """Return the variants of sizes such as "126/8" or "128/8+64" with every estimator, unmatched and matched."""
    both, _, fresh = sizes.partition("+")
    n, generated = map(int, both.split("/"))
    return [
        Variant(n, generated, int(fresh or 0), field, estimator, each == "yes")
        for estimator in estimators.split()
        for each in matched.split()
    ]


DIGITS = (
    *_variants("8/8", "row"),
    *_variants("16/16", "row", estimators="abc"),
    *_variants("64/64", "row", estimators="abc"),
    *_variants("126/8", "row"),
    *_variants("126/16", "row", estimators="abc"),
    *_variants("126/64", "row", estimators="abc", matched="yes"),
    *_variants("8/8+8", "row", estimators="abc", matched="no"),
    *_variants("64/8+64", "row", estimators="abc", matched="no"),
    *_variants("128/8+64", "row", matched="yes"),
    *_variants("8/8", "bidirectional", matched="no"),
    *_variants("64/64", "bidirectional", estimators="abc", matched="no"),
    *_variants("126/8", "bidirectional", estimators="abc", matched="no"),
    *_variants("8/8+8", "bidirectional", estimators="abc", matched="no"),
    *_variants("64/8+64", "bidirectional", estimators="abc", matched="no"),
    *_variants("128/8+64", "bidirectional", estimators="abc", matched="yes"),
    *_variants("8/8", "symmetric", estimators="abc", matched="yes"),
    *_variants("126/8", "symmetric", estimators="abc", matched="yes"),
)
"""The variants on the digits, whose smallest class has 133 images. Both estimators run where theory expects most of a
difference between them; elsewhere ABC alone."""
FASHION = (
    *_variants("32/32", "bidirectional", estimators="abc", matched="no"),
    *_variants("496/32", "row", estimators="abc", matched="yes"),
    *_variants("128/32+64", "row", estimators="abc", matched="yes"),
)
"""On Fashion-MNIST: the baseline, many positives in windows, and fresh negatives."""
BASELINE = "8/8 bidirectional abc"
"""The recipe `digits` before matching, the setting of the paper."""
MATCHING = tuple((f"{pair} matched", pair) for pair in ("8/8 row abc", "126/8 row standard", "126/8 row abc"))
AGAINST_BASELINE = tuple(
    (name, BASELINE)
    for name in (
        "126/8 row standard matched",
        "126/8 row abc matched",
        "126/8 symmetric abc matched",
        "8/8 + 8 bidirectional abc",
        "64/8 + 64 bidirectional abc",
        "128/8 + 64 row abc matched",
    )
)
ESTIMATORS = tuple(
    (f"{name} abc{matched}", f"{name} standard{matched}")
    for name, matched in (("8/8 bidirectional", ""), ("126/8 row", " matched"), ("128/8 + 64 row", " matched"))
)
COMPARISONS = (*MATCHING, *AGAINST_BASELINE, *ESTIMATORS)
"""(variant, base) of every comparison, chosen before the runs."""
RECIPE = "126/16 row abc matched"
"""Nearly the setting of the recipe `digits`, which has 120 positives in 8 windows; chosen after two seeds."""
ALL_SEEDS = {RECIPE, *(name for pair in COMPARISONS for name in pair)}
SEEDS_OF_OTHERS = 2
"""Other variants show a tendency; they have this many seeds at most."""


def tasks(benchmark: BenchmarkSetting) -> list[Task]:
    """Return the runs of every variant with every seed."""
    variants = DIGITS if benchmark.data == "digits" else FASHION
    if benchmark.sizes == SMOKE_SIZES:
        variants = tuple(variant for variant in variants if variant.name in (BASELINE, *MATCHING[0], *MATCHING[-1]))

    all_seeds = ALL_SEEDS if benchmark.data == "digits" else {variant.name for variant in variants}
    return [
        Task(variant=variant.name, config=variant.config(benchmark, seed))
        for position, seed in enumerate(benchmark.seeds)
        for variant in variants
        if variant.name in all_seeds or position < SEEDS_OF_OTHERS
    ]


# ---- Numbers of a run ----


def end(run: ImageRun) -> float:
    """Return the distance of the last evaluation."""
    return run.distances[-1]


def seconds_per_step(runs: Iterable[ImageRun]) -> float:
    """Return the seconds per step in the fastest logged interval of these runs."""
    return min(run.step_seconds or run.seconds / run.evaluations[-1].step for run in runs)


def steps_to(run: ImageRun, threshold: float) -> int | None:
    """Return the step of the first evaluation whose distance is at most the threshold, or None."""
    return next((each.step for each in run.evaluations if each.metrics.fid <= threshold), None)


def distance_at(run: ImageRun, step: float) -> float:
    """Return the distance after that many steps, interpolated between evaluations; the last one after the end."""
    before = [each for each in run.evaluations if each.step <= step]
    after = [each for each in run.evaluations if each.step > step]
    if not before or not after:
        return (before[-1] if before else after[0]).metrics.fid
    share = (step - before[-1].step) / (after[0].step - before[-1].step)
    return before[-1].metrics.fid + share * (after[0].metrics.fid - before[-1].metrics.fid)


def by_variant(record: ImageGrid) -> dict[str, dict[int, ImageRun]]:
    """Return the runs of every variant by seed, in the order of the plan."""
    names = dict.fromkeys(run.variant for run in record.runs)
    return {name: {run.seed: run for run in record.runs if run.variant == name} for name in names}


def base_variant(record: ImageGrid) -> str:
    """Return the variant that the others are compared with: the recipe before matching."""
    names = by_variant(record)
    return BASELINE if BASELINE in names else next(iter(names))


# ---- Table ----


def table(record: ImageGrid) -> Table:
    """Return one row per variant, grouped by field: distance at the end and at equal time, time to 0.30, and cost."""
    runs, base = by_variant(record), base_variant(record)
    spec, name = decimals(map(end, record.runs)), record.protocol.distance_name
    least = min(runs, key=lambda variant: statistics.fmean(map(end, runs[variant].values())))
    steps = record.runs[0].evaluations[-1].step
    base_seconds = seconds_per_step(runs[base].values())
    groups: dict[str, list[Row]] = {}
    for variant, by_seed in runs.items():
        sizes, field, estimator, matched = _parts(variant)
        seconds = seconds_per_step(by_seed.values())
        groups.setdefault(field, []).append(
            (
                sizes,
                field,
                estimator,
                "yes" if matched else "no",
                mean_cell([end(run) for run in by_seed.values()], spec, bold=variant == least),
                mean_cell([distance_at(run, steps * base_seconds / seconds) for run in by_seed.values()], spec),
                *_time_cells(by_seed.values(), seconds),
                f"{1000 * seconds:.1f}",
            )
        )
    header = ("positives/generated + fresh", "field", "estimator", "matched", f"{name} at the end", "at equal time")
    reached = (f"steps to {THRESHOLD:.2f} (seeds)", f"seconds to {THRESHOLD:.2f}")
    return Table(
        caption=(
            f"Matched references on {record.data}: {name}, mean ± largest deviation over seeds, after {steps} steps. "
            f"At equal time: when {base} ends. Steps to {THRESHOLD:.2f}: median over the seeds that reach it, and "
            f"their number. Times are those of the fastest logged interval of a variant. {protocol_line(record)}"
        ),
        label="tab:matching",
        header=(*header, *reached, "ms per step"),
        groups=list(groups.values()),
        notes=[f"Comparisons: paired differences, corrected for their number, {len(_comparisons(record))} (Holm)."],
    )


def _time_cells(runs: Collection[ImageRun], seconds: float) -> tuple[str, str]:
    """Return the median number of steps to the threshold with the number of seeds that reach it, and the time."""
    hits = [step for run in runs if (step := steps_to(run, THRESHOLD)) is not None]
    if not hits:
        return f"{DASH} (0/{len(runs)})", DASH
    median = statistics.median(hits)
    return f"{median:.0f} ({len(hits)}/{len(runs)})", f"{median * seconds:.0f}"


def _parts(variant: str) -> tuple[str, str, str, bool]:
    """Return sizes, field, estimator and whether it is matched, from the name of a variant."""
    words = variant.split()
    matched = words[-1] == "matched"
    *sizes, field, estimator = words[:-1] if matched else words
    return " ".join(sizes), field, estimator, matched


def _comparisons(record: ImageGrid) -> list[str]:
    """Return a sentence per comparison that the record has, corrected for their number."""
    runs = by_variant(record)
    pairs = [(variant, base) for variant, base in COMPARISONS if variant in runs and base in runs]
    if not pairs:  # other data: every variant against the first
        base = base_variant(record)
        pairs = [(variant, base) for variant in runs if variant != base]
    values = {variant: {seed: end(run) for seed, run in by_seed.items()} for variant, by_seed in runs.items()}
    found = holm_paired([(values[base], values[variant]) for variant, base in pairs])
    spec = decimals(map(end, record.runs))
    return [
        f"{variant} against {base}: {difference.sentence(variant, base, spec)}"
        for (variant, base), difference in zip(pairs, found, strict=True)
    ]


# ---- Figure ----

WIDTH_INCHES, INCHES_PER_VARIANT = 7.2, 0.19
DOT: dict[str, Any] = {"marker": "o", "linestyle": "none", "markersize": 4.5}


def draw(record: ImageGrid) -> Figure:
    """Draw the distance at the end of every run: a block per field, a line per variant, a dot per seed, a bar at the
    mean."""
    runs = by_variant(record)
    lines = _lines(runs)
    height_inches = INCHES_PER_VARIANT * len(lines) + 1.2
    figure = Figure(figsize=(WIDTH_INCHES, height_inches))
    axes = figure.subplots()
    for height, variant in enumerate(reversed(lines)):
        if variant not in runs:  # the heading of a block
            continue
        color = ABC if _parts(variant)[2] == "abc" else STANDARD
        values = [end(run) for run in runs[variant].values()]
        fill = color if has_equal_sides(variant) else "white"
        axes.plot(values, [height] * len(values), color=color, markerfacecolor=fill, markeredgewidth=0.9, **DOT)
        axes.plot([statistics.fmean(values)] * 2, [height - 0.38, height + 0.38], color=INK, linewidth=1.4)
    base = [end(run) for run in runs[base_variant(record)].values()]
    axes.axvline(statistics.fmean(base), color=MUTED, linewidth=0.8, linestyle=":")
    style_axes(axes, across=f"{record.protocol.distance_name} at the end of training (lower is better)")
    axes.set_yticks(range(len(lines)), [_label(line) if line in runs else line for line in reversed(lines)], fontsize=7)
    for label, line in zip(axes.get_yticklabels(), reversed(lines), strict=True):
        label.set_fontweight("normal" if line in runs else "bold")
    axes.set_xlim(left=0)
    axes.set_ylim(-0.8, len(lines) - 0.2)
    legend_above(figure, _legend(), columns=5)
    top = 1 - 0.62 / height_inches
    base_name = base_variant(record)
    words = f"{SIZES_IN_WORDS}; dotted: {_parts(base_name)[1]} {' '.join(_label(base_name).split())}"
    figure.text(0.5, 1 - 0.46 / height_inches, words, ha="center", fontsize=8.5, color=INK)
    figure.subplots_adjust(left=0.25, right=0.98, bottom=0.5 / height_inches, top=top)
    return figure


SIZES_IN_WORDS = "n/g + r: n positives and g generated samples per class, r fresh negatives"


def has_equal_sides(variant: str) -> bool:
    """Return whether both centroids have equally many references: matched windows, or as many fresh as positives."""
    n, _, *fresh = _sizes_key(variant)
    return _parts(variant)[3] or fresh == [n]


def _lines(runs: Iterable[str]) -> list[str]:
    """Return the names of the variants in blocks, each below the name of its field."""
    lines: list[str] = []
    for variant in sorted(runs, key=lambda each: (_parts(each)[1], has_equal_sides(each), _sizes_key(each), each)):
        field = _parts(variant)[1]
        lines += [variant] if field in lines else [field, variant]
    return lines


def _sizes_key(variant: str) -> tuple[int, ...]:
    return tuple(int(word) for word in _parts(variant)[0].replace("/", " ").replace("+", " ").split())


def _label(variant: str) -> str:
    sizes, _, estimator, matched = _parts(variant)
    return f"{sizes}   {'ABC' if estimator == 'abc' else estimator}{', matched' if matched else ''}"


def _legend() -> list[Line2D]:
    """Return the handles of the legend: colors for estimators, filled markers for sides of equal size."""
    return [
        Line2D([], [], color=STANDARD, label="standard", **DOT),
        Line2D([], [], color=ABC, label="ABC", **DOT),
        Line2D([], [], color=INK, markerfacecolor="white", label="unequal sides", **DOT),
        Line2D([], [], color=INK, label="equal sides (matched, or r = n)", **DOT),
        Line2D([], [], color=INK, linewidth=1.4, label="mean"),
    ]


# ---- Findings ----


def findings(record: ImageGrid) -> list[str]:
    """Return the best variant, and one sentence per comparison."""
    runs, base = by_variant(record), base_variant(record)
    means = {variant: statistics.fmean(map(end, by_seed.values())) for variant, by_seed in runs.items()}
    best = min(means, key=means.__getitem__)
    spec = decimals(means.values())
    first = f"best: {best} with {means[best]:{spec}}; {base} has {means[base]:{spec}}"
    return [first, *_comparisons(record)]


ITEM = Item(
    "matching",
    ImageGrid,
    "Matched references and fresh negatives on images: distance, speed, and which of them help.",
    table=table,
    figure=draw,
    findings=findings,
)
