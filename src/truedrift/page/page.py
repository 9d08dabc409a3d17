"""The HTML page of records and runs: one file without scripts and without any request to a network.

The template is page.html.j2, its style style.css. Jinja escapes every value. The Content-Security-Policy of the page
allows only images inside the page and this one style sheet, so that a mistake in the template could not run a script.
"""

import base64
import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from matplotlib.figure import Figure
from PIL import Image

from truedrift._version import __version__
from truedrift.generators.pretrained import PretrainedModel, from_pretrained
from truedrift.generators.sampling import balanced_labels, sample
from truedrift.page import tables
from truedrift.page.charts import (
    Chart,
    energy_charts,
    evaluation_charts,
    figure_svgs,
    gauge_charts,
    plot_charts,
    training_charts,
)
from truedrift.page.findings import Finding, describe_problems, describe_runs, order_findings
from truedrift.page.run_data import (
    Run,
    describe_drawn,
    find_differences,
    find_sweeps,
    is_overview,
    pluralize,
    runs_to_draw,
    sort_runs,
)
from truedrift.page.run_log import FEW
from truedrift.paper.catalog import PRINTED, find_item
from truedrift.records.provenance import Provenance
from truedrift.report.figure import save_figure, set_paper_fonts
from truedrift.report.neighbors import describe_neighbors, describe_neighbors_protocol, neighbor_distances_figure
from truedrift.report.sweeps import sweep_figure, sweep_table
from truedrift.report.table import cell_text, is_bold
from truedrift.storage import write_atomically
from truedrift.training.pictures import LARGEST_CLASS_COUNT, image_grid

PAGE = "report.html"
"""File name of the page."""
FIGURE_DPI, PAGE_DPI = 200, 110
"""Pixels per inch of an item's figure in the file, and on the page."""
LARGE, SMALL = 720, 224
"""Widths of sample pictures in pixels."""
NEIGHBORS_WIDTH = 960
"""Width of the picture of nearest training images in pixels."""
EARLIER_PICTURES = 4
"""Number of sample pictures from before the end of training."""
MODEL_COLUMNS = 8
"""Samples per class of a pretrained model."""
MODEL_ROWS = 10
"""Largest number of classes of a pretrained model in its picture."""


def write_page(
    path: Path,
    *,
    title: str,
    records: Sequence[Any],
    runs: Sequence[Run],
    problems: Sequence[str] = (),
    models: Sequence[PretrainedModel] = (),
) -> Path:
    """Write the page of these records and runs atomically.

    Args:
        path: The HTML file.
        title: Title of the page.
        records: Records of the paper's items.
        runs: Runs as `read_runs` returns them.
        problems: Sentences on what could not be read.
        models: Pretrained models, whose samples are drawn for the page.

    Returns:
        The path.
    """
    html = render_page(title, records, runs, problems=problems, models=models)
    write_atomically(path, html.encode(errors="replace"))  # a file name may contain bytes that are not UTF-8
    return path


def render_runs(runs: Sequence[Run], directory: Path) -> str:
    """Write the figures of the drawn runs and the tables of all runs, if they have content.

    Args:
        runs: Runs as `read_runs` returns them.
        directory: The directory of the files.

    Returns:
        One line per file.
    """
    runs = sort_runs(runs)
    drawn = runs_to_draw(runs)
    figures = {
        "curves": [*energy_charts(drawn), *evaluation_charts(drawn), *training_charts(drawn)],
        "gauge": gauge_charts(drawn),
    }
    numbers = {"runs": tables.final_table(runs), "differences": tables.differences_table(runs)}
    written = [
        *(save_figure(plot_charts(drawn, charts), directory, name) for name, charts in figures.items() if charts),
        *(table.save(directory, name) for name, table in numbers.items() if table),
    ]
    return "\n".join(f"written: {path}" for path in chain(*written))


def render_page(
    title: str,
    records: Sequence[Any],
    runs: Sequence[Run],
    *,
    problems: Sequence[str] = (),
    models: Sequence[PretrainedModel] = (),
) -> str:
    """Render the HTML of records and runs.

    Args:
        title: Title of the page.
        records: Records of the paper's items.
        runs: Runs as `read_runs` returns them.
        problems: Sentences on what could not be read.
        models: Pretrained models, whose samples are drawn for the page.

    Returns:
        The HTML.
    """
    runs = sort_runs(runs)
    # Findings.
    items = [(find_item(record), record) for record in records]
    item_findings = [
        Finding(subject=item.label, sentence=sentence, anchor=f"item-{item.label}")
        for item, record in items
        for sentence in item.findings(record)
    ]
    findings = [*describe_runs(runs), *item_findings, *describe_problems(problems)]
    # Charts.
    drawn = runs_to_draw(runs)
    charts = {
        "energy": energy_charts(drawn),
        "evaluation": evaluation_charts(drawn),
        "training": training_charts(drawn),
        "gauge": gauge_charts(drawn),
    }
    # The page.
    style = read_resource("style.css")
    counts = [pluralize(len(each), noun) for each, noun in ((records, "item"), (runs, "run")) if each]
    return load_template().render(
        title=title,
        policy=content_policy(style),
        style=style,
        subtitle=f"{', '.join(counts) or 'nothing'}; {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        findings=order_findings(findings),
        items=items,
        printed=PRINTED,
        models=models,
        runs=runs,
        drawn=drawn,
        is_overview=is_overview(runs),
        charts=charts,
        evaluated=[run for run in drawn if run.neighbors or find_sweeps(run)],
        differences=find_differences(runs),
        version=__version__,
        data=chart_data([item.label for item, _ in items], [*chain(*charts.values())]),
    )


def chart_data(labels: Sequence[str], charts: Sequence[Chart]) -> dict[str, Any]:
    """Return the numbers of all charts, for programs."""
    return {
        "items": labels,
        "charts": [
            {"title": chart.title, "series": {each.name: each.points for each in chart.series}} for chart in charts
        ],
    }


# Template


def load_template() -> Any:
    """Compile page.html.j2, with the functions that it calls."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    images = (embed_charts, embed_figure, embed_model, embed_neighbors, embed_pictures, embed_real_pictures)
    figures = (neighbor_distances_figure, sweep_figure)
    texts = (cell_text, describe_drawn, describe_origin, is_bold, pluralize, row_classes)
    evaluations = (describe_neighbors, describe_neighbors_protocol, find_sweeps, sweep_table)
    functions = (*images, *figures, *texts, *evaluations)
    environment.globals |= {"tables": tables, "few": FEW} | {function.__name__: function for function in functions}
    return environment.from_string(read_resource("page.html.j2"))


def read_resource(name: str) -> str:
    """Read a file of this package."""
    return files("truedrift.page").joinpath(name).read_text(encoding="utf-8")


def content_policy(style: str, script: str | None = None) -> str:
    """Return the Content-Security-Policy: images inside the page, this style sheet, and this script or none."""
    allowed = "'none'" if script is None else _hash_source(script)
    return (
        f"default-src 'none'; img-src data:; style-src {_hash_source(style)}; script-src {allowed}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash_source(text: str) -> str:
    """Return the hash of an inline script or style in the form of a policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def describe_origin(origin: Provenance) -> str:
    """Describe time, version, commit, seed and duration."""
    digits, dash, dirty = (origin.commit or "").partition("-")
    commit = f"commit {digits[:12]}{dash}{dirty}" if digits else "no commit"
    seconds = f"{origin.wall_seconds:,.0f} s" if origin.wall_seconds >= 1 else "less than 1 s"
    return f"{origin.time}, truedrift {origin.version}, {commit}, seed {origin.seed}, {seconds}"


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


def embed_figure(figure: Figure, alt: str) -> PageImage:
    """Draw the figure of an item as PNG on white."""
    file = io.BytesIO()
    set_paper_fonts(figure).savefig(file, format="png", dpi=FIGURE_DPI, facecolor="white")
    width, height = (round(PAGE_DPI * inches) for inches in figure.get_size_inches())
    return PageImage(source=_data_address("png", file.getvalue()), alt=alt, width=width, height=height)


def embed_charts(runs: Sequence[Run], charts: Sequence[Chart]) -> PageImage:
    """Draw charts as one SVG image in a light and a dark version."""
    ends = [", ".join(f"{each.name} {each.values[-1]:.4g}" for each in chart.series) for chart in charts]
    alt = "; ".join(f"{chart.title}: {end}" for chart, end in zip(charts, ends, strict=True))
    figure = plot_charts(runs, charts)
    light, dark = (_data_address("svg+xml", svg) for svg in figure_svgs(figure))
    width, height = (round(1.5 * PAGE_DPI * inches) for inches in figure.get_size_inches())
    return PageImage(source=light, dark_source=dark, alt=f"Last values. {alt}.", width=width, height=height)


def embed_pictures(run: Run) -> list[tuple[str, PageImage | None]]:
    """Embed the last picture large and a few earlier ones small, with their captions; None if one is damaged."""
    if not run.pictures:
        return []
    shown = [
        (run.pictures[-1], LARGE, ", averaged weights, the same noise in every picture"),
        *((picture, SMALL, "") for picture in choose_evenly(run.pictures[:-1])),
    ]
    return [
        (f"Step {step:,}{more}", embed_picture(path, width, f"Samples of {run.name} at step {step}"))
        for (step, path), width, more in shown
    ]


def row_classes(run: Run) -> tuple[str, ...]:
    """Return the classes of the rows of a picture of images, from the top; empty for points."""
    return run.classes[:LARGEST_CLASS_COUNT] if run.real_picture is not None else ()


def embed_real_pictures(runs: Sequence[Run]) -> list[tuple[str, PageImage | None, tuple[str, ...]]]:
    """Embed the training images of the runs, once per data set: caption, picture and classes of its rows."""
    first = {run.data_sha256: run for run in reversed(runs) if run.real_picture is not None}
    return [
        (
            f"Training images of {run.config.data.name}",
            embed_picture(run.real_picture, LARGE, f"Training images of {run.config.data.name}"),
            row_classes(run),
        )
        for run in reversed(first.values())
        if run.real_picture is not None
    ]


def _describe_rows(classes: Sequence[str]) -> str:
    """Continue a caption with the classes of the rows, if there are several."""
    return f"; rows are {', '.join(classes)}"[:200] if len(classes) > 1 else ""


def embed_model(model: PretrainedModel) -> tuple[str, PageImage]:
    """Draw samples of a pretrained model, one row per class, with their caption."""
    classes = model.classes[:MODEL_ROWS]
    labels = balanced_labels(range(len(classes)), len(classes) * MODEL_COLUMNS)
    images = sample(from_pretrained(model.name), labels, seed=0, strength=model.strength)
    picture = image_grid(images, MODEL_COLUMNS)
    file = io.BytesIO()
    Image.fromarray(picture.numpy()).save(file, format="PNG", optimize=True)
    height, width, _ = picture.shape
    address = _data_address("png", file.getvalue())
    shown = PageImage(source=address, alt=f"Samples of {model.name}", width=width, height=height)
    return f"Samples with seed 0, one step each{_describe_rows(classes)}", shown


def embed_neighbors(run: Run) -> PageImage | None:
    """Embed the picture of samples beside their nearest training images; None if it is missing or damaged."""
    if run.neighbors_picture is None:
        return None
    return embed_picture(
        run.neighbors_picture, NEIGHBORS_WIDTH, f"Samples of {run.name} beside their nearest training images"
    )


def choose_evenly(pictures: Sequence[tuple[int, Path]]) -> list[tuple[int, Path]]:
    """Choose at most `EARLIER_PICTURES` pictures at even distances, beginning with the first."""
    count = min(EARLIER_PICTURES, len(pictures))
    return [pictures[k * len(pictures) // count] for k in range(count)]


def embed_picture(path: Path, width: int, alt: str) -> PageImage | None:
    """Decode a PNG file and encode it again, at most `width` pixels wide, without its metadata; None if damaged."""
    try:
        with Image.open(path, formats=("PNG",)) as opened:
            image = opened.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None
    size = image.size
    image.thumbnail((width, 2 * width))
    file = io.BytesIO()
    image.save(file, format="PNG", optimize=True)
    return PageImage(source=_data_address("png", file.getvalue()), alt=alt, width=size[0], height=size[1])


def _data_address(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
