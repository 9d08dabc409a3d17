"""`fig:bias_loglog`: ‖E[T_n] − T*‖ against n on four modes, exact and by the protocol of `app:toy`.

A pool of N = 10⁶ points, 200 queries from the same distribution, n = 4 … 512 drawn with replacement, τ = 0.1 and 0.2.
The exact curves (lines) always have this size. The Monte-Carlo points (with two standard errors) use 200 000 trials per
query and n at scale `paper`, 5 000 at `cpu`, and 500 at 20 of the queries at `smoke`. A point is b̂ of `app:toy`, which
cannot fall far below the noise of its trials: where the noise exceeds the exact bias, the point is hollow and has no
error bar.

Two further claims are measured on exact values: that the bias points from the nearest mode to the global mean (the
contraction), and that the bias of ABC never exceeds that of standard. The theorem itself only says that the bias points
away from the largest weights, that is, from the query.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from truedrift.axes import Float, Tensor
from truedrift.bias.exact import Moments, exact_moments_by_estimator
from truedrift.bias.monte_carlo import TrialMoments, monte_carlo
from truedrift.data.toys import FOUR_MODES
from truedrift.grids.options import Scale, StudyOptions
from truedrift.progress import Progress
from truedrift.records.provenance import Provenance, provenance
from truedrift.report.figure import INK, LOOKS, MUTED, legend_above, style_axes, ticks_at
from truedrift.report.item import Item
from truedrift.report.statistics import log_slope
from truedrift.report.table import Number, Row, Scientific, Table, format_number


@dataclass(frozen=True, kw_only=True)
class SampledPoints:
    """Monte Carlo for each n; means over the queries that were sampled.

    `bias` is b̂ (`app:toy`) with standard error `error`, and `noise` is √(tr Σ̂/M). `square` is the unbiased b̂² with
    standard error `square_error`, and `exact_square` what it estimates.
    """

    bias: tuple[float, ...]
    error: tuple[float, ...]
    noise: tuple[float, ...]
    square: tuple[float, ...]
    square_error: tuple[float, ...]
    exact_square: tuple[float, ...]

    @property
    def within_two_errors(self) -> tuple[bool, ...]:
        """For each n, whether b̂² is within two standard errors of the exact value."""
        columns = zip(self.square, self.exact_square, self.square_error, strict=True)
        return tuple(abs(sampled - exact) <= 2 * error for sampled, exact, error in columns)


@dataclass(frozen=True, kw_only=True)
class BiasCurve:
    """One estimator at one temperature: the mean over queries of ‖E[T_n] − T*‖ for each n, and its numerical error."""

    tau: float
    estimator: str
    exact: tuple[float, ...]
    exact_error: tuple[float, ...]
    points: SampledPoints | None


@dataclass(frozen=True, kw_only=True)
class Contraction:
    """Where the exact bias of the standard centroid points at one temperature: shares of queries, for each n.

    `away_from_query`: the angle to x − T* is obtuse. `away_from_mode`: the angle to (nearest mode) − T* is obtuse.
    `toward_mean`: the angle to E[y] − T* is acute. `abc_exceeds`: the bias of ABC is larger than that of standard.
    """

    tau: float
    away_from_query: tuple[float, ...]
    away_from_mode: tuple[float, ...]
    toward_mean: tuple[float, ...]
    abc_exceeds: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class BiasCurves:
    """The record: N pool points, queries from the same distribution, and `trials` minibatches per n (0: none)."""

    pool_points: int
    queries: int
    trials: int
    n: tuple[int, ...]
    curves: tuple[BiasCurve, ...]
    contractions: tuple[Contraction, ...]
    exact_seconds: float
    sampled_seconds: float
    provenance: Provenance

    @property
    def temperatures(self) -> tuple[float, ...]:
        """Temperatures in the order of the panels."""
        return tuple(dict.fromkeys(curve.tau for curve in self.curves))

    def slope(self, curve: BiasCurve) -> float:
        """d log(exact) / d log n between the last two n."""
        return log_slope(self.n, curve.exact)

    def at(self, tau: float) -> dict[str, BiasCurve]:
        """Return the curves at one temperature, by estimator."""
        return {curve.estimator: curve for curve in self.curves if curve.tau == tau}

    @property
    def within_two_errors(self) -> tuple[bool, ...]:
        """For every Monte-Carlo point, whether b̂² is within two standard errors; 95 % are expected."""
        return tuple(each for curve in self.curves if curve.points for each in curve.points.within_two_errors)


SIZES = (4, 8, 16, 32, 64, 128, 256, 512)
TEMPERATURES = (0.1, 0.2)
ESTIMATORS = ("standard", "abc", "abc2")
POOL_POINTS, QUERIES = 1_000_000, 200
TRIALS: dict[Scale, int] = {"smoke": 500, "cpu": 5_000, "paper": 200_000}
SAMPLED_QUERIES: dict[Scale, int] = {"smoke": 20, "cpu": QUERIES, "paper": QUERIES}


def toy(seed: int) -> tuple[Float[Tensor, "N 2"], Float[Tensor, "Q 2"]]:
    """Return the pool and the queries."""
    generator = torch.Generator().manual_seed(seed)
    pool, x = (FOUR_MODES.sample(count, generator, dtype=torch.float64) for count in (POOL_POINTS, QUERIES))
    return pool, x


def study(setting: StudyOptions) -> BiasCurves:
    """Run the study at the scale of the options."""
    return run(setting, TRIALS[setting.scale])


def run(setting: StudyOptions, trials: int) -> BiasCurves:
    """Compute the exact curves, and Monte-Carlo points unless `trials` is 0."""
    # Exact curves
    start = time.perf_counter()
    pool, x = toy(setting.seed)
    exact = {
        tau: exact_moments_by_estimator(
            x, pool, tau=tau, n=SIZES, estimators=ESTIMATORS, progress=_at(tau, setting.progress)
        )
        for tau in TEMPERATURES
    }
    # Monte-Carlo points
    between = time.perf_counter()
    sampled: dict[float, dict[str, TrialMoments]] = {tau: {} for tau in TEMPERATURES}
    for tau in TEMPERATURES if trials else ():
        sampled[tau] = monte_carlo(
            x[: SAMPLED_QUERIES[setting.scale]],
            pool,
            tau=tau,
            n=SIZES,
            trials=trials,
            estimators=ESTIMATORS,
            seed=setting.seed,
            progress=_at(tau, setting.progress),
            keep=setting.directory,
        )
    end = time.perf_counter()
    # Record
    return BiasCurves(
        pool_points=len(pool),
        queries=len(x),
        trials=trials,
        n=SIZES,
        curves=tuple(
            _curve(tau, name, exact[tau][name], sampled[tau].get(name)) for tau in TEMPERATURES for name in ESTIMATORS
        ),
        contractions=tuple(_contraction(tau, exact[tau], x, pool.mean(0)) for tau in TEMPERATURES),
        exact_seconds=between - start,
        sampled_seconds=end - between,
        provenance=provenance(seed=setting.seed, wall_seconds=end - start),
    )


def _at(tau: float, progress: Progress) -> Progress:
    """Add the temperature to the progress message."""
    return lambda what, done, total: progress(f"{what}, τ = {tau:g}", done, total)


def _curve(tau: float, name: str, exact: Moments, sampled: TrialMoments | None) -> BiasCurve:
    norm = torch.linalg.vector_norm(exact.bias, dim=-1)
    points = None
    if sampled is not None:
        points = SampledPoints(
            bias=_mean(sampled.corrected),
            error=_error_of_mean(sampled.error),
            noise=_mean(sampled.noise),
            square=_mean(sampled.squared),
            square_error=_error_of_mean(sampled.squared_error),
            exact_square=_mean(norm[: len(sampled.bias)].square()),
        )
    return BiasCurve(tau=tau, estimator=name, exact=_mean(norm), exact_error=_mean(exact.error), points=points)


def _contraction(tau: float, exact: Mapping[str, Moments], x: Tensor, mean: Tensor) -> Contraction:
    standard = exact["standard"]
    T_star = standard.T_star.unsqueeze(1)  # [Q, 1, D]
    modes = torch.tensor(FOUR_MODES.means, dtype=torch.float64)
    nearest = modes[torch.cdist(standard.T_star, modes).argmin(-1)].unsqueeze(1)
    norms = {name: torch.linalg.vector_norm(each.bias, dim=-1) for name, each in exact.items()}
    return Contraction(
        tau=tau,
        away_from_query=_share((standard.bias * (x.unsqueeze(1) - T_star)).sum(-1) < 0),
        away_from_mode=_share((standard.bias * (nearest - T_star)).sum(-1) < 0),
        toward_mean=_share((standard.bias * (mean - T_star)).sum(-1) > 0),
        abc_exceeds=_share(norms["abc"] > norms["standard"]),
    )


def _mean(values: Float[Tensor, "Q S"]) -> tuple[float, ...]:
    return tuple(values.mean(0).tolist())


def _share(true: Tensor) -> tuple[float, ...]:
    return _mean(true.double())


def _error_of_mean(errors: Float[Tensor, "Q S"]) -> tuple[float, ...]:
    """Return the standard error of the mean over queries, whose trials are independent."""
    return tuple((errors.square().sum(0).sqrt() / len(errors)).tolist())


FIGURE_INCHES = (6.6, 3.1)  # a text width


def table(record: BiasCurves) -> Table:
    """Return the exact biases, and the slopes between the last two n."""
    return Table(
        caption=(
            f"Exact bias of the centroid of n draws from {record.pool_points:,} points, mean over {record.queries} "
            "queries; slope between the last two n."
        ),
        label="tab:bias_loglog",
        header=("τ", "estimator", *(f"n = {n}" for n in record.n), "slope"),
        groups=[_rows(record, tau, ".2f") for tau in record.temperatures],
    )


def _rows(record: BiasCurves, tau: float, spec: str) -> list[Row]:
    return [
        (f"{tau:g}", LOOKS[name][0], *map(Scientific, curve.exact), Number(record.slope(curve), spec))
        for name, curve in record.at(tau).items()
    ]


def draw(record: BiasCurves) -> Figure:
    """Draw one panel per temperature."""
    # Panels
    figure = Figure(figsize=FIGURE_INCHES)
    panels = figure.subplots(1, len(record.temperatures), sharey=True, squeeze=False)[0]
    for axes, tau in zip(panels, record.temperatures, strict=True):
        _panel(axes, record, tau)
    panels[0].set_ylabel(r"$\|E[T_n] - T^*\|$, mean over queries", fontsize=9)
    # Legend
    handles, _ = panels[0].get_legend_handles_labels()
    mark: dict[str, Any] = {"marker": "o", "linestyle": "none", "color": MUTED, "markersize": 4}
    if record.trials:
        handles += [
            Line2D([], [], label=f"{record.trials:,} trials", **mark),
            Line2D([], [], markerfacecolor="white", label="… below their noise", **mark),
        ]
    legend_above(figure, handles, columns=5, columnspacing=1.3)
    figure.subplots_adjust(left=0.095, right=0.985, bottom=0.155, top=0.83, wspace=0.07)
    return figure


def _panel(axes: Axes, record: BiasCurves, tau: float) -> None:
    for curve in record.at(tau).values():
        _draw_curve(axes, record, curve)
    ticks_at(axes, record.n, [str(n) for n in record.n])
    style_axes(axes, across="references $n$", title=rf"$\tau = {tau:g}$", size=9)
    axes.set_yscale("log")
    axes.set_ylim(0.4 * min(c.exact[-1] for c in record.curves), 2.5 * max(c.exact[0] for c in record.curves))
    axes.set_xlim(0.75 * record.n[0], 2.4 * record.n[-1])
    place = (record.n[-1], axes.get_ylim()[1])
    axes.annotate("slope", place, (5, -10), textcoords="offset points", fontsize=8, color=INK)


def _draw_curve(axes: Axes, record: BiasCurves, curve: BiasCurve) -> None:
    """Draw the exact line with its slope, and the points; those below their noise are hollow."""
    name, color, marker = LOOKS[curve.estimator]
    axes.plot(record.n, curve.exact, color=color, linewidth=1.3, label=f"{name}, exact", zorder=3)
    look: dict[str, Any] = {"fmt": marker, "markersize": 4, "color": color, "markeredgewidth": 0.8, "zorder": 4}
    if curve.points is not None:
        columns = (record.n, curve.exact, curve.points.bias, curve.points.error, curve.points.noise)
        for n, truth, bias, error, noise in zip(*columns, strict=True):
            if noise <= truth:
                axes.errorbar(n, bias, 2 * error, elinewidth=0.9, capsize=1.5, **look)
            else:
                axes.errorbar(n, bias, markerfacecolor="white", **look)
    end, slope = (record.n[-1], curve.exact[-1]), rf"$-{-record.slope(curve):.2f}$"
    axes.annotate(slope, end, (5, -2.5), textcoords="offset points", fontsize=8, color=color)


def findings(record: BiasCurves) -> list[str]:
    """Return one sentence per temperature: the exponents of n, and where ABC has the larger mean bias."""
    sentences = []
    for tau in record.temperatures:
        curves = record.at(tau)
        slopes = ", ".join(f"{format_number(record.slope(c), '.2f')} ({LOOKS[name][0]})" for name, c in curves.items())
        columns = zip(record.n, curves["standard"].exact, curves["abc"].exact, strict=True)
        larger = ", ".join(str(n) for n, standard, abc in columns if abc > standard)
        where = (
            f"larger than that of standard at n = {larger}" if larger else "smaller than that of standard at every n"
        )
        sentences.append(f"τ = {tau:g}: slopes of the exact bias {slopes}; the bias of ABC is {where}")
    return sentences


def screen_table(record: BiasCurves) -> Table:
    """Return the exact biases with three digits of the slope, and the shares of queries of each contraction."""
    groups = []
    for shares in record.contractions:
        named = {
            "ABC has the larger bias": shares.abc_exceeds,
            "away from x": shares.away_from_query,
            "away from the nearest mode": shares.away_from_mode,
            "toward the global mean": shares.toward_mean,
        }
        rows = _rows(record, shares.tau, ".3f")
        rows += [(f"{shares.tau:g}", name, *(Number(v, ".0%") for v in values), "") for name, values in named.items()]
        groups.append(rows)
    return replace(table(record), groups=groups)


def screen_notes(record: BiasCurves) -> list[str]:
    """Return the seed and the times, and how well Monte Carlo agrees."""
    notes = [
        "Percentages are shares of the queries. Away from, toward: direction of the standard bias.",
        f"Exact curves in {record.exact_seconds:.1f} s, seed {record.provenance.seed}.",
    ]
    if record.trials:
        within = record.within_two_errors
        notes += [
            f"{record.trials:,} trials for every n and query in {record.sampled_seconds:.0f} s.",
            f"{sum(within)} of {len(within)} mean squared biases are within two standard errors of the exact values; "
            "95 % are expected.",
        ]
    return notes


ITEM = Item(
    "fig:bias_loglog",
    BiasCurves,
    "Bias against n, exact (lines) and by Monte Carlo (points with two standard errors).",
    table=table,
    figure=draw,
    findings=findings,
    screen_table=screen_table,
    screen_notes=screen_notes,
)
