"""Hostile JSON: config.json, metrics.jsonl, history.jsonl, evaluations.jsonl and records.jsonl.

A tree of valid values is changed in a few places: a value becomes one of another type, of an absurd size, of control
characters or HTML, or disappears.
"""

from __future__ import annotations

import copy
import io
import json
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from PIL import Image

from truedrift.records import store
from truedrift.storage import to_hashed_json

from .commands import Before, replace_everywhere
from .hostile import READ_OR_REFUSED, Hostile
from .hostile_arrays import ESCAPE
from .runs import Bench, train_arguments
from .table import Attack

MARKUP = "</script></style><img src=x onerror=alert(1)>"
RAW = {
    "@nan@": "NaN",
    "@overflow@": "1e999",
    "@digits@": "1" * 5000,
    "@deep@": "[" * 100_000 + "]" * 100_000,
    "@deep object@": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "@surrogate@": '"\\ud800"',
    "@control@": '"\\u001b[2J\\u0000\\u009b"',
    "@twice@": '{"a": 1, "a": 2}',
}
"""Texts that `json.dumps` does not write."""
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 1.5, -1e308, 1e308, 5e-324, 10**30, -(10**18), 2**63, 12345678901234567),
    *("", "x", "x" * 100_000, ESCAPE, MARKUP, "../../etc/passwd", "$\\frac{1}{0}$", "%s", "2024-13-99T99:99:99"),
    *([], {}, [None], [[]], [{}], {"a": {"b": None}}, [0] * 1000, [1e308, -1e308], ["a", 1, None, [], {}]),
    *RAW,
)


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value below the tree."""
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in entries:
        yield (*path, key)
        yield from places(value, (*path, key))


def mutate_tree(tree: Any, rng: random.Random) -> Any:
    """Return a copy in which one to three values are replaced or removed, or get a neighbor."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 2, 3))):
        found = list(places(tree))
        if not found:
            return rng.choice(VALUES)
        *parents, key = rng.choice(found)
        owner = tree
        for parent in parents:
            owner = owner[parent]
        match rng.randrange(8):
            case 0:
                del owner[key]
            case 1 if isinstance(owner, list):
                owner.append(rng.choice(VALUES))
            case 1:
                owner[rng.choice((MARKUP, ESCAPE, "new"))] = owner[key]
            case 2 if isinstance(owner[key], (int, float)):
                owner[key] = owner[key] * rng.choice((-1, 0, 1e-300, 1e300, 10**9))
            case _:
                owner[key] = rng.choice(VALUES)
    return tree


def to_text(tree: Any) -> str:
    """Serialize with the texts that JSON does not have."""
    text = json.dumps(tree, ensure_ascii=False)
    for mark, raw in RAW.items():
        text = text.replace(json.dumps(mark), raw)
    return text


def skip_drawing() -> None:
    """Write empty pictures: figures take most of the time of a report. The long version draws them."""
    png = io.BytesIO()
    Image.new("L", (8, 8)).save(png, "PNG")
    contents = {"png": png.getvalue(), "svg": b"<svg></svg>", "pdf": b"%PDF-"}

    def save(self: Figure, file: Any, format: str = "png", **options: Any) -> None:  # noqa: A002
        file.write(contents[format])

    Figure.savefig = save  # type: ignore[method-assign,assignment]
    replace_everywhere("plot_charts", lambda runs, charts: Figure())


def find_markup(folder: Path) -> str | None:
    """Return a problem if the page holds markup of a file, or no page was written."""
    pages = list(folder.rglob("*.html"))
    return "the page holds markup of a file" if any(MARKUP in page.read_text() for page in pages) else None


# ---- Lines that `report` reads ----

FILES = ("metrics.jsonl", "history.jsonl", "evaluations.jsonl")


def write_lines(folder: Path, bench: Bench, name: str, lines: Sequence[str]) -> list[str]:
    """Copy an evaluated run with other lines in one of its files."""
    run = bench.copy(bench.evaluated, folder)
    (run / name).write_bytes("\n".join([*lines, ""]).encode(errors="surrogatepass"))
    return ["report", str(run), "--out", str(folder / "page")]


def draw_lines(bench: Bench, rng: random.Random, number: int) -> Hostile:
    """Change some lines of a file of the run."""
    name = FILES[number % 3]
    valid = [json.loads(line) for line in (bench.evaluated / name).read_text().splitlines()]
    changed = [to_text(mutate_tree(line, rng)) if rng.random() < 0.5 else json.dumps(line) for line in valid]
    extra = [rng.choice(("null", "[]", "{}", "{", "", "1", "@", RAW["@deep@"], RAW["@digits@"], '{"step": "x"}'))]
    write = partial(write_lines, bench=bench, name=name, lines=[*changed, *extra])
    return report_case(bench, rng, f"{name} with changed lines", write)


def report_case(bench: Bench, rng: random.Random, name: str, write: Callable[[Path], Sequence[str]]) -> Hostile:
    """Return a case of `report`. Figures are drawn in every fourth case of the long version."""
    is_drawn = not bench.is_quick and rng.random() < 0.25
    return Hostile(name, write, READ_OR_REFUSED, before=() if is_drawn else (skip_drawing,), inspect=find_markup)


def parse_strictly() -> None:
    """Break the reader: a line that is no object is not left out."""
    replace_everywhere("parse_json_line", json.loads)


# ---- config.json ----

SHAPES = ([10**9, 10**9, 10**9], [1, 10**9, 1], [10**12], [0], [-1, 8, 8], [1.5], "x", None, [[8]], [1] * 50, [True])


def config_commands(run: Path, folder: Path) -> list[list[str]]:
    """Return the commands that read a run."""
    samples = ["sample", str(run), "--device", "cpu", "--count", "10", "--out", str(folder / "grid.png")]
    return [
        samples,
        train_arguments(run),
        ["report", str(run), "--out", str(folder / "page")],
        ["evaluate", str(run), "--samples", "20", "--device", "cpu"],
        ["train", "digits", "--config", str(run / "config.json"), "--print-config"],
    ]


def write_config(folder: Path, bench: Bench, tree: Any, command: int, hashed: bool) -> list[str]:
    """Copy a run with another config.json, with the right hash or without one."""
    run = bench.copy(bench.complete, folder)
    text = to_text(tree)
    (run / "config.json").write_bytes(text.encode(errors="surrogatepass"))
    if hashed and isinstance(tree, dict) and not any(mark in text for mark in RAW.values()):
        (run / "config.json").write_bytes(to_hashed_json(tree))
    return config_commands(run, folder)[command]


def read_valid_config(bench: Bench) -> dict[str, Any]:
    tree = json.loads((bench.complete / "config.json").read_text())
    del tree["sha256"]
    return tree


def draw_config(bench: Bench, rng: random.Random, number: int) -> Hostile:
    """Change values of config.json; every fourth case has an absurd shape of samples."""
    tree = read_valid_config(bench)
    if number % 4 == 0:
        shape = SHAPES[number // 4 % len(SHAPES)]
        tree["data"]["sample_shape"] = shape
        return config_case(bench, rng, f"sample_shape {shape}", tree, 0, True)
    changed, command = mutate_tree(tree, rng), rng.randrange(5)
    return config_case(bench, rng, "config.json with changed values", changed, command, rng.random() < 0.5)


def config_case(bench: Bench, rng: random.Random, name: str, tree: Any, command: int, hashed: bool) -> Hostile:
    write = partial(write_config, bench=bench, tree=tree, command=command, hashed=hashed)
    return report_case(bench, rng, f"{name}, command {command}", write)


def leave_errors() -> None:
    """Break the reader: defects of config.json are not caught."""
    replace_everywhere("_unreadable_config", lambda file, reason: RuntimeError(reason))


# ---- records.jsonl ----

RECORDS = Path(__file__).parents[2] / "docs" / "results"
SMALL_RECORDS = ("guidance", "tab_baselines", "tab_overhead", "fig_bias_loglog", "normalization", "images")


def write_records(folder: Path, lines: Sequence[str]) -> list[str]:
    (folder / "records").mkdir()
    (folder / "records" / "records.jsonl").write_bytes("\n".join([*lines, ""]).encode(errors="surrogatepass"))
    return ["report", str(folder / "records"), "--out", str(folder / "page")]


def draw_records(bench: Bench, rng: random.Random, number: int) -> Hostile:
    name = rng.choice(SMALL_RECORDS)
    lines = [json.loads(line) for line in (RECORDS / f"{name}.jsonl").read_text().splitlines()]
    changed = [to_text(mutate_tree(line, rng)) for line in lines]
    return report_case(bench, rng, f"{name} with changed values", partial(write_records, lines=changed))


def build_unchecked() -> None:
    """Break the reader: fields of records are not checked."""
    store.from_dict = lambda kind, tree: kind(**tree)


def attacks(bench: Bench) -> list[Attack]:
    def attempt(case: Hostile, before: Sequence[Before]) -> str | None:
        return case.attempt(bench, before)

    return [
        Attack(
            "hostile lines of metrics, history, evaluations: report",
            partial(draw_lines, bench),
            attempt,
            control="broken lines not left out",
            broken=parse_strictly,
            control_draw=lambda rng, number: report_case(
                bench, rng, "a torn line", partial(write_lines, bench=bench, name=FILES[number % 2], lines=["{"])
            ),
        ),
        Attack(
            "hostile config.json: sample, train, report, evaluate",
            partial(draw_config, bench),
            attempt,
            control="defects of config.json not caught",
            broken=leave_errors,
            quick_tries=4,
            control_draw=lambda rng, number: config_case(bench, rng, "a list", [], 0, False),
        ),
        Attack(
            "hostile records.jsonl: report",
            partial(draw_records, bench),
            attempt,
            control="fields of records not checked",
            broken=build_unchecked,
        ),
    ]
