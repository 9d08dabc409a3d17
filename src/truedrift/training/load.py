"""Load the generator of a run, or of a folder of saved weights."""

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
    """A generator, the names of its classes, and the source of its weights."""

    generator: Generator
    classes: tuple[str, ...]
    """Names of the classes; "0", "1", … if the weights come from a folder."""
    source: str
    """The folder, or the run with step and weights, for messages."""
    step: int | None = None
    """The step of the checkpoint, if the weights come from a run."""


def load_generator(path: Path, *, weights: Weights = "ema", generator: Generator | None = None) -> LoadedGenerator:
    """Load a generator from the newest valid checkpoint of a run, or from a folder of `save_pretrained`.

    Args:
        path: The run directory or the folder.
        weights: `ema` for the averaged weights of a run, `model` for the current ones.
        generator: A module to load the weights into. It is required if the run was trained with a generator of the
            user's own (`Parts.generator`).

    Returns:
        The generator in evaluation mode, with its class names and the source of its weights.

    Raises:
        UserError: If there are no such weights, or they do not fit the generator.
    """
    if not is_run(path):
        loaded = generator or from_pretrained(path)
        return LoadedGenerator(loaded.eval(), tuple(map(str, range(loaded.classes))), str(path))
    run = open_run(path)
    # Load the newest checkpoint.
    latest = checkpoint.latest_checkpoint(run.checkpoints, run=run.id)
    if latest.checkpoint is None:
        problem = f"no valid checkpoint ({'; '.join(latest.skipped)})" if latest.skipped else "no checkpoint yet"
        raise UserError(f"the run {str(path)!r} has {problem}", "must have at least one", "train it further")
    # Build the generator.
    classes = tuple(run.data["classes"])
    if generator is None:
        if "generator" in run.parts:
            raise UserError(
                f"the generator of {str(path)!r} is {run.parts['generator']}, a class of your own",
                "it cannot be built from its name",
                "pass generator= to load_generator in Python",
            )
        shape = tuple(run.data["sample_shape"])
        generator = build(run.config.generator, sample_shape=shape, classes=len(classes), seed=run.config.seed)
    _load(generator, latest.checkpoint, weights, path)
    step = latest.checkpoint.step
    return LoadedGenerator(generator.float().eval(), classes, f"{path}, step {step}, {weights} weights", step)


def _load(generator: Generator, saved: checkpoint.Checkpoint, weights: Weights, path: Path) -> None:
    try:
        generator.load_state_dict(dict(saved.tensors[{"ema": "ema", "model": "generator"}[weights]]))
    except (RuntimeError, KeyError) as error:
        raise UserError(
            f"the weights of {str(path)!r} do not fit the generator ({' '.join(str(error).split())[:200]})",
            "must be the generator of that run",
            "build it as in training",
        ) from None
