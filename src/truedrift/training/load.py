"""Load the generator of a run, of a folder of saved weights, or of a model in the package."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from truedrift.choices import Weights
from truedrift.data.units import Units
from truedrift.errors import UserError, list_names
from truedrift.generators.base import Generator
from truedrift.generators.catalog import build
from truedrift.generators.pretrained import PREFIX, find_pretrained, from_pretrained, is_pretrained
from truedrift.options import from_dict
from truedrift.training import checkpoint
from truedrift.training.config import OptimizerOptions, RunConfig
from truedrift.training.run_directory import CONFIG, RunDirectory, is_run, open_run
from truedrift.training.setup import memory_errors_as_user_errors
from truedrift.training.state import average_file

NO_GUIDANCE = "The run was trained without guidance (batch.unconditional is 0): the strength had no effect on its loss."


@dataclass(frozen=True)
class LoadedGenerator:
    """A generator, the names of its classes, and the source of its weights."""

    generator: Generator
    classes: tuple[str, ...]
    """Names of the classes; "0", "1", … if the weights come from a folder of the user."""
    source: str
    """For messages: the folder, the name of the model in the package, or the run with step and weights, and the newer
    checkpoints that were skipped because they are damaged."""
    step: int | None = None
    """The step of the checkpoint, if the weights come from a run."""
    units: Units | None = None
    """Units of the samples of a run on arrays."""
    shares: tuple[float, ...] | None = None
    """The fraction of the data in each class, of a run on arrays."""


def load_generator(
    path: Path,
    *,
    weights: Weights = "ema",
    ema: float | None = None,
    step: int | None = None,
    generator: Generator | None = None,
) -> LoadedGenerator:
    """Load a generator from a checkpoint of a run, a folder of `save_pretrained`, or the package.

    Args:
        path: The run directory, the folder, or a name such as `pretrained:digits`.
        weights: `ema` for the averaged weights of a run, `model` for the current ones.
        ema: Decay of the average, `optimizer.ema` or one of `optimizer.more_ema`; None for `optimizer.ema`.
        step: The step of the checkpoint; None for the newest valid one.
        generator: A module to load the weights into. It is required if the run was trained with a generator of the
            user's own (`Parts.generator`).

    Returns:
        The generator in evaluation mode, with its class names and the source of its weights.

    Raises:
        UserError: If there are no such weights, or they do not fit the generator.
    """
    if ema is not None and weights == "model":
        raise UserError(f"is {ema} with the weights model", "only averages have a decay", "leave it out", field="ema")
    if step is not None and (is_pretrained(path) or not is_run(path)):
        problem = f"is {step} and {str(path)!r} is not a run directory"
        raise UserError(problem, "only runs have checkpoints", "leave it out", field="step")
    if is_pretrained(path):
        if ema is not None or weights == "model":
            field, value = ("weights", weights) if ema is None else ("ema", ema)
            problem = f"is {value} and {str(path)!r} is a pretrained model"
            raise UserError(problem, "it has one set of weights, an average", "leave it out", field=field)
        loaded = generator or from_pretrained(path)
        return LoadedGenerator(loaded.eval(), find_pretrained(path).classes, str(path))
    if not is_run(path):
        if ema is not None:
            problem = f"is {ema} and {str(path)!r} is a folder of weights"
            raise UserError(problem, "only runs have several averages", "leave it out", field="ema")
        loaded = generator or from_pretrained(path)
        return LoadedGenerator(loaded.eval(), tuple(map(str, range(loaded.classes))), str(path))
    run = open_run(path)
    source = _weights_file(run.config.optimizer, weights, ema)
    saved, skipped = _load_checkpoint(run, step)
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
        with memory_errors_as_user_errors(f"check {str(path / CONFIG)!r}, or use a machine with more memory"):
            generator = build(run.config.generator, sample_shape=shape, classes=len(classes), seed=run.config.seed)
    _load(generator, saved, source, path)
    name = weights if ema is None else f"ema {ema!r}"
    note = f" ({'; '.join(skipped)})" if skipped else ""
    described = f"{path}, step {saved.step}, {name} weights{note}"
    return LoadedGenerator(generator.float().eval(), classes, described, saved.step, *_units_and_shares(run))


def _units_and_shares(run: RunDirectory) -> tuple[Units | None, tuple[float, ...] | None]:
    """Return the units and the class frequencies of a run on arrays."""
    if "units" not in run.data:
        return None, None
    counts = run.data.get("counts")
    if not (isinstance(counts, list) and len(counts) == len(run.data["classes"])) or not all(
        isinstance(count, int) and count > 0 for count in counts
    ):
        raise UserError(f"the counts of {str(run.path)!r} are damaged", "must be one per class", "train it again")
    return Units.from_description(run.data["units"]), tuple(count / sum(counts) for count in counts)


def _load_checkpoint(run: RunDirectory, step: int | None) -> tuple[checkpoint.Checkpoint, Sequence[str]]:
    """Load the checkpoint of a step, or the newest valid one; return one message per newer one that was skipped."""
    if step is not None:
        kept = checkpoint.steps(run.checkpoints)
        if step not in kept:
            allowed = f"the run has checkpoints of the steps {list_names([str(each) for each in kept]) or 'none'}"
            fix = "use one of these, or train with cadence.keep_every"
            raise UserError(f"is {step}", allowed, fix, field="step")
        return checkpoint.load(run.checkpoints / checkpoint.directory_name(step), run=run.id), ()
    latest = checkpoint.latest_checkpoint(run.checkpoints, run=run.id)
    if latest.checkpoint is None:
        problem = f"no valid checkpoint ({latest.skipped[0]})" if latest.skipped else "no checkpoint yet"
        raise UserError(f"the run {str(run.path)!r} has {problem}", "must have at least one", "train it further")
    return latest.checkpoint, latest.skipped


def load_config(path: Path) -> RunConfig | None:
    """Return the configuration that a generator was trained with.

    Args:
        path: A run directory, a folder of `save_pretrained`, or a name such as `pretrained:digits`.

    Returns:
        The configuration; None for a folder, which does not say how it was trained.
    """
    if is_pretrained(path):
        return from_dict(RunConfig, find_pretrained(path).record["config"])
    return open_run(path).config if is_run(path) else None


def default_strength(path: Path) -> float:
    """Return the guidance strength at which samples are drawn if none is given.

    Args:
        path: A run directory, a folder of `save_pretrained`, or a name such as `pretrained:digits`.

    Returns:
        `RunConfig.sample_strength` of its training; 1 for a folder.
    """
    config = load_config(path)
    return 1.0 if config is None else config.sample_strength


def note_on_strengths(path: Path, strengths: Sequence[float]) -> str:
    """Return a note for the user if the generator was trained without guidance, or not with these strengths.

    Args:
        path: A run directory, a folder of `save_pretrained`, or a name such as `pretrained:digits`.
        strengths: The strengths that the user gave.

    Returns:
        One line; empty if there is nothing to say.
    """
    config = load_config(path)
    if config is None:
        return ""
    low, high = config.condition.strength_low, config.condition.strength_high
    outside = [f"{strength:g}" for strength in strengths if not low <= strength <= high]
    if not outside:
        return NO_GUIDANCE if strengths and config.batch.unconditional == 0 else ""
    trained = f"strength {low:g} only" if low == high else f"strengths from {low:g} to {high:g}"
    return f"note: the generator was trained with {trained}, and not with {', '.join(outside)}"


def output_directory(path: Path) -> Path:
    """Return where files about a generator are written: its own directory, or runs/pretrained-NAME.

    Example:
        >>> print(output_directory(Path("runs/mine")), output_directory(Path("pretrained:digits")))
        runs/mine runs/pretrained-digits
    """
    return Path("runs") / f"pretrained-{str(path).removeprefix(PREFIX)}" if is_pretrained(path) else path


def _weights_file(optimizer: OptimizerOptions, weights: Weights, ema: float | None) -> str:
    """Return the file of the checkpoint that holds these weights, without its suffix."""
    if weights == "model":
        return "generator"
    if ema is None or ema == optimizer.ema:
        return "ema"
    if ema not in optimizer.more_ema:
        decays = ", ".join(map(str, (optimizer.ema, *optimizer.more_ema)))
        raise UserError(f"is {ema}", f"the run has averages with decay {decays}", "use one of these", field="ema")
    return average_file(ema)


def _load(generator: Generator, saved: checkpoint.Checkpoint, file: str, path: Path) -> None:
    try:
        generator.load_state_dict(dict(saved.tensors[file]))
    except (RuntimeError, KeyError) as error:
        raise UserError(
            f"the weights of {str(path)!r} do not fit the generator ({' '.join(str(error).split())[:200]})",
            "must be the generator of that run",
            "build it as in training",
        ) from None
