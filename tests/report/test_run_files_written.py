"""Files of runs: every number is the one that was put in, and figures have the panels and lines of the page."""

import csv
import io
import math
import os

import pytest
from oracles.handmade_run import HOSTILE, METRICS, PROTOCOL, evaluation, telemetry, write_run
from PIL import Image

from truedrift.page.charts import (
    LONGEST_NAME,
    Charts,
    plot_curves,
    plot_gauge,
    replace_unknown_letters,
    shorten_name,
    wrap_title,
)
from truedrift.page.page import render_runs, save_runs
from truedrift.page.run_data import read_run, read_runs
from truedrift.page.tables import differences_table, final_table
from truedrift.report.figure import ABC, STANDARD

FIGURES = ["curves.png", "curves.pdf", "gauge.png", "gauge.pdf"]
NUMBERS = ["runs.md", "runs.tex", "runs.csv"]
DIFFERENCES = ["differences.md", "differences.tex", "differences.csv"]


@pytest.fixture
def pair(tmp_path):
    """Two runs that end at 13.25 and 15 and differ in their estimators and seeds."""
    other = (*METRICS, evaluation(300, 15.0, kid=-0.5, kid_deviation=None, inception_score=9.5))
    write_run(tmp_path / "mine")
    write_run(tmp_path / "other", estimator="standard", seed=1, metrics=other)
    return read_runs([tmp_path / "mine", tmp_path / "other"])


def many(directory):
    """Seven runs, which is too many to draw them all; the last one is evaluated by another protocol."""
    for k in range(7):
        protocol = PROTOCOL | {"samples": 100 if k == 6 else 5000}
        write_run(directory / f"r{k}", seed=k, metrics=(telemetry(300), evaluation(300, 1.5 + k, protocol)))
    return read_runs([directory / f"r{k}" for k in range(7)])


def rows_of(text):
    header, *rows = csv.reader(io.StringIO(text))
    return {row[0]: dict(zip(header, row, strict=True)) for row in rows}


def panels(figure):
    return {axes.get_title(): axes for axes in figure.axes}


def test_final_numbers_are_those_of_the_runs_with_all_their_digits(pair):
    rows = rows_of(final_table(pair).csv())
    assert [float(rows["FID"][name]) for name in ("mine", "other")] == [13.25, 15.0]
    assert [float(rows["best distance"][name]) for name in ("mine", "other")] == [12.5, 12.5]
    assert rows["best distance"]["mine note"] == "at step 200"
    assert [float(rows["KID"][name]) for name in ("mine", "mine deviation", "other")] == [0.0125, 0.0005, -0.5]
    assert rows["KID"]["mine deviation"] == "0.0005"
    assert "other deviation" not in rows["KID"]
    assert (rows["precision"]["mine"], rows["recall"]["mine"]) == ("0.625", "0.375")
    assert (rows["Inception Score"]["mine"], rows["Inception Score"]["other"]) == ("", "9.5")
    assert float(rows["gradient norm"]["mine"]) == 100 / 300
    assert float(rows["positives seen per class"]["other"]) == 2400
    assert float(rows["generated images per second"]["mine"]) == 4321
    assert "| KID | 0.0125 ± 0.0005 | −0.5 |" in final_table(pair).markdown()


def test_the_protocol_is_a_note_after_the_runs_that_it_evaluated(pair, tmp_path):
    (note,) = final_table(pair).notes
    assert note.startswith("mine, other: FID in 2048 features of inception (0123456789ab; uint8, ")
    assert "5,000 samples, labels balanced, seed 7, ema weights, against 1,797 of digits (test)." in note
    unlike = (evaluation(300, 3.0, PROTOCOL | {"extractor": "digits"}), evaluation(300, 4.0, protocol=None))
    runs = [pair[0], *(read_run(write_run(tmp_path / f"m{k}", metrics=unlike[k : k + 1]), f"m{k}") for k in (0, 1))]
    _, second, third = final_table(runs).notes
    assert second.startswith("m0: FD (digits) in 2048 features of digits")
    assert third == "m1: the protocol is unknown, and the distance cannot be compared."
    rows = rows_of(final_table(runs).csv())
    assert [rows["FID"][name] for name in ("mine", "m0", "m1")] == ["13.25", "", ""]
    assert [rows["FD (digits)"][name] for name in ("mine", "m0", "m1")] == ["", "3.0", ""]
    assert rows["FD (unknown protocol)"]["m1"] == "4.0"


def test_differences_are_exactly_the_options_that_differ(pair):
    rows = rows_of(differences_table(pair).csv())
    assert rows == {
        "seed": {"option": "seed", "mine": "0", "other": "1"},
        "objective.estimator_pos": {"option": "objective.estimator_pos", "mine": "abc", "other": "standard"},
        "objective.estimator_neg": {"option": "objective.estimator_neg", "mine": "abc", "other": "standard"},
    }
    assert differences_table(pair[:1]) is None
    assert differences_table([pair[0], pair[0]]) is None


def test_of_many_there_is_a_row_a_run_and_six_are_drawn(tmp_path):
    runs = many(tmp_path)
    table = final_table(runs)
    rows = rows_of(table.csv())
    assert [float(rows[f"r{k}"]["final distance"]) for k in range(7)] == [1.5 + k for k in range(7)]
    assert [rows[name]["evaluated by"] for name in ("r0", "r6")] == ["[1] FID", "[2] FID"]
    assert [rows[f"r{k}"]["seed"] for k in range(7)] == list("0123456")
    assert [note[:28] for note in table.notes] == ["[1] FID in 2048 features of ", "[2] FID in 2048 features of "]
    assert differences_table(runs).header == ("option", *(f"r{k}" for k in range(6)))
    assert differences_table(runs).notes[0].startswith("6 of the 7 runs: the first of each configuration")
    paths = save_runs(runs, tmp_path)
    assert [path.name for path in paths] == [*FIGURES, *NUMBERS, *DIFFERENCES]


def test_curves_have_the_panels_the_lines_and_the_axes_of_the_runs(pair):
    charts = Charts.from_runs(pair)
    found = panels(plot_curves(charts))
    evaluated = ["FID", "KID", "Precision", "Recall", "Inception Score"]
    assert [title.split(",")[0] for title in found] == [
        *evaluated,
        *(f"Force at τ = {tau}" for tau in ("0.02", "0.05", "0.2")),
        *("Distance ratio", "Gradient norm", "Generated images per second"),
    ]
    counts = {title: len(axes.lines) for title, axes in found.items()}
    assert counts.pop("Inception Score, larger is better") == 1  # the other run has none
    assert set(counts.values()) == {2}
    first, second = found["FID, smaller is better"].lines
    assert first.get_xydata().tolist() == [[800, 40.0], [1600, 12.5], [2400, 13.25]]
    assert second.get_xydata()[-1].tolist() == [2400, 15.0]
    looks = [(line.get_color(), line.get_marker(), line.get_markevery()) for line in (first, second)]
    assert looks == [(ABC, "s", [0, 1, 2]), (STANDARD, "o", [0, 1, 2, 3])]
    assert [line.get_markevery() for line in found["Distance ratio"].lines] == [[3], [3]]
    assert found["Distance ratio"].get_ylim()[0] == 0


def test_an_axis_is_logarithmic_where_values_differ_by_a_large_factor(tmp_path):
    metrics = (evaluation(100, 100.0), evaluation(200, 10.0), evaluation(300, 1.0, precision=0.001))
    figure = plot_curves(Charts.from_runs([read_run(write_run(tmp_path / "mine", metrics=metrics), "mine")]))
    scales = {title.split(",")[0]: axes.get_yscale() for title, axes in panels(figure).items()}
    assert scales == {"FID": "log", "KID": "linear", "Precision": "linear", "Recall": "linear"}
    axes = panels(figure)["FID, smaller is better"]
    low, high = axes.get_ylim()
    labels = [axes.yaxis.get_major_formatter()(tick) for tick in axes.get_yticks() if low <= tick <= high]
    assert labels == ["1", "2", "5", "10", "20", "50", "100"]


def test_gaps_stay_gaps_and_a_point_between_two_is_marked(tmp_path):
    spreads = (0.5, 0.6, None, 0.7, None, 0.8, 0.9)
    metrics = [telemetry(100 * (k + 1), spread=spread) for k, spread in enumerate(spreads)]
    figure = plot_curves(Charts.from_runs([read_run(write_run(tmp_path / "mine", metrics=metrics), "mine")]))
    (line,) = panels(figure)["Distance ratio"].lines
    assert [math.isnan(value) for value in line.get_ydata()] == [spread is None for spread in spreads]
    assert line.get_markevery() == [3, 6]


def test_the_gauge_has_both_sides_of_every_temperature_and_its_level(pair):
    figure = plot_gauge(Charts.from_runs(pair))
    found = panels(figure)
    assert len(found) == 9
    assert {len(axes.lines) for title, axes in found.items() if "Effective" not in title} == {4}
    level, positive, negative, *_ = found["Effective references, τ = 0.05"].lines
    assert list(level.get_ydata()) == [8, 8]
    assert [line.get_ydata()[0] for line in (positive, negative)] == [4.0, 3.0]
    assert positive.get_linestyle() == "-"
    assert negative.get_linestyle() == "--"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["mine", "other", "positive side", "negative side", "n"]


def test_the_files_are_written_and_named_in_the_order_of_their_making(pair, tmp_path):
    text = render_runs([tmp_path / "mine", tmp_path / "other"], tmp_path)
    names = [*FIGURES, *NUMBERS, *DIFFERENCES]
    assert text.splitlines() == [f"written: {tmp_path / name}" for name in names]
    assert all((tmp_path / name).stat().st_size for name in names)
    with Image.open(tmp_path / "curves.png") as image:
        found = {color for _, color in image.convert("RGB").getcolors(maxcolors=1 << 22)}
    assert {(0xD6, 0x45, 0x41), (0x00, 0x77, 0xCC)} <= found


@pytest.mark.parametrize(
    ("metrics", "names"),
    [
        ((), []),
        ((evaluation(300, 2.0),), [*FIGURES[:2], *NUMBERS]),
        ((telemetry(300),), [*FIGURES, *NUMBERS]),
    ],
)
def test_what_has_nothing_to_show_is_not_written(metrics, names, tmp_path):
    run = write_run(tmp_path / "mine", metrics=metrics)
    out = tmp_path / "out"
    out.mkdir()
    assert render_runs([run], out).splitlines() == [f"written: {out / name}" for name in names]
    assert sorted(path.name for path in out.iterdir()) == sorted(names)
    assert render_runs([], out) == ""


def test_runs_without_metrics_still_differ_in_their_options(tmp_path):
    paths = [write_run(tmp_path / name, estimator=name, metrics=()) for name in ("abc", "standard")]
    assert [path.name for path in save_runs(read_runs(paths), tmp_path)] == DIFFERENCES


def test_many_runs_without_metrics_have_no_final_numbers(tmp_path):
    assert final_table(read_runs([write_run(tmp_path / f"r{k}", seed=k, metrics=()) for k in range(7)])) is None


def test_hostile_names_are_text_in_every_file(tmp_path):
    metrics = (*METRICS, evaluation(300, 1.0, PROTOCOL | {"extractor": HOSTILE, "prepared": "$x_"}))
    names = ["_$a^{", r"\input{x} & 100% #_", "数\n字", "x" * 120, os.fsdecode(b"\xff")]
    paths = [write_run(tmp_path / "runs" / name, seed=k, metrics=metrics) for k, name in enumerate(names)]
    save_runs(read_runs(paths), tmp_path)
    latex = (tmp_path / "runs.tex").read_text(encoding="utf-8")
    assert r"\_\$a\textasciicircum{}\{ & \textbackslash{}input\{x\} \& 100\% \#\_ & 数" in latex
    assert "FD ($<$/script$>$$<$img src=x onerror=alert(1)$>$) & 1 & 1 & 1 & 1 & 1" in latex
    assert r"\input{" not in latex
    assert r"\input{" not in (tmp_path / "differences.tex").read_text(encoding="utf-8")
    (legend,) = plot_curves(Charts.from_runs(read_runs(paths))).legends
    assert [text.get_text() for text in legend.get_texts()][:3] == ["_$a^{", r"\input{x} & 100% #_", "???"]


def test_long_names_keep_both_ends_and_long_titles_are_broken():
    name = "a" * 40 + "b" * 40
    assert shorten_name(name).startswith("aaa")
    assert shorten_name(name).endswith("bbb")
    assert len(shorten_name(name)) == LONGEST_NAME - 1
    assert shorten_name("a" * LONGEST_NAME) == "a" * LONGEST_NAME
    assert wrap_title("FD (encoder:efficientnet-lite0), smaller is better").splitlines() == [
        "FD (encoder:efficientnet-lite0),",
        "smaller is better",
    ]
    assert replace_unknown_letters("Größe τ 数\t") == "Größe τ ??"
