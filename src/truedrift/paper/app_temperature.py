"""`app:temperature`: no other temperature τ′ replaces the correction.

Compares E[T_n(x; τ′)] with T*(x; τ) on the four modes. To first order, τ′ = τ + Δ would have to solve
∂T*/∂τ · Δ = g_2/n at every query (`eq:compensation`): both vectors collinear, and n·Δ the same constant everywhere.
Both conditions are measured. Beyond first order,

    E[T_n(x; τ′)] − T*(x; τ) = {E[T_n(x; τ′)] − T*(x; τ′)} + {T*(x; τ′) − T*(x; τ)}

is computed exactly. Its norm, averaged over queries, is minimized over one τ′ for all queries, and over one τ′ per
query. E[T_n(x; τ′)] is analytic in log τ′: it is computed at Chebyshev nodes of log τ′/τ and interpolated in between.
The interpolant at τ′ = τ, which is not a node, is compared with the exact value there.

The cost of a lower τ is a smaller n_eff/n = 1/λ, with λ = E[w²]/E[w]².

| panel   | shows                                                                                              |
|---------|----------------------------------------------------------------------------------------------------|
| (a)     | n·Δ and the angle of ∂T*/∂τ with g_2, one dot per query; `eq:compensation` needs one point at 0°   |
| (b) (c) | mean of ‖E[T_n(τ′)] − T*(τ)‖ against τ′/τ                                                          |
| (d)     | n_eff/n against τ: median, and 90 % of the queries                                                 |
| (e) (f) | the same mean against n: standard, ABC, the best τ′ for all queries, the best τ′ per query         |
"""

import math
import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from truedrift.axes import Float, Tensor
from truedrift.bias.exact import exact_moments, exact_moments_by_estimator
from truedrift.bias.theory import compensation, effective_share
from truedrift.data.toys import FOUR_MODES
from truedrift.grids.options import StudyOptions
from truedrift.records.provenance import Provenance, provenance
from truedrift.report.figure import ABC, CLOUD, INK, MUTED, STANDARD, legend_above, style_axes, ticks_at
from truedrift.report.item import Item
from truedrift.report.statistics import log_slope
from truedrift.report.table import Number, Row, Scientific, Table


@dataclass(frozen=True, kw_only=True)
class CompensationRow:
    """n references whose centroid at τ′ replaces the one at τ; biases are means over queries of ‖E[T] − T*(τ)‖."""

    n: int
    standard: float
    abc: float
    remaining: tuple[float, ...]
    """Mean bias at each of the ratios τ′/τ."""
    best_ratio: float
    """The ratio τ′/τ with the smallest mean over all queries, and that mean."""
    best: float
    own_best: float
    """The mean if every query used its own best τ′/τ, within the range of the ratios."""


@dataclass(frozen=True, kw_only=True)
class TemperatureRow:
    """One τ: n·Δ of `eq:compensation` and the angle of ∂T*/∂τ with g_2 at every query, and the bias at other τ′."""

    tau: float
    shifts: tuple[float, ...]
    angles_degrees: tuple[float, ...]
    sizes: tuple[CompensationRow, ...]
    interpolation_error: float
    """Largest ‖E[T_n(τ′)] interpolated at τ′ = τ − the exact one‖, as a share of the standard bias there."""

    @property
    def slopes(self) -> tuple[float, float, float, float]:
        """Exponents of n between the last two sizes: standard, the best τ′, the best of each query, ABC."""
        n, columns = [each.n for each in self.sizes], zip(*map(_biases, self.sizes), strict=True)
        standard, abc, best, own_best = (log_slope(n, biases) for biases in columns)
        return standard, best, own_best, abc


@dataclass(frozen=True, kw_only=True)
class Temperature:
    """`app:temperature` on the four modes: no τ′ compensates, and n_eff falls with τ."""

    pool_points: int
    queries: int
    ratios: tuple[float, ...]
    at: tuple[TemperatureRow, ...]
    taus: tuple[float, ...]
    share_low: tuple[float, ...]
    """n_eff/n over queries at each of `taus`: quantile 0.05, median, quantile 0.95."""
    share_median: tuple[float, ...]
    share_high: tuple[float, ...]
    falls: int
    """Pairs of neighboring τ and a query where n_eff does not grow with τ, of (len(taus) − 1)·queries."""
    provenance: Provenance


TEMPERATURES = (0.1, 0.2)
SIZES = (16, 32, 64, 128, 256)
LOWEST_RATIO, HIGHEST_RATIO = 0.3, 1.1
NODES = 11
RATIOS_SOUGHT, RATIOS_KEPT = 3201, 161
TAUS = tuple(float(f"{0.02 * 50 ** (k / 16):.4g}") for k in range(17))
QUANTILES = (0.05, 0.5, 0.95)


def study(setting: StudyOptions) -> Temperature:
    """Run with 10⁶ points and 200 queries (`app:toy`), or 5 000 and 20 at `smoke`."""
    # Draw the pool and the queries.
    start = time.perf_counter()
    points, queries = (5_000, 20) if setting.scale == "smoke" else (1_000_000, 200)
    generator = torch.Generator().manual_seed(setting.seed)
    pool, x = (FOUR_MODES.sample(count, generator, dtype=torch.float64) for count in (points, queries))
    # Compute the bias at other temperatures, and n_eff.
    at = tuple(_at(x, pool, tau, setting) for tau in TEMPERATURES)
    share = effective_share(x, pool, taus=TAUS)
    low, median, high = share.quantile(torch.tensor(QUANTILES, dtype=torch.float64), dim=0).tolist()
    return Temperature(
        pool_points=points,
        queries=queries,
        ratios=tuple(_ratios(RATIOS_KEPT).tolist()),
        at=at,
        taus=TAUS,
        share_low=tuple(low),
        share_median=tuple(median),
        share_high=tuple(high),
        falls=int((share.diff(dim=-1) <= 0).sum()),
        provenance=provenance(seed=setting.seed, wall_seconds=time.perf_counter() - start),
    )


def _at(x: Tensor, pool: Tensor, tau: float, setting: StudyOptions) -> TemperatureRow:
    # Bias at τ, and the conditions of eq:compensation
    here = exact_moments_by_estimator(x, pool, tau=tau, n=SIZES, estimators=("standard", "abc"))
    standard, abc = here["standard"], here["abc"]
    found = compensation(x, pool, tau=tau)
    # Bias of E[T_n(τ′)] at the nodes τ′, against T* of τ
    means = []
    for k, ratio in enumerate(nodes().tolist()):
        setting.progress(f"app:temperature at τ = {tau:g}", k, NODES)
        there = exact_moments(x, pool, tau=tau * ratio, n=SIZES, estimator="standard")
        means.append(there.T_star.unsqueeze(-2) + there.bias)
    left = torch.stack(means) - standard.T_star.unsqueeze(-2)  # [NODES, Q, len(n), D]
    off = (interpolate(left, torch.ones(1, dtype=torch.float64))[0] - standard.bias).norm(dim=-1)
    return TemperatureRow(
        tau=tau,
        shifts=tuple(found.shift.tolist()),
        angles_degrees=tuple(found.cosine.clamp_max(1).acos().rad2deg().tolist()),
        sizes=tuple(_compensate(n, left[:, :, k], standard.bias[:, k], abc.bias[:, k]) for k, n in enumerate(SIZES)),
        interpolation_error=float((off / standard.bias.norm(dim=-1)).max()),
    )


def _compensate(n: int, left: Tensor, standard: Tensor, abc: Tensor) -> CompensationRow:
    """Evaluate the remaining bias [NODES, Q, D] at every ratio and at the best one."""
    ratios = _ratios(RATIOS_SOUGHT)
    distance = interpolate(left, ratios).norm(dim=-1)  # [ratios, Q]
    mean = distance.mean(-1)
    best = int(mean.argmin())
    return CompensationRow(
        n=n,
        standard=float(standard.norm(dim=-1).mean()),
        abc=float(abc.norm(dim=-1).mean()),
        remaining=tuple(mean[:: (RATIOS_SOUGHT - 1) // (RATIOS_KEPT - 1)].tolist()),
        best_ratio=float(ratios[best]),
        best=float(mean[best]),
        own_best=float(distance.amin(0).mean()),
    )


def nodes() -> Float[Tensor, " nodes"]:
    """Return the ratios τ′/τ whose logarithms are Chebyshev nodes."""
    angle = (torch.arange(NODES, dtype=torch.float64) + 0.5) * (math.pi / NODES)
    low, high = math.log(LOWEST_RATIO), math.log(HIGHEST_RATIO)
    return ((low + high) / 2 - (high - low) / 2 * angle.cos()).exp()


def interpolate(values: Float[Tensor, "nodes ..."], at: Float[Tensor, " ratios"]) -> Float[Tensor, "ratios ..."]:
    """Evaluate the polynomial in log τ′/τ through the values at `nodes()`, in its Lagrange basis."""
    u = nodes().log()
    others = ~torch.eye(len(u), dtype=torch.bool)
    above = (at.log()[:, None, None] - u).where(others, 1.0).prod(-1)  # [ratios, nodes]
    below = (u[:, None] - u).where(others, 1.0).prod(-1)
    return torch.tensordot(above / below, values, 1)


def _ratios(count: int) -> Tensor:
    return torch.linspace(LOWEST_RATIO, HIGHEST_RATIO, count, dtype=torch.float64)


FIGURE_INCHES = (6.6, 4.3)  # a text width
SHOWN_N = 64
SHOWN_RATIOS = (0.8, 1.1)
LOOKS: dict[str, dict[str, Any]] = {
    "standard": {"color": STANDARD, "marker": "o"},
    "ABC": {"color": ABC, "marker": "s"},
    r"best $\tau'$ for all queries": {"color": INK, "marker": "D", "linestyle": (0, (4, 1.5))},
    r"best $\tau'$ per query": {"color": MUTED, "marker": "v", "linestyle": (0, (1, 1.5))},
}


def table(record: Temperature) -> Table:
    """Return one row per τ and n, and the exponents of n."""
    return Table(
        caption=(
            "Exact bias with respect to the target at τ, mean over queries: standard and ABC at τ, standard at the "
            f"best τ′ for all queries, and standard at the best τ′ per query; N = {record.pool_points:,}, "
            f"{record.queries} queries."
        ),
        label="tab:temperature",
        header=("τ", "n", "standard", "best τ′", "best τ′/τ", "best τ′ per query", "ABC"),
        groups=[_rows(at) for at in record.at],
    )


def _rows(at: TemperatureRow) -> list[Row]:
    rows: list[Row] = []
    for each in at.sizes:
        standard, abc, best, own_best = map(Scientific, _biases(each))
        rows.append((f"{at.tau:g}", str(each.n), standard, best, Number(each.best_ratio, ".3f"), own_best, abc))
    *slopes, last_slope, abc_slope = map(Number, at.slopes)
    return [*rows, (f"{at.tau:g}", "slope", *slopes, "", last_slope, abc_slope)]


def draw(record: Temperature) -> Figure:
    """Draw two rows of panels: conditions and n_eff, then one column per temperature."""
    figure = Figure(figsize=FIGURE_INCHES)
    panels = figure.subplots(2, 1 + len(record.at), squeeze=False)
    _conditions_panel(panels[0, 0], record)
    _effective_size_panel(panels[1, 0], record)
    for column, at in enumerate(record.at, start=1):
        _ratio_panel(panels[0, column], record, at)
        _size_panel(panels[1, column], at)
    _share_vertical(panels[0, 1:])
    _share_vertical(panels[1, 1:])
    for letter, axes in zip("abcdef", panels.flat, strict=False):
        axes.set_title(f"({letter})", fontsize=8.5, loc="left", pad=4)
    legend_above(figure, panels[1, 1].get_legend_handles_labels()[0], columns=4, handlelength=2.6)
    figure.subplots_adjust(left=0.075, right=0.985, bottom=0.095, top=0.875, wspace=0.33, hspace=0.42)
    return figure


def _share_vertical(panels: Any) -> None:
    """Give all panels the same vertical limits."""
    low, high = (f(axes.get_ylim()[k] for axes in panels) for k, f in ((0, min), (1, max)))
    for axes in panels:
        axes.set_ylim(low, high)


def _conditions_panel(axes: Axes, record: Temperature) -> None:
    # One dot per query
    looks: tuple[dict[str, Any], ...] = ({"color": INK}, {"facecolors": "none", "edgecolors": MUTED})
    for at, look in zip(record.at, looks, strict=False):
        axes.scatter(at.shifts, at.angles_degrees, s=7, linewidths=0.6, label=rf"$\tau = {at.tau:g}$", **look)
    # Ticks, labels and legend
    shown = (-5, -2, -1, -0.5, -0.2, -0.1, 0, 0.1, 0.2, 0.5, 1, 2, 5)
    axes.set_xscale("symlog", linthresh=0.1)
    low, high = axes.get_xlim()
    axes.set_xticks(shown, [f"{tick:g}".replace("-", "−") for tick in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(low, high)
    style_axes(
        axes,
        across=r"$n \cdot \Delta$",
        up=r"angle of $\partial T^*/\partial\tau$ and $g_2$ (degrees)",
        title="one point at 0° is needed",
    )
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7.5, frameon=False, handletextpad=0.1, borderaxespad=0.2)


def _effective_size_panel(axes: Axes, record: Temperature) -> None:
    axes.fill_between(record.taus, record.share_low, record.share_high, color=CLOUD, alpha=0.6, linewidth=0)
    axes.plot(record.taus, record.share_median, color=INK, linewidth=1.3)
    axes.set_yscale("log")
    style_axes(axes, across=r"$\tau$", up=r"$n_{\mathrm{eff}}/n$")
    shown = (0.02, 0.05, 0.1, 0.2, 0.5, 1)
    ticks_at(axes, shown, [f"{tau:g}" for tau in shown])


def _ratio_panel(axes: Axes, record: Temperature, at: TemperatureRow) -> None:
    (shown,) = (each for each in at.sizes if each.n == SHOWN_N)
    inside = [k for k, ratio in enumerate(record.ratios) if SHOWN_RATIOS[0] <= ratio <= SHOWN_RATIOS[1]]
    axes.plot([record.ratios[k] for k in inside], [shown.remaining[k] for k in inside], color=INK, linewidth=1.3)
    for value, look in zip(_biases(shown), LOOKS.values(), strict=True):
        if look["marker"] != "D":
            axes.axhline(value, color=look["color"], linewidth=1.1, linestyle=look.get("linestyle", "-"))
    axes.plot([shown.best_ratio], [shown.best], **LOOKS[r"best $\tau'$ for all queries"], markersize=4)
    axes.set_yscale("log")
    style_axes(axes, across=r"$\tau'/\tau$", up="remaining bias", title=rf"$\tau = {at.tau:g}$, $n = {shown.n}$")
    axes.set_xlim(SHOWN_RATIOS)


def _size_panel(axes: Axes, at: TemperatureRow) -> None:
    n = [each.n for each in at.sizes]
    for values, (name, look) in zip(zip(*map(_biases, at.sizes), strict=True), LOOKS.items(), strict=True):
        axes.plot(n, values, linewidth=1.2, markersize=3.5, label=name, **look)
    axes.set_yscale("log")
    style_axes(axes, across="references $n$", up="remaining bias", title=rf"$\tau = {at.tau:g}$")
    ticks_at(axes, n, list(map(str, n)))


def _biases(each: CompensationRow) -> tuple[float, float, float, float]:
    """Return the biases in the order of LOOKS."""
    return each.standard, each.abc, each.best, each.own_best


def findings(record: Temperature) -> list[str]:
    """Return one sentence per τ: the share of the bias that the best τ′ and ABC leave at the largest n."""
    sentences = []
    for at in record.at:
        last = at.sizes[-1]
        best, own_best, abc = (f"{value / last.standard:.1%}" for value in (last.best, last.own_best, last.abc))
        sentences.append(
            f"τ = {at.tau:g}, n = {last.n}: the remaining share of the standard bias is {best} with the best τ′, "
            f"{own_best} with the best τ′ per query, and {abc} with ABC"
        )
    return sentences


def screen_notes(record: Temperature) -> list[str]:
    """Return both conditions of `eq:compensation`, the accuracy, and n_eff."""
    conditions = [
        f"τ = {row.tau:g}: n·Δ from {min(row.shifts):.3f} to {max(row.shifts):.3f}, median {median(row.shifts):.3f} "
        f"(must be constant); angle up to {max(row.angles_degrees):.1f}°, "
        f"median {median(row.angles_degrees):.1f}° (must be 0°)"
        for row in record.at
    ]
    return [
        *conditions,
        f"τ′ from {record.ratios[0]:g} τ to {record.ratios[-1]:g} τ; E[T_n(τ′)] is interpolated in τ′. The largest "
        f"interpolation error at τ′ = τ is {max(row.interpolation_error for row in record.at):.0e} of the bias.",
        f"n_eff/n, median: {record.share_median[0]:.3f} at τ = {record.taus[0]:g}, "
        f"{record.share_median[-1]:.3f} at τ = {record.taus[-1]:g}; it does not increase with τ in {record.falls} of "
        f"{(len(record.taus) - 1) * record.queries} cases. Seed {record.provenance.seed}.",
    ]


ITEM = Item(
    "app:temperature",
    Temperature,
    "The bias at any other temperature τ′: no single τ′, and no τ′ per query, replaces the correction.",
    table=table,
    figure=draw,
    findings=findings,
    screen_notes=screen_notes,
)
