"""A run that is stopped after any step by a signal or a crash, and resumed, ends like an uninterrupted run."""

import dataclasses
import json
import signal
from functools import cache

import pytest
import torch
from oracles.outcomes import read_outcome
from short_runs import SimulatedCrash, at_step, crash, run, run_outcome, send_signal, short_config

from truedrift.training import EMA, TrainingState, checkpoint

STEPS = 8
VARIANTS = {
    "toy": ("toy", ()),
    "digits": ("digits", ()),
    "micro-batches": ("digits", ("engine.micro_batch=7",)),
    "queue": ("digits", ("batch.sampling=queue", "batch.queue_size=40")),
    "unconditional": (
        "digits",
        ("batch.unconditional=5", "condition.strength_law=inverse-cube", "condition.strength_high=4"),
    ),
    "bootstrap": ("digits", ("objective.estimator_pos=bootstrap", "objective.estimator_neg=bootstrap")),
    "fresh negatives": ("digits", ("batch.fresh_negatives=3",)),
    "fresh negatives, matched": (
        "digits",
        ("batch.n=6", "batch.fresh_negatives=3", "objective.matched=true", "objective.normalization=row"),
    ),
    "two classes per step": ("digits", ("batch.labels=2", "batch.unconditional=4", "condition.strength_high=4")),
    "labels, queue": ("digits", ("batch.labels=3", "batch.sampling=queue", "batch.queue_size=40")),
    "cosine": ("digits", ("optimizer.schedule=cosine",)),
    "several averages": ("digits", ("optimizer.more_ema=0.5,0.95",)),
    "warm-up of averages": ("digits", ("optimizer.more_ema=0.5,0.95", "optimizer.ema_warmup=true")),
    "three classes": ("digits", ("data.classes=7,0,3",)),
    "cached features": ("digits", ("encoder.kind=convnet", "encoder.channels=4,6")),
    "convolutions": ("digits", ('generator={"kind": "conv", "widths": [6, 4], "noise": 4, "condition": 6}',)),
    "transformer": ("digits", ('generator={"kind": "drift-dit", "width": 8, "depth": 1, "heads": 2}',)),
}


@pytest.fixture(scope="module", autouse=True)
def cache_directory(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRUEDRIFT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """uninterrupted(name) → the outcome of the variant without interruptions."""
    return cache(lambda name: run_outcome(build_variant(name), tmp_path_factory.mktemp("uninterrupted")))


def build_variant(name):
    recipe, settings = VARIANTS[name]
    return short_config(recipe, *settings)


def run_until(config, out, step):
    """Stop a run after that step with SIGTERM; return its last report."""
    return run(config, out, progress=at_step(step, send_signal))[-1]


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_resume_after_every_step(tmp_path, uninterrupted, step):
    config = build_variant("digits")
    last = run_until(config, tmp_path, step)
    assert (last.step, last.interrupted, last.complete) == (step, "SIGTERM", step == STEPS)
    assert run_outcome(config, tmp_path) == uninterrupted("digits")


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "digits"])
def test_resume_twice_in_every_variant(tmp_path, uninterrupted, name):
    config = build_variant(name)
    assert [run_until(config, tmp_path, step).step for step in (1, 5)] == [1, 5]
    assert run_outcome(config, tmp_path) == uninterrupted(name)
    assert uninterrupted(name) != uninterrupted("digits")


def test_resume_with_one_step_per_process(tmp_path, uninterrupted):
    config = build_variant("digits")
    for step in range(1, STEPS + 1):
        assert run_until(config, tmp_path, step).step == step
    assert read_outcome(tmp_path) == uninterrupted("digits")
    assert len(uninterrupted("digits").metrics) == STEPS // 2


@pytest.mark.parametrize("step", [1, 3, 4, 7, 8])
def test_resume_after_a_crash(tmp_path, uninterrupted, step):
    """The run resumes at the last checkpoint, and later metrics are computed again."""
    config = build_variant("digits")
    with pytest.raises(SimulatedCrash):
        run(config, tmp_path, progress=at_step(step, crash))
    messages = []
    assert run_outcome(config, tmp_path, notify=messages.append) == uninterrupted("digits")
    saved = step - 1 - (step - 1) % 3
    assert messages[0].startswith(f"resuming at step {saved} of 8 steps" if saved else "digits: 8 steps in ")


def test_complete_run_is_unchanged(tmp_path):
    config = build_variant("digits")
    first = run_outcome(config, tmp_path)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    (last,) = run(config, tmp_path)
    assert (last.step, last.complete, last.interrupted) == (STEPS, True, None)
    assert len(last.metrics["n_eff_pos"]) == 3
    assert read_outcome(tmp_path) == first
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_checkpoint_without_the_energy_distance_is_resumed(tmp_path, monkeypatch, uninterrupted):
    """An older checkpoint after step 3, between two logs: the next mean is over step 4 only. Other metrics are equal.

    This is also the negative control of the tests above: without the sums, the energy distance differs.
    """
    config = build_variant("digits")
    save = checkpoint.save

    def save_as_before(directory, saved, **options):
        facts = {name: value for name, value in saved.facts.items() if name != "energy"}
        save(directory, dataclasses.replace(saved, facts=facts), **options)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", save_as_before)
        run_until(config, tmp_path, 3)
    found, expected = run_outcome(config, tmp_path), uninterrupted("digits")
    assert found.state == expected.state
    lines, expected_lines = [[json.loads(line) for line in each.metrics] for each in (found, expected)]
    assert [line.pop("energy") for line in lines][1] != expected_lines[1]["energy"]
    assert [line.pop("energy_error") for line in lines][1] == [None]
    for line in expected_lines:
        del line["energy"], line["energy_error"]
    assert lines == expected_lines


def test_updates_of_averages_are_counted_over_processes(tmp_path, monkeypatch, uninterrupted):
    """Negative control of the warm-up: a count of this process gives other averages, and the same weights."""
    config, update = build_variant("warm-up of averages"), EMA.update
    expected = uninterrupted("warm-up of averages")
    assert expected.state != uninterrupted("several averages").state
    run_until(config, tmp_path, 3)
    monkeypatch.setattr(EMA, "update", lambda self, step: update(self, step - 3))
    found = run_outcome(config, tmp_path)
    assert found.metrics == expected.metrics
    assert found.state != expected.state


LOST_STATE = {
    "average": lambda tensors: {**tensors, "ema": tensors["generator"]},
    "moments": lambda tensors: {**tensors, "optimizer": {}},
    "one moment": lambda tensors: {
        **tensors,
        "optimizer": {
            name: torch.zeros_like(value) if name.endswith("exp_avg_sq") else value
            for name, value in tensors["optimizer"].items()
        },
    },
    "weights": lambda tensors: {**tensors, "generator": tensors["ema"]},
}


@pytest.mark.parametrize("lost", LOST_STATE)
def test_lost_state_changes_the_outcome(tmp_path, monkeypatch, uninterrupted, lost):
    """Negative control: parts of the checkpoint are not restored."""
    config = build_variant("digits")
    load = TrainingState.load
    monkeypatch.setattr(TrainingState, "load", lambda self, tensors: load(self, LOST_STATE[lost](tensors)))
    run_until(config, tmp_path, 4)
    assert run_outcome(config, tmp_path).state != uninterrupted("digits").state


@pytest.mark.parametrize(("number", "name"), [(signal.SIGUSR1, "SIGUSR1"), (signal.SIGINT, "SIGINT")])
def test_resume_after_other_signals(tmp_path, uninterrupted, number, name):
    config = build_variant("toy")
    last = run(config, tmp_path, progress=at_step(3, lambda: send_signal(number)))[-1]
    assert (last.step, last.interrupted) == (3, name)
    assert run_outcome(config, tmp_path) == uninterrupted("toy")


def test_damaged_checkpoint_is_skipped_with_message(tmp_path, uninterrupted):
    config = build_variant("digits")
    with pytest.raises(SimulatedCrash):
        run(config, tmp_path, progress=at_step(8, crash))
    (tmp_path / "checkpoints" / "step-00000006" / "ema.safetensors").write_bytes(b"")
    messages = []
    assert run_outcome(config, tmp_path, notify=messages.append) == uninterrupted("digits")
    assert messages[0].startswith("checkpoint step-00000006 was skipped: ema.safetensors has 0 bytes")
    assert messages[1].startswith("resuming at step 3 of 8")


def test_warning_of_unequal_sides_is_shown_once(tmp_path):
    """After the first message of a new run, and not when it is resumed or has equal sides."""
    messages = []
    config = short_config("digits", "batch.generated=8")
    run(config, tmp_path / "unequal", notify=messages.append, progress=at_step(3, send_signal))
    assert [message.split(" the field")[0] for message in messages[1:]] == [
        "warning: with 3 positives and 7 negatives per sample"
    ]
    run(config, tmp_path / "unequal", notify=messages.append)
    run(short_config("digits"), tmp_path / "equal", notify=messages.append)
    assert len([message for message in messages if message.startswith("warning")]) == 1
