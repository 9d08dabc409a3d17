"""Tables of runs: final numbers, options, bias indicators, provenance and history."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

from truedrift.errors import list_names
from truedrift.page.charts import gauge_number, temperature_index
from truedrift.page.findings import (
    describe_protocol,
    describe_status,
    final_evaluation,
    final_protocols,
    protocol_number,
)
from truedrift.page.run_data import (
    Run,
    best_evaluation,
    describe_drawn,
    final_evaluations,
    find_differences,
    format_option,
    is_overview,
    pluralize,
    runs_to_draw,
)
from truedrift.page.run_log import SIDES, Level, number_at, rate_confidence
from truedrift.report.screens import advise_on_run
from truedrift.report.table import DASH, MeanCell, Number, Row, Table, cell_text

# Final numbers

METRICS = {
    "KID": ("kid", "kid_deviation", ".3g"),
    "precision": ("precision", "", ".3f"),
    "recall": ("recall", "", ".3f"),
    "Inception Score": ("inception_score", "inception_score_deviation", ".3g"),
}
"""Name → field of the metrics, field of its deviation, and format."""

TELEMETRY: dict[str, tuple[tuple[str, ...], str]] = {
    "positives seen per class": (("positives_seen",), ",.0f"),
    "distance ratio": (("spread",), ".3f"),
    "gradient norm": (("gradient_norm",), ".3g"),
    "generated images per second": (("timing", "images_per_second"), ",.0f"),
}
"""Name → path in the last line of the telemetry, and format."""


def final_table(runs: Sequence[Run]) -> Table | None:
    """Return the table of the numbers at the end of training.

    Args:
        runs: Runs as `read_runs` returns them.

    Returns:
        One row per number and one column per run, or one row per run if there are more than 6. None if no run has
        telemetry or an evaluation.
    """
    if not any(run.telemetry or final_evaluations(run) for run in runs):
        return None
    if is_overview(runs):
        return overview_table(runs)
    # Each protocol is a note, after the runs that it evaluated.
    names: dict[str, list[str]] = {}
    for run in runs:
        if run.evaluations:
            names.setdefault(describe_protocol(run.evaluations[-1].protocol), []).append(run.name)
    return Table(
        caption="Numbers at the end of training; the best distance is the smallest under the same protocol.",
        label="tab:runs",
        header=("at the end", *(run.name for run in runs)),
        groups=[_final_rows(runs)],
        notes=[f"{', '.join(each)}: {protocol}." for protocol, each in names.items()],
    )


def _final_rows(runs: Sequence[Run]) -> list[Row]:
    """Return one row per number that at least one run has."""
    rows: list[Row] = []
    # Distances and other metrics of the last evaluation.
    last = [run.evaluations[-1] if run.evaluations else None for run in runs]
    for name in dict.fromkeys(each.protocol.distance_name for each in last if each):
        own = [each if each and each.protocol.distance_name == name else None for each in last]
        rows.append([name, *(Number(each.metrics.fid if each else None, ".4g") for each in own)])
    best = [(each.metrics.fid, f"at step {each.step:,}") if each else (None, "") for each in map(best_evaluation, runs)]
    rows.append(["best distance", *(MeanCell(distance, None, None, ".4g", note=step) for distance, step in best)])
    metrics: list[Any] = [each.metrics if each else None for each in last]
    for name, (field, deviation, spec) in METRICS.items():
        numbers = [(getattr(each, field, None), getattr(each, deviation, None)) for each in metrics]
        rows.append([name, *(MeanCell(value, error, None, spec) for value, error in numbers)])
    # Telemetry of the last logged step.
    for name, (path, spec) in TELEMETRY.items():
        rows.append([name, *(Number(number_at(run.last, *path), spec) for run in runs)])
    return [row for row in rows if any(cell_text(cell) != DASH for cell in row[1:])]


# Many runs

MOST_OPTIONS = 8
"""Number of columns for options that differ."""


def overview_table(runs: Sequence[Run]) -> Table:
    """Return one row per run: options that differ, final and best distance, and status; the protocols are notes."""
    paths, protocols = find_differences(runs)[:MOST_OPTIONS], final_protocols(runs)
    has_one_protocol = len(protocols) == 1
    distance_header = (
        [f"final {protocols[0].distance_name}"] if has_one_protocol else ["evaluated by", "final distance"]
    )

    def row(run: Run) -> Row:
        final, best = final_evaluation(run), best_evaluation(run)
        name = f"{protocol_number(final.protocol, protocols)}{final.protocol.distance_name}" if final else DASH
        return [
            run.name,
            *(format_option(run.options, path) for path in paths),
            *([] if has_one_protocol else [name]),
            Number(final.metrics.fid if final else None, ".4g"),
            Number(best.metrics.fid if best else None, ".4g"),
            describe_status(run, briefly=True),
            "yes" if run.has_collapsed else "no" if run.telemetry else DASH,
        ]

    # The last word of a path is its header if it is unique.
    words = [path.rpartition(".")[2] for path in paths]
    counts = Counter(words)
    headers = [word if counts[word] == 1 else path for path, word in zip(paths, words, strict=True)]
    return Table(
        caption=f"{pluralize(len(runs), 'run')}: options that differ, and numbers at the end of training.",
        label="tab:runs",
        header=["run", *headers, *distance_header, "best in training", "status", "collapsed"],
        groups=[[row(run) for run in runs]],
        notes=[
            *(f"{protocol_number(each, protocols)}{describe_protocol(each)}." for each in protocols),
            *more_options(runs),
        ],
    )


def more_options(runs: Sequence[Run]) -> list[str]:
    """Return a sentence on the options that differ and have no column."""
    paths = find_differences(runs)[MOST_OPTIONS:]
    return [f"The runs also differ in {list_names(paths)}."] if paths else []


# Options


def differences_table(runs: Sequence[Run]) -> Table | None:
    """Return the table of the options in which runs differ.

    Args:
        runs: Runs as `read_runs` returns them.

    Returns:
        One row per option that differs and one column per drawn run (`runs_to_draw`); None if the configurations are
        the same.
    """
    paths = find_differences(runs)
    if not paths:
        return None
    notes = [describe_drawn(runs)] if is_overview(runs) else []
    return replace(options_table(runs_to_draw(runs), paths), notes=notes)


def options_table(runs: Sequence[Run], differences: Sequence[str] | None = None) -> Table:
    """Return one row per option and one column per run; all options if no differences are given."""
    trees = [run.options for run in runs]
    all_paths = dict.fromkeys(path for tree in trees for path in tree)
    return Table(
        caption="" if differences is None else "Options in which the configurations of the runs differ.",
        label="tab:differences",
        header=("option", *(run.name for run in runs)),
        groups=[[(path, *(format_option(tree, path) for tree in trees)) for path in differences or all_paths]],
    )


# Bias indicators


def gauge_table(run: Run) -> Table:
    """Return the table of the bias indicators of a run.

    Args:
        run: A run with at least one logged step.

    Returns:
        One row per temperature and side: the indicators at the end, and how many logged steps have each confidence.
    """
    header = ("τ", "side", "confidence at the end", "n_eff", "dominated", "moved")
    sides = [(tau, side) for tau in run.config.objective.temperatures for side in SIDES]
    return Table(
        caption="Bias indicators",
        label="tab:gauge",
        header=(*header, "confidence over training, in logged steps"),
        groups=[[_gauge_row(run, tau, side) for tau, side in sides]],
    )


def _gauge_row(run: Run, tau: float, side: str) -> Row:
    counts = run.confidence[side, temperature_index(run, tau)]
    n = run.config.references(side)
    n_eff, dominated, moved = (
        gauge_number(name, side, tau, run, run.last) for name in ("n_eff", "dominated", "correction")
    )
    return [
        f"{tau:g}",
        side,
        rate_confidence(n_eff, dominated),
        DASH if n_eff is None else f"{n_eff:.2f} of {n}",
        DASH if dominated is None else f"{dominated:.0%}",
        DASH if moved is None else f"{moved:.1%}",
        ", ".join(f"{counts[each]} {each}" for each in get_args(Level) if each in counts),
    ]


def gauge_advice(run: Run) -> list[str]:
    """Advise on temperatures at which a centroid of the last logged step is mostly the nearest reference."""
    taus = run.config.objective.temperatures
    return advise_on_run(
        run.config, {side: [gauge_number("n_eff", side, tau, run, run.last) for tau in taus] for side in SIDES}
    )


def describe_progress(run: Run) -> str:
    """Describe the logged steps that the table counts."""
    first, last = (number_at(entry, "positives_seen") for entry in (run.telemetry[0], run.last))
    return f"{pluralize(run.logged_steps, 'logged step')}, from {first:,.0f} to {last:,.0f} positives seen per class."


# Provenance

HISTORY_COLUMNS = ("event", "time", "step", "host", "version")
MOST_CLASSES = 20


def provenance_table(run: Run) -> Table:
    """Return version, commit, data and seed of a run."""
    more = f" … {len(run.classes)} in total" if len(run.classes) > MOST_CLASSES else ""
    facts = (
        ("version", f"truedrift {run.version}"),
        ("commit", run.commit),
        ("data", f"{run.config.data.name}, sha256 {run.data_sha256}"),
        ("classes", ", ".join(run.classes[:MOST_CLASSES]) + more),
        ("seed", str(run.config.seed)),
    )
    return Table(caption="", label="tab:provenance", header=("fact", "value"), groups=[facts])


def history_table(run: Run) -> Table:
    """Return one row per event, and how often the run was resumed."""
    count = sum(entry.get("event") == "resumed" for entry in run.history)
    resumed = {0: "never resumed", 1: "resumed once"}.get(count, f"resumed {count} times")
    rows = []
    for entry in run.history:
        others = [f"{key}: {_text(entry[key])}" for key in entry if key not in (*HISTORY_COLUMNS, "process")]
        rows.append([*(_text(entry.get(key, DASH)) for key in HISTORY_COLUMNS), "; ".join(others) or DASH])
    header = (*HISTORY_COLUMNS, "other fields")
    return Table(caption=f"History: {resumed}.", label="tab:history", header=header, groups=[rows])


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
