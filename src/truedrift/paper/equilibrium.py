"""`equilibrium`, our own study: the push of a minibatch field on samples that already match the data.

At q = p the field of the population is 0. That of n positives and m negatives is not: its expectation is

    E[V(x)] = F_n[p](x) − F_m[p](x),   F_n the expected centroid of n references.

Part 1 computes it exactly on the four modes (`exact_field`), with and without matching. Part 2 measures what is left of
the training signal after division by the RMS of the batch and after feature scaling, which have no exact expectation
(`equilibrium_signals`). Part 3 moves particles by each field until they are stationary (`particles`). Part 4 compares
fields away from q = p (`equilibrium_approach`), and part 5 measures the bias of Sinkhorn plans
(`equilibrium_sinkhorn`).
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from truedrift.axes import Tensor
from truedrift.bias.exact_field import exact_field
from truedrift.data.toys import FOUR_MODES
from truedrift.grids.options import Scale, StudyOptions
from truedrift.paper.equilibrium_approach import Approach, approach_findings, approach_notes, study_approach
from truedrift.paper.equilibrium_signals import GENERATED, TAU, Signal, measure_signals, signal_notes
from truedrift.paper.equilibrium_sinkhorn import SinkhornBiases, sinkhorn_findings, sinkhorn_notes, study_sinkhorn
from truedrift.paper.particles import Particles, energy_distance, field_name, move_by_every_field, particle_notes
from truedrift.records.provenance import Provenance, provenance
from truedrift.report.figure import CLOUD, FRAME, HALO, INK, LOOKS, MUTED, POSITIVE, STANDARD, style_axes
from truedrift.report.item import Item
from truedrift.report.table import Row, Scientific, Table

Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Push:
    """Mean over queries of ‖E[V]‖ at q = p, exact, one number for each pair of sizes."""

    tau: float
    estimator: str
    unmatched: tuple[float, ...]
    matched: tuple[float, ...]
    relative_error: float
    """Largest mean error of a norm, as a fraction of the mean norm."""


@dataclass(frozen=True, kw_only=True)
class Equilibrium:
    """Expected fields at q = p for pairs (n, m) of positives and negatives, and where particles come to rest."""

    pool_points: int
    queries: int
    sizes: tuple[tuple[int, int], ...]
    pushes: tuple[Push, ...]
    signal_tau: float
    signal_queries: int
    signal_batches: int
    generated: int
    signals: tuple[Signal, ...]
    particle_tau: float
    positives: int
    stages: tuple[tuple[float, int], ...]
    snapshot_steps: int
    particles: tuple[Particles, ...]
    energy_noise: float
    """Standard deviation of the energy distance of as many independent draws from p."""
    arrows: tuple[tuple[Point, Point], ...]
    """Points x and E[V(x)] of the standard field of the particles at q = p."""
    approach: Approach
    sinkhorn: SinkhornBiases
    provenance: Provenance

    def push(self, tau: float, estimator: str) -> Push:
        """Return the push at this temperature with this estimator."""
        (found,) = (each for each in self.pushes if (each.tau, each.estimator) == (tau, estimator))
        return found

    def find_particles(self, estimator: str, matched: bool) -> Particles:
        """Return the particles of this field."""
        (found,) = (each for each in self.particles if (each.estimator, each.matched) == (estimator, matched))
        return found


SIZES = ((8, 7), (16, 15), (64, 63), (128, 63), (64, 7), (126, 7))
TEMPERATURES = (0.1, 0.2, 0.5)
POSITIVES = 63
POOL_POINTS: dict[Scale, int] = {"smoke": 2_000, "cpu": 20_000, "paper": 1_000_000}
QUERIES: dict[Scale, int] = {"smoke": 10, "cpu": 200, "paper": 200}
SIGNAL_QUERIES: dict[Scale, int] = {"smoke": 2, "cpu": 6, "paper": 12}
SIGNAL_BATCHES: dict[Scale, int] = {"smoke": 100, "cpu": 8_000, "paper": 100_000}
COUNT: dict[Scale, int] = {"smoke": 1_024, "cpu": 2_048, "paper": 2_048}
SEEDS: dict[Scale, int] = {"smoke": 1, "cpu": 3, "paper": 10}
STEP_SIZES: dict[Scale, tuple[tuple[float, int], ...]] = {
    "smoke": ((0.3, 40), (0.1, 60), (0.05, 100), (0.02, 160)),
    "cpu": ((0.3, 50), (0.1, 100), (0.05, 100), (0.02, 1_550)),
    "paper": ((0.3, 50), (0.1, 100), (0.05, 100), (0.02, 3_350)),
}
SNAPSHOT_STEPS: dict[Scale, int] = {"smoke": 20, "cpu": 25, "paper": 25}
NOISE_DRAWS = 50


def study(setting: StudyOptions) -> Equilibrium:
    """Run all parts at the scale of the options."""
    # Draw the pool and the queries.
    start, scale = time.perf_counter(), setting.scale
    generator = torch.Generator().manual_seed(setting.seed)
    pool = FOUR_MODES.sample(POOL_POINTS[scale], generator, dtype=torch.float64)
    x = FOUR_MODES.sample(QUERIES[scale], generator, dtype=torch.float64)
    # Run the parts.
    pushes = _compute_pushes(x, pool, setting)
    signals = measure_signals(x[: SIGNAL_QUERIES[scale]], pool, SIGNAL_BATCHES[scale], setting)
    particles = _move(setting)
    # The noise of the energy distance, and the arrows of the figure.
    noise = [energy_distance(FOUR_MODES.sample(COUNT[scale], generator), FOUR_MODES) for _ in range(NOISE_DRAWS)]
    return Equilibrium(
        pool_points=len(pool),
        queries=len(x),
        sizes=SIZES,
        pushes=tuple(pushes),
        signal_tau=TAU,
        signal_queries=SIGNAL_QUERIES[scale],
        signal_batches=SIGNAL_BATCHES[scale],
        generated=GENERATED,
        signals=tuple(signals),
        particle_tau=TAU,
        positives=POSITIVES,
        stages=STEP_SIZES[scale],
        snapshot_steps=SNAPSHOT_STEPS[scale],
        particles=tuple(particles),
        energy_noise=float(torch.tensor(noise).std()),
        arrows=_compute_arrows(pool),
        approach=study_approach(pool, COUNT[scale], POSITIVES, SEEDS[scale], setting),
        sinkhorn=study_sinkhorn(setting),
        provenance=provenance(seed=setting.seed, wall_seconds=time.perf_counter() - start),
    )


def _compute_pushes(x: Tensor, pool: Tensor, setting: StudyOptions) -> list[Push]:
    """Compute the exact ‖E[V]‖ at q = p for all temperatures and estimators."""
    n, m = zip(*SIZES, strict=True)
    pushes: list[Push] = []
    for tau in TEMPERATURES:
        for estimator in LOOKS:
            setting.progress("exact field", len(pushes), len(TEMPERATURES) * len(LOOKS))
            plain, matched = (
                exact_field(x, pool, pool, tau=tau, n=n, m=m, estimator=estimator, matched=on) for on in (False, True)
            )
            norms = plain.V.norm(dim=-1).mean(0)
            push = Push(
                tau=tau,
                estimator=estimator,
                unmatched=tuple(norms.tolist()),
                matched=tuple(matched.V.norm(dim=-1).mean(0).tolist()),
                relative_error=float((plain.error.mean(0) / norms).max()),
            )
            pushes.append(push)
    return pushes


def _move(setting: StudyOptions) -> list[Particles]:
    """Move the particles of every field and seed."""
    scale = setting.scale
    flows_by_field = move_by_every_field(
        FOUR_MODES,
        COUNT[scale],
        STEP_SIZES[scale],
        range(setting.seed, setting.seed + SEEDS[scale]),
        setting,
        tau=TAU,
        n=POSITIVES,
        g=GENERATED,
        every=SNAPSHOT_STEPS[scale],
    )
    deviation = math.sqrt(0.5**2 + FOUR_MODES.std**2)  # of either coordinate under p
    return [
        Particles(
            estimator=estimator,
            matched=matched,
            energy=tuple(flow.energy for flow in flows),
            deviation_ratio=tuple(float(flow.x.std(0).mean()) / deviation for flow in flows),
            points=tuple((round(a, 3), round(b, 3)) for a, b in flows[0].x.tolist()),
        )
        for (estimator, matched), flows in flows_by_field.items()
    ]


ARROW_RADII = ((0.0, 1), (0.13, 8))


def _compute_arrows(pool: Tensor) -> tuple[tuple[Point, Point], ...]:
    """Compute E[V] at q = p on a ring around every mode and at its center, with the sizes of the particles."""
    angles = [(radius, 2 * math.pi * k / count) for radius, count in ARROW_RADII for k in range(count)]
    around = torch.tensor([(radius * math.cos(a), radius * math.sin(a)) for radius, a in angles], dtype=pool.dtype)
    x = (torch.tensor(FOUR_MODES.means, dtype=pool.dtype).unsqueeze(1) + around).flatten(0, 1)
    V = exact_field(x, pool, pool, tau=TAU, n=POSITIVES, m=GENERATED - 1, estimator="standard").V[:, 0]
    points = [[(a, b) for a, b in each.tolist()] for each in (x, V)]
    return tuple(zip(*points, strict=True))


def table(record: Equilibrium) -> Table:
    """Return the exact push of every temperature and estimator; matched references are the last row."""
    rows: list[list[Row]] = []
    for tau in dict.fromkeys(push.tau for push in record.pushes):
        at = [push for push in record.pushes if push.tau == tau]
        rows.append([(f"{tau:g}", LOOKS[push.estimator][0], *map(Scientific, push.unmatched)) for push in at])
    matched = [max(push.matched[k] for push in record.pushes) for k in range(len(record.sizes))]
    rows.append([("any", "matched, any", *("0" if value == 0 else Scientific(value) for value in matched))])
    return Table(
        caption=(
            f"Push at equal distributions: ‖E[V]‖ of n positives and m negatives from the four modes, mean over "
            f"{record.queries} queries; exact to a relative error of "
            f"{max(push.relative_error for push in record.pushes):.0e} for a pool of {record.pool_points:,} points."
        ),
        label="tab:equilibrium",
        header=("τ", "estimator", *(f"({n}, {m})" for n, m in record.sizes)),
        groups=rows,
        notes=_notes(record),
    )


def _notes(record: Equilibrium) -> list[str]:
    """Return where the particles come to rest, and how wide they are around the modes."""
    steps = sum(count for _, count in record.stages)
    count, seeds = len(record.particles[0].points), len(record.particles[0].energy)
    heading = (
        f"Energy distance of {count:,} particles to the data, mean over the last third of {steps:,} steps "
        f"(n = {record.positives}, g = {record.generated}, τ = {record.particle_tau:g}, last step size "
        f"{record.stages[-1][0]:g}; standard deviation over sets of {count:,} independent draws: "
        f"{record.energy_noise:.0e}): mean of {seeds} seed{'s' if seeds > 1 else ''}, smallest – largest, the ratio of "
        "standard deviations of the whole cloud, and the change between the two halves of that third with its standard "
        "error."
    )
    widths = []
    for each in record.particles:
        ratio, outside = measure_modes(each.points)
        widths.append(f"{field_name(each.estimator, each.matched)} {ratio:.2f} ({outside:.1%})")
    modes = (
        f"Within the modes (first seed): root mean square deviation from the nearest center, divided by that of the "
        f"data, and in brackets the share beyond {FAR:g} standard deviations (data: {DATA_BEYOND:.1%}): "
        f"{', '.join(widths)}."
    )
    return [heading, *particle_notes(record.particles), modes]


FAR = 3
"""Standard deviations of a mode beyond which a point counts as outside."""
DATA_BEYOND = math.exp(-(FAR**2) / 2)
"""Share of the data beyond: the distance to the center of a mode has a Rayleigh distribution."""


def measure_modes(points: Sequence[Point]) -> tuple[float, float]:
    """Measure how wide points lie around the nearest of the four modes.

    Args:
        points: Points in the plane.

    Returns:
        Root mean square of a coordinate's deviation from the center, divided by the standard deviation of a mode, and
        the share of points beyond `FAR` standard deviations.
    """
    centers = torch.tensor(FOUR_MODES.means, dtype=torch.float64)
    d = torch.cdist(torch.tensor(points, dtype=torch.float64), centers).amin(1) / FOUR_MODES.std
    return float((d.square().mean() / 2).sqrt()), float((d > FAR).double().mean())


def _screen_notes(record: Equilibrium) -> list[str]:
    """Return the numbers of the other parts, one line each."""
    return [
        *signal_notes(record.signals, record.signal_queries, record.signal_batches),
        *approach_notes(record.approach),
        *sinkhorn_notes(record.sinkhorn),
        f"Seed {record.provenance.seed}.",
    ]


FIGURE_INCHES = (11.0, 3.35)
MATCHED = POSITIVE
MARGIN = 0.03
"""Distance of the outermost point of the planes from their frame."""
DATA_POINTS = 2_048
OUTLINED_POINTS = 320
"""Number of data points that are outlined on top of samples."""


def draw(record: Equilibrium) -> Figure:
    """Draw the push on the data, the particles of two fields over the data, and the push against the sizes."""
    figure = Figure(figsize=FIGURE_INCHES, facecolor="white")
    panels = [figure.add_axes((0.006 + k * 0.2385, 0.145, 0.2275, 0.747)) for k in range(3)]
    unmatched, matched = (record.find_particles("standard", on) for on in (False, True))
    data = [(a, b) for a, b in FOUR_MODES.sample(DATA_POINTS, torch.Generator().manual_seed(0)).tolist()]
    half_width = max(abs(value) for point in (*data, *unmatched.points, *matched.points) for value in point) + MARGIN
    # The data with the push on them
    _draw_plane(panels[0], "The push on data itself", INK, half_width)
    _draw_points(panels[0], data, CLOUD)
    (x, y), (u, v) = (zip(*each, strict=True) for each in zip(*record.arrows, strict=True))
    arrows: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 0.85, "width": 0.0075, "zorder": 5}
    panels[0].quiver(x, y, u, v, color=STANDARD, **arrows)
    sizes = f"{record.positives} positives, {record.generated - 1} negatives"
    _caption(panels[0], f"{sizes}:\nit points outward", STANDARD)
    _label(panels[0], ("data", MUTED), ("mean push", STANDARD))
    # The particles, with outlines of data on top
    for axes, each, title, color in (
        (panels[1], unmatched, "Unmatched: pushed outward", STANDARD),
        (panels[2], matched, "Matched: centered on the data", MATCHED),
    ):
        _draw_plane(axes, title, color, half_width)
        _draw_points(axes, each.points, color)
        _outline_points(axes, data[:OUTLINED_POINTS])
        outside = f"beyond {FAR:g}σ: {measure_modes(each.points)[1]:.0%} (data {DATA_BEYOND:.0%})"
        _caption(axes, f"energy distance {max(each.mean, 0):.4f}\n{outside}", color)
        _label(axes, ("data (outlined)", INK), ("samples", color))
    _draw_bars(figure.add_axes((0.765, 0.225, 0.229, 0.667)), record)
    return figure


def _draw_plane(axes: Axes, title: str, color: str, half_width: float) -> None:
    """Draw circles of 1, 2 and 3 standard deviations around the modes of the data."""
    for a, b in FOUR_MODES.means:
        for k in range(1, FAR + 1):
            circle = Circle((a, b), k * FOUR_MODES.std, fill=False, edgecolor=INK, linewidth=0.7, zorder=4)
            axes.add_patch(circle)
    limits = (-half_width, half_width)
    axes.set(xlim=limits, ylim=limits, xticks=[], yticks=[], aspect="equal")
    axes.set_title(title, fontsize=11, color=color, pad=5, fontweight="bold")
    for spine in axes.spines.values():
        spine.set(color=FRAME, linewidth=0.8)


def _draw_points(axes: Axes, points: Sequence[Point], color: str) -> None:
    x, y = zip(*points, strict=True)
    axes.scatter(x, y, s=4, color=color, alpha=0.55, linewidths=0, zorder=2)


def _outline_points(axes: Axes, points: Sequence[Point]) -> None:
    """Draw points as light disks with an outline."""
    x, y = zip(*points, strict=True)
    axes.scatter(x, y, s=5, facecolors=HALO, edgecolors=INK, linewidths=0.3, zorder=3)


def _caption(axes: Axes, text: str, color: str) -> None:
    axes.text(0.5, -0.03, text, transform=axes.transAxes, ha="center", va="top", fontsize=10, color=color)


def _label(axes: Axes, *entries: tuple[str, str]) -> None:
    """Write what the colors are in the empty middle of the panel."""
    for k, (text, color) in enumerate(entries):
        axes.text(0.5, 0.53 - 0.075 * k, text, transform=axes.transAxes, ha="center", fontsize=10.5, color=color)


def _draw_bars(axes: Axes, record: Equilibrium) -> None:
    """Draw ‖E[V]‖ at q = p for every pair of sizes, and the exact 0 of matched references."""
    places, width = range(len(record.sizes)), 0.36
    for side, name in ((-0.5, "standard"), (0.5, "abc")):
        label, color, _ = LOOKS[name]
        values = record.push(record.particle_tau, name).unmatched
        axes.bar([k + side * width for k in places], values, width, color=color, label=label, zorder=3)
    matched = record.push(record.particle_tau, "abc").matched
    look: dict[str, Any] = {"markersize": 5.5, "markeredgecolor": "white", "markeredgewidth": 0.6, "clip_on": False}
    axes.plot(places, matched, "D", color=MATCHED, label="matched: exactly 0", zorder=5, **look)
    style_axes(axes, across="positives (above) and negatives (below)", size=9.5)
    axes.set_xticks(places, [f"{n}\n{m}" for n, m in record.sizes])
    axes.grid(visible=False, axis="x")
    axes.set_ylim(bottom=0)
    axes.set_title("Mean push on data", fontsize=11, color=INK, pad=5, fontweight="bold")
    axes.legend(fontsize=9, frameon=False, loc="upper left", handlelength=1.1, handletextpad=0.5)


FEWEST_QUERIES = 50
"""Number of queries of the part about q ≠ p from which on its numbers are findings."""


def findings(record: Equilibrium) -> list[str]:
    """Return what is left at equal distributions, and where the particles come to rest.

    Findings of the parts about q ≠ p and Sinkhorn plans need enough queries. At scale smoke they are left out.
    """
    plain, abc = (record.push(record.particle_tau, name) for name in ("standard", "abc"))
    (few, many) = (record.sizes.index(sizes) for sizes in ((8, 7), (126, 7)))
    unmatched, matched = (record.find_particles("standard", on) for on in (False, True))
    zero = all(value == 0 for push in record.pushes for value in push.matched)
    rest = all(each.is_stationary for each in (unmatched, matched))
    sentences = [
        f"126 positives and 7 negatives push {plain.unmatched[many] / plain.unmatched[few]:.1f} times as hard as 8 and "
        f"7 at equal distributions (standard, τ = {record.particle_tau:g}), "
        f"{abc.unmatched[many] / abc.unmatched[few]:.1f} times with ABC",
        "matched references: the expected field at equal distributions, before division by the RMS of the batch, is "
        "exactly 0 for every size, estimator and τ"
        if zero
        else "matched references leave a push at equal distributions, which contradicts the theorem",
        f"particles {'come to rest' if rest else 'are'} at an energy distance of {unmatched.mean:.1e}, with ABC at "
        f"{record.find_particles('abc', False).mean:.1e}, and with matched references at {matched.mean:.1e} "
        f"(standard deviation over sets of {len(matched.points):,} independent draws: {record.energy_noise:.0e})",
    ]
    if record.approach.queries >= FEWEST_QUERIES:
        sentences += [*approach_findings(record.approach), *sinkhorn_findings(record.sinkhorn)]
    return sentences


ITEM = Item(
    "equilibrium",
    Equilibrium,
    "The push of the field on samples that already match the data, and where samples come to rest, with and without "
    "matched references.",
    table=table,
    figure=draw,
    findings=findings,
    screen_notes=_screen_notes,
)
