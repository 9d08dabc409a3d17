"""The page, put together: verdicts, items, curves, the gauge, samples, configurations, provenance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from truedrift.files import write_atomically
from truedrift.records.origin import version
from truedrift.report.catalog import item_of
from truedrift.report.page import configuration, items, provenance, samples, verdicts
from truedrift.report.page.chart import Chart, figure, legend
from truedrift.report.page.curves import evaluation_charts, training_charts
from truedrift.report.page.document import document
from truedrift.report.page.embedded import json_block
from truedrift.report.page.final import final_numbers
from truedrift.report.page.gauge import ABOUT, HONEST, gauge_charts, gauge_table
from truedrift.report.page.markup import Content, Markup, element
from truedrift.report.page.run_files import Run, read_runs
from truedrift.report.page.series import Look, looks

Section = tuple[str, str, Content]
"""Anchor, heading, content."""


def write_page(path: Path, *, title: str, records: Sequence[Any], runs: Sequence[Path]) -> Path:
    """Write the page of these records and run directories to `path`, whole or not at all."""
    read = read_runs(runs)
    write_atomically(path, page(title, records, read).encode())
    return path


def page(title: str, records: Sequence[Any], runs: Sequence[Run]) -> str:
    """The HTML."""
    charts = _Charts.of(runs)
    sections = [*_of_records(records), *_of_runs(runs, charts)]
    found = [*verdicts.of_runs(runs), *verdicts.of_records(records)]
    header = element(
        "header",
        element("h1", title),
        element("p", f"{_counted(records, runs)}; {datetime.now(UTC):%Y-%m-%d %H:%M} UTC", class_="soft"),
        verdicts.listed(found) if found else None,
        element("nav", (element("a", heading, href=f"#{anchor}") for anchor, heading, _ in sections)),
    )
    main = element("main", (_section(*each) for each in sections))
    return document(title, [header, main, _footer(), json_block(_data(records, charts))])


@dataclass(frozen=True, kw_only=True)
class _Charts:
    """All of the page."""

    looks: Sequence[Look]
    judged: Sequence[Chart]
    trained: Sequence[Chart]
    gauged: Sequence[Chart]

    @classmethod
    def of(cls, runs: Sequence[Run]) -> _Charts:
        """Of these runs."""
        chosen = looks(runs)
        drawn = (evaluation_charts(runs, chosen), training_charts(runs, chosen), gauge_charts(runs, chosen))
        return cls(looks=chosen, judged=drawn[0], trained=drawn[1], gauged=drawn[2])


def _of_records(records: Sequence[Any]) -> list[Section]:
    return [("items", "Figures and tables", [items.section(record) for record in records])] if records else []


def _of_runs(runs: Sequence[Run], charts: _Charts) -> list[Section]:
    if not runs:
        return []
    lines = legend([run.name for run in runs], charts.looks)
    return [
        ("curves", "Curves", [final_numbers(runs), lines, _charts(charts.judged, _UNJUDGED)]),
        ("training", "Telemetry", [lines, _charts(charts.trained, _NOTHING)]),
        ("gauge", "Bias gauge over training", _gauge(runs, charts)),
        ("samples", "Samples", element("div", map(samples.section, runs), class_="beside")),
        ("configuration", "Configuration" if len(runs) == 1 else "What differs", configuration.section(runs)),
        ("provenance", "Provenance and history", [_under_its_name(run, provenance.section(run)) for run in runs]),
    ]


def _gauge(runs: Sequence[Run], charts: _Charts) -> list[Content]:
    return [
        element("p", ABOUT),
        [_under_its_name(run, gauge_table(run) or _NOTHING) for run in runs],
        element("p", HONEST, class_="soft small"),
        legend([run.name for run in runs], charts.looks, sides=True),
        _charts(charts.gauged, _NOTHING),
    ]


_UNJUDGED = element(
    "p",
    "No run was evaluated while it was trained; ",
    element("code", "--set evaluation.extractor=digits"),
    ", say, makes a run judge itself.",
    class_="soft",
)
_NOTHING = element("p", "Nothing was logged.", class_="soft")


def _charts(charts: Iterable[Chart], otherwise: Markup) -> Markup:
    drawn = [each for each in map(figure, charts) if each is not None]
    return element("div", drawn, class_="charts") if drawn else otherwise


def _under_its_name(run: Run, content: Content) -> list[Content]:
    return [element("h3", element("bdi", run.name)), content]


def _section(anchor: str, heading: str, content: Content) -> Markup:
    return element("section", element("h2", heading), content, id=anchor)


def _counted(records: Sequence[Any], runs: Sequence[Run]) -> str:
    counts = ((len(records), "item"), (len(runs), "run"))
    return ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for count, name in counts if count) or "nothing"


def _footer() -> Markup:
    said = "The numbers of all charts are in this file as JSON, in the element with the id data."
    return element("footer", f"Written by truedrift {version()}. {said}")


def _data(records: Sequence[Any], charts: _Charts) -> dict[str, Any]:
    """What the charts show."""
    drawn = [
        {"title": chart.title, "series": {each.name: list(each.points) for each in chart.shown}}
        for chart in (*charts.judged, *charts.trained, *charts.gauged)
        if chart.shown
    ]
    return {"items": [item_of(record).label for record in records], "charts": drawn}
