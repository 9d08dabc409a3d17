"""Tables of runs: final numbers, options, the bias gauge, provenance and history."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from truedrift.page.charts import images_per_second, item_at, positives_seen, temperature_index
from truedrift.page.findings import (
    describe_protocol,
    final_distance,
    final_protocols,
    protocol_number,
    short_status,
)
from truedrift.page.run_data import (
    Run,
    best_evaluation,
    describe_drawn,
    final_distances,
    find_differences,
    format_option,
    is_overview,
    last_evaluation,
    pluralize,
    runs_to_draw,
    to_number,
)
from truedrift.report.table import DASH, Cell, MeanCell, Number, Row, Table, cell_text

# Final numbers


def final_table(runs: Sequence[Run]) -> Table | None:
    """One row per number and one column per run, or one row per run if they are many; None if nothing was logged."""
    if is_overview(runs):
        return overview_table(runs) if any(run.telemetry or final_distances(run) for run in runs) else None
    rows = final_rows(runs)
    if not rows:
        return None
    return Table(
        caption="Numbers at the end of training; the best distance is the smallest under the same protocol.",
        label="tab:runs",
        header=("at the end", *(run.name for run in runs)),
        groups=[rows],
        notes=_protocol_notes(runs),
    )


def final_rows(runs: Sequence[Run]) -> list[Row]:
    """One row per number that at least one run has."""
    names = dict.fromkeys(last.distance_name for last in map(last_evaluation, runs) if last)
    cells = {name: _distance_cell(name) for name in names} | _FINAL_CELLS
    rows = [[name, *map(cell, runs)] for name, cell in cells.items()]
    return [row for row in rows if any(cell_text(cell) != DASH for cell in row[1:])]


def _distance_cell(name: str) -> Callable[[Run], Cell]:
    def cell(run: Run) -> Cell:
        last = last_evaluation(run)
        return Number(last.distance if last and last.distance_name == name else None, ".4g")

    return cell


def _best_cell(run: Run) -> Cell:
    best = best_evaluation(run)
    return Number(None) if best is None else MeanCell(best.distance, None, None, ".4g", note=f"at step {best.step:,}")


def _metric_cell(name: str, digits: str, deviation: str = "") -> Callable[[Run], Cell]:
    def cell(run: Run) -> Cell:
        metrics: Mapping[str, Any] = last.metrics if (last := last_evaluation(run)) else {}
        value = to_number(metrics.get(name))
        return Number(None) if value is None else MeanCell(value, to_number(metrics.get(deviation)), None, digits)

    return cell


def _telemetry_cell(name: str, digits: str) -> Callable[[Run], Cell]:
    return lambda run: Number(to_number(run.last.get(name)), digits)


_FINAL_CELLS: dict[str, Callable[[Run], Cell]] = {
    "best distance": _best_cell,
    "KID": _metric_cell("kid", ".3g", "kid_deviation"),
    "precision": _metric_cell("precision", ".3f"),
    "recall": _metric_cell("recall", ".3f"),
    "Inception Score": _metric_cell("inception_score", ".3g", "inception_score_deviation"),
    "positives seen per class": _telemetry_cell("positives_seen", ",.0f"),
    "distance ratio": _telemetry_cell("spread", ".3f"),
    "gradient norm": _telemetry_cell("gradient_norm", ".3g"),
    "generated images per second": lambda run: Number(to_number(images_per_second(run.last)), ",.0f"),
}


def _protocol_notes(runs: Sequence[Run]) -> list[str]:
    """Each protocol once, after the runs that it evaluated."""
    names: dict[str, list[str]] = {}
    for run in runs:
        last = last_evaluation(run)
        if last:
            unknown = "the protocol is unknown, and the distance cannot be compared"
            names.setdefault(describe_protocol(last.protocol) if last.protocol else unknown, []).append(run.name)
    return [f"{', '.join(each)}: {protocol}." for protocol, each in names.items()]


# Many runs

MOST_OPTIONS = 8
"""Number of columns for options that differ."""


def overview_table(runs: Sequence[Run]) -> Table:
    """One row per run: options that differ, final and best distance, and status; the protocols are notes."""
    paths, protocols = find_differences(runs)[:MOST_OPTIONS], final_protocols(runs)
    distances = [each for each in map(final_distance, runs) if each]
    has_one_protocol = len(protocols) == 1 and all(each.protocol for each in distances)
    distance_header = (
        [f"final {protocols[0].distance_name}"] if has_one_protocol else ["evaluated by", "final distance"]
    )

    def row(run: Run) -> Row:
        final, best = final_distance(run), best_evaluation(run)
        number = protocol_number(final.protocol, protocols) if final and final.protocol else ""
        return [
            run.name,
            *(format_option(run.options, path) for path in paths),
            *([] if has_one_protocol else [f"{number}{final.distance_name}" if final else DASH]),
            Number(final.distance if final else None, ".4g"),
            Number(best.distance if best else None, ".4g"),
            short_status(run),
            "yes" if run.has_collapsed else "no" if run.telemetry else DASH,
        ]

    return Table(
        caption=f"{pluralize(len(runs), 'run')}: options that differ, and numbers at the end of training.",
        label="tab:runs",
        header=["run", *_short_paths(paths), *distance_header, "best in training", "status", "collapsed"],
        groups=[[row(run) for run in runs]],
        notes=[
            *(f"{protocol_number(each, protocols)}{describe_protocol(each)}." for each in protocols),
            *more_options(runs),
        ],
    )


def more_options(runs: Sequence[Run]) -> list[str]:
    """A sentence on the options that differ and have no column."""
    paths = find_differences(runs)[MOST_OPTIONS:]
    return [f"The runs also differ in {', '.join(paths)}."] if paths else []


def _short_paths(paths: Sequence[str]) -> list[str]:
    """The last word of each path if it is unique, or else the path."""
    words = [path.rpartition(".")[2] for path in paths]
    counts = Counter(words)
    return [word if counts[word] == 1 else path for path, word in zip(paths, words, strict=True)]


# Options


def differences_table(runs: Sequence[Run]) -> Table | None:
    """One row per option that differs and one column per drawn run; None if the configurations are the same."""
    paths = find_differences(runs)
    if not paths:
        return None
    notes = [describe_drawn(runs)] if is_overview(runs) else []
    caption = "Options in which the configurations of the runs differ."
    return options_table(runs_to_draw(runs), paths, caption=caption, notes=notes)


def options_table(
    runs: Sequence[Run], paths: Sequence[str] | None = None, *, caption: str = "", notes: Sequence[str] = ()
) -> Table:
    """One row per option and one column per run; all options if no paths are given."""
    trees = [run.options for run in runs]
    shown = dict.fromkeys(path for tree in trees for path in tree) if paths is None else paths
    return Table(
        caption=caption,
        label="tab:differences",
        header=("option", *(run.name for run in runs)),
        groups=[[(path, *(format_option(tree, path) for tree in trees)) for path in shown]],
        notes=notes,
    )


# Bias gauge

FEW = 3.0
"""n_eff below which the reliability is yellow."""
Reliability = Literal["green", "yellow", "red", "unknown"]


@dataclass(frozen=True, kw_only=True)
class GaugeRow:
    """The bias gauge of one temperature and side at the end of training, and its reliability over training."""

    tau: str
    side: str
    reliability: Reliability
    n_eff: str
    dominated: str
    moved: str
    counts: str
    """Number of logged steps per reliability."""


def rate_reliability(n_eff: float | None, dominated: float | None) -> Reliability:
    """Rate the weights of one batch; the thresholds are the rules of thumb of docs/telemetry.md.

    | reliability | if                   | meaning                                                                  |
    |-------------|----------------------|--------------------------------------------------------------------------|
    | red         | dominated > ½        | the centroid is mostly the nearest reference; no correction helps        |
    | yellow      | else, n_eff < FEW    | the bias is large, and its expansion in 1/n is rough                     |
    | green       | else                 | the leading bias, which ABC removes, is most of the bias                 |
    """
    if n_eff is None or dominated is None:
        return "unknown"
    if dominated > 0.5:
        return "red"
    return "yellow" if n_eff < FEW else "green"


def reliability_over_training(run: Run, tau: float, side: str) -> list[Reliability]:
    """One rating per logged step; `side` is "pos" or "neg"."""
    return [rate_reliability(*_gauge_numbers(run, entry, tau, side)[:2]) for entry in run.telemetry]


def gauge_rows(run: Run) -> list[GaugeRow]:
    """One row per temperature and side; none if nothing was logged."""
    sides = [(tau, side) for tau in run.config.objective.temperatures for side in ("pos", "neg")]
    return [_gauge_row(run, tau, side) for tau, side in sides] if run.telemetry else []


def _gauge_numbers(run: Run, entry: Mapping[str, Any], tau: float, side: str) -> list[float | None]:
    """n_eff, share of dominated queries and weight moved."""
    position = temperature_index(run, tau)
    return [to_number(item_at(f"{name}_{side}", position)(entry)) for name in ("n_eff", "dominated", "correction")]


def _gauge_row(run: Run, tau: float, side: str) -> GaugeRow:
    n_eff, dominated, moved = _gauge_numbers(run, run.last, tau, side)
    n = run.config.batch.n if side == "pos" else run.config.generated - 1 + run.config.batch.unconditional
    ratings = reliability_over_training(run, tau, side)
    counts = [f"{ratings.count(each)} {each}" for each in ("green", "yellow", "red", "unknown") if each in ratings]
    return GaugeRow(
        tau=f"{tau:g}",
        side="positive" if side == "pos" else "negative",
        reliability=rate_reliability(n_eff, dominated),
        n_eff=DASH if n_eff is None else f"{n_eff:.2f} of {n}",
        dominated=DASH if dominated is None else f"{dominated:.0%}",
        moved=DASH if moved is None else f"{moved:.1%}",
        counts=", ".join(counts),
    )


def describe_progress(run: Run) -> str:
    """The logged steps that the gauge counts."""
    first, last = (positives_seen(run, entry) for entry in (run.telemetry[0], run.last))
    return f"{pluralize(len(run.telemetry), 'logged step')}, from {first:,.0f} to {last:,.0f} positives seen per class."


# Provenance

HISTORY_COLUMNS = ("event", "time", "step", "host", "version")
MOST_LETTERS, MOST_CLASSES = 300, 20


def provenance_table(run: Run) -> Table:
    """Version, commit, data and seed of a run."""
    more = f" … {len(run.classes)} in total" if len(run.classes) > MOST_CLASSES else ""
    facts = (
        ("version", f"truedrift {run.version}"),
        ("commit", run.commit),
        ("data", f"{run.config.data.name}, sha256 {run.data_sha256}"),
        ("classes", ", ".join(run.classes[:MOST_CLASSES])[:MOST_LETTERS] + more),
        ("seed", str(run.config.seed)),
    )
    return Table(caption="", label="tab:provenance", header=("fact", "value"), groups=[facts])


def history_table(run: Run) -> Table | None:
    """One row per event, and how often the run was resumed; None if there is no history."""
    if not run.history:
        return None
    count = sum(entry.get("event") == "resumed" for entry in run.history)
    resumed = {0: "never resumed", 1: "resumed once"}.get(count, f"resumed {count} times")

    def other_fields(entry: Mapping[str, Any]) -> str:
        fields = (f"{key}: {_text(value)}" for key, value in entry.items() if key not in (*HISTORY_COLUMNS, "process"))
        return "; ".join(fields)[:MOST_LETTERS] or DASH

    rows = [[*(_text(entry.get(key, DASH)) for key in HISTORY_COLUMNS), other_fields(entry)] for entry in run.history]
    header = [*HISTORY_COLUMNS, "other fields"]
    return Table(caption=f"History: {resumed}.", label="tab:history", header=header, groups=[rows])


def _text(value: Any) -> str:
    return (", ".join(map(str, value)) if isinstance(value, list) else str(value))[:MOST_LETTERS]
