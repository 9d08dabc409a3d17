"""ONNX files of generators: x = f(noise, label, strength, style) for any batch size, checked with onnxruntime.

The inputs are noise and label, strength if the model has guidance, and style if the network has styles. Without
guidance the strength is a constant of the file.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from truedrift.axes import Tensor
from truedrift.errors import UserError, error_text, import_package
from truedrift.generators.base import Generator
from truedrift.generators.sampling import draw_inputs
from truedrift.model import Model

TOLERANCE = 1e-4
"""Largest difference between onnxruntime and torch, relative to the largest output."""
LARGEST_FILE = 2**31 - 1
"""Bytes that one file of protobuf may have."""
_EXAMPLE = 3
"""Batch of the export, and of no check."""


class _Inputs(nn.Module):
    """The generator as a function of its ONNX inputs."""

    def __init__(self, generator: Generator, strength: float) -> None:
        super().__init__()
        self.generator, self.strength = generator, strength

    def forward(
        self, noise: Tensor, label: Tensor, strength: Tensor | None = None, style: Tensor | None = None
    ) -> Tensor:
        rows = noise.shape[0]
        strength = noise.new_full((rows,), self.strength) if strength is None else strength
        style = label.new_zeros((rows, 0)) if style is None else style
        return self.generator.generate(noise, label, strength, style)


def input_names(model: Model) -> tuple[str, ...]:
    """Return the names of the inputs of the model's ONNX file.

    Args:
        model: The model.

    Returns:
        noise and label; strength if the model has guidance; style if the network has styles.
    """
    more = {"strength": model.has_guidance, "style": model.generator.style_draws > 0}
    return "noise", "label", *(name for name, used in more.items() if used)


def write_onnx(model: Model, path: Path) -> float | None:
    """Export the generator of a model to an ONNX file with float32 weights, and check it.

    Args:
        model: The model.
        path: The file to write.

    Returns:
        The largest difference of its outputs from those of torch, relative to the largest output, over batches of 1, 2
        and 5; None if onnxruntime is not installed.

    Raises:
        UserError: If onnx or onnxscript is not installed, or if the network cannot be exported, or if onnxruntime
            computes other samples.
    """
    for package in ("onnx", "onnxscript"):
        import_package(package, "truedrift export --onnx", "onnx")
    names = input_names(model)
    wrapped = _Inputs(model.generator, model.strength).eval()
    size = sum(parameter.numel() for parameter in model.generator.parameters()) * 4
    problem = f"the {model.generator.architecture} generator cannot be exported to ONNX"
    fix = "export it without --onnx"
    if size > LARGEST_FILE:
        raise UserError(f"{problem}: it has {size / 1e9:.1f} GB", "must be less than 2 GB", fix)
    # Export it. The size of the batch is free; torch derives it from one name per input.
    batch = torch.export.Dim("batch", min=1)
    example = _draw(model, _EXAMPLE)
    try:
        with _quiet():
            program: Any = torch.onnx.export(
                wrapped,
                kwargs={name: example[name] for name in names},
                dynamo=True,
                verbose=False,
                input_names=names,
                output_names=("sample",),
                dynamic_shapes={name: {0: batch} for name in names},
                external_data=False,
            )
            program.save(path)
    except (RuntimeError, torch.onnx.OnnxExporterError) as error:
        raise UserError(
            f"{problem} ({error_text(error.__cause__ or error, 150)})", "torch must be able to trace it", fix
        ) from None
    if find_spec("onnxruntime") is None:
        return None
    difference = compare_onnx(model, path)
    if not difference <= TOLERANCE:
        path.unlink()
        raise UserError(f"{problem}: its samples differ by {difference:.1e}", f"must be at most {TOLERANCE:g}", fix)
    return difference


def compare_onnx(model: Model, path: Path) -> float:
    """Compute the largest difference between onnxruntime and torch, relative to the largest output of torch.

    Args:
        model: The model.
        path: Its ONNX file.

    Returns:
        The difference over batches of 1, 2 and 5.
    """
    runtime: Any = import_package("onnxruntime", "the check of an ONNX file", "onnx")
    session = runtime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    largest = 0.0
    for count in (1, 2, 5):
        inputs = _draw(model, count)
        with torch.no_grad():
            expected = model.generator(inputs["noise"], inputs["label"], inputs["strength"], inputs["style"])
        (found,) = session.run(None, {name: inputs[name].numpy() for name in names})
        scale = expected.abs().max().clamp_min(torch.finfo(torch.float32).tiny)
        largest = max(largest, float((torch.from_numpy(found) - expected).abs().max() / scale))
    return largest


def _draw(model: Model, count: int) -> dict[str, Tensor]:
    """Draw inputs with all labels and, with guidance, different strengths."""
    noise, style = draw_inputs(model.generator, range(count), seed=count)
    low, high = model.strengths or (1.0, 4.0)
    varied = torch.linspace(low, high, count)
    return {
        "noise": noise,
        "label": torch.arange(count) % (model.generator.classes + 1),
        "strength": varied if model.has_guidance else torch.full((count,), model.strength),
        "style": style,
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide notes of the exporter on packages that are not needed, and on its own parts."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
