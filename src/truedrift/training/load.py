"""A run, or a folder of saved weights → the generator to sample from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from truedrift.errors import UserError
from truedrift.generators.base import Generator
from truedrift.generators.catalog import build
from truedrift.generators.pretrained import from_pretrained
from truedrift.training import checkpoint
from truedrift.training.run_directory import is_run, open_run

Weights = Literal["ema", "model"]


@dataclass(frozen=True)
class LoadedGenerator:
    """A generator, the names of its classes, and where its weights come from."""

    generator: Generator
    classes: tuple[str, ...]
    source: str
    step: int | None = None
    """Of the run that it comes from."""


def load_generator(path: Path, *, weights: Weights = "ema", generator: Generator | None = None) -> LoadedGenerator:
    """From the newest whole checkpoint of a run, the average by default, or from a folder of `save_pretrained`.

    A run whose generator was a Python object of the user's needs one like it as `generator`.
    """
    if not is_run(path):
        loaded = generator or from_pretrained(path)
        return LoadedGenerator(loaded.eval(), tuple(map(str, range(loaded.classes))), str(path))
    run = open_run(path)
    found = checkpoint.latest_checkpoint(run.checkpoints, run=run.id)
    if found.checkpoint is None:
        damaged = f" that is whole ({'; '.join(found.passed_over)})"
        came = f"the run {str(path)!r} has no checkpoint{damaged if found.passed_over else ' yet'}"
        raise UserError(came, "allowed is a run with one", "train it further")
    classes = tuple(run.data["classes"])
    if generator is None:
        if "generator" in run.parts:
            came = f"the generator of {str(path)!r} is {run.parts['generator']}, a class of your own"
            raise UserError(came, "it cannot be built from its name", "pass generator= to open_generator in Python")
        shape = tuple(run.data["sample_shape"])
        generator = build(run.config.generator, sample_shape=shape, classes=len(classes), seed=run.config.seed)
    _load(generator, found.checkpoint, weights, path)
    step = found.checkpoint.step
    return LoadedGenerator(generator.float().eval(), classes, f"{path}, step {step}, {weights} weights", step)


def _load(generator: Generator, saved: checkpoint.Checkpoint, weights: Weights, path: Path) -> None:
    try:
        generator.load_state_dict(dict(saved.tensors[{"ema": "ema", "model": "generator"}[weights]]))
    except (RuntimeError, KeyError) as error:
        came = f"the weights of {str(path)!r} do not fit the generator ({' '.join(str(error).split())[:200]})"
        raise UserError(came, "allowed is the generator of that run", "build it as in training") from None
