"""A folder with config.json and model.safetensors → the generator that was saved there, whatever its class.

`generator.save_pretrained(folder)` writes such a folder (huggingface_hub's mixin); config.json names the architecture.
Everything that can be wrong with a folder is one line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from truedrift.generators.base import Generator
from truedrift.generators.catalog import GENERATORS
from truedrift.generators.hub import CONFIG, WEIGHTS
from truedrift.validation import Mistake, mistake

_SAVED = "a folder that save_pretrained or truedrift convert wrote"


def from_pretrained(folder: Path | str) -> Generator:
    """The generator of a local folder, in float32 on the CPU."""
    folder = Path(folder)
    config = _config(folder)
    architecture = config.get("architecture")
    if not isinstance(architecture, str) or architecture not in GENERATORS:
        came = f"{str(folder / CONFIG)!r} names the architecture {architecture!r}"
        raise mistake(came, f"allowed are {', '.join(GENERATORS)}", f"take {_SAVED}")
    try:
        return GENERATORS[architecture].from_pretrained(folder, local_files_only=True)
    except Mistake as error:
        raise Mistake(f"{str(folder / CONFIG)!r}: {error}") from None
    except _weight_errors() as error:
        why = " ".join(str(error).split())[:300]
        raise mistake(
            f"{str(folder / WEIGHTS)!r} does not hold the weights of its {CONFIG} ({why})",
            f"allowed is {_SAVED}",
            "save or convert it again",
        ) from None


def _config(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        came = "is a file" if folder.exists() else "does not exist"
        raise mistake(f"{str(folder)!r} {came}", f"allowed is {_SAVED}", "check its name")
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise mistake(f"{str(folder)!r} has no {name}", f"allowed is {_SAVED}", "save or convert it again")
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except ValueError as error:
        came = f"{str(folder / CONFIG)!r} is not JSON ({error})"
        raise mistake(came, f"allowed is {_SAVED}", "save or convert it again") from None
    if not isinstance(config, dict):
        raise mistake(f"{str(folder / CONFIG)!r} is no JSON object", f"allowed is {_SAVED}", "save it again")
    return config


def _weight_errors() -> tuple[type[Exception], ...]:
    """A file that is no safetensors file, and one of another network."""
    from safetensors import SafetensorError  # noqa: PLC0415  an extra

    return (SafetensorError, RuntimeError)
