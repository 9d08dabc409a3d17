"""A folder with config.json and model.safetensors → the generator that was saved there, whatever its class.

`generator.save_pretrained(folder)` writes such a folder (huggingface_hub's mixin); config.json names the architecture.
Everything that can be wrong with a folder is one line.

Which of the weights in a published checkpoint: those of the EMA, if there are any.

A checkpoint is a state dict, or state dicts under names such as `model`, `ema`, `ema_model`, `state_dict`, `generator`,
nested in any way and flattened to dotted names. Whatever stands before the name of a DriftDiT's first tensor is the
name of one set of weights, and it is an average if one of its words says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truedrift.axes import Tensor
from truedrift.errors import UserError
from truedrift.generators import published
from truedrift.generators.base import CONFIG, WEIGHTS, Generator
from truedrift.generators.catalog import GENERATORS
from truedrift.generators.drift_dit import DriftDiT

_SAVED = "a folder that save_pretrained or truedrift convert wrote"


def from_pretrained(folder: Path | str) -> Generator:
    """The generator of a local folder, in float32 on the CPU."""
    folder = Path(folder)
    config = _config(folder)
    architecture = config.get("architecture")
    if not isinstance(architecture, str) or architecture not in GENERATORS:
        came = f"{str(folder / CONFIG)!r} names the architecture {architecture!r}"
        raise UserError(came, f"allowed are {', '.join(GENERATORS)}", f"take {_SAVED}")
    try:
        return GENERATORS[architecture].from_pretrained(folder, local_files_only=True)
    except UserError as error:
        raise error.with_prefix(repr(str(folder / CONFIG))) from None
    except _weight_errors() as error:
        why = " ".join(str(error).split())[:300]
        raise UserError(
            f"{str(folder / WEIGHTS)!r} does not hold the weights of its {CONFIG} ({why})",
            f"allowed is {_SAVED}",
            "save or convert it again",
        ) from None


def _config(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        came = "is a file" if folder.exists() else "does not exist"
        raise UserError(f"{str(folder)!r} {came}", f"allowed is {_SAVED}", "check its name")
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise UserError(f"{str(folder)!r} has no {name}", f"allowed is {_SAVED}", "save or convert it again")
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except ValueError as error:
        came = f"{str(folder / CONFIG)!r} is not JSON ({error})"
        raise UserError(came, f"allowed is {_SAVED}", "save or convert it again") from None
    if not isinstance(config, dict):
        raise UserError(f"{str(folder / CONFIG)!r} is no JSON object", f"allowed is {_SAVED}", "save it again")
    return config


def _weight_errors() -> tuple[type[Exception], ...]:
    """A file that is no safetensors file, and one of another network."""
    from safetensors import SafetensorError  # noqa: PLC0415  an extra

    return (SafetensorError, RuntimeError)


AVERAGES = {"ema", "shadow", "average", "averaged"}
WEIGHT_KEYS = ("auto", "ema", "model")


@dataclass(frozen=True, kw_only=True)
class PublishedWeights:
    """A network, and where in the checkpoint it was."""

    generator: DriftDiT
    weights: str
    """The name of the chosen weights, such as `ema.` or the empty one of a bare state dict."""
    averaged: bool
    image_size_told: bool
    """By the checkpoint or by the caller, and not by default."""
    style_draws_told: bool
    """By the caller, or by a network without styles, and not by default."""


def load_published(
    tensors: Mapping[str, Tensor],
    *,
    weights: str = "auto",
    image_size: int | None = None,
    style_draws: int | None = None,
) -> PublishedWeights:
    """The DriftDiT of a flattened checkpoint."""
    prefix = _choose_weights(_prefixes(tensors), weights)
    state = _under(tensors, prefix)
    size = image_size or _find_option(tensors)
    generator = DriftDiT.from_published(state, image_size=size, style_draws=style_draws)
    return PublishedWeights(
        generator=generator,
        weights=prefix,
        averaged=_is_average(prefix),
        image_size_told=size is not None,
        style_draws_told=style_draws is not None or generator.options.style_entries == 0,
    )


def _prefixes(tensors: Mapping[str, Tensor]) -> list[str]:
    """What stands before the first tensor's name, `module.` and `_orig_mod.` included."""
    ends = (name.removesuffix(published.PATCHES) for name in tensors if name.endswith(published.PATCHES))
    prefixes = [prefix for prefix in ends if not prefix or prefix.endswith(".")]
    if not prefixes:
        some = ", ".join(list(tensors)[:3])
        raise UserError(
            f"{published.PATCHES!r} is missing among {len(tensors)} tensors ({some} …)",
            "allowed is a checkpoint of a DriftDiT",
            "check that this is one",
        )
    return prefixes


def _choose_weights(prefixes: list[str], weights: str) -> str:
    averages = [prefix for prefix in prefixes if _is_average(prefix)]
    others = [prefix for prefix in prefixes if not _is_average(prefix)]
    wanted = {"ema": averages, "model": others, "auto": averages or others}[weights]
    if len(wanted) != 1:
        there = ", ".join(repr(prefix.rstrip(".") or "a bare state dict") for prefix in prefixes)
        raise UserError(
            f"the checkpoint holds the weights {there} and weights is {weights!r}",
            "allowed is a choice of exactly one",
            "choose ema or model, or save that state dict alone",
        )
    return wanted[0]


def _is_average(prefix: str) -> bool:
    return not AVERAGES.isdisjoint(re.split(r"[._]", prefix.lower()))


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The state dict of that prefix. A bare one is the whole file."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _find_option(tensors: Mapping[str, Tensor]) -> int | None:
    """An EMA of parameters alone has no position cache; the network beside it has."""
    for prefix in _prefixes(tensors):
        size = published.infer_image_size(_under(tensors, prefix))
        if size is not None:
            return size
    return None
