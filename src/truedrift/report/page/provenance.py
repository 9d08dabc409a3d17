"""Where runs came from and who worked on them: version, commit, data, and the history with every resume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from truedrift.report.page.markup import Content, element
from truedrift.report.page.run_files import Run
from truedrift.report.page.tables import table

_COLUMNS = ("event", "time", "step", "host", "version")
_SHOWN_LETTERS = 300


def section(run: Run) -> list[Content]:
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
