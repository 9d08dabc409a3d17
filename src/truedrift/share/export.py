"""Export: a folder that `truedrift.load` loads and that the Hugging Face Hub shows.

| file              | content                                                              |
|-------------------|----------------------------------------------------------------------|
| config.json       | architecture and options of the network                              |
| model.safetensors | the weights, float32 or float16                                      |
| model.json        | classes, units and guidance strengths                                |
| export.json       | facts on data, training and metrics                                  |
| README.md         | the model card                                                       |
| samples.png       | a picture of samples                                                 |
| model.onnx        | the network for other programs, if asked for                         |
"""

import copy
import os
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from truedrift.errors import UserError
from truedrift.generators.base import CONFIG, WEIGHTS, Generator
from truedrift.model import MODEL, Model, load
from truedrift.share.card import CARD, ONNX, PICTURE, PLACEHOLDER, render_card
from truedrift.share.facts import EXPORT, find_facts, to_json
from truedrift.share.onnx import write_onnx
from truedrift.share.picture import draw_picture
from truedrift.storage import read_regular, scratch_directory, write_atomically
from truedrift.training.pictures import write_png

FILES = (CARD, CONFIG, EXPORT, MODEL, ONNX, WEIGHTS, PICTURE)
"""The files of an exported folder. No other file of it is uploaded."""
LARGEST_HALF = 65504.0
"""The largest number of float16."""


@dataclass(frozen=True, kw_only=True)
class ExportedFolder:
    """An exported folder and what is known about it."""

    path: Path
    model: Model
    onnx_difference: float | None = None
    """Largest relative difference between onnxruntime and torch; None if it was not computed."""

    def files(self) -> list[tuple[str, int]]:
        """Return names and sizes of its files."""
        return list_files(self.path)


def list_files(folder: Path) -> list[tuple[str, int]]:
    """Return names and sizes in bytes of the files of an exported folder, in alphabetical order."""
    return [(name, (folder / name).stat().st_size) for name in sorted(FILES) if (folder / name).is_file()]


def is_exported(folder: Path) -> bool:
    """Return whether `truedrift export` wrote the folder."""
    return (folder / EXPORT).is_file() and (folder / CARD).is_file()


def copy_exported(source: Path, folder: Path, name: str) -> None:
    """Copy the files of an exported folder, and put USER/NAME into the example of its card.

    Args:
        source: A folder of `export_model`.
        folder: The folder to write, new.
        name: USER/NAME on the Hub.
    """
    folder.mkdir()
    for file, _ in list_files(source):
        content = read_regular(source / file)
        if file == CARD:
            content = content.replace(f'truedrift.load("{PLACEHOLDER}")'.encode(), f'truedrift.load("{name}")'.encode())
        write_atomically(folder / file, content, sync=False)


def export_model(
    source: Path | str,
    folder: Path,
    *,
    half: bool = False,
    onnx: bool = False,
    license_name: str | None = None,
    name: str = PLACEHOLDER,
) -> ExportedFolder:
    """Write the folder of a model, completely or not at all.

    Args:
        source: A run directory, `pretrained:NAME`, or a folder of a saved model.
        folder: The folder to write, new or empty.
        half: Write the weights as float16.
        onnx: Also write model.onnx.
        license_name: License of the weights, as the Hub spells it; None: that of the source, or "unknown".
        name: USER/NAME in the card.

    Returns:
        The folder.

    Raises:
        UserError: If there is no such model, its weights do not fit into float16, or it cannot be exported to ONNX.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as parent:
        ...     exported = export_model("pretrained:digits", Path(parent) / "digits", half=True)
        ...     [name for name, _ in exported.files()]
        ['README.md', 'config.json', 'export.json', 'model.json', 'model.safetensors', 'samples.png']
    """
    source = Path(source)
    model = load(source)
    facts = find_facts(source, license_name)
    difference = None
    with scratch_directory(folder.absolute().parent, ".truedrift-") as scratch:
        # Save the model.
        written = scratch / "model"
        stored = replace(model, generator=_round_weights(model)) if half else model
        stored.save(written)
        shutil.copymode(written / CONFIG, written / WEIGHTS)  # safetensors writes files that only their owner can read
        # Show and describe it.
        write_png(draw_picture(model), written / PICTURE)
        if onnx:
            difference = write_onnx(model, written / ONNX)
        write_atomically(written / EXPORT, to_json(asdict(facts)))
        card = render_card(model, facts, half=half, picture=True, onnx=onnx, name=name)
        write_atomically(written / CARD, card.encode())
        # Move it to its place.
        if folder.is_dir():
            folder.rmdir()
        os.replace(written, folder)
    return ExportedFolder(path=folder, model=model, onnx_difference=difference)


def _round_weights(model: Model) -> Generator:
    """Return a copy of the generator in float16."""
    state = model.generator.state_dict().values()
    largest = max((float(each.abs().max()) for each in state if each.numel()), default=0.0)
    if largest > LARGEST_HALF:
        allowed = f"float16 holds at most {LARGEST_HALF:g}"
        raise UserError(f"the weights have values up to {largest:.3g}", allowed, "export it without --half")
    return copy.deepcopy(model.generator).half()
