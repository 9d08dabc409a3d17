"""The HTML page of records and runs: one file without scripts and without any request to a network.

The template is page.html.j2, its style style.css. Jinja escapes every value. The Content-Security-Policy of the page
allows only images inside the page and this one style sheet, so that a mistake in the template could not run a script.
"""

import base64
import hashlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from matplotlib.figure import Figure

from truedrift._version import __version__
from truedrift.page.charts import (
    Chart,
    Charts,
    figure_svgs,
    plot_curves,
    plot_evaluation,
    plot_gauge,
    plot_training,
)
from truedrift.page.findings import (
    findings_of_problems,
    findings_of_records,
    findings_of_runs,
    group_findings,
    item_anchor,
)
from truedrift.page.run_data import (
    Run,
    describe_drawn,
    find_differences,
    is_overview,
    pluralize,
    read_runs,
    runs_to_draw,
    sort_runs,
)
from truedrift.page.tables import (
    FEW,
    GaugeRow,
    describe_progress,
    differences_table,
    final_table,
    gauge_rows,
    history_table,
    more_options,
    options_table,
    overview_table,
    provenance_table,
)
from truedrift.paper.catalog import find_item
from truedrift.records.provenance import Provenance
from truedrift.report.figure import save_figure, set_paper_fonts
from truedrift.report.table import Table, cell_text, is_bold
from truedrift.storage import write_atomically

LARGEST_PIXELS = 40_000_000
PAGE = "report.html"
"""File name of the page."""

FIGURE_DPI, PAGE_DPI = 200, 110
"""Pixels per inch of an item's figure in the file, and on the page."""
LARGE, SMALL = 720, 224
"""Widths of sample pictures in pixels."""
EARLIER_PICTURES = 4
"""Number of sample pictures from before the end of training."""
_UNSHOWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
"""Control characters, lone surrogates, and characters that change the direction of the text after them."""


def write_page(
    path: Path, *, title: str, records: Sequence[Any], runs: Sequence[Path], problems: Sequence[str] = ()
) -> Path:
    """Write the page of these records and run directories atomically.

    Args:
        path: The HTML file.
        title: Title of the page.
        records: Records of the paper's items.
        runs: Run directories.
        problems: Sentences on what could not be read.

    Returns:
        The path.
    """
    html = render_page(title, records, sort_runs(read_runs(runs)), problems=problems)
    write_atomically(path, html.encode())
    return path


def render_runs(paths: Sequence[Path], directory: Path) -> str:
    """Write the figures and tables of these run directories; return one line per file."""
    return "\n".join(f"written: {path}" for path in save_runs(sort_runs(read_runs(paths)), directory))


def save_runs(runs: Sequence[Run], directory: Path) -> list[Path]:
    """Write the figures of the drawn runs and the tables of all runs; skip those without content."""
    charts = Charts.from_runs(runs_to_draw(runs))
    figures = {"curves": plot_curves(charts), "gauge": plot_gauge(charts)}
    tables = {"runs": final_table(runs), "differences": differences_table(runs)}
    return [
        *(path for name, figure in figures.items() if figure for path in save_figure(figure, directory, name)),
        *(path for name, table in tables.items() if table for path in table.save(directory, name)),
    ]


def render_page(title: str, records: Sequence[Any], runs: Sequence[Run], *, problems: Sequence[str] = ()) -> str:
    """Render the HTML of records and runs."""
    charts = Charts.from_runs(runs_to_draw(runs))
    findings = [*findings_of_runs(runs), *findings_of_records(records), *findings_of_problems(problems)]
    style = read_resource("style.css")
    counts = [pluralize(len(each), noun) for each, noun in ((records, "item"), (runs, "run")) if each]
    return load_template().render(
        title=title,
        policy=content_policy(style),
        style=style,
        subtitle=f"{', '.join(counts) or 'nothing'}; {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        cards=group_findings(findings),
        items=[describe_item(record) for record in records],
        overview=_overview(runs),
        drawn=f"{describe_drawn(runs)} Pass some of the runs to see a page of those." if is_overview(runs) else "",
        runs=[describe_run_sections(run) for run in charts.runs],
        other_runs=[describe_run_sections(run) for run in runs if run not in charts.runs],
        final=_without_caption(final_table(charts.runs)),
        evaluation=embed_charts(plot_evaluation(charts), charts.evaluation),
        training=embed_charts(plot_training(charts), charts.training),
        gauge=embed_charts(plot_gauge(charts), charts.gauge),
        few=f"{FEW:g}",
        differences=_without_caption(options_table(charts.runs, find_differences(runs))),
        options=options_table(charts.runs),
        version=__version__,
        data=chart_data(records, charts),
    )


# Template


def load_template(*, autoescape: bool = True) -> Any:
    """Compile page.html.j2."""
    environment = Environment(
        autoescape=autoescape,
        undefined=StrictUndefined,
        finalize=replace_unshowable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.globals |= {"cell_text": cell_text, "is_bold": is_bold, "pluralize": pluralize}
    return environment.from_string(read_resource("page.html.j2"))


def read_resource(name: str) -> str:
    """Read a file of this package."""
    return files("truedrift.page").joinpath(name).read_text(encoding="utf-8")


def replace_unshowable(value: Any) -> Any:
    """Replace characters that a page cannot or should not show."""
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return _UNSHOWABLE.sub("\N{REPLACEMENT CHARACTER}", value) if is_text else value


def content_policy(style: str) -> str:
    """The Content-Security-Policy: images inside the page and this style sheet."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; script-src 'none'; "
        "base-uri 'none'; form-action 'none'"
    )


# Images


@dataclass(frozen=True, kw_only=True)
class PageImage:
    """An image inside the page."""

    source: str
    """A data: address."""
    alt: str
    width: int
    height: int
    dark_source: str = ""
    """Another version for a dark page."""


class UnreadablePicture(ValueError):
    """A file that is not a PNG image, or one that is too large."""


def embed_picture(path: Path, *, width: int, alt: str) -> PageImage:
    """Decode a PNG file and encode it again, at most `width` pixels wide; its metadata is dropped."""
    from PIL import Image  # noqa: PLC0415  an extra

    try:
        with Image.open(path, formats=("PNG",)) as opened:
            if opened.width * opened.height > LARGEST_PIXELS:
                raise UnreadablePicture(f"{path.name} has {opened.width} × {opened.height} pixels")
            image = opened.convert("RGB")
    except UnreadablePicture:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        raise UnreadablePicture(f"{path.name} is not a PNG image") from None
    size = image.size
    image.thumbnail((width, 2 * width))
    file = io.BytesIO()
    image.save(file, format="PNG", optimize=True)
    return PageImage(source=_data_address("png", file.getvalue()), alt=alt, width=size[0], height=size[1])


def embed_figure(figure: Figure, *, alt: str) -> PageImage:
    """Draw the figure of an item as PNG on white."""
    file = io.BytesIO()
    set_paper_fonts(figure).savefig(file, format="png", dpi=FIGURE_DPI, facecolor="white")
    width, height = (round(PAGE_DPI * inches) for inches in figure.get_size_inches())
    return PageImage(source=_data_address("png", file.getvalue()), alt=alt, width=width, height=height)


@dataclass(frozen=True, kw_only=True)
class PageCharts:
    """Charts as one image, and explanations of their quantities."""

    image: PageImage
    explanations: Sequence[str]


def embed_charts(figure: Figure | None, charts: Sequence[Chart]) -> PageCharts | None:
    """Draw charts as SVG in a light and a dark version; None if there is nothing to draw."""
    if figure is None:
        return None
    shown = [chart for chart in charts if chart.lines]
    ends = (
        f"{chart.title}: " + ", ".join(f"{each.name} {each.values[-1]:.4g}" for each in chart.lines) for chart in shown
    )
    light, dark = (_data_address("svg+xml", svg) for svg in figure_svgs(figure))
    width, height = (round(1.5 * PAGE_DPI * inches) for inches in figure.get_size_inches())
    image = PageImage(
        source=light, dark_source=dark, alt=f"Last values. {'; '.join(ends)}.", width=width, height=height
    )
    return PageCharts(image=image, explanations=list(dict.fromkeys(chart.about for chart in shown if chart.about)))


def _data_address(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


# Sections


@dataclass(frozen=True, kw_only=True)
class PageItem:
    """What the page shows of an item of the paper."""

    label: str
    anchor: str
    description: str
    figure: PageImage | None
    table: Table | None
    summary: str
    command: str
    is_command_recorded: bool
    origin: str


def describe_item(record: Any) -> PageItem:
    """Collect the content of an item's section."""
    item, origin = find_item(record), record.provenance
    figure = item.figure(record)
    usual_command = "truedrift bias" if item.label == "bias" else f"truedrift reproduce {item.label}"
    return PageItem(
        label=item.label,
        anchor=item_anchor(item),
        description=item.description,
        figure=embed_figure(figure, alt=f"Figure {item.label}") if figure else None,
        table=item.table(record),
        summary=item.summary(record),
        command=origin.command or usual_command,
        is_command_recorded=bool(origin.command),
        origin=describe_origin(origin),
    )


def describe_origin(origin: Provenance) -> str:
    """Time, version, commit, seed and duration."""
    digits, dash, dirty = (origin.commit or "").partition("-")
    commit = f"commit {digits[:12]}{dash}{dirty}" if digits else "no commit"
    seconds = f"{origin.wall_seconds:,.0f} s" if origin.wall_seconds >= 1 else "less than 1 s"
    return f"{origin.time}, truedrift {origin.version}, {commit}, seed {origin.seed}, {seconds}"


@dataclass(frozen=True, kw_only=True)
class PagePicture:
    """A picture of samples, or the reason why it cannot be shown."""

    caption: str
    image: PageImage | None
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class PageRun:
    """What the page shows of one run."""

    name: str
    gauge: Sequence[GaugeRow]
    progress: str
    pictures: Sequence[PagePicture]
    """The last one, then a few earlier ones."""
    provenance: Table
    history: Table | None


def describe_run_sections(run: Run) -> PageRun:
    """Collect the content that the sections have of one run."""
    return PageRun(
        name=run.name,
        gauge=gauge_rows(run),
        progress=describe_progress(run) if run.telemetry else "",
        pictures=collect_pictures(run),
        provenance=provenance_table(run),
        history=history_table(run),
    )


def collect_pictures(run: Run) -> list[PagePicture]:
    """Embed the last picture in large and a few earlier ones in small."""
    if not run.pictures:
        return []
    rows = f"; rows are {', '.join(run.classes[:20])}"[:200] if len(run.classes) > 1 else ""
    last_step, last_path = run.pictures[-1]
    caption = f"Step {last_step:,}, averaged weights, the same noise in every picture{rows}"
    earlier = choose_evenly(run.pictures[:-1])
    return [
        _embed_samples(run, last_step, last_path, LARGE, caption),
        *(_embed_samples(run, step, path, SMALL, f"step {step:,}") for step, path in earlier),
    ]


def choose_evenly(pictures: Sequence[tuple[int, Path]]) -> list[tuple[int, Path]]:
    """At most `EARLIER_PICTURES` pictures at even distances, beginning with the first."""
    count = min(EARLIER_PICTURES, len(pictures))
    return [pictures[k * len(pictures) // count] for k in range(count)]


def _embed_samples(run: Run, step: int, path: Path, width: int, caption: str) -> PagePicture:
    try:
        image = embed_picture(path, width=width, alt=f"Samples of {run.name} at step {step}")
    except UnreadablePicture as problem:
        return PagePicture(caption=f"step {step:,}", image=None, problem=f"{problem}.")
    return PagePicture(caption=caption, image=image)


def _overview(runs: Sequence[Run]) -> Table | None:
    """The table of many runs; their protocols are among the findings already."""
    return replace(overview_table(runs), caption="", notes=more_options(runs)) if is_overview(runs) else None


def _without_caption(table: Table | None) -> Table | None:
    """The table under a heading that says the same."""
    return None if table is None or not table.rows else replace(table, caption="", notes=())


def chart_data(records: Sequence[Any], charts: Charts) -> dict[str, Any]:
    """The numbers of all charts, for programs."""
    return {
        "items": [find_item(record).label for record in records],
        "charts": [
            {"title": chart.title, "series": {each.name: list(each.points) for each in chart.lines}}
            for chart in charts.all
        ],
    }
