"""Published checkpoints: the tensors imply the size of the network, and every defect is named in one line."""

import pytest
import torch
from oracles.generator_zoo import inputs, perturb

from truedrift.generators import DriftDiT, DriftDiTOptions, load_published

OPTIONS = DriftDiTOptions(width=24, depth=3, heads=2, patch=2, registers=5, style_draws=32, style_entries=9)


def network(seed=0, **changes):
    options = DriftDiTOptions(**{**OPTIONS.__dict__, **changes})
    return perturb(DriftDiT(options, sample_shape=(2, 12, 12), classes=7), seed)


@pytest.fixture(scope="module")
def model():
    return network()


def outputs_agree(a, b):
    given = inputs(a, 4)
    return torch.equal(a(*given), b(*given))


@pytest.mark.parametrize("changes", [{}, {"style_draws": 0, "style_entries": 0}, {"registers": 0}, {"heads": 6}])
def test_publish_and_load_round_trip(changes):
    model = network(**changes)
    published = model.to_published()
    back = DriftDiT.from_published(published)
    assert back.options == model.options
    assert (back.sample_shape, back.classes) == ((2, 12, 12), 7)
    assert outputs_agree(model, back)
    again = back.to_published()
    assert list(again) == list(published)
    assert all(torch.equal(again[name], published[name]) for name in published)


def test_style_draws_come_from_the_caller_or_are_32():
    model = network(style_draws=8)
    published = model.to_published()
    back = DriftDiT.from_published(published, style_draws=8)
    assert back.options == model.options
    assert outputs_agree(model, back)
    again = back.to_published()
    assert list(again) == list(published)
    assert all(torch.equal(again[name], published[name]) for name in published)
    assert DriftDiT.from_published(published).options.style_draws == 32
    for style_draws, known in ((8, True), (None, False)):
        found = load_published(published, style_draws=style_draws)
        assert (found.generator.options.style_draws, found.style_draws_known) == (style_draws or 32, known)
    bare = network(style_draws=0, style_entries=0).to_published()
    assert load_published(bare).style_draws_known
    with pytest.raises(ValueError, match="style_draws is 8 and style_entries is 0; "):
        DriftDiT.from_published(bare, style_draws=8)


def test_published_names(model):
    names = set(model.to_published())
    block = ("norm1", "norm2", "attn.qkv", "attn.proj", "attn.q_norm", "attn.k_norm", "mlp.w1", "mlp.w2", "mlp.w3")
    for name in (*(f"blocks.2.{part}.weight" for part in block), "blocks.2.adaLN_modulation.1.bias"):
        assert name in names
    assert {"rope.inv_freq", "rope.cos_cached", "rope.sin_cached", "register_tokens"} <= names
    assert model.to_published()["rope.cos_cached"].shape == (1, 1, 36 + 5 + 64, 12)


@pytest.mark.parametrize("wrapper", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
def test_wrapper_prefixes_are_removed(model, wrapper):
    assert outputs_agree(
        model, DriftDiT.from_published({wrapper + name: t for name, t in model.to_published().items()})
    )


def test_half_precision_is_loaded_as_float32(model):
    back = DriftDiT.from_published({name: tensor.half() for name, tensor in model.to_published().items()})
    assert {parameter.dtype for parameter in back.parameters()} == {torch.float32}
    assert torch.equal(back.register_tokens, model.register_tokens.half().float())


def test_image_size_is_inferred_or_passed_or_32(model):
    bare = model.state_dict()
    assert DriftDiT.from_published(bare).sample_shape == (2, 32, 32)
    assert DriftDiT.from_published(bare, image_size=8).sample_shape == (2, 8, 8)
    assert DriftDiT.from_published(model.to_published(), image_size=8).sample_shape == (2, 8, 8)


DAMAGES = {
    "no patches": (lambda s: s.pop("patch_embed.proj.weight"), "^'patch_embed.proj.weight' is missing; "),
    "no heads": (lambda s: s.pop("blocks.0.attn.q_norm.weight"), "^'blocks.0.attn.q_norm.weight' is missing; "),
    "no bias": (
        lambda s: s.pop("patch_embed.proj.bias"),
        "^the tensors do not fit .*Missing key.*patch_embed.proj.bias",
    ),
    "no block": (
        lambda s: [s.pop(name) for name in list(s) if name.startswith("blocks.1.")],
        r"^the tensors do not fit .*Missing key.*blocks.1.norm1.weight",
    ),
    "too much": (
        lambda s: s.update({"decoder.weight": torch.zeros(1)}),
        "^the tensors do not fit .*Unexpected key.*decoder.weight",
    ),
    "wrong shape": (
        lambda s: s.update({"blocks.2.mlp.w1.weight": torch.zeros(90, 24)}),
        r"^the tensors do not fit .*blocks.2.mlp.w1.weight: .*\[90, 24\].*\[96, 24\]",
    ),
    "flat patches": (
        lambda s: s.update({"patch_embed.proj.weight": torch.zeros(24, 8)}),
        r"^'patch_embed.proj.weight' has shape \[24, 8\]; must have 4 dimensions",
    ),
    "odd head": (
        lambda s: s.update({"blocks.0.attn.q_norm.weight": torch.zeros(7)}),
        "^'blocks.0.attn.q_norm.weight' has 7 entries and the width is 24; ",
    ),
    "no classes": (
        lambda s: s.update({"label_embed.embedding_table.weight": torch.zeros(1, 24)}),
        "^classes is 0; ",
    ),
    "odd positions": (
        lambda s: s.update({"rope.cos_cached": torch.zeros(1, 1, 100, 12)}),
        "^'rope.cos_cached' has 100 positions and there are 5 registers; .*; pass the image size$",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_tensor_is_named(model, damage):
    state = model.to_published()
    change, message = DAMAGES[damage]
    change(state)
    with pytest.raises(ValueError, match=message) as caught:
        DriftDiT.from_published(state)
    assert str(caught.value).count("; ") == 2
    assert "\n" not in str(caught.value)


def add_prefix(prefix, state):
    return {f"{prefix}{name}": tensor for name, tensor in state.items()}


@pytest.mark.parametrize("prefix", ["ema.", "ema_model.", "ema.shadow.", "model_ema.module.", "state.EMA._orig_mod."])
def test_the_average_is_preferred(model, prefix):
    other = network(seed=5)
    step = {"optimizer.state.0.exp_avg": torch.zeros(3)}
    tensors = {**add_prefix("model.", other.to_published()), **add_prefix(prefix, model.state_dict()), **step}
    for weights, wanted in (("auto", model), ("ema", model), ("model", other)):
        found = load_published(tensors, weights=weights)
        assert outputs_agree(found.generator, wanted)
        assert found.averaged == (wanted is model)
        assert found.generator.sample_shape == (2, 12, 12)  # inferred from the network next to the average
        assert found.image_size_known
    assert not outputs_agree(model, other)


@pytest.mark.parametrize("prefix", ["", "model.", "state_dict.", "generator.module.", "schema."])
def test_one_set_of_weights(model, prefix):
    found = load_published(add_prefix(prefix, model.state_dict()))
    assert not found.averaged
    assert not found.image_size_known
    assert found.weights == prefix
    assert all(torch.equal(t, found.generator.state_dict()[name]) for name, t in model.state_dict().items())


def test_an_ambiguous_choice_of_weights_is_refused(model):
    state = model.to_published()
    with pytest.raises(ValueError, match=r"^the checkpoint holds the weights 'model' and weights is 'ema'; "):
        load_published(add_prefix("model.", state), weights="ema")
    both = {**add_prefix("student.", state), **add_prefix("teacher.", state)}
    with pytest.raises(ValueError, match=r"holds the weights 'student', 'teacher' and weights is 'auto'; "):
        load_published(both)
    with pytest.raises(ValueError, match=r"^'patch_embed.proj.weight' is missing among 1 tensors"):
        load_published({"conv.weight": torch.zeros(1)})
