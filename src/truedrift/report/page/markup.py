"""HTML that is escaped by construction.

Content is text, which is always escaped, or `Markup`, which only these functions make. What a browser would run or load
has no way in: no `on…` and no `style` attribute, and an address is a picture inside of the page or a place in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

VOID = frozenset({"br", "img", "link", "meta"})
ADDRESSES = frozenset({"href", "src"})
_ATTRIBUTE = re.compile(r"(?!on)(?!style$)[a-zA-Z][a-zA-Z0-9-]*")
_ADDRESS = re.compile(r"#[a-z0-9-]+|data:image/png;base64,[A-Za-z0-9+/=]*")
_UNSHOWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
"""Control characters, half characters, and those that turn the direction of the text after them."""


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
