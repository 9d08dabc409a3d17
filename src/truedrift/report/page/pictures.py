"""Pictures that are in the page: every one is decoded, brought to a size and written anew, so that none can be broken.

Metadata and whatever else a file carries stays behind.
"""

from __future__ import annotations

import base64
import io
from pathlib import Path

from matplotlib.figure import Figure

from truedrift.report.item import typeset
from truedrift.report.page.markup import Markup, element

LARGEST_PIXELS = 40_000_000
FIGURE_DPI = 200
SHOWN_PER_INCH = 110
"""Of a figure: pixels of the page."""


class Unshowable(ValueError):
    """A file that is no picture, or one too large."""


def picture(path: Path, *, widest: int, said: str, size: float = 1.0) -> Markup:
    """The file as an image of at most `widest` pixels across and twice as many down; `said` is for who cannot see it.

    It is shown at `size` times the pixels of the file.
    """
    from PIL import Image  # noqa: PLC0415  an extra

    try:
        with Image.open(path, formats=("PNG",)) as opened:
            if opened.width * opened.height > LARGEST_PIXELS:
                raise Unshowable(f"{path.name} has {opened.width} × {opened.height} pixels")
            image = opened.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise error if isinstance(error, Unshowable) else Unshowable(f"{path.name} is no picture") from None
    width, height = (round(size * pixels) for pixels in image.size)
    image.thumbnail((widest, 2 * widest))
    target = io.BytesIO()
    image.save(target, format="PNG", optimize=True)
    return _inlined(target.getvalue(), (width, height), said)


def drawn(figure: Figure, *, said: str) -> Markup:
    """A figure of the report."""
    target = io.BytesIO()
    typeset(figure).savefig(target, format="png", dpi=FIGURE_DPI, facecolor="white")
    width, height = (round(SHOWN_PER_INCH * inches) for inches in figure.get_size_inches())
    return _inlined(target.getvalue(), (width, height), said)


def _inlined(png: bytes, size: tuple[int, int], said: str) -> Markup:
    address = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return element("img", src=address, alt=said, width=size[0], height=size[1])
