"""Many runs at a glance: a card for all of them, and a table with a row a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from truedrift.records import Protocol
from truedrift.report.cell import DASH, Number, Row, text_of
from truedrift.report.page.chosen import differing
from truedrift.report.page.configuration import dotted, written
from truedrift.report.page.distance import End, best, ends
from truedrift.report.page.markup import Content, element
from truedrift.report.page.naming import counted
from truedrift.report.page.run_files import Run
from truedrift.report.page.tables import table
from truedrift.report.page.verdict import UNREAD, Verdict
from truedrift.report.page.verdicts import standing, told
from truedrift.report.table import Table

OPTIONS = 8
"""Columns for what differs."""
NAMED = 5
"""Runs and problems that are told by name."""


def of_many(runs: Sequence[Run]) -> list[Verdict]:
    """How many are complete and collapsed, and from where to where their distances reach, by every protocol."""
    subject = counted(len(runs), "run")
    complete = sum(_is_complete(run) for run in runs)
    collapsed = [run.name for run in runs if _has_collapsed(run)]
    state = f"{complete} of {len(runs)} complete; {_names(collapsed)} collapsed."
    whole = complete == len(runs)
    own = Verdict(subject=subject, sentence=state, tone="bad" if collapsed else "good" if whole else "note")
    return [own, *_reaches(runs, subject), *_unread(runs)]


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{len(names)} ({', '.join(names[:NAMED])}{more})" if names else "none"


def _reaches(runs: Sequence[Run], subject: str) -> Iterator[Verdict]:
    """A sentence a protocol: the least and the largest distance at the end."""
    last, protocols = {run.name: _end(run) for run in runs}, _protocols(runs)
    for protocol in protocols:
        found = {name: end for name, end in last.items() if end and end.protocol == protocol}
        low, high = (choose(found, key=lambda name: found[name].distance) for choose in (min, max))
        said = (
            f"{_number(protocol, protocols)}{protocol.distance_name} at the end from {found[low].distance:.3g} ({low}) "
            f"to {found[high].distance:.3g} ({high}), {counted(len(found), 'run')}."
        )
        yield Verdict(subject=subject, sentence=said, about=told(protocol))
    missing = sum(end is None for end in last.values())
    if missing:
        yield Verdict(subject=subject, sentence=f"{missing} of {len(runs)} not evaluated.", tone="note")


def _unread(runs: Sequence[Run]) -> Iterator[Verdict]:
    problems = [f"{run.name}: {problem}" for run in runs for problem in run.problems]
    left = len(problems) - NAMED
    listed = [*problems[:NAMED], *([f"{left} more like these."] if left > 0 else [])]
    return (Verdict(subject=UNREAD, sentence=each, tone="note") for each in listed)


def summary(runs: Sequence[Run]) -> list[Content]:
    """The table, whose distances are by the protocols that the card numbers, and below it what has no column."""
    source = told_in_rows(runs)
    rows: list[list[Content]] = [[element("bdi", text_of(row[0])), *map(text_of, row[1:])] for row in source.rows]
    return [table(source.header, rows), [element("p", more, class_="soft small") for more in _more(differing(runs))]]


def told_in_rows(runs: Sequence[Run]) -> Table:
    """A row a run: what differs, its distance at the end and its best, and how it stands; the protocols as notes."""
    paths, protocols = differing(runs), _protocols(runs)
    common = len(protocols) == 1 and all(end.protocol for end in map(_end, runs) if end)
    distance = [f"{protocols[0].distance_name} at the end"] if common else ["judged by", "distance at the end"]
    return Table(
        caption=f"{counted(len(runs), 'run')}: what differs in their configurations, and where their training ended.",
        label="tab:runs",
        header=["run", *_short(paths[:OPTIONS]), *distance, "best in training", "state", "collapsed"],
        groups=[[_row(run, paths[:OPTIONS], protocols, common=common) for run in runs]],
        notes=[*(f"{_number(each, protocols)}{told(each)}." for each in protocols), *_more(paths)],
    )


def _more(paths: Sequence[str]) -> list[str]:
    """What has no column."""
    return [f"They differ in {', '.join(paths[OPTIONS:])} too."] if paths[OPTIONS:] else []


def _short(paths: Sequence[str]) -> list[str]:
    """The last word of each path, where only one path ends in it."""
    last = Counter(path.rpartition(".")[2] for path in paths)
    return [path if last[path.rpartition(".")[2]] > 1 else path.rpartition(".")[2] for path in paths]


def _row(run: Run, paths: Sequence[str], protocols: Sequence[Protocol], *, common: bool) -> Row:
    tree: Mapping[str, object] = dotted(run.config.tree())
    end, least = _end(run), best(run)
    return [
        run.name,
        *(written(tree, path) for path in paths),
        *([] if common else [_judged_by(end, protocols)]),
        Number(end.distance if end else None, ".4g"),
        Number(least.distance if least else None, ".4g"),
        "complete" if _is_complete(run) else standing(run)[0].partition(":")[0],
        "yes" if _has_collapsed(run) else "no" if run.telemetry else "–",
    ]


def _judged_by(end: End | None, protocols: Sequence[Protocol]) -> str:
    if end is None:
        return DASH
    return f"{_number(end.protocol, protocols) if end.protocol else ''}{end.distance_name}"


def _number(protocol: Protocol, protocols: Sequence[Protocol]) -> str:
    """Which of several, from 1."""
    return f"[{protocols.index(protocol) + 1}] " if len(protocols) > 1 else ""


def _end(run: Run) -> End | None:
    return next(iter(ends(run)), None)


def _protocols(runs: Sequence[Run]) -> list[Protocol]:
    """Of the ends, each once."""
    found = (_end(run) for run in runs)
    return list(dict.fromkeys(end.protocol for end in found if end and end.protocol))


def _is_complete(run: Run) -> bool:
    return standing(run)[1] == "good"


def _has_collapsed(run: Run) -> bool:
    return run.last.get("collapsed") is True
