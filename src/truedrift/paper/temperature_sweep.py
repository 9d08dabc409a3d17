"""`temperature-sweep`, our own study: does the best temperature shift once the bias is removed?

All temperatures of the recipe × f for f in {1/4, 1/2, 1, 2, 4}, for standard and ABC at n = 8. The paper uses the
temperatures that were best for the plain centroid. A larger τ has more effective references and so less bias; without
the bias, the best τ may be smaller. Runs with f = 1 belong to `tab:main_results` too.

The figure shows the distance (last-5 average) against f for standard and ABC. The best f of each is reported by the
mean over seeds and per seed.
"""

import re
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from truedrift.errors import UserError
from truedrift.grids.benchmarks import BenchmarkSetting
from truedrift.grids.plan import Task
from truedrift.grids.results import ImageGrid
from truedrift.paper.grid_tables import (
    ABC_AGAINST_STANDARD,
    VariantComparison,
    comparisons_note,
    coverage_notes,
    interval_cell,
    last_average,
    mean_and_deviation,
    measure_cells,
    number_format,
    protocol_line,
    runs_with_evaluations,
    sizes,
    values_by_seed,
)
from truedrift.report.figure import LOOKS, style_axes, ticks_at
from truedrift.report.item import Item
from truedrift.report.table import Row, Table

N = 8
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
ESTIMATORS = ("standard", "abc")


def tasks(benchmark: BenchmarkSetting) -> list[Task]:
    """Return the runs of every estimator at every factor with every seed."""
    return [
        _task(benchmark, name, factor, seed) for name in ESTIMATORS for factor in FACTORS for seed in benchmark.seeds
    ]


def _task(benchmark: BenchmarkSetting, name: str, factor: float, seed: int) -> Task:
    own = benchmark.config(n=N, seed=seed).objective.temperatures
    temperatures = [factor * tau for tau in own]
    config = benchmark.config(n=N, seed=seed, estimator_pos=name, estimator_neg=name, temperatures=temperatures)
    return Task(variant=f"{name}/{factor:g}", config=config)


FIGURE_INCHES = (4.4, 3.0)
MEASURE = "last-5 average"
_FACTOR = re.compile(r"\d+(\.\d+)?")


def factors(record: ImageGrid) -> list[str]:
    """Return the factors as the variants write them, from the smallest.

    Raises:
        UserError: A variant has no positive factor.
    """
    found = {run.variant.partition("/")[2] for run in runs_with_evaluations(record)}
    for variant in sorted(run.variant for run in runs_with_evaluations(record)):
        if not _FACTOR.fullmatch(variant.partition("/")[2]):
            problem = f"the record of {record.item} has a variant {variant!r}"
            raise UserError(problem, "must be an estimator and a factor, as in 'abc/0.5'", "remove that run")
    return sorted(found, key=float)


def last_averages(record: ImageGrid, estimator: str, factor: str) -> dict[int, float]:
    """Return the last-5 averages by seed."""
    return values_by_seed(record, f"{estimator}/{factor}", sizes(record)[0], last_average)


def best_by_mean(record: ImageGrid, estimator: str) -> str | None:
    """Return the factor with the smallest mean over seeds; of two equal ones, the smaller factor."""
    means = {
        f: mean_and_deviation(list(last_averages(record, estimator, f).values()))[0]
        for f in _known_factors(record, estimator)
    }
    return min(means, key=means.__getitem__) if means else None


def _known_factors(record: ImageGrid, estimator: str) -> list[str]:
    return [factor for factor in factors(record) if last_averages(record, estimator, factor)]


def best_factor_by_seed(record: ImageGrid, estimator: str) -> dict[int, str]:
    """Return the best factor of each seed that has a run at every factor of this estimator."""
    found = {factor: last_averages(record, estimator, factor) for factor in _known_factors(record, estimator)}
    seeds = set.intersection(*map(set, found.values())) if found else set()
    return {seed: min(found, key=lambda factor: found[factor][seed]) for seed in sorted(seeds)}


def table(record: ImageGrid) -> Table:
    """Return one row per factor: standard, ABC, their paired difference, and how many seeds are best there."""
    n, name = sizes(record)[0], record.protocol.distance_name
    found = [_at(factor).difference(record, n) for factor in factors(record)]
    return Table(
        caption=(
            f"Factor f of all temperatures, n = {n}: last-5 average {name} on {record.data}, mean ± largest deviation "
            "over seeds; each estimator's best by mean in bold, and the seeds whose best it is. "
            f"{protocol_line(record)} The paper keeps the temperatures of standard."
        ),
        label="tab:temperature_sweep",
        header=("f", "standard", "ABC", "ABC − standard", "best of standard's seeds", "best of ABC's seeds"),
        groups=[[_row(record, factor, n) for factor in factors(record)]],
        notes=(*coverage_notes(record), comparisons_note(found)),
    )


def _at(factor: str) -> VariantComparison:
    names = ABC_AGAINST_STANDARD
    return VariantComparison(
        variant=f"abc/{factor}", name=names.name, base=f"standard/{factor}", base_name=names.base_name
    )


def _row(record: ImageGrid, factor: str, n: int) -> Row:
    spec = number_format(record, MEASURE)
    cells = (
        measure_cells(record, [f"{estimator}/{each}" for each in factors(record)], n, MEASURE)[f"{estimator}/{factor}"]
        for estimator in ESTIMATORS
    )
    counts = (list(best_factor_by_seed(record, estimator).values()) for estimator in ESTIMATORS)
    return (
        factor,
        *cells,
        interval_cell(_at(factor).difference(record, n), spec),
        *(f"{bests.count(factor)}/{len(bests)}" for bests in counts),
    )


def draw(record: ImageGrid) -> Figure:
    """Draw both estimators with error bars of the largest deviation, and a ring at the best mean of each."""
    figure = Figure(figsize=FIGURE_INCHES)
    axes = figure.subplots()
    for estimator, shift in zip(ESTIMATORS, (0.985, 1.015), strict=True):  # so that bars do not hide each other
        _curve(axes, record, estimator, shift)
    style_axes(axes, across="factor $f$ of all temperatures", up=f"{record.protocol.distance_name}, last-5 average")
    ticks_at(axes, [float(factor) for factor in factors(record)], factors(record))
    axes.legend(fontsize=8, frameon=False, title=f"$n = {sizes(record)[0]}$; ring: best mean", title_fontsize=8)
    figure.subplots_adjust(left=0.13, right=0.98, bottom=0.145, top=0.96)
    return figure


def _curve(axes: Axes, record: ImageGrid, estimator: str, shift: float) -> None:
    name, color, marker = LOOKS[estimator]
    known = _known_factors(record, estimator)
    values = [mean_and_deviation(list(last_averages(record, estimator, factor).values())) for factor in known]
    across = [shift * float(factor) for factor in known]
    means, bars = [mean for mean, _ in values], [deviation for _, deviation in values]
    look: dict[str, Any] = {"color": color, "marker": marker, "markersize": 4, "linewidth": 1.2, "elinewidth": 0.9}
    axes.errorbar(across, means, bars, label=name, capsize=2, **look)
    best = [k for k, factor in enumerate(known) if factor == best_by_mean(record, estimator)]
    ring: dict[str, Any] = {"marker": "o", "markersize": 9, "markerfacecolor": "none", "linestyle": "none"}
    axes.plot([across[k] for k in best], [means[k] for k in best], color=color, markeredgewidth=0.9, **ring)


def verdicts(record: ImageGrid) -> list[str]:
    """Return sentences: whether the best factor shifts, and how both compare at their own best."""
    standard, abc = (best_by_mean(record, estimator) for estimator in ESTIMATORS)
    if standard is None or abc is None:
        return ["standard and ABC have not both been run: nothing is known of a shift"]
    n = sizes(record)[0]
    own_best = VariantComparison(variant=f"abc/{abc}", name="ABC", base=f"standard/{standard}", base_name="standard")
    return [
        f"{_shift(record, standard, abc)}{_edge(record, standard, abc)}",
        f"each at its own best f, chosen from these same runs: {own_best.verdict(record, n)}",
        *(f"f = {factor}: {_at(factor).verdict(record, n)}" for factor in factors(record)),
    ]


def _shift(record: ImageGrid, standard: str, abc: str) -> str:
    """Describe the shift by mean, and the number of seeds that shift the same way."""
    of_standard, of_abc = (best_factor_by_seed(record, estimator) for estimator in ESTIMATORS)
    moves = [float(of_abc[seed]) - float(of_standard[seed]) for seed in of_standard if seed in of_abc]
    counted = (
        f"by seed it is smaller with ABC in {sum(move < 0 for move in moves)}, the same in "
        f"{sum(move == 0 for move in moves)} and larger in {sum(move > 0 for move in moves)} of {len(moves)} seeds"
    )
    move = float(abc) - float(standard)
    if not move:
        return f"no shift: the best f by mean is {abc} for both; {counted}"
    agree = bool(moves) and all(each * move > 0 for each in moves)
    shift = "the best f shifts" if agree else "no clear shift: the best f by mean goes"
    return f"{shift} from {standard} (standard) to {abc} (ABC); {counted}"


def _edge(record: ImageGrid, standard: str, abc: str) -> str:
    at_edge = {"standard": standard, "ABC": abc}
    ends = (factors(record)[0], factors(record)[-1])
    names = [name for name, best in at_edge.items() if best in ends]
    return f"; that of {' and '.join(names)} is at the edge of the sweep" if names and ends[0] != ends[1] else ""


ITEM = Item(
    label="temperature-sweep",
    record=ImageGrid,
    description="Does the best temperature shift once the bias is removed? Distance against a factor of all τ.",
    table=table,
    figure=draw,
    findings=verdicts,
)
