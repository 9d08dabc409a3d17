"""DINOv2 against transformers' own hidden states of the literally prepared image, on a small network in a folder."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from truedrift.encoders import DINOv2Options, build
from truedrift.errors import UserError

transformers = pytest.importorskip("transformers", reason="no transformers: pip install 'truedrift[dinov2]'")
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A network of 4 blocks of width 16 for 70 px; at 42 px, position embeddings are interpolated from 5×5 to 3×3."""
    path = tmp_path_factory.mktemp("dinov2")
    config = transformers.Dinov2Config(
        hidden_size=16, num_hidden_layers=4, num_attention_heads=2, mlp_ratio=2, image_size=70, patch_size=14
    )
    model = transformers.Dinov2Model(config)
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.3)
    model.save_pretrained(path)
    return path


def options(folder, **others):
    return DINOv2Options(**{"folder": str(folder), "image_size": 42, "blocks": (1, 3), **others})


def images(channels=3):
    return torch.rand(2, channels, 32, 32, generator=torch.Generator().manual_seed(7)) * 2 - 1


def hidden_states(folder, values):
    model = transformers.Dinov2Model.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        return model(values, output_hidden_states=True).hidden_states


def enlarge(values):
    return F.interpolate(values, (42, 42), mode="bilinear", align_corners=False)


@pytest.mark.parametrize("input_normalization", ["imagenet", "published"])
def test_features_agree_with_the_hidden_states(folder, input_normalization):
    values = enlarge(images())
    if input_normalization == "imagenet":
        values = ((values + 1) / 2 - MEAN) / STD
    states = hidden_states(folder, values)
    encoder = build(options(folder, input_normalization=input_normalization), sample_shape=(3, 32, 32))
    groups = encoder(images())
    for group, block in zip(groups, (1, 3), strict=True):
        torch.testing.assert_close(group, states[block][:, 1:].mean(1), rtol=1e-4, atol=1e-5)
    assert encoder.dimensions == (16, 16)
    assert len(encoder.network.blocks) == 3  # the fourth is not computed


def test_wrong_normalization_or_class_token_is_detected(folder):
    values = enlarge(images())
    imagenet, published = (
        build(options(folder, input_normalization=name), sample_shape=(3, 32, 32))(images())[1]
        for name in ("imagenet", "published")
    )
    assert (imagenet - published).abs().max() > 0.05
    with_class = hidden_states(folder, values)[3].mean(1)
    assert (published - with_class).abs().max() > 0.01


def test_quadrants_are_taken_on_the_grid_of_patches(folder):
    encoder = build(options(folder, pooling="patches", input_normalization="published"), sample_shape=(3, 32, 32))
    tokens = hidden_states(folder, enlarge(images()))[1][:, 1:].reshape(2, 3, 3, 16)  # rows of patches, then columns
    _, upper_right, lower_left, *_ = encoder(images())
    torch.testing.assert_close(upper_right, tokens[:, :2, 1:].mean((1, 2)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(lower_left, tokens[:, 1:, :2].mean((1, 2)), rtol=1e-4, atol=1e-5)
    assert (upper_right - lower_left).abs().max() > 0.01
    assert encoder.dimensions == (16,) * 8


def test_gray_images_are_repeated(folder):
    gray = images(channels=1)
    one = build(options(folder), sample_shape=(1, 32, 32))(gray)
    three = build(options(folder), sample_shape=(3, 32, 32))(gray.repeat(1, 3, 1, 1))
    torch.testing.assert_close(one, three)


def test_random_weights_have_the_small_architecture_and_are_reproducible():
    before = torch.random.get_rng_state()
    encoder = build(DINOv2Options(random_weights=True, blocks=(1, 2)), sample_shape=(3, 32, 32))
    assert torch.equal(before, torch.random.get_rng_state())
    assert encoder.dimensions == (384, 384)
    assert encoder.grid == 7
    block = encoder.network.blocks[0]
    assert sum(weight.numel() for weight in block.parameters()) == 12 * 384**2 + 13 * 384 + 2 * 384
    assert encoder.network.embeddings.position_embeddings.shape == (1, 37 * 37 + 1, 384)
    first, second = encoder(images())
    assert first.std(0).min() > 1e-4  # two images differ everywhere
    again = build(DINOv2Options(random_weights=True, blocks=(1, 2)), sample_shape=(3, 32, 32))
    assert again.fingerprint() == encoder.fingerprint()
    assert torch.equal(again(images())[1], second)


def test_the_default_source_is_the_pinned_revision_without_pickles(monkeypatch):
    requested = {}

    def from_pretrained(source, **settings):
        requested.update(settings, source=source)
        raise OSError("We couldn't connect to\nthe hub " + "and more " * 99)

    monkeypatch.setattr(transformers.Dinov2Model, "from_pretrained", from_pretrained)
    with pytest.raises(
        UserError, match=r"DINOv2 could not be loaded: facebook/dinov2-small .*couldn't connect"
    ) as error:
        build(DINOv2Options(), sample_shape=(3, 32, 32))
    assert requested["source"] == "facebook/dinov2-small"
    assert requested["revision"] == "ed25f3a31f01632728cabb09d1542f84ab7b0056"
    assert requested["use_safetensors"] is True
    assert requested["attn_implementation"] == "sdpa"
    assert "\n" not in str(error.value)
    assert "set encoder.folder to DIR" in str(error.value)
    assert len(str(error.value)) < 500


def test_folders_without_the_network_are_refused(folder, tmp_path):
    with pytest.raises(UserError, match=r"folder '.*nothing' \(the folder does not exist\); needs the hub"):
        build(options(tmp_path / "nothing"), sample_shape=(3, 32, 32))
    with pytest.raises(UserError, match=r"DINOv2 could not be loaded: folder"):
        build(options(tmp_path), sample_shape=(3, 32, 32))
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(UserError, match=r"DINOv2 could not be loaded: folder"):
        build(options(tmp_path), sample_shape=(3, 32, 32))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:500])
    with pytest.raises(UserError, match=r"DINOv2 could not be loaded: folder"):
        build(options(tmp_path), sample_shape=(3, 32, 32))


def test_missing_weights_are_not_replaced_by_random_ones(folder, tmp_path):
    weights = load_file(folder / "model.safetensors")
    lost = next(name for name in weights if "layer.2" in name and name.endswith("weight"))
    del weights[lost]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(UserError, match=r"encoder\.layer\.2\..* is missing"):
        build(options(tmp_path), sample_shape=(3, 32, 32))


def test_a_folder_of_another_network_is_refused(folder, tmp_path):
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "hidden_size": 32}))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(UserError, match=r"DINOv2 could not be loaded: folder") as error:
        build(options(tmp_path), sample_shape=(3, 32, 32))
    assert "\n" not in str(error.value)


def test_options_that_do_not_fit_the_network_are_refused(folder):
    with pytest.raises(UserError, match=r"blocks is \(3, 5\); must be in 1 to 4"):
        build(options(folder, blocks=(3, 5)), sample_shape=(3, 32, 32))
    with pytest.raises(UserError, match="image_size is 40; must be a multiple of the patch size 14"):
        build(options(folder, image_size=40), sample_shape=(3, 32, 32))
    with pytest.raises(UserError, match="a feature map is 1×1"):
        build(options(folder, image_size=14, pooling="patches"), sample_shape=(3, 32, 32))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"blocks": (0, 3)}, r"blocks\[0\] is 0; must be an integer ≥ 1"),
        ({"blocks": (6, 3)}, r"blocks is \(6, 3\); must be strictly ascending"),
        ({"input_normalization": "none"}, "input_normalization is 'none'; must be one of 'imagenet', 'published'"),
        ({"image_size": 98.0}, r"image_size is 98\.0"),
        ({"random_weights": True, "folder": "x"}, "random_weights is True and folder is 'x'"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_wrong_options_name_the_field(wrong, message):
    with pytest.raises(UserError, match=message):
        DINOv2Options(**wrong)


def test_missing_transformers_names_the_extra(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"run pip install 'truedrift\[dinov2\]'"):
        build(DINOv2Options(), sample_shape=(3, 32, 32))
