"""The page, put together: verdicts, items, curves, the gauge, samples, configurations, provenance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from truedrift.files import write_atomically
from truedrift.records.origin import version
from truedrift.report.catalog import item_of
from truedrift.report.page import configuration, items, overview, provenance, samples, verdicts
from truedrift.report.page.chart import Chart, figure, legend
from truedrift.report.page.charts import Charts
from truedrift.report.page.chosen import are_many, differing, drawn, ordered, which_drawn
from truedrift.report.page.document import document
from truedrift.report.page.embedded import json_block
from truedrift.report.page.final import final_numbers
from truedrift.report.page.gauge import ABOUT, HONEST, gauge_table
from truedrift.report.page.markup import Content, Markup, element
from truedrift.report.page.naming import counted
from truedrift.report.page.run_files import Run, read_runs
from truedrift.report.page.verdict import UNREAD, Verdict, listed

Section = tuple[str, str, Content]
"""Anchor, heading, content."""


def write_page(
    path: Path,
    *,
    title: str,
    records: Sequence[Any],
    runs: Sequence[Path],
    problems: Sequence[str] = (),
) -> Path:
    """Write the page of these records and run directories to `path`, whole or not at all.

    `problems` are sentences on what was passed over.
    """
    read = ordered(read_runs(runs))
    passed_over = [Verdict(subject=UNREAD, sentence=problem, tone="note") for problem in problems]
    write_atomically(path, page(title, records, read, beside=passed_over).encode())
    return path


def page(
    title: str,
    records: Sequence[Any],
    runs: Sequence[Run],
    *,
    beside: Sequence[Verdict] = (),
) -> str:
    """The HTML; verdicts `beside` those of the runs and the records come last."""
    charts = Charts.of(drawn(runs))
    sections = [*_overview(runs), *_of_records(records), *_of_runs(runs, charts)]
    told = overview.of_many(runs) if are_many(runs) else verdicts.of_runs(runs)
    found = [*told, *verdicts.of_records(records), *beside]
    header = element(
        "header",
        element("h1", title),
        element("p", f"{_counted(records, runs)}; {datetime.now(UTC):%Y-%m-%d %H:%M} UTC", class_="soft"),
        listed(found) if found else None,
        element("nav", (element("a", heading, href=f"#{anchor}") for anchor, heading, _ in sections)),
    )
    main = element("main", (_section(*each) for each in sections))
    return document(title, [header, main, _footer(), json_block(_data(records, charts))])


def _overview(runs: Sequence[Run]) -> list[Section]:
    return [("runs", "Runs", overview.summary(runs))] if are_many(runs) else []


def _of_records(records: Sequence[Any]) -> list[Section]:
    shown = [items.section(record) for record in records]
    return [("items", "Figures and tables", shown)] if records else []


def _of_runs(runs: Sequence[Run], charts: Charts) -> list[Section]:
    """Of all runs, or of those that are drawn, which is said in each."""
    if not runs:
        return []
    few, some = charts.runs, _some(runs)
    lines = legend([run.name for run in few], charts.looks)
    differ = "Configuration" if len(runs) == 1 else "What differs"
    return [
        ("curves", "Curves", [some, final_numbers(few), lines, _charts(charts.judged, _UNJUDGED)]),
        ("training", "Telemetry", [some, lines, _charts(charts.trained, _NOTHING)]),
        ("gauge", "Bias gauge over training", [some, _gauge(charts)]),
        ("samples", "Samples", [some, element("div", map(samples.section, few), class_="beside")]),
        ("configuration", differ, [some, configuration.section(few, differing(runs))]),
        ("provenance", "Provenance and history", _provenance(runs, few)),
    ]


def _some(runs: Sequence[Run]) -> Markup | None:
    said = f"{which_drawn(runs)} Name some of the runs to have a page of those."
    return element("p", said, class_="soft small") if are_many(runs) else None


def _provenance(runs: Sequence[Run], few: Sequence[Run]) -> list[Content]:
    """Of the few; that of the others folded."""
    others = [run for run in runs if run not in few]
    told = [_under_its_name(run, provenance.section(run)) for run in few]
    rest = [_under_its_name(run, provenance.section(run)) for run in others]
    folded = element("details", element("summary", f"The other {counted(len(others), 'run')}"), rest)
    return [*told, folded if others else None]


def _gauge(charts: Charts) -> list[Content]:
    return [
        element("p", ABOUT),
        [_under_its_name(run, gauge_table(run) or _NOTHING) for run in charts.runs],
        element("p", HONEST, class_="soft small"),
        legend([run.name for run in charts.runs], charts.looks, sides=True),
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
    figures = [each for each in map(figure, charts) if each is not None]
    return element("div", figures, class_="charts") if figures else otherwise


def _under_its_name(run: Run, content: Content) -> list[Content]:
    return [element("h3", element("bdi", run.name)), content]


def _section(anchor: str, heading: str, content: Content) -> Markup:
    return element("section", element("h2", heading), content, id=anchor)


def _counted(records: Sequence[Any], runs: Sequence[Run]) -> str:
    counts = ((len(records), "item"), (len(runs), "run"))
    return ", ".join(counted(count, name) for count, name in counts if count) or "nothing"


def _footer() -> Markup:
    said = "The numbers of all charts are in this file as JSON, in the element with the id data."
    return element("footer", f"Written by truedrift {version()}. {said}")


def _data(records: Sequence[Any], charts: Charts) -> dict[str, Any]:
    """What the charts show."""
    shown = [
        {"title": chart.title, "series": {each.name: list(each.points) for each in chart.shown}}
        for chart in (*charts.judged, *charts.trained, *charts.gauged)
        if chart.shown
    ]
    return {"items": [item_of(record).label for record in records], "charts": shown}
