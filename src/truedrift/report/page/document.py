"""The frame of the page: head, the policy that a browser enforces on it, style, and body.

Nothing is loaded, nothing runs, and the one style sheet is known by its hash. Were there a hole in the escaping, the
policy would still keep a script from running.
"""

from __future__ import annotations

import base64
import hashlib

from truedrift.report.page.markup import Content, Markup, element, joined
from truedrift.report.page.style import sheet

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
