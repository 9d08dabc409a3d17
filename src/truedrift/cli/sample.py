"""`truedrift sample RUN`: draw samples from a trained generator or a pretrained model, in one step each."""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from truedrift.cli.options.models import Sample
from truedrift.distributed import resolve_device
from truedrift.errors import UserError, list_names, suggest_name
from truedrift.generators.sampling import balanced_labels, draw_labels, sample
from truedrift.progress_display import ProgressDisplay
from truedrift.records.store import writable_directory
from truedrift.training.load import (
    LoadedGenerator,
    default_strength,
    load_generator,
    note_on_strengths,
    output_directory,
)
from truedrift.training.pictures import require_writable_file, write_arrays, write_samples
from truedrift.training.setup import memory_errors_as_user_errors

LARGEST_COUNT = 10_000_000
LONGEST_NAME = 60
ENDINGS = {"grid": ".png", "folder": "", "npz": ".npz"}


def prepare(command: Sample) -> Callable[[], str]:
    """Check the options and the output path."""
    for name, value in (("count", command.count), ("batch", command.batch)):
        if not 1 <= value <= LARGEST_COUNT:
            raise UserError(f"is {value}", f"must be from 1 to {LARGEST_COUNT}", "use the default", field=name)
    strength = default_strength(command.run) if command.strength is None else command.strength
    if not 0 <= strength <= 1e6:
        fix = "pass for example 2"
        raise UserError(f"is {strength}", "must be from 0 to 1e6", fix, field="strength")
    if command.out is not None:
        _require_free(command.out, command.form)
    return partial(_sample, command, strength, resolve_device(command.device))


def _require_free(path: Path, form: str) -> None:
    """Require a path that can be written: for a folder, a new or empty one."""
    if form != "folder":
        require_writable_file(path)
    elif path.is_dir() and any(path.iterdir()):
        problem = f"{str(path)!r} is not empty"
        raise UserError(problem, "must be a new or empty folder", "pass another one with --out")


def _default_path(options: Sample, count: int, strength: float) -> Path:
    """Return a path with the options in its name; a long list of classes is replaced by its hash."""
    classes = "-".join(("", *options.classes)) if options.classes else ""
    if len(classes) > LONGEST_NAME:
        classes = f"-classes-{hashlib.sha256(classes.encode(errors='replace')).hexdigest()[:8]}"
    weights = "" if options.weights == "ema" else f"-{options.weights}-weights"
    if options.ema is not None:
        weights = f"-ema{options.ema!r}"
    if options.step is not None:
        weights += f"-step{options.step}"
    stem = f"sample-{count}-seed{options.seed}-strength{strength:g}{weights}{classes}"
    return output_directory(options.run) / f"{stem.replace('/', '_').replace(' ', '_')}{ENDINGS[options.form]}"


def _sample(options: Sample, strength: float, device: torch.device) -> str:
    """Load the generator, draw the samples and write them; return the summary."""
    # Load the generator, and check the options that depend on it.
    trained = load_generator(options.run, weights=options.weights, ema=options.ema, step=options.step)
    classes = [_class_number(trained, name) for name in options.classes] or list(range(len(trained.classes)))
    if options.form == "folder" and len(trained.generator.sample_shape) != 3:
        raise UserError("the samples are points", "--form folder is for images", "pass --form npz")
    if trained.shares is not None and not options.classes:
        labels = draw_labels(trained.shares, options.count, options.seed)
    else:
        is_image_grid = options.form == "grid" and len(trained.generator.sample_shape) == 3
        labels = balanced_labels(classes, options.count, equal=is_image_grid)
    path = options.out or _default_path(options, len(labels), strength)
    _require_free(path, options.form)
    writable_directory(path if options.form == "folder" else path.parent)
    # Draw the samples and write them.
    try:
        with memory_errors_as_user_errors("pass a smaller --batch or --count"), ProgressDisplay() as progress:
            values = sample(
                trained.generator,
                labels,
                seed=options.seed,
                strength=strength,
                batch=options.batch,
                device=device,
                progress=progress,
            )
            if trained.units is not None and options.form == "npz":
                write_arrays(path, trained.units.to_user(values), labels, trained.classes)
            else:
                write_samples(path, options.form, labels, values, trained.classes, progress)
    except OSError as error:
        problem = f"the samples cannot be written to {str(path)!r} ({error.strerror or error})"
        raise UserError(problem, "must be writable and have space", "pass another path with --out") from None
    inputs = f"strength {strength:g}, seed {options.seed}"
    note = note_on_strengths(options.run, [] if options.strength is None else [strength])
    rows = f"a grid has equal rows: {len(labels)} of {options.count}" if len(labels) < options.count else ""
    lines = (f"{len(labels)} samples of {trained.source}, {inputs}", rows, note, f"written: {path}")
    return "\n".join(line for line in lines if line)


def _class_number(trained: LoadedGenerator, name: str) -> int:
    """Return the number of a class given by name or number."""
    if name in trained.classes:
        return trained.classes.index(name)
    if name.isdecimal() and int(name) < len(trained.classes):
        return int(name)
    available = f"available: {list_names(trained.classes)}"
    fix = suggest_name(name, trained.classes, "pass one of these, or its number")
    raise UserError(f"{name!r} is not a class", available, fix)
