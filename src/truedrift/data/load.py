"""name → samples: every data set by its name, from the cache, from well-known places, or from a user's own directory.

Toys are a fixed pool of 10 000 points a split, a pure function of (name, split, seed). Images are read where they are;
what is missing is told with the command that gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch

from truedrift.axes import Tensor
from truedrift.data.download import PinnedFile
from truedrift.data.folder import read_folder
from truedrift.data.images import (
    CIFAR10,
    CIFAR100,
    DIGITS,
    FASHION_CLASSES,
    CifarFormat,
    digits,
    find_cifar,
    holds_idx,
    label_digests,
    read_cifar,
    read_split,
)
from truedrift.data.registry import FASHION_DIRECTORY, FASHION_MNIST, MNIST
from truedrift.data.samples import Samples
from truedrift.data.toys import EIGHT_GAUSSIANS, FOUR_MODES, THREE_CLUSTERS, checkerboard, swiss_roll, two_moons
from truedrift.errors import UserError, require_choice
from truedrift.seeding import stream
from truedrift.storage import cache_directory

TOY_POINTS = 10_000
"""Of each split."""

SPLITS = ("train", "test", "all")
ALL = ("all",)

Draw = Callable[[int, torch.Generator], tuple[Tensor, Tensor]]

TOYS: Mapping[str, tuple[Draw, tuple[str, ...]]] = {
    "three-clusters": (THREE_CLUSTERS.labelled, ("left", "upper right", "lower right")),
    "four-modes": (FOUR_MODES.labelled, ("upper right", "lower right", "upper left", "lower left")),
    "eight-gaussians": (EIGHT_GAUSSIANS.labelled, tuple(f"{45 * k}°" for k in range(8))),
    "checkerboard": (checkerboard, ALL),
    "swiss-roll": (swiss_roll, ALL),
    "two-moons": (two_moons, ("upper", "lower")),
}
"""How to draw a toy, and the names of its parts."""

IDX: Mapping[str, tuple[tuple[str, ...], bool]] = {"mnist": (DIGITS, False), "fashion-mnist": (FASHION_CLASSES, False)}
"""Classes, and whether a mirrored image could be one of them: digits could not, and all shoes point to the left."""

IDX_FILES: Mapping[str, tuple[PinnedFile, ...]] = {"mnist": MNIST, "fashion-mnist": FASHION_MNIST}

CIFAR: Mapping[str, CifarFormat] = {"cifar10": CIFAR10, "cifar100": CIFAR100}

SYSTEM_PATHS: Mapping[str, tuple[Path, ...]] = {"fashion-mnist": (FASHION_DIRECTORY,)}
"""Where packages of the operating system put a data set."""

NAMES = (*TOYS, "digits", *IDX, *CIFAR, "folder")


def load(
    name: str, *, split: str = "train", root: Path | None = None, seed: int = 0, image_size: int | None = None
) -> Samples:
    """The samples of a data set by its name.

    `split` is "train", "test" or "all"; `root` is the user's own directory or archive, None the cache and then the
    well-known places; `seed` draws the toys; `image_size` is what the images of a folder are cropped and resized to.
    """
    require_choice("the data set", name, NAMES)
    require_choice("split", split, SPLITS)
    if root is not None and not root.exists():
        raise UserError(f"{str(root)!r} does not exist", "allowed is a directory or an archive", "check its name")
    if name == "folder":
        return _load_folder(root, split, image_size)
    if image_size is not None:
        came = f"an image size was given for {name}"
        raise UserError(came, "allowed is one for the data set folder", "leave it out, or save the images to a folder")
    if name in TOYS or name == "digits":
        _require_no_root(name, root)
        return digits(split) if name == "digits" else _load_toy(name, split, seed)
    return _join_splits(_reader(name, root), split)


def _load_toy(name: str, split: str, seed: int) -> Samples:
    draw, classes = TOYS[name]

    def one(part: str) -> Samples:
        points, labels = draw(TOY_POINTS, stream(seed, f"{name}/{part}"))
        return Samples(points, labels, classes, name, flips=False)

    return _join_splits(one, split)


def _join_splits(read: Callable[[str], Samples], split: str) -> Samples:
    """One split, or both, train first."""
    if split != "all":
        return read(split)
    a, b = read("train"), read("test")
    return Samples(torch.cat((a.values, b.values)), torch.cat((a.labels, b.labels)), a.classes, a.name, a.flips)


def _load_folder(root: Path | None, split: str, image_size: int | None) -> Samples:
    if root is None:
        raise UserError("no directory was given", "a folder of images is wherever you say", "add --data DIR (evaluate: --root DIR)")
    return read_folder(root, split=split, image_size=image_size)


def _require_no_root(name: str, root: Path | None) -> None:
    if root is not None:
        came = f"the directory {str(root)!r} was given for {name}"
        raise UserError(came, f"{name} needs none: it comes with the library", "leave --data out, or take folder")


def _reader(name: str, root: Path | None) -> Callable[[str], Samples]:
    """Reads a split at the first place that holds the data set."""
    places = (root,) if root is not None else (cache_directory(name), *SYSTEM_PATHS.get(name, ()))
    for place in places:
        if name in CIFAR:
            found = find_cifar(place, CIFAR[name])
            if found is not None:
                return partial(read_cifar, found, CIFAR[name])
        elif holds_idx(place):
            if root is not None:  # what is in the cache was checked on its way there
                _require_no_other(name, place)
            classes, flips = IDX[name]
            return partial(read_split, place, name=name, classes=classes, flips=flips)
    raise _missing_data(name, root)


def _require_no_other(name: str, place: Path) -> None:
    """Files of the same names are of another set if their labels are exactly its labels."""
    found = label_digests(place)
    for other, files in IDX_FILES.items():
        if other != name and not found.isdisjoint(file.sha256 for file in files):
            came = f"{str(place)!r} holds {other}"
            raise UserError(came, f"allowed is a place with {name}", f"name another one, or take {other}")


def _missing_data(name: str, root: Path | None) -> UserError:
    if root is None:
        return UserError(
            f"{name} is not in the cache ({str(cache_directory(name))!r})",
            "allowed is fetched data, or your own copy",
            f"run truedrift data fetch {name}, or add --data DIR (evaluate: --root DIR)",
        )
    files = CIFAR[name].archive + " or its .bin files" if name in CIFAR else "the four IDX files, raw or .gz"
    return UserError(f"{str(root)!r} does not hold {name}", f"allowed is a place with {files}", "check the directory")
