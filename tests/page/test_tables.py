"""Tables and files of runs: every number is the one that was put in."""

import csv
import io
import os

import pytest
from oracles.handmade_run import HOSTILE, METRICS, PROTOCOL, evaluation, telemetry, write_run
from PIL import Image

from truedrift.page import (
    differences_table,
    final_table,
    gauge_table,
    plot_charts,
    read_run,
    read_runs,
    render_runs,
    run_log,
    tables,
    training_charts,
)

FIGURES = ["curves.png", "curves.pdf", "gauge.png", "gauge.pdf"]
NUMBERS = ["runs.md", "runs.tex", "runs.csv"]
DIFFERENCES = ["differences.md", "differences.tex", "differences.csv"]


@pytest.fixture
def paths(tmp_path):
    """Two runs that end at 13.25 and 15 and differ in their estimators and seeds."""
    other = (*METRICS, evaluation(300, 15.0, kid=-0.5, kid_deviation=None, inception_score=9.5))
    return [
        write_run(tmp_path / "mine"),
        write_run(tmp_path / "other", estimator="standard", seed=1, metrics=other),
    ]


@pytest.fixture
def pair(paths):
    return read_runs(paths)


def many(directory):
    """Seven runs, which is too many to draw them all; the last one is evaluated by another protocol."""
    for k in range(7):
        protocol = PROTOCOL | {"samples": 100 if k == 6 else 5000}
        write_run(directory / f"r{k}", seed=k, metrics=(telemetry(300), evaluation(300, 1.5 + k, protocol)))
    return [directory / f"r{k}" for k in range(7)]


def rows_of(table):
    header, *rows = csv.reader(io.StringIO(table.csv()))
    return {row[0]: dict(zip(header, row, strict=True)) for row in rows}


def written(paths, directory):
    """The names of the files that `render_runs` writes and lists."""
    directory.mkdir(exist_ok=True)
    lines = render_runs(read_runs(paths), directory).splitlines()
    names = [line.removeprefix(f"written: {directory}{os.sep}") for line in lines]
    assert all((directory / name).stat().st_size for name in names)
    return names


# Final numbers


def test_final_numbers_are_those_of_the_runs_with_all_their_digits(pair):
    rows = rows_of(final_table(pair))
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
    assert "5,000 samples, labels balanced, seed 7, strength 1.5, ema weights, against 1,797 of digits (test)." in note
    other = write_run(tmp_path / "m", metrics=(evaluation(300, 3.0, PROTOCOL | {"extractor": "digits"}),))
    runs = [pair[0], read_run(other, "m")]
    _, second = final_table(runs).notes
    assert second.startswith("m: FD (digits) in 2048 features of digits")
    rows = rows_of(final_table(runs))
    assert [rows["FID"][name] for name in ("mine", "m")] == ["13.25", ""]
    assert [rows["FD (digits)"][name] for name in ("mine", "m")] == ["", "3.0"]


def test_differences_are_exactly_the_options_that_differ(pair):
    assert rows_of(differences_table(pair)) == {
        "seed": {"option": "seed", "mine": "0", "other": "1"},
        "objective.estimator_pos": {"option": "objective.estimator_pos", "mine": "abc", "other": "standard"},
        "objective.estimator_neg": {"option": "objective.estimator_neg", "mine": "abc", "other": "standard"},
    }
    assert differences_table(pair[:1]) is None
    assert differences_table([pair[0], pair[0]]) is None


def test_many_runs_have_one_row_each_and_six_are_drawn(tmp_path):
    runs = read_runs(many(tmp_path))
    table = final_table(runs)
    rows = rows_of(table)
    assert [float(rows[f"r{k}"]["final distance"]) for k in range(7)] == [1.5 + k for k in range(7)]
    assert [rows[name]["evaluated by"] for name in ("r0", "r6")] == ["[1] FID", "[2] FID"]
    assert [rows[f"r{k}"]["seed"] for k in range(7)] == list("0123456")
    assert [note[:28] for note in table.notes] == ["[1] FID in 2048 features of ", "[2] FID in 2048 features of "]
    assert differences_table(runs).header == ("option", *(f"r{k}" for k in range(6)))
    assert differences_table(runs).notes[0].startswith("6 of the 7 runs: the first of each configuration")
    empty = [write_run(tmp_path / f"empty{k}", seed=k, metrics=()) for k in range(7)]
    assert final_table(read_runs(empty)) is None


# Bias gauge


@pytest.mark.parametrize(
    ("n_eff", "dominated", "confidence"),
    [
        (2.0, 0.51, "low"),
        (7.0, 0.51, "low"),
        (2.99, 0.5, "medium"),
        (3.0, 0.5, "high"),
        (None, 0.1, "unknown"),
        (4.0, None, "unknown"),
    ],
)
def test_the_rule_of_confidence(n_eff, dominated, confidence):
    assert run_log.rate_confidence(n_eff, dominated) == confidence


def test_the_gauge_has_both_sides_of_every_temperature(pair):
    rows = gauge_table(pair[0]).rows
    assert len(rows) == 6
    assert rows[0] == ["0.02", "positive", "low", "2.00 of 8", "75%", "7.0%", "4 low"]
    assert rows[1] == ["0.02", "negative", "medium", "1.00 of 7", "50%", "6.0%", "4 medium"]
    assert rows[5][-1] == "4 high"


def test_the_advice_names_the_temperatures_with_few_effective_references(tmp_path):
    few = telemetry(100, n_eff_pos=[1.2, 1.9, 2.0], n_eff_neg=[None, 5.0, 1.5])
    run = read_run(write_run(tmp_path / "few", metrics=[few]), "few")
    pos, neg = tables.gauge_advice(run)
    assert pos.startswith("n_eff of the positives is below 2 at τ = 0.02 and 0.05: ")
    assert neg.startswith("n_eff of the negatives is below 2 at τ = 0.2: ")
    enough = telemetry(100, n_eff_pos=[2.0] * 3, n_eff_neg=[2.0] * 3)
    assert tables.gauge_advice(read_run(write_run(tmp_path / "enough", metrics=[enough]), "enough")) == []


def test_confidence_over_training_is_counted(tmp_path):
    dominated = [[0.75], [0.25], [0.25], [None]]
    metrics = [
        telemetry(100 + k, dominated_pos=shares * 3, n_eff_pos=[2.0 + k] * 3) for k, shares in enumerate(dominated)
    ]
    run = read_run(write_run(tmp_path / "mine", metrics=metrics), "mine")
    assert gauge_table(run).rows[0][-1] == "2 high, 1 low, 1 unknown"


# Files


def test_files_of_runs_are_written_and_listed(paths, tmp_path):
    assert written(paths, tmp_path / "out") == [*FIGURES, *NUMBERS, *DIFFERENCES]
    with Image.open(tmp_path / "out" / "curves.png") as image:
        found = {color for _, color in image.convert("RGB").getcolors(maxcolors=1 << 22)}
    assert {(0xD6, 0x45, 0x41), (0x00, 0x77, 0xCC)} <= found
    assert written(many(tmp_path), tmp_path / "out") == [*FIGURES, *NUMBERS, *DIFFERENCES]


@pytest.mark.parametrize(
    ("metrics", "names"),
    [
        ((), []),
        ((evaluation(300, 2.0),), [*FIGURES[:2], *NUMBERS]),
        ((telemetry(300),), [*FIGURES, *NUMBERS]),
    ],
)
def test_files_without_content_are_not_written(metrics, names, tmp_path):
    assert written([write_run(tmp_path / "mine", metrics=metrics)], tmp_path / "out") == names
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(names)
    assert render_runs([], tmp_path / "out") == ""


def test_runs_without_metrics_still_differ_in_their_options(tmp_path):
    paths = [write_run(tmp_path / name, estimator=name, metrics=()) for name in ("abc", "standard")]
    assert written(paths, tmp_path / "out") == DIFFERENCES


def test_hostile_names_are_text_in_every_file(tmp_path):
    metrics = (*METRICS, evaluation(300, 1.0, PROTOCOL | {"extractor": HOSTILE, "prepared": "$x_"}))
    names = ["_$a^{", r"\input{x} & 100% #_", "数\n字", "x" * 120, os.fsdecode(b"\xff")]
    paths = [write_run(tmp_path / "runs" / name, seed=k, metrics=metrics) for k, name in enumerate(names)]
    render_runs(read_runs(paths), tmp_path)
    latex = (tmp_path / "runs.tex").read_text(encoding="utf-8")
    assert r"\_\$a\textasciicircum{}\{ & \textbackslash{}input\{x\} \& 100\% \#\_ & 数" in latex
    assert "FD ($<$/script$>$$<$img src=x onerror=alert(1)$>$) & 1 & 1 & 1 & 1 & 1" in latex
    assert r"\input{" not in latex
    assert r"\input{" not in (tmp_path / "differences.tex").read_text(encoding="utf-8")
    runs = read_runs(paths)
    (legend,) = plot_charts(runs, training_charts(runs)).legends
    assert [text.get_text() for text in legend.get_texts()][:3] == ["_$a^{", r"\input{x} & 100% #_", "???"]
