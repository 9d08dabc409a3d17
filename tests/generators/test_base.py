"""The contract of every generator: a pure function of its inputs, drawn from an explicit generator, in every dtype."""

import copy
import subprocess
import sys

import pytest
import torch
from oracles.generator_zoo import CLASSES, ZOO, inputs, make_generator, perturb

from truedrift.generators import OPTIONS, ConvOptions, DriftDiTOptions, Generator, MLPOptions, UNetOptions, build

EVERY = pytest.mark.parametrize("name", ZOO)


@EVERY
def test_output_shapes(name):
    generator = make_generator(name)
    assert isinstance(generator, Generator)
    x = generator(*inputs(generator, 6))
    assert x.shape == (6, *generator.sample_shape)
    assert x.dtype == torch.float32
    assert all(parameter.dtype == torch.float32 for parameter in generator.parameters())
    assert (generator.sample_shape, generator.classes) == (ZOO[name][1], CLASSES)


@EVERY
def test_a_sample_is_a_pure_function_of_its_inputs(name):
    generator = perturb(make_generator(name))
    given = inputs(generator, 6)
    before = torch.random.get_rng_state()
    first = generator(*given)
    torch.randn(17)
    generator.eval()
    assert torch.equal(generator(*given), first)  # independent of state, mode and other draws
    torch.random.set_rng_state(before)
    generator(*given)
    make_generator(name)
    assert torch.equal(torch.random.get_rng_state(), before)
    alone = torch.cat([generator(*(value[i : i + 1] for value in given)) for i in range(6)])
    torch.testing.assert_close(alone, first, rtol=1e-5, atol=1e-5)  # independent of the rest of the batch


@EVERY
def test_every_input_matters(name):
    generator = perturb(make_generator(name))
    z, labels, strength, style_ids = inputs(generator, 5)
    x = generator(z, labels, strength, style_ids)
    others = {
        "noise": (z + 0.5, labels, strength, style_ids),
        "label": (z, (labels + 1) % (CLASSES + 1), strength, style_ids),
        "strength": (z, labels, strength + 0.5, style_ids),
    }
    if generator.style_draws:
        others["style"] = (z, labels, strength, (style_ids + 1) % generator.style_entries)
    for what, given in others.items():
        moved = (generator(*given) - x).flatten(1).abs().amax(1)
        assert (moved > 1e-3).all(), what


@EVERY
def test_initialize_draws_every_parameter_from_the_given_generator(name):
    generator = make_generator(name)
    with torch.no_grad():
        for parameter in generator.parameters():
            parameter.fill_(torch.nan)
    before = torch.random.get_rng_state()
    generator.initialize(torch.Generator().manual_seed(3))
    first = [parameter.clone() for parameter in generator.parameters()]
    assert all(parameter.isfinite().all() for parameter in first)
    assert torch.equal(torch.random.get_rng_state(), before)
    generator.initialize(torch.Generator().manual_seed(3))
    assert all(torch.equal(a, b) for a, b in zip(first, generator.parameters(), strict=True))
    generator.initialize(torch.Generator().manual_seed(4))
    assert not all(torch.equal(a, b) for a, b in zip(first, generator.parameters(), strict=True))
    wide = make_generator(name).double()
    wide.initialize(torch.Generator().manual_seed(3))
    assert all(torch.equal(a.double(), b) for a, b in zip(first, wide.parameters(), strict=True))


@EVERY
def test_the_seed_determines_the_parameters(name):
    same, again, other = (dict(make_generator(name, seed).named_parameters()) for seed in (5, 5, 6))
    assert all(torch.equal(same[key], again[key]) for key in same)
    assert any(not torch.equal(same[key], other[key]) for key in same)


@EVERY
def test_float64_and_bfloat16_autocast_are_near_float32(name):
    generator = perturb(make_generator(name))
    given = inputs(generator, 4)
    x = generator(*given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = generator(*given).float()
    assert 0 < (rough - x).abs().max() < 0.1 * x.abs().max() + 0.05
    wide = generator.double()(*given)  # float32 inputs are accepted
    assert wide.dtype == torch.float64
    torch.testing.assert_close(wide.float(), x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["mlp images", "drift-dit", "conv", "unet"])
def test_compiles_without_graph_breaks_with_gradients(name):
    torch.compiler.reset()
    generator = perturb(make_generator(name))
    given = inputs(generator, 3)
    compiled = torch.compile(generator, fullgraph=True, backend="aot_eager")
    eager, traced = generator(*given), compiled(*given)
    torch.testing.assert_close(traced, eager, rtol=1e-5, atol=1e-6)
    parameters = list(generator.parameters())
    wanted = torch.autograd.grad(eager.square().sum(), parameters)
    found = torch.autograd.grad(traced.square().sum(), parameters)
    torch.compiler.reset()
    assert all(gradient.abs().max() > 0 for gradient in wanted)  # every parameter is used
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@EVERY
def test_functional_call_uses_the_parameters_given(name):
    generator, other = perturb(make_generator(name)), perturb(make_generator(name, 1), 2)
    given = inputs(generator, 3)
    found = torch.func.functional_call(generator, dict(other.named_parameters()), given)
    assert torch.equal(found, other(*given))
    assert not torch.equal(found, generator(*given))


@EVERY
def test_a_copy_is_independent(name):
    generator = perturb(make_generator(name))
    given = inputs(generator, 3)
    twin = copy.deepcopy(generator)
    assert torch.equal(twin(*given), generator(*given))
    perturb(generator, 9)
    assert not torch.equal(twin(*given), generator(*given))


@EVERY
@pytest.mark.parametrize("place", range(4))
def test_inputs_of_other_shapes_are_refused(name, place):
    generator = make_generator(name)
    given = list(inputs(generator, 3))
    given[place] = given[place][..., None]
    what = ("z", "labels", "strength", "style_ids")[place]
    with pytest.raises(ValueError, match=rf"^{what} has shape \[3.*; must have shape \[3.*; pass one row per sample"):
        generator(*given)


def test_labels_must_be_integers():
    generator = make_generator("mlp points")
    z, labels, strength, style_ids = inputs(generator, 3)
    with pytest.raises(ValueError, match=r"^labels has dtype torch.float32; must be int64; call \.long"):
        generator(z, labels.float(), strength, style_ids)


def test_mlp_images_are_in_range_and_points_are_unbounded():
    images, points = make_generator("mlp images"), make_generator("mlp points")
    with torch.no_grad():
        images.last.weight.mul_(100)
        points.last.weight.mul_(100)
    assert images(*inputs(images, 50)).abs().max() <= 1
    assert points(*inputs(points, 50)).abs().max() > 2


def test_the_mlp_starts_where_tanh_is_not_flat():
    generator = build(MLPOptions(), sample_shape=(1, 8, 8), classes=10, seed=0)
    deviation = generator(*inputs(generator, 200)).std()
    assert 0.3 < deviation < 0.6  # tanh of N(0, ½²) has 0.42


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (MLPOptions, {"width": 0}, "^width is 0; must be an integer ≥ 1; "),
        (MLPOptions, {"depth": 1.5}, "^depth is 1.5; "),
        (MLPOptions, {"noise": True}, "^noise is True; "),
        (MLPOptions, {"embedding": 5}, "^embedding is 5; must be even"),
        (DriftDiTOptions, {"heads": -1}, "^heads is -1; "),
        (DriftDiTOptions, {"patch": "4"}, "^patch is '4'; "),
        (DriftDiTOptions, {"registers": -1}, "^registers is -1; must be an integer ≥ 0; "),
        (DriftDiTOptions, {"width": 30, "heads": 6}, "^width is 30 and heads is 6; "),  # RoPE needs pairs
        (DriftDiTOptions, {"style_draws": 0}, "^style_draws is 0 and style_entries is 64; "),
        (ConvOptions, {"widths": ()}, r"^widths is \(\); must be one or more integers; "),
        (ConvOptions, {"widths": (8, 0)}, r"^widths\[1\] is 0; must be an integer ≥ 1; "),
        (ConvOptions, {"noise": 0}, "^noise is 0; "),
        (ConvOptions, {"embedding": 3}, "^embedding is 3; must be even"),
        (UNetOptions, {"multipliers": ()}, r"^multipliers is \(\); must be one or more integers; "),
        (UNetOptions, {"multipliers": (1, -2)}, r"^multipliers\[1\] is -2; "),
        (UNetOptions, {"blocks": 0}, "^blocks is 0; must be an integer ≥ 1; "),
        (UNetOptions, {"condition": 7}, "^condition is 7; must be even"),
    ],
)
def test_options_are_checked(kind, values, message):
    with pytest.raises(ValueError, match=message):
        kind(**values)


@pytest.mark.parametrize(
    ("options", "shape", "classes", "message"),
    [
        (MLPOptions(), (), 2, r"^sample_shape is \(\); "),
        (MLPOptions(), (8, 8), 2, r"^sample_shape is \(8, 8\); must be \(D,\)"),
        (MLPOptions(), (1, 8, 0), 2, r"^sample_shape is \(1, 8, 0\); "),
        (MLPOptions(), (1,) * 20_000, 2, r"^sample_shape has 20000 entries; must be \(D,\)"),
        (MLPOptions(), (1, 10**9, 10**9), 2, r"^sample_shape is \(1, 10+, 10+\); must have at most 67,108,864 numbers"),
        (MLPOptions(), (2,), 0, "^classes is 0; must be an integer ≥ 1; "),
        (DriftDiTOptions(), (2,), 2, r"^patch is 4 and sample_shape is \(2,\); .*; .*an MLP"),
        (DriftDiTOptions(), (3, 32, 30), 2, r"^patch is 4 and sample_shape is \(3, 32, 30\); "),
        (
            ConvOptions(),
            (2,),
            2,
            r'^sample_shape is \(2,\); the generator "conv" makes images \(C, H, W\); use .*"mlp"',
        ),
        (
            UNetOptions(),
            (2,),
            2,
            r'^sample_shape is \(2,\); the generator "unet" makes images \(C, H, W\); use .*"mlp"',
        ),
        (
            {"width": 3},
            (2,),
            2,
            "^options is a dict; must be one of MLPOptions, ConvOptions, UNetOptions, DriftDiTOptions; ",
        ),
    ],
)
def test_impossible_sizes_are_refused(options, shape, classes, message):
    with pytest.raises(ValueError, match=message):
        build(options, sample_shape=shape, classes=classes, seed=0)


def test_the_catalog_lists_every_generator():
    assert {"mlp": MLPOptions, "conv": ConvOptions, "unet": UNetOptions, "drift-dit": DriftDiTOptions} == OPTIONS
    assert {options.kind for options, _ in ZOO.values()} == set(OPTIONS)  # every one passes the tests of this file
    assert all(options().kind == name for name, options in OPTIONS.items())


ALONE = """
import sys

requested = set()

class Block:
    def find_spec(self, name, path=None, target=None):
        requested.add(name)
        if name.partition(".")[0] in {"huggingface_hub", "safetensors"}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Block())
import torch, truedrift
assert not {"huggingface_hub", "safetensors"} & requested, requested
from truedrift.generators import MLP, MLPOptions, sample

generator = MLP(MLPOptions(width=8), sample_shape=(2,), classes=1)
print(tuple(sample(generator, torch.zeros(3, dtype=torch.long), seed=0).shape))
try:
    assert "huggingface_hub" in requested
    generator.save_pretrained("nowhere")
except ValueError as error:
    print(error)
"""


def test_networks_need_torch_alone_and_only_saving_needs_the_hub(tmp_path):
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    shape, message = done.stdout.splitlines()
    assert shape == "(3, 2)"
    assert message.startswith("huggingface_hub is not installed; ")
    assert not list(tmp_path.iterdir())
