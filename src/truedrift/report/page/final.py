"""Where runs ended, side by side: distances, precision, recall, spread, speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from truedrift.report.page.curves import images_per_second
from truedrift.report.page.distance import best, judging
from truedrift.report.page.markup import Content, Markup, element
from truedrift.report.page.run_files import Run, number
from truedrift.report.page.tables import table


def final_numbers(runs: Sequence[Run]) -> Markup:
    """A row a number, a column a run."""
    header: list[Content] = ["at the end", *(element("bdi", run.name) for run in runs)]
    rows = [[name, *map(value, runs)] for name, value in _ROWS.items()]
    return table(header, [row for row in rows if any(cell != "–" for cell in row[1:])])


def _distance(run: Run) -> str:
    last = judging(run)
    return "–" if last is None else f"{last.distance_name} {last.distance:.4g}"


def _best(run: Run) -> str:
    least = best(run)
    return "–" if least is None else f"{least.distance:.4g} at step {least.step:,}"


def _metric(name: str, digits: str, deviation: str = "") -> Callable[[Run], str]:
    def shown(run: Run) -> str:
        last = judging(run)
        value = number(last.metrics.get(name)) if last else None
        spread = number(last.metrics.get(deviation)) if last else None
        if value is None:
            return "–"
        return f"{value:{digits}}".replace("-", "−") + ("" if spread is None else f" ± {spread:{digits}}")

    return shown


def _telemetry(name: str, digits: str) -> Callable[[Run], str]:
    def shown(run: Run) -> str:
        value = number(run.last.get(name))
        return "–" if value is None else f"{value:{digits}}"

    return shown


def _speed(run: Run) -> str:
    value = number(images_per_second(run.last))
    return "–" if value is None else f"{value:,.0f}"


_ROWS: dict[str, Callable[[Run], str]] = {
    "distance": _distance,
    "best distance": _best,
    "KID": _metric("kid", ".3g", "kid_deviation"),
    "precision": _metric("precision", ".3f"),
    "recall": _metric("recall", ".3f"),
    "Inception Score": _metric("inception_score", ".3g", "inception_score_deviation"),
    "positives of a class seen": _telemetry("positives_seen", ",.0f"),
    "spread": _telemetry("spread", ".3f"),
    "gradient norm": _telemetry("gradient_norm", ".3g"),
    "generated images a second": _speed,
}
