"""`temperature-sweep`, our own study: does the best temperature shift once the bias is removed?

All temperatures of the recipe × f for f in {1/4, 1/2, 1, 2, 4}, for standard and ABC at n = 8. The paper uses the
temperatures that were best for the plain centroid. A larger τ has more effective references and so less bias; without
the bias, the best τ may be smaller. Runs with f = 1 belong to `tab:main_results` too.

The figure shows the distance (last-5 average) against f for standard and ABC. The best f of each is reported by the
mean over seeds and per seed.
"""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from truedrift.grids.benchmarks import BenchmarkSetting
from truedrift.grids.plan import Task
from truedrift.grids.record import ImageGrid
from truedrift.paper.grid_tables import (
    LAST_AVERAGE,
    VariantComparison,
    last_average,
    measure_cells,
    number_format,
    protocol_line,
    short_runs_note,
    sizes,
    values_by_seed,
)
from truedrift.report.figure import LOOKS, style_axes, ticks_at
from truedrift.report.item import Item
from truedrift.report.statistics import comparisons_note, mean_and_deviation
from truedrift.report.table import Row, Table

N = 8
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
ESTIMATORS = ("standard", "abc")
FIGURE_INCHES = (4.4, 3.0)


def tasks(benchmark: BenchmarkSetting) -> list[Task]:
    """Return the runs of every estimator at every factor with every seed."""
    own = benchmark.config(n=N, seed=0).objective.temperatures
    return [
        Task(
            variant=_variant(name, factor),
            config=benchmark.config(
                n=N, seed=seed, estimator_pos=name, estimator_neg=name, temperatures=[factor * tau for tau in own]
            ),
        )
        for name in ESTIMATORS
        for factor in FACTORS
        for seed in benchmark.seeds
    ]


def _variant(estimator: str, factor: float) -> str:
    return f"{estimator}/{factor:g}"


def _compare(factor: float, standard: float) -> VariantComparison:
    """Return the comparison of ABC at one factor with standard at another."""
    return VariantComparison(_variant("abc", factor), "ABC", _variant("standard", standard))


def factors(record: ImageGrid) -> list[float]:
    """Return the factors that have a run, from the smallest."""
    variants = {run.variant for run in record.runs}
    return [factor for factor in FACTORS if variants & {_variant(name, factor) for name in ESTIMATORS}]


def last_averages(record: ImageGrid, estimator: str) -> dict[float, dict[int, float]]:
    """Return the last-5 averages by factor and seed."""
    n = sizes(record)[0]
    return {f: values_by_seed(record, _variant(estimator, f), n, last_average) for f in factors(record)}


def best_by_mean(record: ImageGrid, estimator: str) -> float:
    """Return the factor with the smallest mean over seeds; of two equal ones, the smaller factor."""
    averages = last_averages(record, estimator)
    means = {factor: mean_and_deviation(list(by_seed.values()))[0] for factor, by_seed in averages.items()}
    return min(means, key=means.__getitem__)


def best_factor_by_seed(record: ImageGrid, estimator: str) -> dict[int, float]:
    """Return the best factor of each seed that has a run at every factor of this estimator."""
    averages = last_averages(record, estimator)
    seeds = set.intersection(*map(set, averages.values()))
    return {seed: min(averages, key=lambda factor: averages[factor][seed]) for seed in sorted(seeds)}


def table(record: ImageGrid) -> Table:
    """Return one row per factor: standard, ABC, their paired difference, and how many seeds are best there."""
    n, name = sizes(record)[0], record.protocol.distance_name
    return Table(
        caption=(
            f"Factor f of all temperatures, n = {n}: last-5 average {name} on {record.data}, mean ± largest deviation "
            "over seeds. Bold: the smallest mean of each estimator. Last columns: seeds for which this f is best. "
            f"{protocol_line(record)} The paper uses the temperatures that were chosen for standard."
        ),
        label="tab:temperature_sweep",
        header=(
            "f",
            "standard",
            "ABC",
            "ABC − standard",
            "seeds with this best f, standard",
            "seeds with this best f, ABC",
        ),
        groups=[_rows(record, n)],
        notes=(
            *short_runs_note(record),
            comparisons_note([_compare(factor, factor).difference(record, n) for factor in factors(record)]),
        ),
    )


def _rows(record: ImageGrid, n: int) -> list[Row]:
    spec, shown = number_format(record), factors(record)
    cells = {name: measure_cells(record, [_variant(name, f) for f in shown], n, LAST_AVERAGE) for name in ESTIMATORS}
    bests = {name: list(best_factor_by_seed(record, name).values()) for name in ESTIMATORS}
    return [
        (
            f"{factor:g}",
            *(cells[name][_variant(name, factor)] for name in ESTIMATORS),
            _compare(factor, factor).difference(record, n).cell(spec),
            *(f"{bests[name].count(factor)}/{len(bests[name])}" for name in ESTIMATORS),
        )
        for factor in shown
    ]


def draw(record: ImageGrid) -> Figure:
    """Draw both estimators with error bars of the largest deviation, and a ring at the best mean of each."""
    figure = Figure(figsize=FIGURE_INCHES)
    axes = figure.subplots()
    for estimator, shift in zip(ESTIMATORS, (0.985, 1.015), strict=True):  # so that bars do not hide each other
        _curve(axes, record, estimator, shift)
    style_axes(axes, across="factor $f$ of all temperatures", up=f"{record.protocol.distance_name}, last-5 average")
    ticks_at(axes, factors(record), [f"{factor:g}" for factor in factors(record)])
    axes.legend(fontsize=8, frameon=False, title=f"$n = {sizes(record)[0]}$; ring: best mean", title_fontsize=8)
    figure.subplots_adjust(left=0.13, right=0.98, bottom=0.145, top=0.96)
    return figure


def _curve(axes: Axes, record: ImageGrid, estimator: str, shift: float) -> None:
    name, color, marker = LOOKS[estimator]
    averages = {f: mean_and_deviation(list(of.values())) for f, of in last_averages(record, estimator).items()}
    across = [shift * factor for factor in averages]
    means, bars = [mean for mean, _ in averages.values()], [deviation for _, deviation in averages.values()]
    look: dict[str, Any] = {"color": color, "marker": marker, "markersize": 4, "linewidth": 1.2, "elinewidth": 0.9}
    axes.errorbar(across, means, bars, label=name, capsize=2, **look)
    best = best_by_mean(record, estimator)
    ring: dict[str, Any] = {"marker": "o", "markersize": 9, "markerfacecolor": "none", "linestyle": "none"}
    axes.plot([shift * best], [averages[best][0]], color=color, markeredgewidth=0.9, **ring)


def findings(record: ImageGrid) -> list[str]:
    """Return sentences: whether the best factor shifts, and how both compare at their own best."""
    standard, abc = (best_by_mean(record, estimator) for estimator in ESTIMATORS)
    n, shown = sizes(record)[0], factors(record)
    at_edge = [name for name, best in (("standard", standard), ("ABC", abc)) if best in (shown[0], shown[-1])]
    edge = f"; the best f of {' and '.join(at_edge)} is at the edge of the sweep" if at_edge else ""
    own_best = _compare(abc, standard).finding(record, n)
    return [
        f"{_shift(record, standard, abc)}{edge}",
        f"standard and ABC each at its best f (selected on the same runs): {own_best}",
        *(f"f = {factor:g}: {_compare(factor, factor).finding(record, n)}" for factor in shown),
    ]


def _shift(record: ImageGrid, standard: float, abc: float) -> str:
    """Describe the shift by mean, and the number of seeds that shift the same way."""
    of_standard, of_abc = (best_factor_by_seed(record, estimator) for estimator in ESTIMATORS)
    moves = [of_abc[seed] - of_standard[seed] for seed in of_standard if seed in of_abc]
    counted = (
        f"per seed, the best f is smaller with ABC in {sum(move < 0 for move in moves)}, the same in "
        f"{sum(move == 0 for move in moves)} and larger in {sum(move > 0 for move in moves)} of {len(moves)} seeds"
    )
    move = abc - standard
    if not move:
        return f"no shift: the best f by mean is {abc:g} for both; {counted}"
    agree = all(each * move > 0 for each in moves)
    shift = "the best f shifts" if agree else "no clear shift: the best f by mean changes"
    return f"{shift} from {standard:g} (standard) to {abc:g} (ABC); {counted}"


ITEM = Item(
    "temperature-sweep",
    ImageGrid,
    "Does the best temperature shift once the bias is removed? Distance against a factor of all τ.",
    table=table,
    figure=draw,
    findings=findings,
)
