"""Loading of saved generators, of the models in the package, and of the weights in a published checkpoint.

`generator.save_pretrained(folder)` writes config.json and model.safetensors (huggingface_hub's mixin).
config.json names the architecture, so `from_pretrained` needs no class. Defects of a folder are reported in one line.

The package contains such folders, truedrift/pretrained/NAME, whose models are called `pretrained:NAME`. Their weights
are float16 and become float32 on loading. record.json has the names of the classes, the hash of the weights, and how
they were trained and evaluated. README.md says the same in words. `tools/add_pretrained.py` writes such a folder.

A published checkpoint is a state dict, or state dicts under names such as `model`, `ema`, `ema_model`, `state_dict`,
`generator`, nested in any way and flattened to dotted names. The text before the name of a DriftDiT's first tensor is
the name of one set of weights. A set is an average if a word of its name says so; averages are preferred.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truedrift.axes import Tensor
from truedrift.errors import UserError, error_text, import_package, suggest_name
from truedrift.generators import published
from truedrift.generators.base import CONFIG, WEIGHTS, Generator
from truedrift.generators.catalog import GENERATORS
from truedrift.generators.drift_dit import DriftDiT
from truedrift.quarantine import convert_pickle
from truedrift.storage import scratch_directory

PREFIX = "pretrained:"
"""Beginning of the names of the models in the package."""
MODELS = Path(__file__).parents[1] / "pretrained"
"""Directory of the package with one folder per model."""
RECORD = "record.json"
LARGEST_CONFIG = 1 << 20
"""Limit for the bytes of config.json."""


@dataclass(frozen=True, kw_only=True)
class PretrainedModel:
    """A model in the package."""

    name: str
    """With the prefix, as in `pretrained:digits`."""
    folder: Path
    """The folder of config.json, model.safetensors, record.json, README.md and samples.png."""
    record: Mapping[str, Any]
    """The content of record.json."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their labels."""
        return tuple(self.record["classes"])

    @property
    def strength(self) -> float:
        """Guidance strength at which samples are drawn if none is given."""
        return float(self.record["strength"])

    @property
    def summary(self) -> str:
        """One line on data, network and metrics, without a period at its end."""
        return str(self.record["summary"])

    def require_hash(self) -> None:
        """Require that the weights are those of the record."""
        found, expected = hashlib.sha256((self.folder / WEIGHTS).read_bytes()).hexdigest(), self.record["sha256"]
        if found != expected:
            problem = f"the weights of {self.name!r} have sha256 {found[:12]}…"
            raise UserError(problem, f"must be {expected[:12]}…", "the file is damaged; install truedrift again")


def pretrained_names() -> tuple[str, ...]:
    """Return the names of the models in the package.

    Returns:
        Names such as `pretrained:digits`, in alphabetical order.

    Example:
        >>> "pretrained:digits" in pretrained_names()
        True
    """
    return tuple(f"{PREFIX}{path.parent.name}" for path in sorted(MODELS.glob(f"*/{RECORD}")))


def is_pretrained(source: Path | str) -> bool:
    """Return whether this is the name of a model in the package, known or not, and not a path."""
    return str(source).startswith(PREFIX)


def find_pretrained(source: Path | str) -> PretrainedModel:
    """Find a model in the package and read its record. Its weights are not read.

    Args:
        source: The name, as in `pretrained:digits`.

    Returns:
        The model with its folder and its record.

    Raises:
        UserError: If the package has no such model.

    Example:
        >>> find_pretrained("pretrained:digits").classes
        ('0', '1', '2', '3', '4', '5', '6', '7', '8', '9')
    """
    name, names = str(source), pretrained_names()
    if name not in names:
        fix = suggest_name(name, names, "pass one of these")
        raise UserError(f"{name!r} is not a pretrained model", f"available: {', '.join(names)}", fix)
    folder = MODELS / name.removeprefix(PREFIX)
    record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    return PretrainedModel(name=name, folder=folder, record=record)


def from_pretrained(folder: Path | str) -> Generator:
    """Load the generator saved in a local folder, or a model in the package, in float32 on the CPU.

    Args:
        folder: A folder written by `save_pretrained` or `truedrift convert`, or a name such as `pretrained:digits`.
            Nothing is downloaded.

    Returns:
        The generator in evaluation mode. Its class follows from config.json.

    Raises:
        UserError: If the folder is missing, incomplete or damaged, or the package has no such model.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from truedrift.generators import MLPOptions, build
        >>> generator = build(MLPOptions(width=8, depth=1), sample_shape=(2,), classes=3, seed=0)
        >>> with TemporaryDirectory() as folder:
        ...     _ = generator.save_pretrained(folder)
        ...     loaded = from_pretrained(folder)
        >>> type(loaded).__name__, loaded.sample_shape, loaded.classes
        ('MLP', (2,), 3)
    """
    if is_pretrained(folder):
        model = find_pretrained(folder)
        model.require_hash()
        folder = model.folder
    folder = Path(folder)
    allowed, fix = "must be a folder that save_pretrained or truedrift convert wrote", "save or convert it again"
    # Find the architecture.
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "does not exist"
        raise UserError(f"{str(folder)!r} {problem}", allowed, "check the name")
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise UserError(f"{str(folder)!r} has no {name}", allowed, fix)
    size = (folder / CONFIG).stat().st_size
    if size > LARGEST_CONFIG:
        problem = f"{str(folder / CONFIG)!r} has {size:,} bytes"
        raise UserError(problem, f"must have at most {LARGEST_CONFIG:,}", fix)
    try:
        network = GENERATORS[json.loads((folder / CONFIG).read_text(encoding="utf-8"))["architecture"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        problem = f"{str(folder / CONFIG)!r} does not name a known architecture ({error_text(error)})"
        raise UserError(problem, f"must name one of {', '.join(GENERATORS)}", fix) from None
    # Load the weights.
    safetensors = import_package("safetensors", "loading generators", "train")
    try:
        return network.from_pretrained(folder, local_files_only=True)
    except UserError as error:
        raise error.with_prefix(repr(str(folder / CONFIG))) from None
    except (safetensors.SafetensorError, RuntimeError) as error:  # not safetensors, or of another network
        problem = f"{str(folder / WEIGHTS)!r} does not hold the weights that {CONFIG} describes ({error_text(error)})"
        raise UserError(problem, allowed, fix) from None


AVERAGES = {"ema", "shadow", "average", "averaged"}
"""Words that mark a set of weights as an average."""


@dataclass(frozen=True, kw_only=True)
class PublishedWeights:
    """A network and its place in the checkpoint."""

    generator: DriftDiT
    weights: str
    """Name of the chosen weights, such as `ema.`; empty for a bare state dict."""
    averaged: bool
    image_size_known: bool
    """Whether the checkpoint or the caller gave the image size; otherwise it is the default."""
    style_draws_known: bool
    """Whether the caller gave the style draws or the network has no styles; otherwise it is the default."""


def load_published(
    tensors: Mapping[str, Tensor],
    *,
    weights: str = "auto",
    image_size: int | None = None,
    style_draws: int | None = None,
) -> PublishedWeights:
    """Build the DriftDiT of a flattened checkpoint.

    Args:
        tensors: All tensors of the checkpoint by dotted name.
        weights: Which set to load: "ema", "model", or "auto" for the average if there is one.
        image_size: Side of the images; None: from the position cache of any set of weights, or 32 without one.
        style_draws: Style ids per sample, which no tensor implies; None: 32, or 0 in a network without styles.

    Returns:
        The network, the name of the chosen weights, and which of its sizes are known and not defaults.

    Raises:
        UserError: If there is no DriftDiT among the tensors, `weights` matches no set or several sets, or a tensor is
            missing, unexpected or of the wrong shape.
    """
    sets = _split_weights(tensors)
    prefix = _choose_weights(list(sets), weights)
    # Any set may imply the image size: an average of parameters alone has no position cache.
    sizes = (published.infer_image_size(state) for state in sets.values())
    size = image_size or next((each for each in sizes if each is not None), None)
    generator = DriftDiT.from_published(sets[prefix], image_size=size, style_draws=style_draws)
    return PublishedWeights(
        generator=generator,
        weights=prefix,
        averaged=_is_average(prefix),
        image_size_known=size is not None,
        style_draws_known=style_draws is not None or generator.options.style_entries == 0,
    )


def convert_published(file: Path, folder: Path, **options: Any) -> PublishedWeights:
    """Convert a published checkpoint to a folder for `from_pretrained`, completely or not at all.

    Args:
        file: The checkpoint (.pt, .pth, .safetensors, …). A separate process reads pickles and executes nothing.
        folder: The folder to write, new or empty. Its parent must exist.
        options: Options of `load_published`: `weights`, `image_size`, `style_draws`.

    Returns:
        The network that was written, as `load_published` returns it.

    Raises:
        UserError: If the file is not a checkpoint of tensors and plain values, or holds no DriftDiT that fits the
            options.
    """
    from safetensors.torch import load_file  # noqa: PLC0415  an extra

    with scratch_directory(folder.absolute().parent, ".truedrift-") as scratch:
        # Read the checkpoint and rebuild the network.
        tensors, saved = scratch / "tensors.safetensors", scratch / "saved"
        convert_pickle(file, tensors)
        published = load_published(load_file(tensors), **options)
        # Save it, and move it to its place.
        published.generator.save_pretrained(saved)
        shutil.copymode(saved / CONFIG, saved / WEIGHTS)  # safetensors writes files that only their owner can read
        if folder.is_dir():
            folder.rmdir()
        os.replace(saved, folder)
    return published


def _split_weights(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Return every set of weights by the text before its names, including `module.` and `_orig_mod.`."""
    candidates = (name.removesuffix(published.PATCHES) for name in tensors if name.endswith(published.PATCHES))
    prefixes = [prefix for prefix in candidates if not prefix or prefix.endswith(".")]
    if not prefixes:
        problem = f"{published.PATCHES!r} is missing among {len(tensors)} tensors ({', '.join(list(tensors)[:3])} …)"
        raise UserError(problem, "must be a checkpoint of a DriftDiT", "check the file")
    return {
        prefix: {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        for prefix in prefixes
    }


def _choose_weights(prefixes: list[str], weights: str) -> str:
    averages = [prefix for prefix in prefixes if _is_average(prefix)]
    others = [prefix for prefix in prefixes if not _is_average(prefix)]
    matching = {"ema": averages, "model": others, "auto": averages or others}[weights]
    if len(matching) != 1:
        names = ", ".join(repr(prefix.rstrip(".") or "a bare state dict") for prefix in prefixes)
        problem = f"the checkpoint holds the weights {names} and weights is {weights!r}"
        raise UserError(problem, "exactly one set must match", "choose ema or model, or save that state dict alone")
    return matching[0]


def _is_average(prefix: str) -> bool:
    return not AVERAGES.isdisjoint(re.split(r"[._]", prefix.lower()))
