"""`truedrift export`: the folder loads, its card is valid and true, and nothing in it is unescaped."""

import dataclasses
import json

import numpy as np
import pytest
import torch
import yaml
from markdown_it import MarkdownIt
from PIL import Image
from safetensors.torch import load_file
from short_runs import run, short_config

import truedrift
from truedrift.cli import main
from truedrift.data.units import Units
from truedrift.errors import UserError
from truedrift.generators import MLPOptions, build
from truedrift.model import Model
from truedrift.share.card import escape_markdown, render_card
from truedrift.share.export import export_model
from truedrift.share.facts import Facts
from truedrift.share.picture import draw_picture

HOSTILE = (
    "<script>alert(1)</script>",
    "a|b*c*_d_`e`[f](javascript:g)",
    "![x](http://evil)",
    "~~$x$~~ & &lt;",
    "- # é\n\nz",
)


def front_matter(card):
    start, text, body = card.split("---\n", 2)
    assert start == ""
    return yaml.safe_load(text), body


def make_model(classes=("a", "b"), shape=(1, 4, 4), units=None, **options):
    network = MLPOptions(width=8, depth=1, noise=3, embedding=2)
    generator = build(network, sample_shape=shape, classes=len(classes), seed=0)
    return Model(generator, classes, (1 / len(classes),) * len(classes), units, **options)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "my_run"
    run(short_config("digits"), folder)
    return folder


def test_run_is_exported_with_its_metrics_and_loaded(trained, tmp_path, capsys):
    assert main(["evaluate", str(trained), "--samples", "60", "--device", "cpu"]) == 0
    assert main(["export", str(trained), str(tmp_path / "out"), "--license", "cc-by-4.0"]) == 0
    assert "next: truedrift push" in capsys.readouterr().out
    np.testing.assert_array_equal(truedrift.load(tmp_path / "out").sample(20), truedrift.load(trained).sample(20))
    # The front matter.
    data, body = front_matter((tmp_path / "out" / "README.md").read_text())
    assert data == {
        "library_name": "truedrift",
        "license": "cc-by-4.0",
        "pipeline_tag": "unconditional-image-generation",
        "tags": ["truedrift", "drifting", "one-step", "pytorch"],
    }
    # The numbers are those of the files.
    written = json.loads((trained / "evaluations.jsonl").read_text().splitlines()[-1])
    assert f"FD (digits) {written['metrics']['fid']:.4g} |" in body
    assert "60 samples, balanced labels, seed 0" in body
    assert f"sha256 {written['protocol']['reference_sha256'][:12]}" in body
    assert "| steps | 8 of 8, averaged weights (decay 0.8) |" in body
    assert "# my\\_run" in body
    assert '\nmodel = truedrift.load("USER/NAME")\nsamples = model.sample(16, label="0")' in body
    # The picture.
    picture = np.asarray(Image.open(tmp_path / "out" / "samples.png"))
    np.testing.assert_array_equal(picture, draw_picture(truedrift.load(trained)).numpy())


def test_only_evaluations_of_the_exported_weights_are_stated(trained, tmp_path):
    path = trained / "evaluations.jsonl"
    entry = json.loads(path.read_text().splitlines()[-1])
    other = entry | {"step": 3, "metrics": entry["metrics"] | {"fid": 123.4}}
    model = entry | {"protocol": entry["protocol"] | {"weights": "model"}, "metrics": entry["metrics"] | {"fid": 567.8}}
    path.write_text("".join(json.dumps(each) + "\n" for each in (other, model, entry)))
    card = (export_model(trained, tmp_path / "out").path / "README.md").read_text()
    assert card.count("FD (digits)") == 1
    assert "123.4" not in card
    assert "567.8" not in card


def test_half_weights_have_half_the_size_and_nearly_the_same_samples(tmp_path):
    folder = export_model("pretrained:fashion-mnist", tmp_path / "half", half=True).path
    assert {each.dtype for each in load_file(folder / "model.safetensors").values()} == {torch.float16}
    loaded, original = truedrift.load(folder), truedrift.load("pretrained:fashion-mnist")
    assert next(loaded.generator.parameters()).dtype == torch.float32
    # The weights of the package are float16 already.
    np.testing.assert_array_equal(loaded.sample(20), original.sample(20))
    assert (loaded.classes, loaded.strength, loaded.strengths) == (original.classes, 2.0, (1.0, 3.0))
    card = (folder / "README.md").read_text()
    assert "Metrics of the float32 weights, before they were rounded to float16." in card
    assert "| guidance | strengths from 1 to 3, 2 if none is given |" in card
    assert front_matter(card)[0]["license"] == "mit"


def test_weights_beyond_float16_are_refused(tmp_path):
    model = make_model()
    with torch.no_grad():
        model.generator.last.weight[0, 0] = 1e5
    with pytest.raises(UserError, match=r"the weights have values up to 1e\+05; float16 holds at most 65504; "):
        export_model(model.save(tmp_path / "saved"), tmp_path / "out", half=True)
    assert not (tmp_path / "out").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saved"]


@pytest.mark.parametrize("text", HOSTILE)
def test_escaped_text_is_shown_as_it_is(text):
    html = (
        MarkdownIt("commonmark")
        .enable(["table", "strikethrough"])
        .render(f"| | |\n|---|---|\n| {escape_markdown(text)} | |")
    )
    (cell,) = [line for line in html.splitlines() if line.startswith("<td>") and line != "<td></td>"]
    shown = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert cell == f"<td>{shown}</td>"


def test_names_cannot_change_the_card():
    model = make_model(classes=HOSTILE)
    facts = Facts(name="# x\n---\nlicense: evil", data=(("data", HOSTILE[0]),), training=(("recipe", HOSTILE[2]),))
    card = render_card(model, facts, half=False, picture=True, onnx=False)
    data, body = front_matter(card)
    assert data["license"] == "unknown"
    html = MarkdownIt("commonmark").enable("table").render(body)
    assert "<script" not in html
    assert html.count("<img") == 1
    assert "href" not in html
    assert html.count("<h1>") == 1
    code = body.split("```python\n")[1].split("```\n")[0]
    compile(code, "card", "exec")
    assert "<script>alert(1)</script>" in code


def test_arrays_are_exported_with_units(tmp_path):
    X = np.random.default_rng(0).normal(5, 2, size=(100, 3))
    model = truedrift.fit(X, steps=2, device="cpu", progress=False)
    folder = export_model(model.save(tmp_path / "saved"), tmp_path / "out").path
    np.testing.assert_array_equal(truedrift.load(folder).sample(9), model.sample(9))
    data, body = front_matter((folder / "README.md").read_text())
    assert "pipeline_tag" not in data
    assert "an array [n, 3] in the units of the data" in body
    assert "These weights have not been evaluated." in body


@pytest.mark.parametrize("shape", [(1,), (2,), (5,), (4, 3)])
def test_every_kind_of_array_has_a_picture(shape):
    units = Units.of(torch.randn(10, *shape, generator=torch.Generator().manual_seed(0)))
    model = make_model(shape=(int(np.prod(shape)),), units=units)
    picture = draw_picture(model)
    assert picture.dtype == torch.uint8
    assert (picture != 255).any()
    assert not torch.equal(picture, draw_picture(model, seed=1))


def test_an_exported_folder_keeps_its_facts(tmp_path):
    first = export_model("pretrained:digits", tmp_path / "first").path
    second = export_model(first, tmp_path / "second").path
    assert (first / "export.json").read_bytes() == (second / "export.json").read_bytes()
    assert (first / "README.md").read_bytes() == (second / "README.md").read_bytes()
    (first / "export.json").write_text('{"name": 3}')
    with pytest.raises(
        UserError, match=r"export.json' is damaged \(name is 3\); must be the file that truedrift export"
    ):
        export_model(first, tmp_path / "third")


def test_wrong_arguments_are_one_line(tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    cases = {
        ("pretrained:digits", str(tmp_path / "full")): "is not empty; must be a new or empty folder; pass another one",
        ("pretrained:x", str(tmp_path / "new")): "'pretrained:x' is not a pretrained model; available: ",
        (str(tmp_path / "no"), str(tmp_path / "new")): "does not exist; must be a run directory or a folder of weights",
        (
            "pretrained:digits",
            str(tmp_path / "new"),
            "--license",
            "a\nb: c",
        ): "must be a name of the Hub, in lower case",
    }
    for arguments, message in cases.items():
        assert main(["export", *arguments]) == 2
        printed = capsys.readouterr().err
        assert message in printed
        assert printed.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full"]


def test_a_model_of_other_classes_than_its_network_is_damaged(tmp_path):
    model = make_model()
    folder = dataclasses.replace(model, classes=("a",), shares=(1.0,)).save(tmp_path)
    with pytest.raises(UserError, match="is damaged"):
        truedrift.load(folder)
