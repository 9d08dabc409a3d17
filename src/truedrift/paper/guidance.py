"""`guidance`, our own study: negatives of classifier-free guidance from two pools, plain against stratified ABC.

The n_gen generated negatives have weight k(x, y). The n_unc unconditional real negatives have weight w_u k(x, y), with

    w_u = (a − 1) n_gen / n_unc,   T* = (E_gen[k y] + (a − 1) E_unc[k y]) / (E_gen[k] + (a − 1) E_unc[k]):

the target depends on the strength a but not on the sizes (G − 1 of G generated samples are the negatives of a query).
Because n_gen and n_unc are fixed, plain ABC subtracts more than the leading bias, and a bias of O(1/n) remains. The
remaining bias of stratified ABC is O(1/n²). Expectations are exact (`exact_stratified_bias`); only the pools and the
queries are sampled.

The toy: unconditional samples are the four modes; the class is the right half of them, and a generator early in
training makes two wider clusters next to them. Queries are generated samples, as in training.
"""

import time
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from truedrift.axes import Tensor
from truedrift.bias.exact import exact_stratified_bias
from truedrift.data.toys import FOUR_MODES, GaussianMixture
from truedrift.grids.options import StudyOptions
from truedrift.records.provenance import Provenance, provenance
from truedrift.report.figure import ABC, INK, STANDARD, STRATIFIED, legend_above, style_axes, ticks_at
from truedrift.report.item import Item
from truedrift.report.statistics import log_slope
from truedrift.report.table import Number, Row, Scientific, Table, format_number


@dataclass(frozen=True, kw_only=True)
class GuidanceRow:
    """One guidance strength a. Biases are means over queries of ‖E[T] − T*‖, one for each pair of sizes."""

    strength: float
    w_u: float
    standard: tuple[float, ...]
    abc: tuple[float, ...]
    stratified: tuple[float, ...]
    share_nearer: tuple[float, ...]
    """Share of queries at which stratified ABC has a smaller bias than plain ABC."""
    relative_error: float
    """Largest reported error of a bias, as a fraction of that bias."""

    def slopes(self, sizes: tuple[tuple[int, int], ...]) -> tuple[float, float, float]:
        """Exponents of n between the last two sizes: standard, plain and stratified ABC."""
        total = [sum(each) for each in sizes]
        return log_slope(total, self.standard), log_slope(total, self.abc), log_slope(total, self.stratified)


@dataclass(frozen=True, kw_only=True)
class Guidance:
    """n_gen generated and n_unc unconditional negatives (`sizes`), at several strengths of guidance."""

    tau: float
    pool_points: int
    queries: int
    generated_means: tuple[tuple[float, float], ...]
    generated_std: float
    sizes: tuple[tuple[int, int], ...]
    at: tuple[GuidanceRow, ...]
    provenance: Provenance


GENERATED = GaussianMixture(means=((0.6, 0.4), (0.4, -0.3)), std=0.2)
TAU = 0.2
STRENGTHS = (1.5, 3.0)
GENERATED_PER_UNCONDITIONAL = 2
SIZES = tuple((GENERATED_PER_UNCONDITIONAL * n, n) for n in (2, 4, 8, 16, 32, 64, 128, 256))


def study(setting: StudyOptions) -> Guidance:
    """Run with 10⁶ points per pool and 200 queries, as in `app:toy`, or 2 000 and 10 at `smoke`."""
    # Draw the pools and the queries.
    start = time.perf_counter()
    points, queries = (2_000, 10) if setting.scale == "smoke" else (1_000_000, 200)
    generator = torch.Generator().manual_seed(setting.seed)
    pools = [mixture.sample(points, generator, dtype=torch.float64) for mixture in (GENERATED, FOUR_MODES)]
    x = GENERATED.sample(queries, generator, dtype=torch.float64)
    # Compute the exact bias at every strength.
    at = []
    for k, strength in enumerate(STRENGTHS):
        setting.progress("guidance", k, len(STRENGTHS))
        at.append(_at(x, pools, strength))
    return Guidance(
        tau=TAU,
        pool_points=points,
        queries=queries,
        generated_means=tuple((float(a), float(b)) for a, b in GENERATED.means),
        generated_std=GENERATED.std,
        sizes=SIZES,
        at=tuple(at),
        provenance=provenance(seed=setting.seed, wall_seconds=time.perf_counter() - start),
    )


def _at(x: Tensor, pools: list[Tensor], strength: float) -> GuidanceRow:
    w_u = (strength - 1) * GENERATED_PER_UNCONDITIONAL
    moments = exact_stratified_bias(x, pools, tau=TAU, n=SIZES, pool_weights=(1.0, w_u))
    norms = {name: each.bias.norm(dim=-1) for name, each in moments.items()}
    standard, abc, stratified = (tuple(norm.mean(0).tolist()) for norm in norms.values())
    return GuidanceRow(
        strength=strength,
        w_u=w_u,
        standard=standard,
        abc=abc,
        stratified=stratified,
        share_nearer=tuple((norms["stratified-abc"] < norms["abc"]).double().mean(0).tolist()),
        relative_error=max(float((moments[name].error / norm).max()) for name, norm in norms.items()),
    )


FIGURE_INCHES = (6.6, 3.2)  # a text width
LOOKS: dict[str, dict[str, Any]] = {
    "standard": {"color": STANDARD, "marker": "o"},
    "plain ABC": {"color": ABC, "marker": "s"},
    "stratified ABC": {"color": STRATIFIED, "marker": "^", "linestyle": (0, (4, 1.5))},
}


def table(record: Guidance) -> Table:
    """Return one row per strength and sizes, and the exponents of n."""
    return Table(
        caption=(
            f"Bias with generated and unconditional negatives, mean over {record.queries} queries, τ = {record.tau:g}; "
            f"exact to a relative error of {max(at.relative_error for at in record.at):.0e} for draws from two "
            f"pools of {record.pool_points:,} points. "
            "The last column is the share of queries at which stratified ABC has a smaller bias than plain ABC."
        ),
        label="tab:guidance",
        header=("strength", "generated", "unconditional", *LOOKS, "nearer"),
        groups=[_rows(record, at) for at in record.at],
    )


def _rows(record: Guidance, at: GuidanceRow) -> list[Row]:
    columns = zip(record.sizes, at.standard, at.abc, at.stratified, at.share_nearer, strict=True)
    rows: list[Row] = [
        (f"{at.strength:g}", str(gen), str(unc), *map(Scientific, biases), Number(nearer, ".0%"))
        for (gen, unc), *biases, nearer in columns
    ]
    return [*rows, (f"{at.strength:g}", "slope", "", *map(Number, at.slopes(record.sizes)), "")]


def draw(record: Guidance) -> Figure:
    """Draw one panel per strength."""
    figure = Figure(figsize=FIGURE_INCHES)
    panels = figure.subplots(1, len(record.at), sharey=True, squeeze=False)[0]
    for axes, at in zip(panels, record.at, strict=True):
        _panel(axes, record, at)
    panels[0].set_ylabel(r"$\|E[T] - T^*\|$, mean over queries", fontsize=9)
    legend_above(figure, panels[0].get_legend_handles_labels()[0], columns=3, handlelength=2.6)
    figure.subplots_adjust(left=0.095, right=0.985, bottom=0.2, top=0.82, wspace=0.07)
    return figure


def _panel(axes: Axes, record: Guidance, at: GuidanceRow) -> None:
    total = [sum(sizes) for sizes in record.sizes]
    slopes = at.slopes(record.sizes)
    for (name, look), bias, slope in zip(LOOKS.items(), (at.standard, at.abc, at.stratified), slopes, strict=True):
        axes.plot(total, bias, linewidth=1.3, markersize=4, label=name, **look)
        place: dict[str, Any] = {"xytext": (7, -2.5), "textcoords": "offset points"}
        axes.annotate(rf"$-{-slope:.2f}$", (total[-1], bias[-1]), fontsize=8, color=look["color"], **place)
    axes.set_yscale("log")
    title = rf"strength $a = {at.strength:g}$, weight $w_u = {at.w_u:g}$"
    style_axes(axes, across=r"negatives: $n_{\mathrm{gen}}$ above, $n_{\mathrm{unc}}$ below", title=title, size=9)
    ticks_at(axes, total, [f"{gen}\n{unc}" for gen, unc in record.sizes])
    axes.set_xlim(0.7 * total[0], 2.5 * total[-1])
    above: dict[str, Any] = {"xytext": (9, 9), "textcoords": "offset points", "fontsize": 8, "color": INK}
    axes.annotate("slope", (total[-1], at.standard[-1]), **above)


def findings(record: Guidance) -> list[str]:
    """Return one sentence per strength: the exponents of n."""
    sentences = []
    for at in record.at:
        slopes = zip(LOOKS, at.slopes(record.sizes), strict=True)
        text = ", ".join(f"{format_number(slope, '.2f')} ({name})" for name, slope in slopes)
        sentences.append(f"strength {at.strength:g}: slopes of the bias {text}")
    return sentences


ITEM = Item(
    "guidance",
    Guidance,
    "Bias against the numbers of negatives for standard, plain and stratified ABC, one panel per strength.",
    table=table,
    figure=draw,
    findings=findings,
    screen_notes=lambda record: [f"Seed {record.provenance.seed}."],
)
