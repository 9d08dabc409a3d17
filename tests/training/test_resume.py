"""Stopped after any step, by a signal or for good, and started again: the end is that of a run that was never stopped."""

import signal

import pytest
import torch
from kills import end_of
from runs import Dropped, ask, at, drop, end, run, tiny

from truedrift.training.state import TrainingState

STEPS = 8
VARIANTS = {
    "toy": ("toy", ()),
    "digits": ("digits", ()),
    "micro-batches": ("digits", ("engine.micro_batch=7",)),
    "queue": ("digits", ("batch.sampling=queue", "batch.queue_size=40")),
    "unconditional": ("digits", ("batch.unconditional=5", "condition.strength_law=inverse-cube")),
    "bootstrap": ("digits", ("objective.estimator_pos=bootstrap", "objective.estimator_neg=bootstrap")),
    "kept features": ("digits", ("encoder.kind=convnet", "encoder.channels=4,6")),
    "transformer": ("digits", ("generator.kind=drift-dit", "generator.width=8", "generator.depth=1", "generator.heads=2")),
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def variant(name):
    recipe, settings = VARIANTS[name]
    if name == "transformer":  # another kind of generator, so without the sizes of the perceptron
        return tiny_transformer(settings)
    return tiny(recipe, *settings)


def tiny_transformer(settings):
    from runs import TINY

    from truedrift.recipes import recipe

    others = [each for each in TINY if not each.startswith("generator.")]
    return recipe("digits", settings=(*others, *settings))


def interrupted(config, out, step):
    """The reports of a run that SIGTERM stops after that step."""
    return run(config, out, progress=at(step, ask))


@pytest.mark.parametrize("name", ["toy", "digits"])
def test_stopped_after_every_step(tmp_path, name):
    config = variant(name)
    whole = end(config, tmp_path / "whole")
    assert len(whole.metrics) == STEPS // 2
    for step in range(1, STEPS + 1):
        out = tmp_path / f"stopped-{step}"
        last = interrupted(config, out, step)[-1]
        assert (last.step, last.interrupted, last.complete) == (step, "SIGTERM", step == STEPS)
        assert end(config, out) == whole, f"stopped after step {step}"


@pytest.mark.parametrize("name", [name for name in VARIANTS if name not in ("toy", "digits")])
@pytest.mark.parametrize("step", [1, 4, 6])
def test_stopped_in_every_variant(tmp_path, name, step, cache):
    config = variant(name)
    whole = end(config, tmp_path / "whole")
    interrupted(config, tmp_path / "stopped", step)
    assert end(config, tmp_path / "stopped") == whole
    assert whole != end(tiny("digits", "seed=1"), tmp_path / "another")
    assert (cache / "features").exists() == (name == "kept features")


def test_stopped_after_each_step_of_one_run(tmp_path):
    """One step a process, all the way."""
    config = variant("digits")
    whole = end(config, tmp_path / "whole")
    for step in range(1, STEPS + 1):
        assert interrupted(config, tmp_path / "steps", step)[-1].step == step
    assert end_of(tmp_path / "steps") == whole


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_dropped_after_any_step(tmp_path, step):
    """Nothing is saved: it goes on from the checkpoint before, and metrics behind it are computed again."""
    config = variant("digits")
    whole = end(config, tmp_path / "whole")
    with pytest.raises(Dropped):
        run(config, tmp_path / "dropped", progress=at(step, drop))
    said = []
    assert end(config, tmp_path / "dropped", tell=said.append) == whole
    saved = step - 1 - (step - 1) % 3
    expected = f"going on from step {saved} of 8" if saved else "digits: 8 steps"
    assert said[0].startswith(expected)


def test_a_complete_run_stays_as_it_is(tmp_path):
    config = variant("digits")
    whole = end(config, tmp_path / "run")
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    (last,) = run(config, tmp_path / "run")
    assert (last.step, last.complete, last.interrupted) == (STEPS, True, None)
    assert last.metrics["n_eff_pos"]
    assert end_of(tmp_path / "run") == whole
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


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
def test_whatever_is_forgotten_turns_it_red(tmp_path, monkeypatch, what):
    config = variant("digits")
    load = TrainingState.load
    monkeypatch.setattr(TrainingState, "load", lambda self, tensors: load(self, FORGOTTEN[what](tensors)))
    whole = end(config, tmp_path / "whole")  # nothing to load, nothing to forget
    interrupted(config, tmp_path / "stopped", 4)
    assert end(config, tmp_path / "stopped").state != whole.state
    monkeypatch.undo()
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "cache"))
    assert end(config, tmp_path / "again") == whole


@pytest.mark.parametrize(("number", "name"), [(signal.SIGUSR1, "SIGUSR1"), (signal.SIGINT, "SIGINT")])
def test_other_signals_too(tmp_path, number, name):
    config = variant("toy")
    reports = run(config, tmp_path / "run", progress=at(3, lambda: ask(number)))
    assert (reports[-1].step, reports[-1].interrupted) == (3, name)
    assert end(config, tmp_path / "run") == end(config, tmp_path / "whole")


def test_a_damaged_checkpoint_is_told_and_passed_over(tmp_path):
    config = variant("digits")
    whole = end(config, tmp_path / "whole")
    with pytest.raises(Dropped):
        run(config, tmp_path / "run", progress=at(8, drop))
    (tmp_path / "run" / "checkpoints" / "step-00000006" / "ema.safetensors").write_bytes(b"")
    said = []
    assert end(config, tmp_path / "run", tell=said.append) == whole
    assert said[0].startswith("checkpoint step-00000006 was passed over: ema.safetensors has 0 bytes")
    assert said[1].startswith("going on from step 3 of 8")
