"""ONNX files: equal to torch for every kind of generator, batch size, label and strength."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from oracles.generator_zoo import inputs, perturb

from truedrift.cli import main
from truedrift.errors import UserError
from truedrift.generators import ConvOptions, DriftDiT, DriftDiTOptions, MLPOptions, UNetOptions, build
from truedrift.model import Model
from truedrift.share import onnx
from truedrift.share.onnx import TOLERANCE, compare_onnx, input_names, write_onnx

pytest.importorskip("onnxscript", reason="no onnx: pip install 'truedrift[onnx]'")
runtime = pytest.importorskip("onnxruntime", reason="no onnxruntime: pip install 'truedrift[onnx]'")
SMALL = {
    "mlp": (MLPOptions(width=8, depth=1, noise=3, embedding=2), (2,)),
    "conv": (ConvOptions(widths=(4,), noise=3, condition=6, embedding=2), (1, 8, 8)),
    "unet": (UNetOptions(width=4, multipliers=(1,), blocks=1, condition=6), (1, 4, 4)),
    "drift-dit": (
        DriftDiTOptions(width=8, depth=1, heads=2, patch=2, registers=2, style_draws=3, style_entries=4),
        (1, 4, 4),
    ),
}


def make_model(generator, strengths=(1.0, 3.0)):
    names = tuple(map(str, range(generator.classes)))
    return Model(generator.eval(), names, (1 / len(names),) * len(names), strength=2.0, strengths=strengths)


def run_onnx(path, **arrays):
    return runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, arrays)[0]


@pytest.mark.parametrize("kind", ["mlp", "conv", pytest.param("unet", marks=pytest.mark.slow), "drift-dit"])
def test_onnx_equals_torch(kind, tmp_path):
    options, shape = SMALL[kind]
    model = make_model(perturb(build(options, sample_shape=shape, classes=4, seed=0)))
    assert write_onnx(model, tmp_path / "model.onnx") <= TOLERANCE
    # Other inputs than those of the command's own check, with all labels and the null class.
    z, labels, strength, style = inputs(model.generator, 7, seed=3)
    arrays = {"noise": z, "label": labels, "strength": strength, "style": style}
    names = input_names(model)
    assert names == ("noise", "label", "strength", *(["style"] if kind == "drift-dit" else []))
    with torch.no_grad():
        expected = model.generator(z, labels, strength, style).numpy()
    found = run_onnx(tmp_path / "model.onnx", **{name: arrays[name].numpy() for name in names})
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.parametrize("size", ["tiny", "small"])
def test_published_sizes_equal_torch(size, tmp_path):
    model = make_model(perturb(getattr(DriftDiT, size)()))
    assert write_onnx(model, tmp_path / "model.onnx") <= TOLERANCE


def test_file_of_another_model_is_noticed(tmp_path, monkeypatch):
    """Without guidance the strength is a constant, and the check compares samples, not files."""
    options, shape = SMALL["mlp"]
    model = make_model(perturb(build(options, sample_shape=shape, classes=4, seed=0)), strengths=(1.0, 1.0))
    write_onnx(model, tmp_path / "model.onnx")
    assert input_names(model) == ("noise", "label")
    assert compare_onnx(model, tmp_path / "model.onnx") <= TOLERANCE
    with torch.no_grad():
        model.generator.last.bias[0] += 0.01
    assert compare_onnx(model, tmp_path / "model.onnx") > TOLERANCE
    # The command refuses such a file.
    monkeypatch.setattr(onnx, "compare_onnx", lambda *_: 0.5)
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: SimpleNamespace(save=lambda path: path.touch()))
    with pytest.raises(
        UserError, match=r"the mlp generator cannot be exported to ONNX: its samples differ by 5\.0e-01"
    ):
        write_onnx(model, tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_what_cannot_be_exported_is_one_line(tmp_path, monkeypatch, capsys):
    def refuse(*_, **__):
        raise torch.onnx.OnnxExporterError("no such operator\nline two")

    monkeypatch.setattr(torch.onnx, "export", refuse)
    assert main(["export", "pretrained:digits", str(tmp_path / "out"), "--onnx"]) == 2
    assert capsys.readouterr().err == (
        "truedrift: error: the mlp generator cannot be exported to ONNX (no such operator line two); "
        "torch must be able to trace it; export it without --onnx\n"
    )
    assert list(tmp_path.iterdir()) == []
