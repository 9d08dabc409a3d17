"""HTML that is escaped by construction.

Content is text, which is always escaped, or `Markup`, which only these functions make. What a browser would run or load
has no way in: no `on…` and no `style` attribute, and an address is a picture inside of the page or a place in it.

Numbers for programs, inside of the page: JSON in a block that no browser runs.

`<`, `>` and `&` are written as <, > and &, and everything beyond ASCII likewise, so that no text in it
can end the block or begin a comment in it.

The frame of the page: head, the policy that a browser enforces on it, style, and body.

Nothing is loaded, nothing runs, and the one style sheet is known by its hash. Were there a hole in the escaping, the
policy would still keep a script from running.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any, TypeAlias

from truedrift.report.figure import ABC, ABC2, MUTED, STANDARD, STRATIFIED, TARGET
from truedrift.report.table import Cell, Table, cell_text, is_bold

VOID = frozenset({"br", "img", "link", "meta"})
ADDRESSES = frozenset({"href", "src"})
_ATTRIBUTE = re.compile(r"(?!on)(?!style$)[a-zA-Z][a-zA-Z0-9-]*")
_ADDRESS = re.compile(r"#[a-z0-9-]+|data:image/png;base64,[A-Za-z0-9+/=]*")
_UNSHOWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
"""Control characters, half characters, and those that turn the direction of the text after them."""


COLORS = {
    "abc": (ABC, "#5cb3f5"),
    "standard": (STANDARD, "#ff8781"),
    "abc2": (ABC2, "#c99be6"),
    "stratified": (STRATIFIED, "#f2b14c"),
    "target": (TARGET, "#74c46f"),
    "muted": (MUTED, "#a3abb5"),
}
"""Class of a line → its color on white, and the same hue on black."""


@cache
def sheet() -> str:
    """All of it."""
    rules = "\n".join(f".{name} {{ --color: var(--{name}); }}" for name in COLORS)
    css = files("truedrift.page").joinpath("style.css").read_text(encoding="utf-8")
    return f"{_root(0)}\n@media screen and (prefers-color-scheme: dark) {{ {_root(1)} }}\n{rules}\n{css}"


def _root(which: int) -> str:
    return ":root { " + " ".join(f"--{name}: {colors[which]};" for name, colors in COLORS.items()) + " }"


@dataclass(frozen=True)
class Markup:
    """HTML as it goes into the page."""

    html: str


Content: TypeAlias = "Markup | str | Iterable[Content] | None"
Value: TypeAlias = str | int | float | bool | None


def element(tag: str, /, *content: Content, **attributes: Value) -> Markup:
    """<tag attribute="value">content</tag>; `class_` is class, `aria_label` is aria-label, None leaves one out."""
    opened = f"<{tag}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Markup(opened if tag in VOID else f"{opened}{joined(content).html}</{tag}>")


def joined(content: Content) -> Markup:
    """All of it, one after another."""
    if content is None:
        return Markup("")
    if isinstance(content, Markup):
        return content
    if isinstance(content, str):
        return Markup(escaped(content))
    return Markup("".join(joined(each).html for each in content))


def escaped(text: str) -> str:
    """Text that stays text, in an element and in an attribute."""
    return escape(_UNSHOWABLE.sub("\N{REPLACEMENT CHARACTER}", text), quote=True)


def _attribute(key: str, value: Value) -> str:
    name = key.rstrip("_").replace("_", "-")
    if not _ATTRIBUTE.fullmatch(name):
        raise ValueError(f"{name!r} is no attribute of this page")
    if value is None or value is False:
        return ""
    if name in ADDRESSES and not _ADDRESS.fullmatch(str(value)):
        raise ValueError(f"{str(value)[:60]!r} leads out of the page")
    return f' {name}="{escaped("" if value is True else str(value))}"'


_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def json_block(data: Any) -> Markup:
    """<script type="application/json" id="data">."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for letter, written in _ESCAPES.items():
        text = text.replace(letter, written)
    return Markup(f'<script type="application/json" id="data">{text}</script>')


_NO_ICON = Markup('<link rel="icon" href="data:,">')
"""Else a browser asks the server for one."""


def document(title: str, body: Content) -> str:
    """The whole page."""
    style = sheet()
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy(style)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        _NO_ICON,
        element("style", Markup(style)),
    )
    page = element("html", head, element("body", body), lang="en")
    return f"<!doctype html>\n{joined(page).html}\n"


def policy(style: str) -> str:
    """What the page may do: show pictures that are in it, and use this style."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; script-src 'none'; "
        "base-uri 'none'; form-action 'none'"
    )


_WIDE = 48
"""Letters from which on a cell may be broken."""
_MANY = 6
"""Columns beyond which a table is set smaller, with headers of several lines."""


def table(header: Sequence[Content], rows: Sequence[Sequence[Content]], *, caption: str | None = None) -> Markup:
    """One body of rows; the first cell of each names it."""
    return _table(header, [rows], caption)


def of_report(source: Table) -> list[Content]:
    """The groups as bodies, the best in bold, the notes below."""
    groups = [[[_shown(cell) for cell in row] for row in group] for group in source.groups]
    notes = [element("p", note, class_="soft small") for note in source.notes]
    return [_table(source.header, groups, source.caption), notes]


def _table(header: Sequence[Content], groups: Sequence[Sequence[Sequence[Content]]], caption: str | None) -> Markup:
    head = element("thead", element("tr", (element("th", cell, scope="col") for cell in header)))
    bodies = (element("tbody", (_row(row) for row in group)) for group in groups)
    box = element(
        "div",
        element("table", head, bodies, class_="many" if len(header) > _MANY else None),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=caption or "table",
    )
    return element("div", element("p", caption, class_="caption"), box) if caption else box


def _row(row: Sequence[Content]) -> Markup:
    first, *others = row or ("",)
    return element("tr", element("th", first, scope="row"), (_cell(cell) for cell in others))


def _cell(cell: Content) -> Markup:
    wide = isinstance(cell, str) and len(cell) > _WIDE
    return element("td", cell, class_="wrap" if wide else None)


def _shown(cell: Cell) -> Content:
    text = cell_text(cell)
    return element("strong", text) if is_bold(cell) else text
