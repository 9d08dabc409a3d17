"""`truedrift sample RUN`: draw samples from a trained generator, in one step each."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import tyro

from truedrift.axes import Tensor
from truedrift.data.samples import to_uint8
from truedrift.errors import UserError
from truedrift.generators.sampling import sample
from truedrift.records.store import writable_directory
from truedrift.storage import write_atomically
from truedrift.training.load import LoadedGenerator, Weights, load_generator
from truedrift.training.pictures import grid_columns, image_grid, require_writable_file, scatter_image, write_png
from truedrift.training.setup import memory_errors_as_user_errors, resolve_device

LARGEST_COUNT = 10_000_000
LONGEST_NAME = 60
ENDINGS = {"grid": ".png", "folder": "", "npz": ".npz"}


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Draw samples from a run or a folder of weights: a grid, a folder of images or an .npz file.

    A sample is a function of its number, the seed, the class and the strength. It does not depend on the other samples
    or on the batch size.

    Try it:
      truedrift sample runs/digits-0123456789ab
      truedrift sample runs/digits-0123456789ab --classes 3 7 --count 64 --seed 1
      truedrift sample runs/digits-0123456789ab --form npz --count 50000
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run directory, or a folder written by `truedrift convert` or save_pretrained."""

    form: Literal["grid", "folder", "npz"] = "grid"
    """grid: one PNG; folder: one PNG per sample, one folder per class; npz: arrays `images` and `labels`."""

    count: int = 100
    """Total number of samples, divided evenly among the classes; the rows of a grid have equal length."""

    classes: tuple[str, ...] = ()
    """Names or numbers of classes; all classes if not given."""

    strength: float = 1.0
    """Guidance strength, an input of the generator."""

    seed: int = 0
    """Seed of the noise."""

    batch: int = 256
    """Samples per batch."""

    weights: Weights = "ema"
    """ema: averaged weights; model: weights of the last step."""

    device: str = "auto"
    """auto, cpu, cuda or mps."""

    out: Path | None = None
    """File, or new or empty folder, to write; inside the run directory if not given."""

    def prepare(self) -> Callable[[], str]:
        """Check the options and the output path, and load the generator."""
        for name, value in (("count", self.count), ("batch", self.batch)):
            if not 1 <= value <= LARGEST_COUNT:
                raise UserError(f"is {value}", f"must be from 1 to {LARGEST_COUNT}", "use the default", field=name)
        if not 0 <= self.strength <= 1e6:
            raise UserError(
                f"is {self.strength}", "must be from 0 to 1e6", "pass 1 to 4, as in training", field="strength"
            )
        device = resolve_device(self.device)
        trained = load_generator(self.run, weights=self.weights)
        classes = [_class_number(trained, name) for name in self.classes] or list(range(len(trained.classes)))
        if self.form == "folder" and len(trained.generator.sample_shape) != 3:
            raise UserError("the samples are points", "--form folder is for images", "pass --form npz")
        return partial(_sample, self, _output_path(self), trained, classes, device)


def _output_path(options: Sample) -> Path:
    """Return the file or folder to write, after checking that it can be written."""
    path = options.out or options.run / f"{_file_stem(options)}{ENDINGS[options.form]}"
    if options.form != "folder" and path.is_dir():
        raise UserError(f"{str(path)!r} is a directory", "must be a file", "pass a file with --out")
    if options.form != "folder":
        require_writable_file(path)
    elif path.is_dir() and any(path.iterdir()):
        raise UserError(f"{str(path)!r} is not empty", "must be a new or empty folder", "pass another one with --out")
    writable_directory(path if options.form == "folder" else path.parent)
    return path


def _class_number(trained: LoadedGenerator, name: str) -> int:
    """Return the number of a class given by name or number."""
    if name in trained.classes:
        return trained.classes.index(name)
    if name.isdecimal() and int(name) < len(trained.classes):
        return int(name)
    known = ", ".join(trained.classes[:12]) + (", …" if len(trained.classes) > 12 else "")
    raise UserError(f"{name!r} is not a class", f"available: {known}", "pass one of these, or its number")


def _sample(options: Sample, path: Path, trained: LoadedGenerator, classes: list[int], device: torch.device) -> str:
    """Draw and write the samples; return the summary."""
    labels = _balanced_labels(classes, options.count, whole_rows=options.form == "grid")
    generator = trained.generator.to(device)
    with memory_errors_as_user_errors("pass a smaller --batch or --count"):
        values = sample(
            generator, labels, seed=options.seed, strength=options.strength, batch=options.batch, device=device
        )
    try:
        _WRITERS[options.form](path, labels, values)
    except OSError as error:
        problem = f"the samples cannot be written to {str(path)!r} ({error.strerror or error})"
        raise UserError(problem, "must be writable and have space", "pass another path with --out") from None
    inputs = f"strength {options.strength:g}, seed {options.seed}"
    return f"{len(labels)} samples of {trained.source}, {inputs}\nwritten: {path}"


def _balanced_labels(classes: list[int], count: int, *, whole_rows: bool) -> Tensor:
    """Return the class of each sample: count // C samples per class, and one more for the first count mod C classes.

    With `whole_rows` the remainder is dropped, unless count < C.
    """
    per_class, remainder = divmod(count, len(classes))
    extra = 0 if whole_rows and per_class else remainder
    return torch.tensor(classes).repeat_interleave(per_class + (torch.arange(len(classes)) < extra).long())


def _file_stem(options: Sample) -> str:
    """Return a file name with the options in it; a long list of classes is replaced by its hash."""
    classes = "-".join(("", *options.classes)) if options.classes else ""
    if len(classes) > LONGEST_NAME:
        classes = f"-classes-{hashlib.sha256(classes.encode(errors='replace')).hexdigest()[:8]}"
    weights = "" if options.weights == "ema" else f"-{options.weights}-weights"
    stem = f"sample-{options.count}-seed{options.seed}-strength{options.strength:g}{weights}{classes}"
    return stem.replace("/", "_").replace(" ", "_")


def _write_grid(path: Path, labels: Tensor, values: Tensor) -> None:
    """Write one PNG: a grid of images, or a scatter plot of points."""
    if values.ndim == 4:
        write_png(image_grid(values, grid_columns(len(values), len(labels.unique()))), path)
    else:
        write_png(scatter_image(values[:, :2], labels, values[:, :2]), path)


def _write_folder(path: Path, labels: Tensor, values: Tensor) -> None:
    """Write one PNG per sample, named by its number, into one folder per class."""
    for number, (label, image) in enumerate(zip(labels.tolist(), to_uint8(values), strict=True)):
        pixels = image.expand(3, -1, -1).permute(1, 2, 0).contiguous()
        write_png(pixels, path / f"{label:03d}" / f"{number:06d}.png")


def _write_npz(path: Path, labels: Tensor, values: Tensor) -> None:
    """Write `images` uint8 [N, H, W, C], or `points`, and `labels`, in the form that evaluation tools read."""
    tensors = {"images": to_uint8(values).permute(0, 2, 3, 1)} if values.ndim == 4 else {"points": values}
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in (tensors | {"labels": labels}).items()}
    content = BytesIO()
    np.savez(content, **arrays)
    write_atomically(path, content.getvalue())


_WRITERS = {"grid": _write_grid, "folder": _write_folder, "npz": _write_npz}
