"""Charts of the runs: distances to the data first, then what the training said of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from truedrift.report.page.chart import Chart
from truedrift.report.page.run_files import Evaluation, Run, number
from truedrift.report.page.series import Look, Series, entry_at, of_evaluations, of_telemetry

Telemetry = Callable[[Mapping[str, Any]], Any]


def evaluation_charts(runs: Sequence[Run], looks: Sequence[Look]) -> list[Chart]:
    """Of every distance by which a run was judged: itself, KID, precision, recall, and the Inception Score."""
    names = dict.fromkeys(each.distance_name for run in runs for each in run.evaluations)
    return [chart for name in names for chart in _of_distance(name, runs, looks)]


def _of_distance(name: str, runs: Sequence[Run], looks: Sequence[Look]) -> list[Chart]:
    said = {"fid": f"{name}, smaller is better", "kid": "KID, smaller is better"}
    said |= {key: f"{key}, larger is better" for key in ("precision", "recall")}
    said |= {"inception_score": "Inception Score, larger is better"}
    return [_evaluated(key, title[:1].upper() + title[1:], name, runs, looks) for key, title in said.items()]


def _evaluated(key: str, title: str, distance: str, runs: Sequence[Run], looks: Sequence[Look]) -> Chart:
    def value(each: Evaluation) -> Any:
        return each.metrics.get(key)

    series = [
        Series(name=run.name, look=look, points=of_evaluations(run, value, distance), dotted=True)
        for run, look in zip(runs, looks, strict=True)
    ]
    about = f"{title}, in features of {distance}" if key != "fid" else title
    return Chart(title=title, about=about, series=series, from_zero=key not in ("fid", "kid"))


def training_charts(runs: Sequence[Run], looks: Sequence[Look]) -> list[Chart]:
    """Forces at every temperature, spread, gradient, speed."""
    plain = (
        Chart(title=title, about=about, series=_series(runs, looks, _always(read)), from_zero=from_zero)
        for title, about, read, from_zero in _PLAIN
    )
    return [*(_force(tau, runs, looks) for tau in temperatures(runs)), *plain]


def _always(read: Telemetry) -> Callable[[Run], Telemetry]:
    """The same reader for every run."""
    return lambda run: read


def _force(tau: float, runs: Sequence[Run], looks: Sequence[Look]) -> Chart:
    about = "RMS of the raw field before it is normalized, mean over scales; falls to the noise of a batch"
    series = _series(runs, looks, lambda run: force(position(run, tau)))
    return Chart(title=f"Force at τ = {tau:g}", about=about, series=series)


def _series(runs: Sequence[Run], looks: Sequence[Look], reader: Callable[[Run], Telemetry]) -> list[Series]:
    return [
        Series(name=run.name, look=look, points=of_telemetry(run, reader(run)))
        for run, look in zip(runs, looks, strict=True)
    ]


def sides(name: str, tau: float, runs: Sequence[Run], looks: Sequence[Look]) -> list[Series]:
    """`name`_pos and `name`_neg at that temperature, of every run that has it."""
    return [
        Series(
            name=f"{run.name}, {'negative' if negative else 'positive'} side",
            look=look,
            points=of_telemetry(run, entry_at(f"{name}_{'neg' if negative else 'pos'}", position(run, tau))),
            negative=negative,
        )
        for run, look in zip(runs, looks, strict=True)
        for negative in (False, True)
    ]


def temperatures(runs: Sequence[Run]) -> list[float]:
    """Of all runs, from the coldest."""
    return sorted({tau for run in runs for tau in run.config.objective.temperatures})


def position(run: Run, tau: float) -> int:
    """Where the temperature stands in the run's lists; beyond their end if the run has no such one."""
    own = run.config.objective.temperatures
    return own.index(tau) if tau in own else len(own)


def force(at: int) -> Telemetry:
    """Mean over scales of that temperature's force."""

    def read(entry: Mapping[str, Any]) -> float | None:
        rows = entry.get("force")
        scales = [row for row in rows if isinstance(row, list)] if isinstance(rows, list) else []
        values = [number(row[at]) for row in scales if at < len(row)]
        known = [value for value in values if value is not None]
        return fmean(known) if known and len(known) == len(values) else None

    return read


def images_per_second(entry: Mapping[str, Any]) -> Any:
    """From the part of a line that depends on the machine."""
    timing = entry.get("timing")
    return timing.get("images_per_second") if isinstance(timing, dict) else None


_PLAIN: tuple[tuple[str, str, Telemetry, bool], ...] = (
    (
        "Spread",
        "Distance among generated features over that to data: near 1, near 0 on collapse",
        lambda entry: entry.get("spread"),
        True,
    ),
    ("Gradient norm", "Before clipping", lambda entry: entry.get("gradient_norm"), False),
    ("Generated images a second", "Depends on the machine", images_per_second, True),
)
"""Title, what it is, where it stands in a line of metrics, and whether its axis begins at 0."""
