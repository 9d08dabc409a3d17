"""Loading of data sets by name, from the cache, from system directories, or from a user's own directory.

Toys are a fixed pool of 10 000 points per split, a pure function of (name, split, seed). Images are read where they
are. If a data set is missing, the message contains the command that fetches it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch

from truedrift.axes import Tensor
from truedrift.data import images
from truedrift.data.arrays import read_array_samples
from truedrift.data.folder import read_folder
from truedrift.data.registry import REMOTE_ASSETS
from truedrift.data.samples import Samples
from truedrift.data.toys import EIGHT_GAUSSIANS, FOUR_MODES, THREE_CLUSTERS, checkerboard, swiss_roll, two_moons
from truedrift.errors import UserError, require_choice
from truedrift.progress import Progress, no_progress
from truedrift.seeding import stream
from truedrift.storage import cache_directory

TOY_POINTS = 10_000
"""Points per split."""

SPLITS = ("train", "test", "all")
ALL = ("all",)

Draw = Callable[[int, torch.Generator], tuple[Tensor, Tensor]]

TOYS: Mapping[str, tuple[Draw, tuple[str, ...]]] = {
    "three-clusters": (THREE_CLUSTERS.sample_with_modes, ("left", "upper right", "lower right")),
    "four-modes": (FOUR_MODES.sample_with_modes, ("upper right", "lower right", "upper left", "lower left")),
    "eight-gaussians": (EIGHT_GAUSSIANS.sample_with_modes, tuple(f"{45 * k}°" for k in range(8))),
    "checkerboard": (checkerboard, ALL),
    "swiss-roll": (swiss_roll, ALL),
    "two-moons": (two_moons, ("upper", "lower")),
}
"""Sampling function and names of the parts of every toy."""

IMAGES = ("digits", *images.IDX, *images.CIFAR, "folder")
NAMES = (*TOYS, *IMAGES, "array")


def load(
    name: str,
    *,
    split: str = "train",
    root: Path | None = None,
    seed: int = 0,
    image_size: int | None = None,
    classes: Sequence[str] = (),
    progress: Progress = no_progress,
) -> Samples:
    """Load the samples of a data set.

    Args:
        name: One of `NAMES`.
        split: "train", "test", or "all" for both.
        root: The user's own directory or archive, required for "folder" and not allowed for toys and digits; a file for
            "array". None: the cache, then the directories of system packages.
        seed: Seed of the toys; other data sets ignore it.
        image_size: Side to which the images of a folder are cropped and resized; not allowed for other data sets.
        classes: Names of the classes to load, in the order of their labels; all classes if empty.
        progress: Called with a description, the number of images read, and their number; for folders only.

    Returns:
        Images as bytes [N, C, H, W], for toys 10 000 points [N, 2] per split, or the standardized rows [N, D] of an
        array, with one label per sample.

    Raises:
        UserError: If an argument is invalid or not allowed, or the data set is missing or damaged.

    Example:
        >>> samples = load("two-moons", split="test")
        >>> samples.values.shape, samples.classes
        (torch.Size([10000, 2]), ('upper', 'lower'))
    """
    samples = _load_all_classes(name, split, root, seed, image_size, progress)
    return samples.select_classes(classes) if classes else samples


def _load_all_classes(
    name: str, split: str, root: Path | None, seed: int, image_size: int | None, progress: Progress
) -> Samples:
    require_choice("the data set", name, NAMES)
    require_choice("split", split, SPLITS)
    if root is not None and not root.exists():
        raise UserError(f"{str(root)!r} does not exist", "must be a directory or an archive", "check the name")
    # The user's own images.
    if name == "folder":
        if root is None:
            fix = "add --data DIR (evaluate: --root DIR)"
            raise UserError("no directory was given", "the data set folder needs one", fix)
        return read_folder(root, split=split, image_size=image_size, progress=progress)
    if image_size is not None:
        problem = f"an image size was given for {name}"
        allowed = "only the data set folder can be resized"
        raise UserError(problem, allowed, "leave it out, or save the images to a folder")
    # The user's own arrays, which have no splits.
    if name == "array":
        if root is None:
            raise UserError("no file was given", "the data set array needs one", "add --data X.npz")
        return read_array_samples(root)
    # Data sets that are part of the library.
    if name in TOYS or name == "digits":
        if root is not None:
            problem = f"the directory {str(root)!r} was given for {name}"
            allowed = f"{name} is part of the library and needs none"
            raise UserError(problem, allowed, "leave --data out, or use the data set folder")
        return images.digits(split) if name == "digits" else _join_splits(partial(_draw_toy, name, seed), split)
    # Data sets from files.
    return _join_splits(_find_reader(name, root), split)


def require_present(name: str) -> None:
    """Require that the files of a data set are in the cache or in a system directory. Nothing is read.

    Raises:
        UserError: If they are missing.
    """
    if name in REMOTE_ASSETS:
        _find_reader(name, None)


def _draw_toy(name: str, seed: int, split: str) -> Samples:
    draw, classes = TOYS[name]
    points, labels = draw(TOY_POINTS, stream(seed, f"{name}/{split}"))
    return Samples(points, labels, classes, name, flips=False)


def _join_splits(read: Callable[[str], Samples], split: str) -> Samples:
    """Read one split, or for "all" both, train first."""
    if split != "all":
        return read(split)
    a, b = read("train"), read("test")
    return Samples(torch.cat((a.values, b.values)), torch.cat((a.labels, b.labels)), a.classes, a.name, a.flips)


def _find_reader(name: str, root: Path | None) -> Callable[[str], Samples]:
    """Return a function that reads a split from the first directory that holds the data set."""
    places = (root,) if root is not None else (cache_directory(name), *REMOTE_ASSETS[name].system_directories)
    for place in places:
        if name in images.CIFAR:
            path = images.find_cifar(place, images.CIFAR[name])
            if path is not None:
                return partial(images.read_cifar, path, images.CIFAR[name])
        else:
            files = images.find_idx(place)
            if files is not None:
                if root is not None:  # files in the cache were checked when they were fetched
                    _require_own_labels(name, root, images.hash_labels(files))
                return partial(images.read_idx_split, files, name)
    # Say what is missing.
    if root is None:
        raise UserError(
            f"{name} is not in the cache ({str(cache_directory(name))!r})",
            "must be fetched first, or be your own copy",
            f"run truedrift data fetch {name}, or add --data DIR (evaluate: --root DIR)",
        )
    expected = (
        images.CIFAR[name].archive + " or its .bin files" if name in images.CIFAR else "the four IDX files, raw or .gz"
    )
    raise UserError(f"{str(root)!r} does not hold {name}", f"must hold {expected}", "check the directory")


def _require_own_labels(name: str, root: Path, hashes: set[str]) -> None:
    """Refuse the files of another data set with the same file names, recognized by its labels."""
    for other in images.IDX.keys() - {name}:
        if not hashes.isdisjoint(file.sha256 for file in REMOTE_ASSETS[other].files):
            fix = f"pass another directory, or use {other}"
            raise UserError(f"{str(root)!r} holds {other}", f"must hold {name}", fix)
