"""The pictures of a run: the last one large, a few on the way, all of the same noise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from truedrift.report.page.markup import Content, Markup, element
from truedrift.report.page.pictures import Unshowable, picture
from truedrift.report.page.run_files import Run

ON_THE_WAY = 4
LARGE, SMALL = 720, 224


def section(run: Run) -> Markup:
    """Under the run's name."""
    return element("div", element("h3", element("bdi", run.name)), _pictures(run))


def _pictures(run: Run) -> list[Content]:
    if not run.pictures:
        return [element("p", "This run has no pictures.", class_="soft")]
    (step, last), before = run.pictures[-1], on_the_way(run.pictures[:-1])
    way = element("div", (_shown(run, step, path, SMALL) for step, path in before), class_="way")
    return [element("div", _shown(run, step, last, LARGE), class_="grid-large"), way if before else None]


def on_the_way(pictures: Sequence[tuple[int, Path]]) -> list[tuple[int, Path]]:
    """At most ON_THE_WAY of them, evenly, the first among them."""
    many = min(ON_THE_WAY, len(pictures))
    return [pictures[k * len(pictures) // many] for k in range(many)]


def _shown(run: Run, step: int, path: Path, widest: int) -> Markup:
    caption = f"step {step:,}" if widest == SMALL else _caption(run, step)
    try:
        shown: Content = picture(path, widest=widest, said=f"Samples of {run.name} at step {step}")
    except Unshowable as reason:
        shown, caption = element("p", f"{reason}.", class_="soft small"), f"step {step:,}"
    return element("figure", shown, element("figcaption", caption))


def _caption(run: Run, step: int) -> str:
    rows = f"; rows are {', '.join(run.classes[:20])}"[:200] if len(run.classes) > 1 else ""
    return f"Step {step:,}, averaged weights, the same noise in every picture{rows}"
