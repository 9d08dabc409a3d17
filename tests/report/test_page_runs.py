"""Runs as the page tells them: from directories written by hand, whole and broken."""

import base64
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from oracles.handmade_run import HISTORY, HOSTILE, METRICS, PROTOCOL, evaluation, telemetry, write_run
from PIL import Image

from truedrift.evaluation.record import EvaluationRecord, Metrics, Protocol
from truedrift.options import differences
from truedrift.page.charts import evaluation_charts, force_at, gauge_charts, line_styles, training_charts
from truedrift.page.discover import find_inputs
from truedrift.page.findings import Tone, compare_runs, describe_run, findings_of_runs
from truedrift.page.page import UnreadablePicture, choose_evenly, embed_picture, write_page
from truedrift.page.run_data import RunStatus, find_differences, read_run, read_runs, run_status, to_number
from truedrift.page.tables import gauge_rows, rate_reliability, reliability_over_training
from truedrift.records.provenance import provenance
from truedrift.records.store import append
from truedrift.report.figure import ABC, STANDARD


@pytest.fixture
def run(tmp_path):
    return read_run(write_run(tmp_path / "mine"), "mine")


def by_title(charts):
    return {chart.title: chart for chart in charts}


def test_a_run_is_read_as_it_was_written(run):
    assert [each.step for each in run.evaluations] == [100, 200, 300]
    assert [line["step"] for line in run.telemetry] == [50, 100, 200, 300]
    assert [step for step, _ in run.pictures] == [100, 200, 300]
    assert (run.classes, run.version, run.problems) == (("zero", "one"), "0.1.0", [])


def test_the_finding_of_a_run(run):
    assert run_status(run) is RunStatus.COMPLETE
    finding = describe_run(run)
    assert finding.sentence == (
        "FID 13.2 at step 300, best 12.5 at step 200; not collapsed (distance ratio 0.88); complete after 300 steps."
    )
    assert finding.tone is Tone.GOOD
    assert finding.about == (
        "FID in 2048 features of inception (0123456789ab; uint8, bilinear to 299×299); 5,000 samples, labels balanced, "
        "seed 7, ema weights, against 1,797 of digits (test)"
    )


@pytest.mark.parametrize(
    ("history", "status", "sentence"),
    [
        (HISTORY[:2], RunStatus.STOPPED, "stopped at step 120 of 300 (run the same command to continue)"),
        (HISTORY[:3], RunStatus.UNFINISHED, "not complete: 300 of 300 steps are logged"),
        ((), RunStatus.UNFINISHED, "not complete: 300 of 300 steps are logged"),
        (
            (*HISTORY[:3], HISTORY[3] | {"step": 200}),
            RunStatus.STOPPED,
            "stopped at step 200 of 300 (run the same command to continue)",
        ),
    ],
)
def test_a_run_that_is_not_complete_says_so(history, status, sentence, tmp_path):
    run = read_run(write_run(tmp_path / "mine", history=history), "mine")
    assert run_status(run) is status
    finding = describe_run(run)
    assert sentence in finding.sentence
    assert finding.tone is Tone.NOTE


def test_a_collapse_and_skipped_steps_are_reported(tmp_path):
    metrics = (telemetry(300, collapsed=True, spread=0.03, skipped=5),)
    finding = describe_run(read_run(write_run(tmp_path / "mine", metrics=metrics), "mine"))
    assert finding.sentence.startswith("not evaluated; collapsed (distance ratio 0.03); 5 steps skipped")
    assert finding.tone is Tone.BAD


def test_two_runs_are_compared_in_the_right_direction(tmp_path):
    a = read_run(write_run(tmp_path / "a", metrics=(evaluation(300, 13.25),)), "a")
    b = read_run(write_run(tmp_path / "b", metrics=(evaluation(300, 15.0),)), "b")
    assert compare_runs(a, b).sentence == compare_runs(b, a).sentence == "a ends 1.75 lower in FID than b."
    assert "may be due to chance" in compare_runs(a, b).about
    assert [finding.subject for finding in findings_of_runs([a, b])] == ["Comparison", "a", "b"]


def test_evaluations_after_the_training_are_reported(tmp_path):
    path = write_run(tmp_path / "mine")
    metrics = Metrics(**evaluation(300, 11.5)["evaluation"])
    origin = provenance(seed=0, wall_seconds=1.0)
    for fid, samples in ((12.0, 5000), (11.5, 5000), (10.0, 50_000)):
        protocol = Protocol(**PROTOCOL | {"samples": samples})
        own = replace(metrics, fid=fid)
        record = EvaluationRecord(run="r", step=300, metrics=own, protocol=protocol, seconds=1.0, provenance=origin)
        append(path / "evaluations.jsonl", record)
    first, second, third = findings_of_runs([read_run(path, "mine")])
    assert first.sentence.startswith("FID 13.2 at step 300")
    assert second.sentence == "FID 11.5, precision 0.625, recall 0.375 at step 300, by truedrift evaluate."
    assert third.sentence.startswith("FID 10,")
    assert "50,000 samples" in third.about
    (path / "evaluations.jsonl").write_text("{}\n")
    (problem,) = read_run(path, "mine").problems
    assert problem == "1 line of evaluations.jsonl cannot be read."


def test_runs_of_different_protocols_are_not_compared(tmp_path):
    a = read_run(write_run(tmp_path / "a"), "a")
    other = (evaluation(300, 15.0, protocol=PROTOCOL | {"samples": 100}),)
    b = read_run(write_run(tmp_path / "b", metrics=other), "b")
    assert "different protocols" in compare_runs(a, b).sentence
    c = read_run(write_run(tmp_path / "c", metrics=()), "c")
    assert compare_runs(a, c).sentence.startswith("the runs cannot be compared: c was not evaluated; ")


def test_curves_stand_over_positives_seen(run):
    charts = by_title(evaluation_charts([run], line_styles([run])))
    assert charts["FID, smaller is better"].series[0].points == [(800, 40.0), (1600, 12.5), (2400, 13.25)]
    assert not charts["Inception Score, larger is better"].lines
    trained = by_title(training_charts([run], line_styles([run])))
    assert trained["Gradient norm"].series[0].points == [
        (400, 2.0),
        (800, 1.0),
        (1600, 0.5),
        (2400, pytest.approx(1 / 3)),
    ]
    assert trained["Force at τ = 0.05"].series[0].points[0] == (400, pytest.approx(0.3))  # mean of 0.2 and 0.4
    assert trained["Generated images per second"].series[0].points[-1] == (2400, 4321.0)


def test_an_unknown_extractor_is_not_called_fid(tmp_path):
    metrics = (evaluation(100, 3.0, protocol=PROTOCOL | {"extractor": "digits"}), evaluation(200, 4.0, protocol="none"))
    run = read_run(write_run(tmp_path / "mine", metrics=metrics), "mine")
    assert [each.distance_name for each in run.evaluations] == ["FD (digits)", "FD (unknown protocol)"]


def test_both_sides_of_every_temperature_are_in_the_gauge(run):
    charts = by_title(gauge_charts([run], line_styles([run])))
    assert len(charts) == 9
    positive, negative = charts["Weight moved, τ = 0.2"].series
    assert (positive.points[0], negative.points[0]) == ((400, 0.01), (400, 0.02))
    assert (positive.negative, negative.negative) == (False, True)
    assert charts["Effective references, τ = 0.02"].level == 8


@pytest.mark.parametrize(
    ("n_eff", "dominated", "reliability"),
    [
        (2.0, 0.51, "red"),
        (7.0, 0.51, "red"),
        (2.99, 0.5, "yellow"),
        (3.0, 0.5, "green"),
        (None, 0.1, "unknown"),
        (4.0, None, "unknown"),
    ],
)
def test_the_rule_of_reliability(n_eff, dominated, reliability):
    assert rate_reliability(n_eff, dominated) == reliability


def test_reliability_of_a_run_and_its_gauge(run):
    assert reliability_over_training(run, 0.02, "pos") == ["red"] * 4
    assert reliability_over_training(run, 0.02, "neg") == ["yellow"] * 4
    assert reliability_over_training(run, 0.2, "neg") == ["green"] * 4
    rows = gauge_rows(run)
    assert len(rows) == 6
    assert [row.n_eff for row in rows[:2]] == ["2.00 of 8", "1.00 of 7"]
    assert [(row.dominated, row.moved) for row in rows[:2]] == [("75%", "7.0%"), ("50%", "6.0%")]
    assert [row.counts for row in rows[::3]] == ["4 red", "4 green"]


def test_reliability_over_training_is_counted(tmp_path):
    dominated = [[0.75], [0.25], [0.25], [None]]
    metrics = [
        telemetry(100 + k, dominated_pos=shares * 3, n_eff_pos=[2.0 + k] * 3) for k, shares in enumerate(dominated)
    ]
    run = read_run(write_run(tmp_path / "mine", metrics=metrics), "mine")
    assert gauge_rows(run)[0].counts == "2 green, 1 red, 1 unknown"


def test_configurations_differ_where_options_say_so(tmp_path):
    runs = [
        read_run(write_run(tmp_path / name, estimator=name, seed=seed), name)
        for seed, name in enumerate(("abc", "standard"))
    ]
    paths = find_differences(runs)
    assert sorted(paths) == ["objective.estimator_neg", "objective.estimator_pos", "seed"]
    assert sorted(paths) == sorted(each.split(" (")[0] for each in differences(*(run.config.tree() for run in runs)))


def test_estimators_have_the_colors_of_the_paper_and_runs_their_own(tmp_path):
    names = ("abc", "standard", "abc", "abc")
    runs = [read_run(write_run(tmp_path / str(k), estimator=name), str(k)) for k, name in enumerate(names)]
    colors = [style.color for style in line_styles(runs)]
    assert colors[:2] == [ABC, STANDARD]
    assert len(set(colors)) == 4
    assert len(line_styles(runs * 5)) == 20


def test_runs_of_one_name_are_distinguished_by_their_parent_directories(tmp_path):
    one, two = write_run(tmp_path / "x" / "run"), write_run(tmp_path / "y" / "run")
    assert [run.name for run in read_runs([one, two])] == ["x/run", "y/run"]
    assert [run.name for run in read_runs([one])] == ["run"]
    assert [run.name for run in read_runs([one, one])] == ["run", "run"]


@pytest.mark.parametrize("value", [True, "1", None, [1.0], float("nan"), float("inf"), 10**400])
def test_what_is_no_number_is_none(value):
    assert to_number(value) is None


def test_a_force_with_an_unknown_scale_is_a_gap():
    assert force_at(0)({"force": [[1.0], [None]]}) is None
    assert force_at(0)({"force": [[1.0], [2.0]]}) == 1.5
    assert force_at(1)({"force": [[1.0]]}) is None
    assert force_at(0)({"force": 3}) is None


def test_broken_lines_and_missing_files_become_sentences(tmp_path):
    path = write_run(tmp_path / "mine")
    with (path / "metrics.jsonl").open("a") as file:
        file.write('[1]\n{"step": 400\n{"step": "x", "positives_seen": 1}\n')
    (path / "history.jsonl").unlink()
    run = read_run(path, "mine")
    assert run.problems == [
        "2 of 10 lines of metrics.jsonl cannot be read.",
        "history.jsonl cannot be read (No such file or directory).",
    ]
    assert len(run.telemetry) == 4
    (path / "metrics.jsonl").unlink()
    page = write_page(tmp_path / "page.html", title="t", records=[], runs=[path]).read_text()
    assert "metrics.jsonl cannot be read (No such file or directory)." in page
    assert "Nothing was logged." in page
    assert "This run has no history." in page


WRONG = (None, "x", [], {}, [None], [[1]], True, -1, 1e400, "</script>")


@pytest.mark.parametrize("wrong", WRONG)
def test_any_wrong_value_of_any_field_still_gives_a_page(wrong, tmp_path):
    lines = [telemetry(100) | {name: wrong} for name in telemetry(1)]
    lines += [evaluation(100, wrong), evaluation(100, 1.0, protocol=wrong), {"step": 1, "evaluation": wrong}]
    lines += [evaluation(200, 1.0, **{name: wrong}) for name in ("kid", "kid_deviation", "precision")]
    lines += [{"step": wrong, "evaluation": {"fid": 1.0}}]
    history = [HISTORY[3] | {name: wrong} for name in HISTORY[0]]
    path = write_run(tmp_path / "mine", metrics=lines, history=history)
    page = write_page(tmp_path / "page.html", title="t", records=[], runs=[path]).read_text()
    assert page.rstrip().endswith("</html>")
    assert page.count("</script>") == 1


def test_pictures_are_written_anew_and_others_refused(tmp_path):
    path = tmp_path / "step-1.png"
    Image.new("L", (3000, 30)).save(path)
    image = embed_picture(path, width=100, alt="a")
    assert (image.width, image.height) == (3000, 30)
    with Image.open(io.BytesIO(base64.b64decode(image.source.removeprefix("data:image/png;base64,")))) as written:
        assert written.size == (100, 1)
    for content in (b"", b"GIF89a", b"\x89PNG\r\n\x1a\n", path.read_bytes()[:60]):
        path.write_bytes(content)
        with pytest.raises(UnreadablePicture, match=r"step-1\.png is not a PNG image"):
            embed_picture(path, width=100, alt="")


def test_a_broken_picture_is_a_sentence(tmp_path):
    path = write_run(tmp_path / "mine")
    (path / "samples" / "step-00000300.png").write_bytes(b"<svg onload=alert(1)>")
    (path / "samples" / "other.png").write_bytes(b"")
    page = write_page(tmp_path / "page.html", title="t", records=[], runs=[path]).read_text()
    assert "step-00000300.png is not a PNG image." in page
    assert page.count("<img ") == 2 + 3  # samples, and three figures


def test_a_few_pictures_on_the_way_are_chosen_evenly():
    pictures = [(step, Path(str(step))) for step in range(0, 900, 100)]
    assert [step for step, _ in choose_evenly(pictures)] == [0, 200, 400, 600]
    assert choose_evenly(pictures[:2]) == pictures[:2]
    assert choose_evenly([]) == []


def test_directories_are_found_one_level_down(tmp_path):
    for name in ("b", "a"):
        write_run(tmp_path / "runs" / name)
    write_run(tmp_path / "runs" / "deeper" / "c")
    (tmp_path / "runs" / "exported").mkdir()
    (tmp_path / "runs" / "exported" / "config.json").write_text("{}")
    found = find_inputs([tmp_path / "runs", tmp_path / "runs" / "a"])
    assert [path.name for path in found.runs] == ["a", "b"]
    assert found.records == []


def test_the_page_is_in_order_and_says_everything(tmp_path):
    runs = [write_run(tmp_path / name, estimator=name) for name in ("abc", "standard")]
    page = write_page(tmp_path / "page.html", title="My title", records=[], runs=runs).read_text()
    places = [
        page.index(f">{text}<")
        for text in (
            "My title",
            "Comparison",
            "Curves",
            "Telemetry",
            "Bias gauge over training",
            "Samples",
            "Differences in configuration",
            "Provenance and history",
        )
    ]
    assert places[:2] == sorted(places[:2])
    headings = [
        page.index(f"<h2>{text}</h2>") for text in ("Curves", "Telemetry", "Bias gauge over training", "Samples")
    ]
    assert headings == sorted(headings)
    assert page.index('class="findings"') < headings[0]
    assert "History: resumed once." in page
    assert page.count("<img ") == 6 + 3  # samples, and three figures
    assert len(page) < 300_000


def test_the_numbers_of_the_charts_are_in_the_page(tmp_path):
    page = write_page(tmp_path / "page.html", title="t", records=[], runs=[write_run(tmp_path / "mine")]).read_text()
    block = page.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    charts = {chart["title"]: chart["series"] for chart in json.loads(block)["charts"]}
    assert charts["FID, smaller is better"] == {"mine": [[800, 40.0], [1600, 12.5], [2400, 13.25]]}


def test_hostile_names_are_text_everywhere(tmp_path):
    history = [HISTORY[3] | {"event": HOSTILE, HOSTILE: HOSTILE, "host": HOSTILE}]
    metrics = (*METRICS, evaluation(300, 1.0, protocol=PROTOCOL | {"extractor": HOSTILE, "prepared": HOSTILE}))
    path = write_run(
        tmp_path / "<img src=x>", metrics=metrics, history=history, classes=(HOSTILE, "b"), recipe_name=HOSTILE
    )
    page = write_page(tmp_path / "page.html", title=HOSTILE, records=[], runs=[path]).read_text()
    assert "<img src=x" not in page
    assert page.count("</script>") == 1
    assert page.count("&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;") > 8
