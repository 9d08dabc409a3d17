"""DriftDiT against the published network's numbers, its parameter counts and the literal oracle."""

import dataclasses
from pathlib import Path

import pytest
import torch
from oracles import driftdit
from oracles.generator_zoo import DIT, inputs, make_generator, perturb
from safetensors.torch import load_file

from truedrift.errors import UserError
from truedrift.generators import DriftDiT, DriftDiTOptions

GOLDEN = Path(__file__).parents[1] / "golden" / "driftdit.safetensors"


@pytest.fixture(scope="module")
def golden():
    return load_file(GOLDEN)


def read_state(golden):
    return {name.removeprefix("state."): tensor for name, tensor in golden.items() if name.startswith("state.")}


def read_inputs(golden):
    return tuple(golden[f"input.{name}"] for name in ("noise", "labels", "strength", "style_ids"))


def count_parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("make", "channels", "classes", "parameters"),
    [
        (DriftDiT.small, 3, 10, 26_592_688),
        (DriftDiT.tiny, 3, 10, 8_974_896),
        # Per channel: 16 × 256 weights of the patch embedding, 16 rows and 16 biases of the last layer.
        (DriftDiT.tiny, 1, 10, 8_974_896 - 2 * (16 * 256 + 16 * 256 + 16)),
        (DriftDiT.tiny, 3, 100, 8_974_896 + 90 * 256),
    ],
)
def test_parameter_counts(make, channels, classes, parameters):
    model = make(channels=channels, classes=classes)
    assert count_parameters(model) == parameters
    assert model.sample_shape == model.noise_shape == (channels, 32, 32)
    assert (model.style_draws, model.style_entries, model.tokens) == (32, 64, 72)


def test_parameter_count_does_not_depend_on_the_image_size():
    assert count_parameters(DriftDiT.tiny(image_size=64)) == count_parameters(DriftDiT.tiny())


def test_golden_image(golden):
    model = DriftDiT.from_published(read_state(golden))
    wanted = golden["output.image"]
    with torch.no_grad():
        found = model(*read_inputs(golden))
    assert wanted.abs().max() > 0.5
    assert (found - wanted).abs().max() < 1e-5


@pytest.mark.parametrize("place", range(4))
def test_golden_image_needs_its_own_inputs(golden, place):
    """The control: one input taken from another sample gives another image."""
    changed = list(read_inputs(golden))
    changed[place] = changed[place].roll(1, 0)
    with torch.no_grad():
        found = DriftDiT.from_published(read_state(golden))(*changed)
    assert (found - golden["output.image"]).abs().max() > 1e-4


def test_the_oracle_reproduces_the_golden_image(golden):
    z, labels, strength, styles = read_inputs(golden)
    found = driftdit.image(read_state(golden), z[1], int(labels[1]), float(strength[1]), styles[1].tolist(), heads=2)
    assert (found - golden["output.image"][1]).abs().max() < 1e-5


def test_agrees_with_the_oracle():
    model = perturb(make_generator("drift-dit"))  # not square, no power of two, all gates nonzero
    published = model.to_published()
    z, labels, strength, styles = inputs(model, 5)
    found = model.double()(z, labels, strength, styles)
    i = 4  # the null class
    wanted = driftdit.image(published, z[i], int(labels[i]), float(strength[i]), styles[i].tolist(), DIT.heads)
    assert wanted.std() > 0.1
    # The position cache is float32: 1e-7 of each angle's cosine.
    torch.testing.assert_close(found[i], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("part", ["attn.q_norm", "attn.k_norm", "norm1", "norm2", "mlp.w3", "attn.proj"])
def test_the_oracle_depends_on_every_part(part):
    model = perturb(make_generator("drift-dit"))
    z, labels, strength, styles = (value[:1] for value in inputs(model, 1))
    published = model.to_published()
    published[f"blocks.1.{part}.weight"] = published[f"blocks.1.{part}.weight"].flip(0)
    wrong = driftdit.image(published, z[0], int(labels[0]), float(strength[0]), styles[0].tolist(), DIT.heads)
    assert (model(z, labels, strength, styles)[0] - wrong).abs().max() > 1e-3


def test_at_the_start_blocks_are_the_identity_and_conditions_do_not_matter():
    model = make_generator("drift-dit")
    z, labels, strength, styles = inputs(model, 5)
    x = model(z, labels, strength, styles)
    assert torch.equal(x, model(z, labels * 0, strength + 1, styles * 0))
    tokens = model.patch_embed(z)
    normalized = tokens / (tokens.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    values = normalized @ model.final_layer.linear.weight.T
    assert model.final_layer.linear.bias.abs().max() == 0
    torch.testing.assert_close(x[:, :, :2, :2], values[:, 0].view(5, 2, 2, 3).permute(0, 3, 1, 2))
    zeros = {name for name, parameter in model.named_parameters() if not parameter.any()}
    assert {name for name in zeros if name.endswith("weight")} == {
        "blocks.0.adaLN_modulation.1.weight",
        "blocks.1.adaLN_modulation.1.weight",
        "final_layer.adaLN_modulation.1.weight",
    }
    assert {name for name, _ in model.named_parameters() if name.endswith("bias")} <= zeros


def test_parameters_start_as_described():
    model = DriftDiT.tiny()
    parameters = dict(model.named_parameters())
    for name, deviation in {
        "label_embed.embedding_table.weight": 0.02,
        "style_embed.codebook.weight": 0.02,
        "register_tokens": 0.02,
        "final_layer.linear.weight": 0.02,
        # Xavier: U(−a, a) has the standard deviation a/√3 = √(2/(in + out))
        "blocks.0.attn.qkv.weight": (2 / (256 + 768)) ** 0.5,
        "blocks.3.mlp.w2.weight": (2 / (256 + 1024)) ** 0.5,
        "patch_embed.proj.weight": (2 / (48 + 256)) ** 0.5,
        "alpha_embed.mlp.0.weight": (2 / (256 + 256)) ** 0.5,
    }.items():
        values = parameters[name]
        # Five standard errors of a standard deviation, 1/√(2N) each: one false alarm in a million seeds, and one seed.
        assert abs(values.std() / deviation - 1) < 5 / (2 * values.numel()) ** 0.5, name
    assert parameters["blocks.0.attn.qkv.weight"].abs().max() <= (6 / (256 + 768)) ** 0.5
    assert all((p == 1).all() for name, p in parameters.items() if "norm" in name)


def test_a_network_without_styles_has_no_codebook():
    bare = make_generator("drift-dit without styles")
    assert not [name for name in bare.state_dict() if "style" in name]
    assert DriftDiTOptions(style_draws=0, style_entries=0).style_entries == 0


# ---- a noise vector ------------------------------------------------------------------------------------------------


def interpolate(grid, row, rows, column, columns):
    """Bilinear interpolation of a [D, 4, 4] grid at the middle of cell (row, column) of rows × columns."""

    def weights(k, cells):
        at = min(max((k + 0.5) * 4 / cells - 0.5, 0.0), 3.0)
        low = min(int(at), 2)
        return {low: 1 - (at - low), low + 1: at - low}

    down, across = weights(row, rows), weights(column, columns)
    return sum(a * b * grid[:, i, j] for i, a in down.items() for j, b in across.items())


def test_a_noise_vector_enters_every_patch_and_the_condition(monkeypatch):
    model = perturb(make_generator("drift-dit of a noise vector"))
    z, labels, strength, styles = inputs(model, 5)
    assert z.shape == (5, 5)
    weights = {name: value.detach() for name, value in model.named_parameters()}
    W, b, places = (weights[f"noise_embed.{name}"] for name in ("proj.weight", "proj.bias", "places.weight"))
    grids = (z @ W.T + b).view(5, 16, 4, 4)
    tokens = [[interpolate(g, i, 2, j, 3) + places[3 * i + j] for i in range(2) for j in range(3)] for g in grids]
    image = DriftDiT(
        dataclasses.replace(model.options, noise=None), sample_shape=model.sample_shape, classes=model.classes
    )
    image.load_state_dict(model.state_dict(), strict=False)  # all weights except those of the noise input
    image.patch_embed = Given(torch.stack([torch.stack(each) for each in tokens]))
    condition, M, m = image.condition, *(weights[f"noise_embed.modulation.{name}"] for name in ("weight", "bias"))
    monkeypatch.setattr(image, "condition", lambda *given: condition(*given) + z @ M.T + m)
    wanted = image(torch.zeros(5, 3, 4, 6), labels, strength, styles)
    torch.testing.assert_close(model(z, labels, strength, styles), wanted, rtol=1e-5, atol=1e-5)


def test_neighboring_patches_are_similar_at_the_start():
    """Otherwise every patch would have to learn from independent noise."""
    options = DriftDiTOptions(width=32, depth=1, heads=2, registers=1, noise=64)
    model = DriftDiT(options, sample_shape=(3, 32, 32), classes=2)
    z = torch.randn(200, 64, generator=torch.Generator().manual_seed(0))
    t = model.noise_embed(z).unflatten(1, (8, 8))
    near = torch.nn.functional.cosine_similarity(t[:, :, 1:], t[:, :, :-1], dim=-1).mean()
    far = torch.nn.functional.cosine_similarity(t[:, 0, 0], t[:, 7, 7], dim=-1).mean()
    assert near > 0.7
    assert abs(far) < 0.1


class Given(torch.nn.Module):
    def __init__(self, tokens):
        super().__init__()
        self.tokens = tokens

    def forward(self, z):
        return self.tokens


def test_a_network_with_a_noise_vector_cannot_be_published():
    with pytest.raises(
        UserError, match=r"takes a noise vector of dimension 5; published networks take a noise image; train one"
    ):
        make_generator("drift-dit of a noise vector").to_published()
    with pytest.raises(UserError, match=r"^noise is 0; "):
        DriftDiTOptions(noise=0)
