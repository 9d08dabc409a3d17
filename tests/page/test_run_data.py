"""Run directories written by hand, complete and damaged, are read; what cannot be read becomes a sentence."""

import hashlib
import json
from dataclasses import replace

import pytest
import torch
from oracles.handmade_run import HISTORY, METRICS, PROTOCOL, evaluation, telemetry, write_evaluation, write_run

from truedrift.options import differences
from truedrift.page import (
    best_evaluation,
    find_differences,
    is_overview,
    read_run,
    read_runs,
    render_runs,
    run_data,
    run_log,
    runs_to_draw,
    sort_runs,
    write_page,
)
from truedrift.training import RunStatus, checkpoint
from truedrift.training.run_directory import open_run


def test_a_run_is_read_as_it_was_written(tmp_path):
    run = read_run(write_run(tmp_path / "mine"), "mine")
    assert [each.step for each in run.evaluations] == [100, 200, 300]
    assert [each.metrics.fid for each in run.evaluations] == [40.0, 12.5, 13.25]
    assert best_evaluation(run).step == 200
    assert [line["step"] for line in run.telemetry] == [50, 100, 200, 300]
    assert [step for step, _ in run.pictures] == [100, 200, 300]
    assert (run.classes, run.version, run.problems) == (("zero", "one"), "0.1.0", [])


def test_runs_are_labeled_by_what_differs(tmp_path):
    paths = [
        write_run(tmp_path / "digits-1082d44dd661", estimator="standard"),
        write_run(tmp_path / "digits-abc-n8-seed0-e18337", estimator="abc"),
        write_run(tmp_path / "mine", estimator="abc", seed=1),
    ]
    assert [run.name for run in read_runs(paths)] == ["digits · standard · seed 0", "digits · abc · seed 0", "mine"]
    assert [run.name for run in read_runs(paths[:2])] == ["digits · standard", "digits · abc"]
    assert [run.name for run in read_runs(paths[:1])] == ["digits · standard · n 8 · seed 0"]


def test_runs_of_one_configuration_keep_the_names_of_their_directories(tmp_path):
    paths = [write_run(tmp_path / name) for name in ("a/digits-1082d44dd661", "b/digits-1082d44dd661")]
    assert [run.name for run in read_runs(paths)] == ["a/digits-1082d44dd661", "b/digits-1082d44dd661"]


def test_a_changed_digit_in_the_log_is_noticed(tmp_path):
    """The line is still valid JSON. The newest checkpoint has the hash of the log."""
    path, steps = write_run(tmp_path / "mine"), read_run(write_run(tmp_path / "other"), "other").config.cadence.steps
    content = (path / "metrics.jsonl").read_bytes()
    logged = {"metrics_offset": len(content), "metrics_sha256": hashlib.sha256(content).hexdigest()}
    facts = {**checkpoint.START_FACTS, **logged}
    run = open_run(path)
    checkpoint.save(run.checkpoints, checkpoint.Checkpoint(steps, {"a": {"b": torch.zeros(1)}}, facts), run=run.id)
    assert read_run(path, "mine").problems == []
    (path / "metrics.jsonl").write_bytes(content.replace(b"12.5", b"11.5"))
    (problem,) = read_run(path, "mine").problems
    assert problem.startswith("metrics.jsonl is not as it was when the last checkpoint was saved")
    (path / "metrics.jsonl").write_bytes(content + b'{"step": 301}\n')  # written after the checkpoint
    assert read_run(path, "mine").problems == []


@pytest.mark.parametrize(
    ("history", "status"),
    [
        (HISTORY, RunStatus.COMPLETE),
        (HISTORY[:2], RunStatus.STOPPED),
        (HISTORY[:3], RunStatus.UNFINISHED),
        ((), RunStatus.UNFINISHED),
        ((*HISTORY[:3], HISTORY[3] | {"step": 200}), RunStatus.STOPPED),
        ((*HISTORY, {"event": "changed", "step": None}), RunStatus.COMPLETE),
    ],
)
def test_the_last_event_decides_the_status(history, status, tmp_path):
    assert read_run(write_run(tmp_path / "mine", history=history), "mine").status is status


def test_an_unknown_extractor_is_not_called_fid(tmp_path):
    metrics = (evaluation(100, 3.0, protocol=PROTOCOL | {"extractor": "digits"}),)
    (only,) = read_run(write_run(tmp_path / "mine", metrics=metrics), "mine").evaluations
    assert only.protocol.distance_name == "FD (digits)"


def test_the_best_evaluation_has_the_protocol_of_the_last(tmp_path):
    other = evaluation(100, 1.0, protocol=PROTOCOL | {"samples": 100})
    run = read_run(write_run(tmp_path / "mine", metrics=(other, *METRICS)), "mine")
    assert best_evaluation(run).metrics.fid == 12.5
    assert best_evaluation(replace(run, evaluations=())) is None


# Damaged files


def test_damaged_lines_and_missing_files_become_sentences(tmp_path):
    path = write_run(tmp_path / "mine")
    with (path / "metrics.jsonl").open("a") as file:
        file.write('[1]\n{"step": 400\n{"step": "x", "positives_seen": null}\n')
    (path / "history.jsonl").unlink()
    run = read_run(path, "mine")
    assert run.problems == [
        "2 of 10 lines of metrics.jsonl cannot be read.",
        "history.jsonl cannot be read (No such file or directory).",
    ]
    assert len(run.telemetry) == 4
    (path / "metrics.jsonl").unlink()
    page = write_page(tmp_path / "page.html", title="t", records=[], runs=read_runs([path])).read_text()
    assert "metrics.jsonl cannot be read (No such file or directory)." in page
    assert "Nothing was logged." in page
    assert "This run has no history." in page


def test_an_evaluation_without_a_protocol_cannot_be_read_and_one_without_a_distance_is_left_out(tmp_path):
    metrics = (evaluation(100, 3.0, protocol=None), evaluation(200, None), evaluation(300, 4.0))
    run = read_run(write_run(tmp_path / "mine", metrics=metrics), "mine")
    assert [each.step for each in run.evaluations] == [300]
    assert run.problems == ["1 evaluation in metrics.jsonl cannot be read."]


def test_a_torn_line_leaves_the_other_evaluations(tmp_path):
    path = write_run(tmp_path / "mine")
    write_evaluation(path, 12.0)
    with (path / "evaluations.jsonl").open("a") as file:
        file.write('{"record": "Eval')
    write_evaluation(path, 11.0)
    run = read_run(path, "mine")
    assert [each.metrics.fid for each in run.later_evaluations] == [12.0, 11.0]
    assert run.problems == ["1 line of evaluations.jsonl cannot be read."]


@pytest.mark.parametrize("value", [True, "1", None, [1.0], float("nan"), float("inf"), 10**400])
def test_values_that_cannot_be_drawn_are_none(value):
    assert run_log.number_at({"a": [value]}, "a", 0) is None


def test_numbers_are_found_by_their_path():
    entry = {"timing": {"images_per_second": 3}, "force": [[1.0, 2.5]], "small": 1e-200}
    assert run_log.number_at(entry, "timing", "images_per_second") == 3.0
    assert run_log.number_at(entry, "force", 0, 1) == 2.5
    assert run_log.number_at(entry, "small") == 0.0
    assert all(
        run_log.number_at(entry, *path) is None for path in (("x",), ("force", 1), ("timing", 0), ("small", "x"))
    )


WRONG = (None, "x", [], {}, [None], [[1]], True, -1, 1e400, "</script>")


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_value_in_any_field_still_gives_a_page(wrong, tmp_path):
    lines = [telemetry(100) | {name: wrong} for name in telemetry(1)]
    lines += [evaluation(100, wrong), evaluation(100, 1.0, protocol=wrong), {"step": 1, "evaluation": wrong}]
    lines += [evaluation(200, 1.0, **{name: wrong}) for name in ("kid", "kid_deviation", "precision")]
    lines += [{"step": wrong, "evaluation": {"fid": 1.0}}]
    lines += [evaluation(300, 1.0) | {"more_ema": more} for more in (wrong, {"0.5": wrong}, {"x": {"fid": wrong}})]
    history = [HISTORY[3] | {name: wrong} for name in HISTORY[0]]
    path = write_run(tmp_path / "mine", metrics=lines, history=history)
    page = write_page(tmp_path / "page.html", title="t", records=[], runs=read_runs([path])).read_text()
    assert page.rstrip().endswith("</html>")
    assert page.count("</script>") == 1


@pytest.mark.parametrize("values", [(1e308, -1e308, 10**400, float("inf"), float("nan"), -1e100), (5e-324,)])
def test_no_number_stops_the_page_or_the_files(values, tmp_path):
    lines = [(telemetry(k + 1, gradient_norm=x, spread=x), evaluation(k + 1, x, kid=x)) for k, x in enumerate(values)]
    run = write_run(tmp_path / "run", metrics=[line for pair in lines for line in pair])
    assert "Curves" in write_page(tmp_path / "page.html", title="t", records=[], runs=read_runs([run])).read_text()
    assert "curves.png" in render_runs(read_runs([run]), tmp_path)


# Several runs


def test_runs_of_one_name_are_distinguished_by_their_parent_directories(tmp_path):
    one, two = write_run(tmp_path / "x" / "run"), write_run(tmp_path / "y" / "run")
    assert [run.name for run in read_runs([one, two])] == ["x/run", "y/run"]
    assert [run.name for run in read_runs([one])] == ["run"]
    assert [run.name for run in read_runs([one, one])] == ["run", "run"]


def test_differences_are_the_same_as_those_of_options(tmp_path):
    runs = [
        read_run(write_run(tmp_path / name, estimator=name, seed=seed), name)
        for seed, name in enumerate(("abc", "standard"))
    ]
    paths = find_differences(runs)
    assert sorted(paths) == ["objective.estimator_neg", "objective.estimator_pos", "seed"]
    assert sorted(paths) == sorted(each.split(" (")[0] for each in differences(*(run.config.tree() for run in runs)))


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Five seeds of abc, then three of standard."""
    directory = tmp_path_factory.mktemp("many")
    pairs = [*(("abc", seed) for seed in range(5)), *(("standard", seed) for seed in range(3))]
    return read_runs([write_run(directory / f"{name}{seed}", estimator=name, seed=seed) for name, seed in pairs])


def test_many_runs_are_sorted_by_their_differences_and_then_by_their_seeds(many):
    shuffled = [many[k] for k in (7, 3, 0, 6, 4, 2, 5, 1)]
    assert [run.name for run in sort_runs(shuffled)] == [run.name for run in many]
    assert sort_runs(shuffled[:6]) == shuffled[:6]


def test_numbers_are_sorted_by_size(tmp_path):
    """n of 8 to 512, and below that temperatures, whose texts have another order."""
    expected = [(n, taus) for n in (8, 16, 128, 512) for taus in ((0.02, 0.05), (0.5, 1.0), (1e-5, 1e3))]
    for k, (n, taus) in enumerate(expected):
        document = json.loads((write_run(tmp_path / f"r{k}") / "config.json").read_text())
        document["config"]["batch"]["n"] = n
        document["config"]["objective"]["temperatures"] = list(taus)
        (tmp_path / f"r{k}" / "config.json").write_text(json.dumps(document))
    found = sort_runs(read_runs([tmp_path / f"r{k}" for k in range(12)]))
    assert [(run.config.batch.n, run.config.objective.temperatures) for run in found] == sorted(expected)


def test_a_few_runs_of_every_configuration_are_drawn(many):
    assert runs_to_draw(many) == many[:6]
    mixed = [*many[:4], *many[4:5], *many[:3], many[7]]  # the only standard is last
    assert runs_to_draw(mixed)[-1] is many[7]
    assert len(runs_to_draw(mixed)) == 6
    assert not is_overview(many[:6])
    assert runs_to_draw(many[:6]) == many[:6]


def test_names_are_in_natural_order():
    assert sorted(["b", "a10", "a9b", "a", "a9"], key=run_data.natural_key) == ["a", "a9", "a9b", "a10", "b"]
    assert [run_data.pluralize(k, "run") for k in (0, 1, 1200)] == ["0 runs", "1 run", "1,200 runs"]
