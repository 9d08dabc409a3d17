"""`normalization`, our own study: bias against n of the field as it is trained, for each normalization.

The image recipe weights a reference by k_ij/√c_j, with c_j from the same batch; the paper's theorems are about k_ij
alone. The study uses four modes and τ = 0.2. Generated samples and positives have the same distribution, as for a
generator near the end of training. The query is one of the n generated samples and is not among its own negatives. For
the row normalization, the bias is also computed exactly, with n positives and n − 1 negatives.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from truedrift.axes import Float, Tensor
from truedrift.bias.exact import exact_moments_by_estimator
from truedrift.bias.field_bias import ESTIMATORS, FieldMoments, field_bias_trials
from truedrift.bias.monte_carlo import TrialMoments
from truedrift.data.toys import FOUR_MODES
from truedrift.field.spec import JOINT_NORMALIZATIONS
from truedrift.grids.options import Scale, StudyOptions
from truedrift.records.provenance import Provenance, provenance
from truedrift.report.figure import LOOKS, MUTED, legend_above, style_axes, ticks_at
from truedrift.report.item import Item
from truedrift.report.table import Row, Scientific, Table


@dataclass(frozen=True, kw_only=True)
class FieldBias:
    """One normalization, estimator and side ("T_pos", "T_neg" or "V"); a number for each n.

    `square` is the mean over queries of b̂², unbiased for ‖bias‖², and `square_error` its standard error. `exact` is the
    root of the mean square by the exact engine, for the row normalization.
    """

    normalization: str
    estimator: str
    side: str
    square: tuple[float, ...]
    square_error: tuple[float, ...]
    exact: tuple[float, ...] | None

    @property
    def root(self) -> tuple[float, ...]:
        """Root mean square over queries; 0 where the square is negative because of noise."""
        return tuple(math.sqrt(max(0.0, square)) for square in self.square)

    @property
    def resolved(self) -> tuple[bool, ...]:
        """Whether the square is at least three of its standard errors above 0."""
        return tuple(square >= 3 * error for square, error in zip(self.square, self.square_error, strict=True))

    @property
    def root_error(self) -> tuple[float, ...]:
        """Error of `root` where it is resolved; elsewhere an upper limit: the root of the square plus two errors."""
        columns = zip(self.root, self.square_error, self.resolved, strict=True)
        return tuple(e / (2 * root) if seen else math.sqrt(root**2 + 2 * e) for root, e, seen in columns)


@dataclass(frozen=True, kw_only=True)
class FieldBiases:
    """`trials` batches for every query and n, from pools of `pool_points` generated samples and positives."""

    pool_points: int
    queries: int
    trials: int
    tau: float
    n: tuple[int, ...]
    biases: tuple[FieldBias, ...]
    provenance: Provenance

    def of(self, normalization: str, estimator: str, side: str) -> FieldBias:
        """Return the bias of this normalization, estimator and side."""
        wanted = (normalization, estimator, side)
        (bias,) = (each for each in self.biases if (each.normalization, each.estimator, each.side) == wanted)
        return bias


TAU = 0.2
POOL_POINTS = 4_000
QUERIES: dict[Scale, int] = {"smoke": 4, "cpu": 40, "paper": 200}
TRIALS: dict[Scale, int] = {"smoke": 200, "cpu": 4_000, "paper": 20_000}
SIZES: dict[Scale, tuple[int, ...]] = {
    "smoke": (8, 16, 32),
    "cpu": (8, 16, 32, 64, 128),
    "paper": (8, 16, 32, 64, 128, 256),
}


def study(setting: StudyOptions) -> FieldBiases:
    """Run all normalizations, estimators and sides at the scale of the options."""
    # Draw the pools and the queries.
    start = time.perf_counter()
    generator = torch.Generator().manual_seed(setting.seed)
    counts = (POOL_POINTS, POOL_POINTS, QUERIES[setting.scale])
    positives, generated, x = (FOUR_MODES.sample(count, generator, dtype=torch.float64) for count in counts)
    # Measure the bias by Monte Carlo, and compute that of the row normalization exactly.
    n, trials = SIZES[setting.scale], TRIALS[setting.scale]
    found = field_bias_trials(
        x,
        positives,
        generated,
        tau=TAU,
        n=n,
        trials=trials,
        seed=setting.seed,
        progress=setting.progress,
        keep=setting.directory,
    )
    exact = _exact(x, positives, generated, n)
    return FieldBiases(
        pool_points=POOL_POINTS,
        queries=len(x),
        trials=trials,
        tau=TAU,
        n=n,
        biases=tuple(
            _bias(normalization, name, side, found[normalization, name], exact)
            for normalization in JOINT_NORMALIZATIONS
            for name in ESTIMATORS
            for side in SIDE_NAMES
        ),
        provenance=provenance(seed=setting.seed, wall_seconds=time.perf_counter() - start),
    )


def _bias(
    normalization: str, name: str, side: str, found: FieldMoments, exact: dict[tuple[str, str], Tensor]
) -> FieldBias:
    measured: TrialMoments = getattr(found, side)
    known = exact[name, side].square().sum(-1).mean(0).sqrt().tolist() if normalization == "row" else None
    return FieldBias(
        normalization=normalization,
        estimator=name,
        side=side,
        square=tuple(measured.squared.mean(0).tolist()),
        square_error=tuple((measured.squared_error.square().sum(0).sqrt() / len(measured.bias)).tolist()),
        exact=None if known is None else tuple(known),
    )


def _exact(
    x: Tensor, positives: Tensor, generated: Tensor, n: tuple[int, ...]
) -> dict[tuple[str, str], Float[Tensor, "Q S D"]]:
    """Return the bias vectors of the row normalization, by estimator and side."""
    pos = exact_moments_by_estimator(x, positives, tau=TAU, n=n, estimators=ESTIMATORS)
    others = tuple(size - 1 for size in n)
    neg = exact_moments_by_estimator(x, generated, tau=TAU, n=others, estimators=ESTIMATORS)
    biases = {}
    for name in ESTIMATORS:
        biases[name, "T_pos"], biases[name, "T_neg"] = pos[name].bias, neg[name].bias
        biases[name, "V"] = pos[name].bias - neg[name].bias
    return biases


NORMALIZATION_NAMES = ("row", "bidirectional", "bidirectional-loo")
SIDES = {"T_pos": "$T^+$", "T_neg": "$T^-$"}
SIDE_NAMES = {"T_pos": "T+", "T_neg": "T-", "V": "V"}
FIGURE_INCHES = (6.6, 4.6)
UPPER_LIMIT: dict[str, Any] = {"linestyle": "none", "marker": "v", "markersize": 4, "markerfacecolor": "white"}


def _rows(record: FieldBiases, row: Callable[[FieldBias], Row]) -> list[list[Row]]:
    """Return one group of rows per normalization."""
    return [[row(bias) for bias in record.biases if bias.normalization == name] for name in NORMALIZATION_NAMES]


def _start(bias: FieldBias, note: str = "") -> tuple[str, str, str]:
    return bias.normalization + note, LOOKS[bias.estimator][0], SIDE_NAMES[bias.side]


def _row(bias: FieldBias) -> Row:
    cells = zip(bias.root, bias.resolved, strict=True)
    return (*_start(bias), *(Scientific(root if resolved else None) for root, resolved in cells))


def table(record: FieldBiases) -> Table:
    """Return the root mean square bias of both centroids and of the field at every n."""
    return Table(
        caption=(
            f"Bias of the field as it is trained, root mean square over {record.queries} queries, τ = {record.tau:g}, "
            f"{record.trials:,} batches for every query and n; a dash: the bias is below the noise."
        ),
        label="tab:normalization",
        header=("normalization", "estimator", "of", *(f"n = {n}" for n in record.n)),
        groups=_rows(record, _row),
    )


def draw(record: FieldBiases) -> Figure:
    """Draw one row of panels per centroid and one column per normalization."""
    # Panels
    figure = Figure(figsize=FIGURE_INCHES)
    panels = figure.subplots(len(SIDES), len(NORMALIZATION_NAMES), sharex=True, sharey=True)
    for i, side in enumerate(SIDES):
        for j, normalization in enumerate(NORMALIZATION_NAMES):
            axes = panels[i, j]
            for estimator in LOOKS:
                _curve(axes, record, record.of(normalization, estimator, side))
            ticks_at(axes, record.n, [str(n) for n in record.n])
            axes.set_yscale("log")
            style_axes(
                axes,
                across="references $n$" if i == len(SIDES) - 1 else "",
                up=f"bias of {SIDES[side]}, RMS over queries" if j == 0 else "",
                title=normalization if i == 0 else "",
            )
    # Legend
    handles = [
        Line2D([], [], color=color, marker=marker, markersize=4, linewidth=1.2, label=name)
        for name, color, marker in LOOKS.values()
    ]
    handles.append(Line2D([], [], color=MUTED, linewidth=1.2, label="exact"))
    handles.append(Line2D([], [], color=MUTED, label="not resolved: upper limit", **UPPER_LIMIT))
    legend_above(figure, handles, columns=5, columnspacing=1.3)
    figure.subplots_adjust(left=0.095, right=0.985, bottom=0.1, top=0.87, wspace=0.07, hspace=0.08)
    return figure


def _curve(axes: Axes, record: FieldBiases, bias: FieldBias) -> None:
    _, color, marker = LOOKS[bias.estimator]
    if bias.exact is not None:
        axes.plot(record.n, bias.exact, color=color, linewidth=1.2, zorder=2)
    # Resolved points with two standard errors, joined if there is no exact line
    points = list(zip(record.n, bias.root, bias.root_error, bias.resolved, strict=True))
    seen = [(n, root, 2 * error) for n, root, error, resolved in points if resolved]
    if seen:
        n, root, error = zip(*seen, strict=True)
        axes.errorbar(n, root, error, fmt=marker, color=color, markersize=4, elinewidth=0.9, capsize=1.5, zorder=4)
        if bias.exact is None:
            axes.plot(n, root, color=color, linewidth=0.9, linestyle="--", zorder=3)
    # Upper limits of the others
    below = [(n, limit) for n, _, limit, resolved in points if not resolved]
    if below:
        axes.plot(*zip(*below, strict=True), color=color, zorder=4, **UPPER_LIMIT)


def findings(record: FieldBiases) -> list[str]:
    """Return one sentence per normalization: the share of the bias of the field that ABC leaves at the largest n."""
    sentences = []
    for normalization in NORMALIZATION_NAMES:
        standard, abc = (record.of(normalization, estimator, "V") for estimator in ("standard", "abc"))
        if standard.resolved[-1] and abc.resolved[-1]:
            finding = f"ABC leaves {abc.root[-1] / standard.root[-1]:.1%} of the standard bias"
        else:
            finding = "the noise is too large to resolve the bias"
        sentences.append(f"{normalization}: {finding} of V at n = {record.n[-1]}")
    return sentences


def screen_table(record: FieldBiases) -> Table:
    """Return the table with upper limits of what is not resolved, the error at the last n, and exact values."""
    exact: list[Row] = [
        (*_start(bias, ", exact"), *map(Scientific, bias.exact), "") for bias in record.biases if bias.exact is not None
    ]
    short = table(record)
    return replace(short, header=(*short.header, "± last"), groups=[*_rows(record, _screen_row), exact])


def _screen_row(bias: FieldBias) -> Row:
    columns = zip(bias.root, bias.root_error, bias.resolved, strict=True)
    cells = [f"{root:.2e}" if resolved else f"<{limit:.1e}" for root, limit, resolved in columns]
    return (*_start(bias), *cells, f"{bias.root_error[-1]:.0e}" if bias.resolved[-1] else "")


ITEM = Item(
    "normalization",
    FieldBiases,
    "Bias of both centroids against n under each normalization, and bias of the field as a table.",
    table=table,
    figure=draw,
    findings=findings,
    screen_table=screen_table,
    screen_notes=lambda record: [
        f"<: the bias is not resolved; the number is its upper limit. Seed {record.provenance.seed}."
    ],
)
