"""Pictures that are in the page: every one is decoded, brought to a size and written anew, so that none can be broken.

Metadata and whatever else a file carries stays behind.

A section an item: what it is, its figure, its table with the paper's values, its text, and where it came from.

The pictures of a run: the last one large, a few on the way, all of the same noise.

Where runs came from and who worked on them: version, commit, data, and the history with every resume.

The page, put together: verdicts, items, curves, the gauge, samples, configurations, provenance.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from truedrift._version import __version__
from truedrift.page import findings
from truedrift.page.charts import ABOUT, HONEST, Chart, Charts, figure, gauge_table, legend
from truedrift.page.findings import UNREAD, Finding, anchor, findings_list
from truedrift.page.markup import Content, Markup, document, element, json_block, of_report, table
from truedrift.page.run_data import (
    Run,
    describe_drawn,
    differing_options,
    flatten,
    format_value,
    is_overview,
    pluralize,
    read_runs,
    runs_to_draw,
    sort_runs,
)
from truedrift.page.tables import final_numbers
from truedrift.paper.catalog import find_item
from truedrift.records.provenance import Provenance
from truedrift.report.figure import set_paper_fonts
from truedrift.report.item import Item
from truedrift.storage import write_atomically

LARGEST_PIXELS = 40_000_000
FIGURE_DPI = 200
SHOWN_PER_INCH = 110
"""Of a figure: pixels of the page."""


class UnreadablePicture(ValueError):
    """A file that is no picture, or one too large."""


def picture(path: Path, *, widest: int, said: str, size: float = 1.0) -> Markup:
    """The file as an image of at most `widest` pixels across and twice as many down; `said` is for who cannot see it.

    It is shown at `size` times the pixels of the file.
    """
    from PIL import Image  # noqa: PLC0415  an extra

    try:
        with Image.open(path, formats=("PNG",)) as opened:
            if opened.width * opened.height > LARGEST_PIXELS:
                raise UnreadablePicture(f"{path.name} has {opened.width} × {opened.height} pixels")
            image = opened.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise (
            error if isinstance(error, UnreadablePicture) else UnreadablePicture(f"{path.name} is no picture")
        ) from None
    width, height = (round(size * pixels) for pixels in image.size)
    image.thumbnail((widest, 2 * widest))
    target = io.BytesIO()
    image.save(target, format="PNG", optimize=True)
    return _inlined(target.getvalue(), (width, height), said)


def inline_figure(figure: Figure, *, said: str) -> Markup:
    """A figure of the report."""
    target = io.BytesIO()
    set_paper_fonts(figure).savefig(target, format="png", dpi=FIGURE_DPI, facecolor="white")
    width, height = (round(SHOWN_PER_INCH * inches) for inches in figure.get_size_inches())
    return _inlined(target.getvalue(), (width, height), said)


def _inlined(png: bytes, size: tuple[int, int], said: str) -> Markup:
    address = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return element("img", src=address, alt=said, width=size[0], height=size[1])


def items_section(record: Any) -> list[Content]:
    """One item."""
    item = find_item(record)
    table, figure = item.table(record), item.figure(record)
    text = element("pre", item.summary(record))
    folded = element("details", element("summary", "As text"), text) if table else text
    return [
        element("h3", item.label, id=anchor(item)),
        element("p", item.description),
        element("div", inline_figure(figure, said=f"Figure {item.label}"), class_="sheet") if figure else None,
        of_report(table) if table else None,
        folded,
        element("p", _origin(item, record.provenance), class_="soft small"),
    ]


def _origin(item: Item, origin: Provenance) -> list[Content]:
    """The command, the time, the commit."""
    usual = "truedrift bias" if item.label == "bias" else f"truedrift reproduce {item.label}"
    made = element("code", origin.command) if origin.command else (element("code", usual), " or the like")
    commit = f"commit {_short(origin.commit)}" if origin.commit else "no commit"
    seconds = f"{origin.wall_seconds:,.0f} s" if origin.wall_seconds >= 1 else "less than 1 s"
    return ["Made by ", made, f", {origin.time}, truedrift {origin.version}, {commit}, seed {origin.seed}, {seconds}."]


def _short(commit: str) -> str:
    """Twelve digits, and whether files were changed since."""
    digits, dash, dirty = commit.partition("-")
    return f"{digits[:12]}{dash}{dirty}"


ON_THE_WAY = 4
LARGE, SMALL = 720, 224


def samples_section(run: Run) -> Markup:
    """Under the run's name."""
    return element("div", element("h3", element("bdi", run.name)), _pictures(run))


def _pictures(run: Run) -> list[Content]:
    if not run.pictures:
        return [element("p", "This run has no pictures.", class_="soft")]
    (step, last), before = run.pictures[-1], samples_during_training(run.pictures[:-1])
    way = element("div", (_shown_picture(run, step, path, SMALL) for step, path in before), class_="way")
    return [element("div", _shown_picture(run, step, last, LARGE), class_="grid-large"), way if before else None]


def samples_during_training(pictures: Sequence[tuple[int, Path]]) -> list[tuple[int, Path]]:
    """At most ON_THE_WAY of them, evenly, the first among them."""
    many = min(ON_THE_WAY, len(pictures))
    return [pictures[k * len(pictures) // many] for k in range(many)]


def _shown_picture(run: Run, step: int, path: Path, widest: int) -> Markup:
    caption = f"step {step:,}" if widest == SMALL else _caption(run, step)
    try:
        shown: Content = picture(path, widest=widest, said=f"Samples of {run.name} at step {step}")
    except UnreadablePicture as reason:
        shown, caption = element("p", f"{reason}.", class_="soft small"), f"step {step:,}"
    return element("figure", shown, element("figcaption", caption))


def _caption(run: Run, step: int) -> str:
    rows = f"; rows are {', '.join(run.classes[:20])}"[:200] if len(run.classes) > 1 else ""
    return f"Step {step:,}, averaged weights, the same noise in every picture{rows}"


_COLUMNS = ("event", "time", "step", "host", "version")
_SHOWN_LETTERS = 300


def provenance_section(run: Run) -> list[Content]:
    """One run's."""
    facts = table(
        ("fact", "value"),
        [
            ("made by", f"truedrift {run.version}"),
            ("commit", run.commit),
            ("data", f"{run.config.data.name}, sha256 {run.data_sha256}"),
            ("classes", _classes(run.classes)),
            ("seed", str(run.config.seed)),
        ],
    )
    if not run.history:
        return [facts, element("p", "There is no history of this run.", class_="soft")]
    resumed = sum(entry.get("event") == "resumed" for entry in run.history)
    times = {0: "never resumed", 1: "resumed once"}.get(resumed, f"resumed {resumed} times")
    rows = [[_text(entry.get(name, "–")) for name in _COLUMNS] + [_rest(entry)] for entry in run.history]
    return [facts, table([*_COLUMNS, "beside that"], rows, caption=f"History: {times}.")]


def _classes(names: tuple[str, ...]) -> str:
    more = f" … {len(names)} in all" if len(names) > 20 else ""
    return ", ".join(names[:20])[:_SHOWN_LETTERS] + more


def _rest(entry: Mapping[str, Any]) -> str:
    others = (f"{name}: {_text(value)}" for name, value in entry.items() if name not in (*_COLUMNS, "process"))
    return "; ".join(others)[:_SHOWN_LETTERS] or "–"


def _text(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text[:_SHOWN_LETTERS]


Section = tuple[str, str, Content]
"""Anchor, heading, content."""


def configuration_section(runs: Sequence[Run], differing: Sequence[str]) -> list[Content]:
    """The options that differ, then every option, folded."""
    trees = [flatten(run.config.tree()) for run in runs]
    header: list[Content] = ["option", *(element("bdi", run.name) for run in runs)]
    everything = table(header, _configuration_rows(dict.fromkeys(path for tree in trees for path in tree), trees))
    folded = element("details", element("summary", "The whole configuration"), everything, open=len(runs) == 1)
    if len(runs) == 1:
        return [folded]
    if not differing:
        return [element("p", "The configurations are the same."), folded]
    return [table(header, _configuration_rows(differing, trees)), folded]


def _configuration_rows(
    paths: Sequence[str] | Mapping[str, Any], trees: Sequence[Mapping[str, Any]]
) -> list[list[Content]]:
    return [[element("code", path), *(format_value(tree, path) for tree in trees)] for path in paths]


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
    read = sort_runs(read_runs(runs))
    passed_over = [Finding(subject=UNREAD, sentence=problem, tone="note") for problem in problems]
    write_atomically(path, page(title, records, read, beside=passed_over).encode())
    return path


def page(
    title: str,
    records: Sequence[Any],
    runs: Sequence[Run],
    *,
    beside: Sequence[Finding] = (),
) -> str:
    """The HTML; verdicts `beside` those of the runs and the records come last."""
    charts = Charts.of(runs_to_draw(runs))
    sections = [*_overview(runs), *_of_records(records), *_of_runs(runs, charts)]
    told = findings.findings_of_many(runs) if is_overview(runs) else findings.findings_of_runs(runs)
    found = [*told, *findings.findings_of_records(records), *beside]
    header = element(
        "header",
        element("h1", title),
        element("p", f"{_counted(records, runs)}; {datetime.now(UTC):%Y-%m-%d %H:%M} UTC", class_="soft"),
        findings_list(found) if found else None,
        element("nav", (element("a", heading, href=f"#{anchor}") for anchor, heading, _ in sections)),
    )
    main = element("main", (_section(*each) for each in sections))
    return document(title, [header, main, _footer(), json_block(_data(records, charts))])


def _overview(runs: Sequence[Run]) -> list[Section]:
    return [("runs", "Runs", findings.overview_section(runs))] if is_overview(runs) else []


def _of_records(records: Sequence[Any]) -> list[Section]:
    shown = [items_section(record) for record in records]
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
        ("samples", "Samples", [some, element("div", map(samples_section, few), class_="beside")]),
        ("configuration", differ, [some, configuration_section(few, differing_options(runs))]),
        ("provenance", "Provenance and history", _provenance(runs, few)),
    ]


def _some(runs: Sequence[Run]) -> Markup | None:
    said = f"{describe_drawn(runs)} Name some of the runs to have a page of those."
    return element("p", said, class_="soft small") if is_overview(runs) else None


def _provenance(runs: Sequence[Run], few: Sequence[Run]) -> list[Content]:
    """Of the few; that of the others folded."""
    others = [run for run in runs if run not in few]
    told = [_under_its_name(run, provenance_section(run)) for run in few]
    rest = [_under_its_name(run, provenance_section(run)) for run in others]
    folded = element("details", element("summary", f"The other {pluralize(len(others), 'run')}"), rest)
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
    return ", ".join(pluralize(count, name) for count, name in counts if count) or "nothing"


def _footer() -> Markup:
    said = "The numbers of all charts are in this file as JSON, in the element with the id data."
    return element("footer", f"Written by truedrift {__version__}. {said}")


def _data(records: Sequence[Any], charts: Charts) -> dict[str, Any]:
    """What the charts show."""
    shown = [
        {"title": chart.title, "series": {each.name: list(each.points) for each in chart.shown}}
        for chart in (*charts.judged, *charts.trained, *charts.gauged)
        if chart.shown
    ]
    return {"items": [find_item(record).label for record in records], "charts": shown}
