"""`truedrift sample RUN`: images from a trained generator, one step each."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro

from truedrift.axes import Tensor
from truedrift.data.samples import to_uint8
from truedrift.errors import UserError
from truedrift.generators.sampling import sample
from truedrift.records.store import writable_directory
from truedrift.training.load import LoadedGenerator, Weights, load_generator
from truedrift.training.pictures import grid_columns, image_grid, require_writable_file, scatter_image, write_png
from truedrift.training.setup import memory_errors_as_user_errors, resolve_device

LARGEST_COUNT = 10_000_000
LONGEST_NAME = 60
ENDINGS = {"grid": ".png", "folder": "", "npz": ".npz"}


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Samples of a run, or of a folder of weights: a grid, a folder of images or an .npz file.

    A sample is a function of its number, the seed, the class and the strength: whatever else is sampled, and in batches
    of any size, it stays the same.

    Try it:
      truedrift sample runs/digits-0123456789ab
      truedrift sample runs/digits-0123456789ab --classes 3 7 --count 64 --seed 1
      truedrift sample runs/digits-0123456789ab --form npz --count 50000
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run directory, or a folder of `truedrift convert` or save_pretrained."""

    form: Literal["grid", "folder", "npz"] = "grid"
    """One picture; one PNG a sample in a folder a class; or arrays `images` and `labels`."""

    count: int = 100
    """Samples in all, dealt evenly to the classes; a grid has rows of one length."""

    classes: tuple[str, ...] = ()
    """Names or numbers of classes; all if none is named."""

    strength: float = 1.0
    """What the generator is told of guidance."""

    seed: int = 0
    """Seed of the noise."""

    batch: int = 256
    """Samples computed at a time."""

    weights: Weights = "ema"
    """The averaged weights, or those of the last step."""

    device: str = "auto"
    """auto, cpu, cuda or mps."""

    out: Path | None = None
    """File or folder to write; below the run if none is named. A folder with files in it is refused."""

    def prepare(self) -> Callable[[], str]:
        """The generator, loaded, and the options, checked."""
        for name, value, most in (("count", self.count, LARGEST_COUNT), ("batch", self.batch, LARGEST_COUNT)):
            if not 1 <= value <= most:
                raise UserError(f"{name} is {value}", f"allowed is 1 to {most}", "the default suits most machines")
        if not 0 <= self.strength <= 1e6:
            raise UserError(f"strength is {self.strength}", "allowed is 0 to 1e6", "training draws from 1 to 4")
        device = resolve_device(self.device)
        trained = load_generator(self.run, weights=self.weights)
        chosen = [_class(trained, name) for name in self.classes] or list(range(len(trained.classes)))
        if self.form == "folder" and len(trained.generator.sample_shape) != 3:
            raise UserError("these samples are points", "a folder holds images", "take --form npz")
        return partial(_sample, self, _output_path(self), trained, chosen, device)


def _output_path(options: Sample) -> Path:
    """Where the samples go, after a trial that they can."""
    path = options.out or options.run / f"{_file_stem(options)}{ENDINGS[options.form]}"
    if options.form != "folder" and path.is_dir():
        raise UserError(f"{str(path)!r} is a directory", f"a {options.form} is a file", "name a file with --out")
    if options.form != "folder":
        require_writable_file(path)
    elif path.is_dir() and any(path.iterdir()):
        came = f"{str(path)!r} is a folder with files in it"
        raise UserError(came, "allowed is a new or an empty folder", "name another one with --out")
    writable_directory(path if options.form == "folder" else path.parent)
    return path


def _class(trained: LoadedGenerator, name: str) -> int:
    if name in trained.classes:
        return trained.classes.index(name)
    if name.isdecimal() and int(name) < len(trained.classes):
        return int(name)
    known = ", ".join(trained.classes[:12]) + (", …" if len(trained.classes) > 12 else "")
    raise UserError(f"the class is {name!r}", f"allowed are {known}", "choose one, or its number")


def _sample(options: Sample, path: Path, trained: LoadedGenerator, classes: list[int], device: torch.device) -> str:
    labels = _balanced_labels(classes, options.count, whole_rows=options.form == "grid")
    generator = trained.generator.to(device)
    how: dict[str, Any] = {"seed": options.seed, "strength": options.strength, "batch": options.batch}
    with memory_errors_as_user_errors("take a smaller --batch or --count"):
        values = sample(generator, labels, device=device, **how)
    try:
        _WRITERS[options.form](path, labels, values)
    except OSError as error:
        came = f"the samples cannot be written to {str(path)!r} ({error.strerror or error})"
        raise UserError(came, "allowed is a place to write to, with room", "name another one with --out") from None
    told = f"strength {options.strength:g}, seed {options.seed}"
    return f"{len(labels)} samples of {trained.source}, {told}\nwritten: {path}"


def _balanced_labels(classes: list[int], count: int, *, whole_rows: bool) -> Tensor:
    """The class of each sample: count // C of every class, and one more of the first count mod C.

    Of a grid, rows of one length: those that are left over stay out, unless there are no others.
    """
    each, left = divmod(count, len(classes))
    extra = 0 if whole_rows and each else left
    return torch.tensor(classes).repeat_interleave(each + (torch.arange(len(classes)) < extra).long())


def _file_stem(options: Sample) -> str:
    """A name that tells what was asked for; classes of many or long names are told by a hash."""
    named = "-".join(("", *options.classes)) if options.classes else ""
    if len(named) > LONGEST_NAME:
        named = f"-classes-{hashlib.sha256(named.encode(errors='replace')).hexdigest()[:8]}"
    weights = "" if options.weights == "ema" else f"-{options.weights}-weights"
    stem = f"sample-{options.count}-seed{options.seed}-strength{options.strength:g}{weights}{named}"
    return stem.replace("/", "_").replace(" ", "_")


def _grid(path: Path, labels: Tensor, values: Tensor) -> None:
    if values.ndim == 4:
        write_png(image_grid(values, grid_columns(len(values), len(labels.unique()))), path)
    else:
        write_png(scatter_image(values[:, :2], labels, values[:, :2]), path)


def _folder(path: Path, labels: Tensor, values: Tensor) -> None:
    """One PNG a sample below a folder a class, named by the sample's number."""
    for number, (label, image) in enumerate(zip(labels.tolist(), to_uint8(values), strict=True)):
        pixels = image.expand(3, -1, -1).permute(1, 2, 0).contiguous()
        write_png(pixels, path / f"{label:03d}" / f"{number:06d}.png")


def _npz(path: Path, labels: Tensor, values: Tensor) -> None:
    """`images` uint8 [N, H, W, C] and `labels`, as evaluation tools read them; `points` where they are."""
    import numpy as np  # noqa: PLC0415  an extra

    mine = path.with_name(f".{path.name}.writing")
    arrays = {"images": to_uint8(values).permute(0, 2, 3, 1)} if values.ndim == 4 else {"points": values}
    named: dict[str, Any] = {name: array.numpy() for name, array in (arrays | {"labels": labels}).items()}
    try:
        with mine.open("wb") as file:  # a file, since numpy would add .npz to a name
            np.savez(file, **named)
        mine.replace(path)
    finally:
        mine.unlink(missing_ok=True)


_WRITERS = {"grid": _grid, "folder": _folder, "npz": _npz}
