"""One bad entry among good ones: it is left out with a sentence, and everything else is shown."""

import json
from dataclasses import replace

import pytest
from oracles.handmade_run import METRICS, PROTOCOL, evaluation, telemetry, write_run

from truedrift.evaluation.record import EvaluationRecord, Metrics, Protocol
from truedrift.page.discover import find_inputs
from truedrift.page.findings import compare_runs, describe_run, findings_of_runs
from truedrift.page.page import render_runs, write_page
from truedrift.page.run_data import best_evaluation, read_run
from truedrift.paper import fig_illustration
from truedrift.records.provenance import provenance
from truedrift.records.store import append

METRICS_AT_THE_END = Metrics(**evaluation(300, 11.5)["evaluation"])


def evaluated(run, fid, step=300, **changed):
    """A line of `truedrift evaluate`."""
    record = EvaluationRecord(
        run=run.name,
        step=step,
        metrics=replace(METRICS_AT_THE_END, fid=fid),
        protocol=Protocol(**PROTOCOL | changed),
        seconds=1.0,
        provenance=provenance(seed=0, wall_seconds=1.0),
    )
    append(run / "evaluations.jsonl", record)


@pytest.fixture(scope="module")
def record():
    return fig_illustration.run(fig_illustration.Options(n=4, draws=20, seed=0))


@pytest.mark.parametrize("values", [(1e308, -1e308, 10**400, float("inf"), float("nan"), -1e100), (5e-324,)])
def test_no_number_stops_the_page_or_the_files(values, tmp_path):
    lines = [(telemetry(k + 1, gradient_norm=x, spread=x), evaluation(k + 1, x, kid=x)) for k, x in enumerate(values)]
    run = write_run(tmp_path / "run", metrics=[line for pair in lines for line in pair])
    assert "Curves" in write_page(tmp_path / "page.html", title="t", records=[], runs=[run]).read_text()
    assert "curves.png" in render_runs([run], tmp_path)


def test_a_run_that_cannot_be_read_is_passed_over_below_a_directory(tmp_path):
    write_run(tmp_path / "runs" / "good")
    (write_run(tmp_path / "runs" / "torn") / "config.json").write_text("{")
    write_run(tmp_path / "runs" / "newer", schema=2)
    found = find_inputs([tmp_path / "runs"])
    assert [path.name for path in found.runs] == ["good"]
    assert len(found.problems) == 2
    assert found.problems[0].startswith("newer is skipped: 'newer/config.json' has schema 2")
    assert found.problems[1].startswith("torn is skipped: 'torn/config.json' is not the configuration of a run (JSON")
    with pytest.raises(ValueError, match=r"torn/config.json' is not the configuration of a run"):
        find_inputs([tmp_path / "runs", tmp_path / "runs" / "torn"])
    page = write_page(tmp_path / "p.html", title="t", records=[], runs=found.runs, problems=found.problems).read_text()
    assert "<bdi>Not readable</bdi>" in page
    assert "has schema 2" in page


def test_a_bad_line_of_records_is_passed_over_unless_the_file_is_named(record, tmp_path):
    below = tmp_path / "item"
    below.mkdir()
    (below / "records.jsonl").write_text('{"record": "Illus\n')
    append(below / "records.jsonl", record)
    found = find_inputs([tmp_path])
    assert found.records == [record]
    assert found.problems == ["1 line of item/records.jsonl cannot be read."]
    assert find_inputs([below]).records == [record]
    with pytest.raises(ValueError, match=r"records.jsonl, line 1 is not a record"):
        find_inputs([below / "records.jsonl"])
    (below / "records.jsonl").write_text('{"record": "Illus\n')
    with pytest.raises(ValueError, match=r"records.jsonl, line 1 is not a record"):
        find_inputs([tmp_path])


def test_a_torn_line_leaves_the_other_evaluations(tmp_path):
    path = write_run(tmp_path / "mine")
    evaluated(path, 12.0)
    with (path / "evaluations.jsonl").open("a") as file:
        file.write('{"record": "Eval')
    evaluated(path, 11.0)
    run = read_run(path, "mine")
    assert [each.metrics.fid for each in run.later_evaluations] == [12.0, 11.0]
    assert run.problems == ["1 line of evaluations.jsonl cannot be read."]


def test_negative_distances_are_left_out_with_a_sentence(tmp_path):
    path = write_run(tmp_path / "mine", metrics=(*METRICS, evaluation(300, -1)))
    evaluated(path, -0.5)
    run = read_run(path, "mine")
    assert [each.distance for each in run.evaluations] == [40.0, 12.5, 13.25]
    assert run.later_evaluations == []
    assert run.problems == [
        "1 evaluation in metrics.jsonl left out: a distance is never negative.",
        "1 evaluation in evaluations.jsonl left out: a distance is never negative.",
    ]


def test_a_distance_without_a_protocol_has_no_best_and_a_sentence(tmp_path):
    metrics = (evaluation(100, 3.0, protocol=None), evaluation(200, 4.0, protocol=None))
    run = read_run(write_run(tmp_path / "mine", metrics=metrics), "mine")
    assert best_evaluation(run) is None
    assert describe_run(run).sentence.startswith("FD (unknown protocol) 4 at step 200; ")
    assert run.problems == ["2 evaluations in metrics.jsonl do not state a protocol and cannot be compared."]


def test_runs_are_compared_by_what_evaluate_found_with_one_protocol(tmp_path):
    a, b = (write_run(tmp_path / name, metrics=METRICS[:1]) for name in "ab")
    evaluated(a, 12.0)
    evaluated(a, 3.0, samples=100)
    evaluated(b, 10.5, step=200)
    one, two = read_run(a, "a"), read_run(b, "b")
    sentence = "b ends 1.5 lower in FID than a, by truedrift evaluate at step 300 and step 200."
    assert compare_runs(one, two).sentence == sentence
    trained = read_run(write_run(tmp_path / "c"), "c")  # 13.25 by the same protocol, in its training
    assert compare_runs(one, trained).sentence == "a ends 1.25 lower in FID than c, by truedrift evaluate at step 300."


def test_a_run_that_evaluate_evaluated_is_not_called_not_evaluated(tmp_path):
    path = write_run(tmp_path / "mine", metrics=METRICS[:1])
    assert describe_run(read_run(path, "mine")).sentence.startswith("not evaluated; ")
    evaluated(path, 12.0)
    first, second = findings_of_runs([read_run(path, "mine")])
    assert "not evaluated" not in first.sentence
    assert second.sentence.startswith("FID 12, ")


def of_other_data(path):
    tree = json.loads((path / "config.json").read_text())
    tree["config"]["data"]["name"] = "fashion-mnist"
    (path / "config.json").write_text(json.dumps(tree))
    return path


def test_runs_that_cannot_be_compared_say_why(tmp_path):
    a = read_run(write_run(tmp_path / "a"), "a")
    other = of_other_data(write_run(tmp_path / "b", metrics=(evaluation(300, 1.0, PROTOCOL | {"reference": "x"}),)))
    unknown = write_run(tmp_path / "c", metrics=(evaluation(300, 1.0, protocol=None),))
    bare = read_run(write_run(tmp_path / "d", metrics=()), "d")
    reasons = [
        compare_runs(a, run).sentence.removeprefix("the runs cannot be compared: ").split(";")[0]
        for run in (read_run(other, "b"), read_run(unknown, "c"), bare)
    ]
    assert reasons == [
        "they were trained on different data, digits and fashion-mnist.",
        "the protocol of an evaluation is unknown",
        "d was not evaluated",
    ]
    assert "d and d were not evaluated" in compare_runs(bare, bare).sentence


def test_a_folder_of_weights_is_called_one(tmp_path):
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported" / "config.json").write_text('{"dim": 8}')
    (tmp_path / "exported" / "model.safetensors").write_bytes(b"")
    with pytest.raises(
        ValueError, match=r"exported' contains only weights, not a run; must be a run, .*; pass the run "
    ):
        find_inputs([tmp_path / "exported"])
