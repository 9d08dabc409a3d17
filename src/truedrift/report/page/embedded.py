r"""Numbers for programs, inside of the page: JSON in a block that no browser runs.

`<`, `>` and `&` are written as \u003c, \u003e and \u0026, and everything beyond ASCII likewise, so that no text in it
can end the block or begin a comment in it.
"""

from __future__ import annotations

import json
from typing import Any

from truedrift.report.page.markup import Markup

_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def json_block(data: Any) -> Markup:
    """<script type="application/json" id="data">."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for letter, written in _ESCAPES.items():
        text = text.replace(letter, written)
    return Markup(f'<script type="application/json" id="data">{text}</script>')
