"""Stopped after any step, by a signal or for good, and started again: the end is that of a run never stopped."""

import signal
from functools import cache as cache_of

import pytest
import torch
from kills import end_of
from short_runs import Dropped, ask, at, drop, end, run, tiny

from truedrift.training.state import TrainingState

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
    "kept features": ("digits", ("encoder.kind=convnet", "encoder.channels=4,6")),
    "transformer": ("digits", ('generator={"kind": "drift-dit", "width": 8, "depth": 1, "heads": 2}',)),
}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRUEDRIFT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """whole(name) → how the variant ends that is never stopped."""
    return cache_of(lambda name: end(variant(name), tmp_path_factory.mktemp("whole")))


def variant(name):
    recipe, settings = VARIANTS[name]
    return tiny(recipe, *settings)


def interrupted(config, out, step):
    """The last report of a run that SIGTERM stops after that step."""
    return run(config, out, progress=at(step, ask))[-1]


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_stopped_after_any_step(tmp_path, whole, step):
    config = variant("digits")
    last = interrupted(config, tmp_path, step)
    assert (last.step, last.interrupted, last.complete) == (step, "SIGTERM", step == STEPS)
    assert end(config, tmp_path) == whole("digits")


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "digits"])
def test_stopped_twice_in_every_variant(tmp_path, whole, name):
    config = variant(name)
    assert [interrupted(config, tmp_path, step).step for step in (1, 5)] == [1, 5]
    assert end(config, tmp_path) == whole(name)
    assert whole(name) != whole("digits")


def test_one_step_a_process(tmp_path, whole):
    config = variant("digits")
    for step in range(1, STEPS + 1):
        assert interrupted(config, tmp_path, step).step == step
    assert end_of(tmp_path) == whole("digits")
    assert len(whole("digits").metrics) == STEPS // 2


@pytest.mark.parametrize("step", [1, 3, 4, 7, 8])
def test_dropped_after_a_step(tmp_path, whole, step):
    """Nothing is saved: it goes on from the checkpoint before, and metrics behind it are computed again."""
    config = variant("digits")
    with pytest.raises(Dropped):
        run(config, tmp_path, progress=at(step, drop))
    said = []
    assert end(config, tmp_path, notify=said.append) == whole("digits")
    saved = step - 1 - (step - 1) % 3
    assert said[0].startswith(f"resuming at step {saved} of 8 steps" if saved else "digits: 8 steps in ")


def test_a_complete_run_stays_as_it_is(tmp_path):
    config = variant("digits")
    first = end(config, tmp_path)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    (last,) = run(config, tmp_path)
    assert (last.step, last.complete, last.interrupted) == (STEPS, True, None)
    assert len(last.metrics["n_eff_pos"]) == 3
    assert end_of(tmp_path) == first
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


FORGOTTEN = {
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


@pytest.mark.parametrize("what", FORGOTTEN)
def test_whatever_is_forgotten_turns_it_red(tmp_path, monkeypatch, whole, what):
    config = variant("digits")
    load = TrainingState.load
    monkeypatch.setattr(TrainingState, "load", lambda self, tensors: load(self, FORGOTTEN[what](tensors)))
    interrupted(config, tmp_path, 4)
    assert end(config, tmp_path).state != whole("digits").state


@pytest.mark.parametrize(("number", "name"), [(signal.SIGUSR1, "SIGUSR1"), (signal.SIGINT, "SIGINT")])
def test_other_signals_too(tmp_path, whole, number, name):
    config = variant("toy")
    last = run(config, tmp_path, progress=at(3, lambda: ask(number)))[-1]
    assert (last.step, last.interrupted) == (3, name)
    assert end(config, tmp_path) == whole("toy")


def test_a_damaged_checkpoint_is_told_and_passed_over(tmp_path, whole):
    config = variant("digits")
    with pytest.raises(Dropped):
        run(config, tmp_path, progress=at(8, drop))
    (tmp_path / "checkpoints" / "step-00000006" / "ema.safetensors").write_bytes(b"")
    said = []
    assert end(config, tmp_path, notify=said.append) == whole("digits")
    assert said[0].startswith("checkpoint step-00000006 was skipped: ema.safetensors has 0 bytes")
    assert said[1].startswith("resuming at step 3 of 8")
