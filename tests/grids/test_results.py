"""Handmade run directories become one record."""

import json
import time

import pytest
from oracles.small_grid import small_plan, small_task

from truedrift.grids import ImageGrid, collect_results
from truedrift.records import append, read

METRICS = {
    "fid": 9.5,
    "kid": 0.25,
    "kid_deviation": 0.0,
    "precision": 0.5,
    "recall": 0.75,
    "inception_score": None,
    "inception_score_deviation": None,
}
PROTOCOL = {
    "extractor": "digits",
    "extractor_sha256": "ab" * 32,
    "prepared": "float32",
    "dimensions": 32,
    "samples": 2000,
    "labels": "balanced",
    "seed": 0,
    "strength": 1.0,
    "weights": "ema",
    "reference": "digits",
    "split": "train",
    "reference_count": 1437,
    "reference_sha256": "cd" * 32,
    "neighbors": 3,
    "compared": 2000,
}
EVALUATED = (
    "generator.width=512",
    "generator.depth=3",
    "evaluation.extractor=digits",
    "cadence.evaluate_every_epochs=1",
)
TASKS = (small_task(0, "standard", *EVALUATED, "objective.estimator_pos=standard"), small_task(4, "abc", *EVALUATED))


def evaluation(step, fid, protocol=PROTOCOL, **changed):
    return {"step": step, "evaluation": METRICS | {"fid": fid} | changed, "protocol": protocol}


def write(run, config, entries, seconds=40):
    run.mkdir(parents=True)
    data = {"sha256": "00", "sample_shape": [1, 8, 8], "classes": [str(k) for k in range(10)]}
    tree = {"schema": 1, "config": config.tree(), "parts": {}, "data": data, "version": "0", "commit": None}
    (run / "config.json").write_text(json.dumps(tree))
    (run / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    history = [("started", 0), ("complete", seconds)]
    lines = [{"event": event, "time": f"2026-01-01T00:00:{at:02d}+00:00"} for event, at in history]
    (run / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def collected(runs):
    return collect_results(small_plan(*TASKS), runs, seed=3, started=time.monotonic() - 5)


def test_every_run_with_its_evaluations(tmp_path):
    write(
        tmp_path / TASKS[0].name, TASKS[0].config, [{"step": 1, "loss": 2.0}, evaluation(3, 20.0), evaluation(6, 12.5)]
    )
    write(tmp_path / TASKS[1].name, TASKS[1].config, [evaluation(3, 18.0), evaluation(6, 11.0, recall=1.0)], 50)
    record = collected(tmp_path)
    assert (record.item, record.scale, record.data, record.recipe) == ("small", "smoke", "digits", "digits")
    assert (record.classes, record.evaluate_every_epochs) == (10, 1)
    assert record.provenance.command == "truedrift reproduce small"
    assert (record.protocol.extractor, record.protocol.reference_count) == ("digits", 1437)
    standard, abc = record.runs
    assert (standard.id, standard.variant, standard.seed, standard.n) == (TASKS[0].id, "standard", 0, 3)
    assert (standard.estimator_pos, standard.estimator_neg, abc.estimator_pos) == ("standard", "abc", "abc")
    assert (standard.epochs, standard.steps_per_epoch, standard.seconds, abc.seconds) == (2, 3, 40, 50)
    assert [(each.step, each.positives_seen, each.metrics.fid) for each in standard.evaluations] == [
        (3, 9, 20.0),
        (6, 18, 12.5),
    ]
    assert (abc.evaluations[1].metrics.recall, abc.evaluations[1].metrics.inception_score) == (1.0, None)
    # labels, first layer, three layers with their norms, the last norm, last layer
    assert abc.parameters == 11 * 32 + (128 * 512 + 512) + 3 * (512 + 512 * 512 + 512) + 512 + (512 * 64 + 64)
    assert record.provenance.seed == 3
    assert record.provenance.wall_seconds >= 5
    append(tmp_path / "records.jsonl", record)
    assert read(tmp_path / "records.jsonl", ImageGrid) == [record]


def test_different_protocols_are_an_error(tmp_path):
    write(tmp_path / TASKS[0].name, TASKS[0].config, [evaluation(6, 1.0)])
    write(tmp_path / TASKS[1].name, TASKS[1].config, [evaluation(6, 1.0, PROTOCOL | {"reference_count": 5})])
    with pytest.raises(
        ValueError, match=r"were evaluated by different protocols; all runs of a grid must use the same .*; move one"
    ):
        collected(tmp_path)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (evaluation(6, None), r"metrics.jsonl': fid is None; must be a finite number"),
        (evaluation(6, 1.0, PROTOCOL | {"samples": "many"}), r"metrics.jsonl': samples is 'many'; must be an integer"),
    ],
)
def test_invalid_number_is_an_error_that_names_the_file(entry, message, tmp_path):
    for task in TASKS:
        write(tmp_path / task.name, task.config, [entry])
    with pytest.raises(ValueError, match=message):
        collected(tmp_path)


def test_time_of_a_step_is_that_of_the_fastest_interval(tmp_path):
    """Three samples of ten classes per step, at 60 and 120 samples per second."""
    logged = [{"step": step, "timing": {"images_per_second": rate}} for step, rate in ((1, 60.0), (2, 120.0))]
    write(tmp_path / TASKS[0].name, TASKS[0].config, [*logged, evaluation(6, 12.5)])
    write(tmp_path / TASKS[1].name, TASKS[1].config, [evaluation(6, 11.0)])
    assert [run.step_seconds for run in collected(tmp_path).runs] == [0.25, None]
