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
    return Chart(title=title, about=about, series=series)


def training_charts(runs: Sequence[Run], looks: Sequence[Look]) -> list[Chart]:
    """Forces at every temperature, spread, gradient, speed."""
    forces = [
        Chart(
            title=f"Force at τ = {tau:g}",
            about="RMS of the raw field before it is normalized, mean over scales; falls to the noise of a batch",
            series=_series(runs, looks, lambda run, tau=tau: force(position(run, tau))),  # type: ignore[misc]
        )
        for tau in temperatures(runs)
    ]
    return [
        *forces,
        _plain("Spread", "Distance among generated features over that to data: near 1, near 0 on collapse", "spread")(
            runs, looks
        ),
        _plain("Gradient norm", "Before clipping", "gradient_norm")(runs, looks),
        Chart(
            title="Generated images a second",
            about="Since the process started or resumed; depends on the machine",
            series=_series(runs, looks, lambda run: images_per_second),
            from_zero=True,
        ),
    ]


def _plain(title: str, about: str, name: str) -> Callable[[Sequence[Run], Sequence[Look]], Chart]:
    def drawn(runs: Sequence[Run], looks: Sequence[Look]) -> Chart:
        series = _series(runs, looks, lambda run: lambda entry: entry.get(name))
        return Chart(title=title, about=about, series=series, from_zero=name == "spread")

    return drawn


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
        values = [number(row[at]) for row in rows if isinstance(row, list) and at < len(row)] if _is_list(rows) else []
        known = [value for value in values if value is not None]
        return fmean(known) if known and len(known) == len(values) else None

    return read


def _is_list(rows: Any) -> bool:
    return isinstance(rows, list)


def images_per_second(entry: Mapping[str, Any]) -> Any:
    """From the part of a line that depends on the machine."""
    timing = entry.get("timing")
    return timing.get("images_per_second") if isinstance(timing, dict) else None
