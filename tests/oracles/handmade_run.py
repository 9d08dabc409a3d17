"""A run directory written line by line, without training: every number on the page is known beforehand."""

import json
from dataclasses import replace
from pathlib import Path

from PIL import Image

from truedrift.evaluation import EvaluationRecord, Metrics, NeighborsProtocol, NeighborsRecord, Protocol
from truedrift.recipes import PAPER_FIELD, recipe
from truedrift.records import append, provenance

PROTOCOL = {
    "extractor": "inception",
    "extractor_sha256": "0123456789abcdef" * 4,
    "prepared": "uint8, bilinear to 299×299",
    "dimensions": 2048,
    "samples": 5000,
    "labels": "balanced",
    "seed": 7,
    "strength": 1.5,
    "weights": "ema",
    "reference": "digits",
    "split": "test",
    "reference_count": 1797,
    "reference_sha256": "fedcba9876543210" * 4,
    "neighbors": 3,
    "compared": 5000,
}
HOSTILE = "</script><img src=x onerror=alert(1)>"


def telemetry(step, **changed):
    """A logged step: n_eff is 2, 4, 6 of 8 on the positive side, and one less on the other."""
    return {
        "step": step,
        "epoch": step / 100,
        "positives_seen": 8 * step,
        "energy": [10 / step, 30 / step],
        "energy_error": [0.01, 0.03],
        "loss": 3.0,
        "gradient_norm": 100 / step,
        "temperatures": [0.02, 0.05, 0.2],
        "force": [[0.1, 0.2, 0.3], [0.3, 0.4, 0.5]],
        "n_eff_pos": [2.0, 4.0, 6.0],
        "n_eff_neg": [1.0, 3.0, 5.0],
        "dominated_pos": [0.75, 0.25, 0.0],
        "dominated_neg": [0.5, 0.125, 0.0],
        "correction_pos": [0.07, 0.05, 0.01],
        "correction_neg": [0.06, 0.04, 0.02],
        "spread": 0.875,
        "collapsed": False,
        "skipped": 0,
        "timing": {"images_per_second": 4321.0, "memory_megabytes": 400.0},
    } | changed


def evaluation(step, fid, protocol=PROTOCOL, **changed):
    """A line of an evaluation."""
    metrics = {
        "fid": fid,
        "kid": 0.0125,
        "kid_deviation": 0.0005,
        "precision": 0.625,
        "recall": 0.375,
        "inception_score": None,
        "inception_score_deviation": None,
    }
    return {"step": step, "evaluation": metrics | changed, "protocol": protocol}


METRICS = (
    telemetry(50),
    evaluation(100, 40.0),
    telemetry(100),
    evaluation(200, 12.5),
    telemetry(200),
    telemetry(300),
    evaluation(300, 13.25),
)
HISTORY = (
    {"event": "started", "time": "2026-01-02T03:04:05+00:00", "host": "first", "version": "0.1.0", "step": 0},
    {"event": "interrupted", "time": "2026-01-02T03:14:05+00:00", "host": "first", "version": "0.1.0", "step": 120},
    {"event": "resumed", "time": "2026-01-03T03:04:05+00:00", "host": "second", "version": "0.1.1", "step": 120},
    {"event": "complete", "time": "2026-01-03T03:24:05+00:00", "host": "second", "version": "0.1.1", "step": 300},
)


def write_run(
    path,
    *,
    estimator="abc",
    seed=0,
    metrics=METRICS,
    history=HISTORY,
    pictures=(100, 200, 300),
    classes=("zero", "one"),
    recipe_name="digits",
    schema=1,
):
    """config.json, metrics.jsonl, history.jsonl and samples/ of a run of 300 steps."""
    path = Path(path)
    (path / "samples").mkdir(parents=True)
    given = {"n": 8, "estimator": estimator, "seed": seed}
    config = recipe("digits", given=given, tree=PAPER_FIELD, settings=("cadence.epochs=3",))
    document = {
        "schema": schema,
        "config": config.tree() | {"recipe": recipe_name},
        "parts": {},
        "data": {"sha256": "5" * 64, "sample_shape": [1, 8, 8], "classes": list(classes)},
        "version": "0.1.0",
        "commit": "c0ffee" * 6 + "c0ff",
    }
    (path / "config.json").write_text(json.dumps(document))
    for name, lines in (("metrics", metrics), ("history", history)):
        (path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for step in pictures:
        Image.new("L", (84, 64), color=step % 256).save(path / "samples" / f"step-{step:08}.png")
    return path


def write_evaluation(run, fid, step=300, **protocol):
    """Append a line as `truedrift evaluate` does."""
    record = EvaluationRecord(
        run=run.name,
        step=step,
        metrics=Metrics(**evaluation(step, fid)["evaluation"]),
        protocol=Protocol(**PROTOCOL | protocol),
        seconds=1.0,
        provenance=provenance(seed=0, wall_seconds=1.0),
    )
    append(run / "evaluations.jsonl", record)


def neighbors_record(**changed):
    """A record of `truedrift evaluate --neighbors`: held-out images at 10 … 20, samples 5 farther."""
    record = NeighborsRecord(
        run="mine",
        step=300,
        protocol=NeighborsProtocol(
            extractor="inception",
            extractor_sha256=PROTOCOL["extractor_sha256"],
            prepared="uint8",
            dimensions=2048,
            independent=True,
            samples=200,
            seed=0,
            strength=1.0,
            weights="ema",
            data="cifar10",
            train=50_000,
            compared=2600,
            held_out=500,
            held_out_split="test",
        ),
        threshold=10.1,
        close=2,
        close_held_out=5,
        p_value=0.75,
        quantiles=tuple(15 + k / 10 for k in range(101)),
        held_out_quantiles=tuple(10 + k / 10 for k in range(101)),
        seconds=1.0,
        provenance=provenance(seed=0, wall_seconds=1.0),
    )
    return replace(record, **changed)


def write_neighbors(run, **changed):
    """Append a line and write a picture as `truedrift evaluate --neighbors` does."""
    append(run / "evaluations.jsonl", neighbors_record(**changed))
    Image.new("RGB", (1400, 1700)).save(run / "neighbors.png")
