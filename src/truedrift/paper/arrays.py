"""`arrays`, our own study: `truedrift.fit` on eight toys and three tables, compared with two classical densities.

The energy distance 2 E‖x − y‖ − E‖x − x′‖ − E‖y − y′‖ of samples x to held-out data y, in units of E‖y − y′‖, all in
standardized columns. It is unbiased: 0 on average for samples of the same distribution, and sometimes negative.

| samples           | what                                                                                        |
|-------------------|---------------------------------------------------------------------------------------------|
| fit               | `truedrift.fit(X)` with its defaults                                                        |
| Gaussian mixture  | scikit-learn, full covariances, number of components by BIC                                 |
| kernel density    | scikit-learn, Gaussian kernel, bandwidth by cross-validated likelihood                      |
| other half        | the training data themselves: what a perfect model reaches                                  |

Each repetition draws new toys, or splits the table into new halves, and has a seed of its own.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure

from truedrift.axes import Tensor
from truedrift.data.arrays import samples_from_arrays
from truedrift.data.load import TOYS
from truedrift.grids.options import StudyOptions
from truedrift.model import energy_distance, fit
from truedrift.records.provenance import Provenance, provenance
from truedrift.report.figure import ABC, MUTED, style_axes
from truedrift.report.item import Item
from truedrift.report.table import Cell, MeanCell, Table
from truedrift.seeding import stream

METHODS = ("fit", "Gaussian mixture", "kernel density", "other half")


@dataclass(frozen=True, kw_only=True)
class Distances:
    """The energy distances of one method, one per repetition."""

    method: str
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over repetitions."""
        return statistics.fmean(self.values)

    @property
    def error(self) -> float | None:
        """The standard error of the mean; None for a single repetition."""
        count = len(self.values)
        return statistics.stdev(self.values) / count**0.5 if count > 1 else None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The energy distances of one data set, one per repetition and method."""

    name: str
    dimension: int
    training: int
    held_out: int
    distances: tuple[Distances, ...]
    """One entry per method, in the order of `METHODS`."""
    seconds: float
    """Mean time of `fit`."""
    picture: tuple[tuple[tuple[float, ...], ...], ...]
    """Some held-out points and samples of `fit`, of the first repetition, first two columns; empty for tables."""

    @property
    def best(self) -> Distances:
        """The smallest mean distance of a model; the other half of the data is not a model."""
        return min(self.distances[:-1], key=lambda each: each.mean)


@dataclass(frozen=True, kw_only=True)
class ArrayComparisons:
    """All data sets."""

    steps: int
    samples: int
    threads: int
    comparisons: tuple[Comparison, ...]
    provenance: Provenance


SKEWED, RINGS, TAILS, CORRELATED = "skewed", "rings", "heavy tails", "correlated"
TOY_NAMES = ("eight-gaussians", "two-moons", "checkerboard", "swiss-roll", RINGS, SKEWED, CORRELATED, TAILS)
TABLES = ("iris", "wine", "breast_cancer")
SIZES = {"smoke": (3, 200, 1), "cpu": (2000, 2000, 3), "paper": (2000, 5000, 5)}
"""Steps, points of a toy, and repetitions of each scale."""
MOST_COMPONENTS, BANDWIDTHS, FOLDS = 16, 10, 3
PICTURE_POINTS = 400


def study(setting: StudyOptions) -> ArrayComparisons:
    """Fit and compare every data set."""
    started = time.monotonic()
    steps, points, repetitions = SIZES[setting.scale]
    names = (*TOY_NAMES, *TABLES)
    comparisons = []
    for number, name in enumerate(names):
        setting.progress("arrays", number, len(names))
        comparisons.append(_compare(name, points, steps, range(setting.seed, setting.seed + repetitions)))
    return ArrayComparisons(
        steps=steps,
        samples=points,
        threads=torch.get_num_threads(),
        comparisons=tuple(comparisons),
        provenance=provenance(seed=setting.seed, wall_seconds=time.monotonic() - started),
    )


def _compare(name: str, points: int, steps: int, seeds: range) -> Comparison:
    """Compare all methods on one data set."""
    distances: dict[str, list[float]] = {method: [] for method in METHODS}
    seconds, picture = [], []
    for seed in seeds:
        training, held_out = _halves(name, points, seed)
        started = time.monotonic()
        model = fit(training, steps=steps, seed=seed, device="cpu", progress=False)
        seconds.append(time.monotonic() - started)
        # All distances are in the units of the training half.
        samples = samples_from_arrays(training)
        units = samples.units
        assert units is not None  # arrays have units
        x, y = samples.values.double(), units.to_model(held_out)
        drawn = torch.from_numpy(model.sample(points, seed=seed))
        others = (_sample_mixture(x, points, seed), _sample_density(x, points, seed), x)
        for method, values in zip(METHODS, (units.to_model(drawn), *others), strict=True):
            distances[method].append(energy_distance(values, y))
        if name in TOY_NAMES and seed == seeds[0]:
            picture = [held_out[:PICTURE_POINTS, :2], drawn[:PICTURE_POINTS, :2]]
    return Comparison(
        name=name,
        dimension=training.shape[1],
        training=len(training),
        held_out=len(held_out),
        distances=tuple(Distances(method=method, values=tuple(values)) for method, values in distances.items()),
        seconds=statistics.fmean(seconds),
        picture=tuple(tuple(tuple(round(value, 3) for value in row) for row in part.tolist()) for part in picture),
    )


# ---- Data ----


def _halves(name: str, points: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return training data and held-out data of the same distribution."""
    if name in TABLES:
        from sklearn import datasets  # noqa: PLC0415  an extra

        values = torch.from_numpy(getattr(datasets, f"load_{name}")().data)
        order = torch.randperm(len(values), generator=stream(seed, "halves"))
        return values[order[: len(values) // 2]], values[order[len(values) // 2 :]]
    drawn = draw_toy(name, 2 * points, stream(seed, name))
    return drawn[:points], drawn[points:]


def draw_toy(name: str, count: int, generator: torch.Generator) -> Tensor:
    """Draw points [count, D] of a toy, one of `TOY_NAMES`."""
    if name in TOYS:
        return TOYS[name][0](count, generator)[0].double()
    normal: Callable[..., Tensor] = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    if name == SKEWED:  # a log-normal variable
        return normal(count, 1).exp()
    if name == RINGS:  # two circles of radius ½ and 1
        angle = 2 * torch.pi * torch.rand(count, generator=generator, dtype=torch.float64)
        radius = torch.randint(1, 3, (count,), generator=generator) / 2 + 0.03 * normal(count)
        return torch.stack((radius * angle.cos(), radius * angle.sin()), -1)
    # 20 correlated columns: Gaussian, or Student's t with four degrees of freedom.
    mixing = torch.randn(20, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 20**0.5
    values = normal(count, 20) @ mixing
    return values if name == CORRELATED else values / (normal(count, 4).square().mean(-1, keepdim=True)).sqrt()


# ---- Other densities ----


def _sample_mixture(x: Tensor, count: int, seed: int) -> Tensor:
    """Sample a Gaussian mixture whose number of components has the smallest BIC."""
    from sklearn.mixture import GaussianMixture  # noqa: PLC0415  an extra

    most = max(1, min(MOST_COMPONENTS, len(x) // (x.shape[1] + 1)))
    fitted: list[Any] = [GaussianMixture(k, random_state=seed).fit(x.numpy()) for k in range(1, most + 1)]
    return torch.from_numpy(min(fitted, key=lambda each: each.bic(x.numpy())).sample(count)[0])


def _sample_density(x: Tensor, count: int, seed: int) -> Tensor:
    """Sample a kernel density whose bandwidth has the largest cross-validated likelihood."""
    from sklearn.model_selection import GridSearchCV  # noqa: PLC0415  an extra
    from sklearn.neighbors import KernelDensity  # noqa: PLC0415  an extra

    bandwidths = torch.logspace(-2, 0.3, BANDWIDTHS).tolist()
    search = GridSearchCV(KernelDensity(rtol=1e-4), {"bandwidth": bandwidths}, cv=FOLDS).fit(x.numpy())
    return torch.from_numpy(search.best_estimator_.sample(count, random_state=seed))


# ---- Table and figure ----


def table(record: ArrayComparisons) -> Table:
    """Return one row per data set; the smallest distance of a model is bold."""
    rows: list[tuple[Cell, ...]] = []
    for each in record.comparisons:
        cells = [
            MeanCell(1000 * of.mean, of.error and 1000 * of.error, len(of.values), ".1f", bold=of == each.best)
            for of in each.distances
        ]
        name = each.name.replace("_", " ")
        rows.append((name, str(each.dimension), str(each.training), *cells, f"{each.seconds:.0f}"))
    repetitions = len(record.comparisons[0].distances[0].values)
    caption = (
        f"Energy distance to held-out data, times 1000, mean ± standard error of {repetitions} repetitions; bold: the "
        f"smallest of the three models. fit: {record.steps} steps with {record.threads} threads. "
        "Other half: the training data themselves."
    )
    header = ("data", "columns", "rows", *METHODS, "seconds of fit")
    toys = sum(bool(each.picture) for each in record.comparisons)
    return Table(caption=caption, label="arrays", header=header, groups=[rows[:toys], rows[toys:]])


def findings(record: ArrayComparisons) -> list[str]:
    """Return on how many data sets each model is best."""
    best = [each.best.method for each in record.comparisons]
    counts = ", ".join(f"{method} {best.count(method)}" for method in METHODS[:-1])
    return [f"smallest mean distance on {len(best)} data sets: {counts}"]


def draw(record: ArrayComparisons) -> Figure:
    """Draw held-out points and samples of every toy."""
    shown = [each for each in record.comparisons if each.picture]
    figure = Figure(figsize=(9.6, 5.0), layout="constrained")
    panels = figure.subplots(2, 4).flatten()
    for axes, each in zip(panels, shown, strict=True):
        for points, color, label in zip(each.picture, (MUTED, ABC), ("held-out data", "samples"), strict=True):
            if each.dimension == 1:
                axes.hist([row[0] for row in points], bins=40, range=(0, 8), histtype="step", color=color)
            else:
                axes.plot(*zip(*points, strict=True), ".", color=color, markersize=1.6, alpha=0.6, label=label)
        title = each.name if each.dimension < 3 else f"{each.name}, 2 of {each.dimension} columns"
        style_axes(axes, across="", title=title)
    panels[0].legend(fontsize=7, markerscale=4, loc="center", frameon=False)
    return figure


ITEM = Item(
    "arrays",
    ArrayComparisons,
    "truedrift.fit on toys and tables: energy distance to held-out data, compared with two classical densities.",
    table=table,
    figure=draw,
    findings=findings,
)
