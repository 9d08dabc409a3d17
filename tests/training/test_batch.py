"""The inputs of a step: random draws as a function of seed and step, features of real images, and pixels as a scale.

Statistical checks: each has a false-alarm rate of at most 1e-6 for a fresh seed (5 standard errors of a mean, or the
Dvoretzky-Kiefer-Wolfowitz bound 2 exp(−2Nε²) for a whole distribution), and the seeds are fixed.
"""

import dataclasses
import math

import pytest
import torch
from oracles.small_run import CPU, build_small_step, convnet, gradient_vector, small_config, small_samples
from oracles.training_step import LiteralRun

from truedrift import distributed, encoders, generators, seeding
from truedrift.data import Batch, ClassBatches
from truedrift.data.class_batches import draw_classes
from truedrift.encoders import PixelsOptions
from truedrift.errors import UserError
from truedrift.generators import DriftDiTOptions, MLPOptions
from truedrift.progress import no_progress
from truedrift.training import GeneratorInputs, OnTheFlyFeatures, Parts, Positives, build_setup, draw_inputs
from truedrift.training import batch as batch_module

MLP = generators.build(MLPOptions(width=8, depth=1, noise=3, embedding=4), sample_shape=(2,), classes=5, seed=0)
STYLED = generators.build(
    DriftDiTOptions(width=16, depth=1, heads=2, patch=2, registers=0, style_draws=4, style_entries=6),
    sample_shape=(1, 4, 4),
    classes=5,
    seed=0,
)


def build_config(generated=4, unconditional=0, seed=3, **condition):
    batch = {"generated": generated, "unconditional": unconditional}
    return dataclasses.replace(small_config(batch=batch, condition=condition), seed=seed)


def compare_fields(a, b):
    return [torch.equal(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(GeneratorInputs)]


def allowed_distance(count):
    """ε with 2 exp(−2Nε²) = 1e-6."""
    return math.sqrt(math.log(2e6) / (2 * count))


def distribution_distance(values, law):
    """sup |F_N − F|."""
    ordered = values.double().flatten().sort().values
    expected = law(ordered)
    N = len(ordered)
    above = torch.arange(1, N + 1, dtype=torch.float64) / N - expected
    below = expected - torch.arange(N, dtype=torch.float64) / N
    return float(torch.maximum(above, below).max())


# ---- Reproducible draws ----


@pytest.mark.parametrize("generator", [MLP, STYLED], ids=["mlp", "styles"])
def test_same_seed_and_step_give_the_same_draws(generator):
    torch.manual_seed(1)
    first = draw_inputs(build_config(), generator, 7)
    torch.manual_seed(2)  # the global state has no effect
    draw_inputs(build_config(), generator, 6)  # nor have other steps
    assert all(compare_fields(draw_inputs(build_config(), generator, 7), first))


def test_other_seed_or_step_gives_other_draws():
    config = build_config(generated=64, label_dropout=0.5)
    for other in (
        draw_inputs(config, STYLED, 8),
        draw_inputs(build_config(generated=64, label_dropout=0.5, seed=4), STYLED, 7),
    ):
        assert not any(compare_fields(draw_inputs(config, STYLED, 7), other))


def test_draws_do_not_depend_on_rank_and_world_size(monkeypatch):
    """Tests of several processes compare real ones; here any request for the rank or the size fails."""
    expected = draw_inputs(build_config(), STYLED, 3)
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "3"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    for name in ("rank", "size", "row_range", "gather_rows"):
        monkeypatch.setattr(distributed, name, lambda *_: pytest.fail("the draws depend on the process"))
    assert all(compare_fields(draw_inputs(build_config(), STYLED, 3), expected))


def test_purposes_have_independent_random_streams():
    """Noise and strength of one step are uncorrelated, within 5 standard errors of 1e4 samples."""
    config = build_config(generated=2000)
    d = draw_inputs(config, MLP, 0)
    z, a = d.z[:, 0], (d.strength - 2.5) / math.sqrt(0.75)
    assert abs(float((z * a).mean())) < 5 / math.sqrt(len(z))
    hidden = torch.rand(10_000, generator=seeding.stream(3, "label-dropout", 0))
    assert not torch.equal(hidden, torch.rand(10_000, generator=seeding.stream(3, "strength", 0)))


def test_rows_are_indexed_by_global_sample_id():
    inputs = draw_inputs(build_config(label_dropout=0.0), STYLED, 2)
    assert inputs.labels.tolist() == [c for c in range(5) for _ in range(4)]
    parts = [inputs.rows(start, end) for start, end in ((0, 6), (6, 13), (13, 20))]
    joined = GeneratorInputs(
        *(torch.cat([getattr(p, f.name) for p in parts]) for f in dataclasses.fields(GeneratorInputs))
    )
    assert all(compare_fields(joined, inputs))
    assert [len(part) for part in parts] == [6, 7, 7]


@pytest.mark.parametrize("fresh", [False, True])
def test_samples_of_the_drawn_classes_only(fresh):
    """The labels are those of the classes whose positives the step has; the other draws are those of fewer classes."""
    batch = {"generated": 4, "labels": 2, "fresh_negatives": 3}
    config = small_config(batch=batch, condition={"label_dropout": 0.0})
    per_class = 3 if fresh else 4
    seen = set()
    for step in range(6):
        inputs = draw_inputs(config, STYLED, step, fresh=fresh)
        classes = draw_classes(5, 2, config.seed, step).classes
        assert inputs.labels.tolist() == [c for c in classes.tolist() for _ in range(per_class)]
        assert (inputs.z.shape, inputs.style_ids.shape) == ((2 * per_class, *STYLED.noise_shape), (2 * per_class, 4))
        assert inputs.strength.shape == (2 * per_class,)
        seen |= set(inputs.labels.tolist())
    assert seen == set(range(5))


def test_hidden_labels_of_drawn_classes_are_the_null_class():
    config = small_config(batch={"labels": 2}, condition={"label_dropout": 1.0})
    assert set(draw_inputs(config, MLP, 0).labels.tolist()) == {5}


def test_dtypes_of_the_run():
    d = draw_inputs(build_config(), STYLED, 0)
    wide = d.to(CPU, torch.float64)
    assert (wide.z.dtype, wide.strength.dtype, wide.labels.dtype) == (torch.float64, torch.float64, torch.int64)
    assert torch.equal(wide.z.float(), d.z)  # the stream is that of float32


# ---- Distributions ----


def test_noise_is_standard_normal():
    z = draw_inputs(build_config(generated=4000), MLP, 0).z
    assert z.shape == (20_000, 3)
    assert distribution_distance(z, torch.special.ndtr) < allowed_distance(z.numel())
    assert distribution_distance(1.05 * z, torch.special.ndtr) > allowed_distance(z.numel())  # negative control


def test_label_dropout_rate():
    config = build_config(generated=4000)
    assert config.condition.label_dropout == 0.1
    labels = draw_inputs(config, MLP, 0).labels
    share = float((labels == 5).float().mean())
    assert abs(share - 0.1) < 5 * math.sqrt(0.09 / 20_000)
    visible = labels != 5
    assert torch.equal(labels[visible], torch.arange(5).repeat_interleave(4000)[visible])
    for rate, expected in ((0.0, 0), (1.0, 20_000)):
        assert (
            int((draw_inputs(build_config(generated=4000, label_dropout=rate), MLP, 0).labels == 5).sum()) == expected
        )


def test_uniform_strength_per_sample():
    a = draw_inputs(build_config(generated=4000), MLP, 0).strength
    assert 1 <= float(a.min()) < float(a.max()) <= 4
    assert len(a.unique()) > 19_000
    assert distribution_distance(a, lambda v: (v - 1) / 3) < allowed_distance(len(a))


def test_inverse_cube_strength():
    """p(a) ∝ a⁻³ on [1, 4]: F(a) = (1 − a⁻²)/(1 − 1/16), mean 2 (1 − 1/4)/(1 − 1/16) = 1.6."""
    a = draw_inputs(build_config(generated=4000, strength_law="inverse-cube"), MLP, 0).strength
    assert 1 <= float(a.min()) < float(a.max()) <= 4.0001
    assert distribution_distance(a, lambda v: (1 - v**-2) / (1 - 1 / 16)) < allowed_distance(len(a))
    assert distribution_distance(a, lambda v: (v - 1) / 3) > 10 * allowed_distance(len(a))
    assert float(a.double().mean()) == pytest.approx(1.6, abs=5 * 0.66 / math.sqrt(20_000))


def test_inverse_fifth_strength():
    """p(a) ∝ a⁻⁵ on [1, 4]: F(a) = (1 − a⁻⁴)/(1 − 4⁻⁴), mean (4/3)(1 − 4⁻³)/(1 − 4⁻⁴) = 1.3176."""
    a = draw_inputs(build_config(generated=4000, strength_law="inverse-fifth"), MLP, 0).strength
    assert 1 <= float(a.min()) < float(a.max()) <= 4
    assert distribution_distance(a, lambda v: (1 - v**-4) / (1 - 4.0**-4)) < allowed_distance(len(a))
    assert distribution_distance(a, lambda v: (1 - v**-2) / (1 - 1 / 16)) > 10 * allowed_distance(len(a))
    mean = 4 / 3 * (1 - 4.0**-3) / (1 - 4.0**-4)
    deviation = math.sqrt(2 * (1 - 4.0**-2) / (1 - 4.0**-4) - mean**2)
    assert float(a.double().mean()) == pytest.approx(mean, abs=5 * deviation / math.sqrt(20_000))


@pytest.mark.parametrize(
    ("law", "distribution"),
    [
        ("uniform", lambda v: (v - 1) / 3),
        ("inverse-cube", lambda v: (1 - v**-2) / (1 - 1 / 16)),
        ("inverse-fifth", lambda v: (1 - v**-4) / (1 - 4.0**-4)),
    ],
)
def test_fraction_of_strengths_at_the_lowest(law, distribution):
    """A fraction f is exactly low, 5 standard errors of a mean; the others have the law."""
    for fraction in (0.25, 0.5):
        config = build_config(generated=4000, strength_law=law, strength_one_fraction=fraction)
        a = draw_inputs(config, MLP, 0).strength
        at_low = float((a == 1).double().mean())
        assert at_low == pytest.approx(fraction, abs=5 * math.sqrt(fraction * (1 - fraction) / len(a)))
        others = a[a > 1]
        assert distribution_distance(others, distribution) < allowed_distance(len(others))
        assert distribution_distance(a, distribution) > 10 * allowed_distance(len(a))  # negative control
    for fraction, expected in ((0.0, 0), (1.0, 20_000)):
        config = build_config(generated=4000, strength_law=law, strength_one_fraction=fraction)
        assert int((draw_inputs(config, MLP, 0).strength == 1).sum()) == pytest.approx(expected, abs=2)


def test_fraction_at_the_lowest_strength_is_of_the_labels_with_guidance():
    """With unconditional negatives a strength is drawn per class: half of the classes have no guidance."""
    config = build_config(unconditional=6, strength_one_fraction=0.5)
    a = batch_module.strengths(config, 4000, 0).view(4000, -1)
    assert (a == a[:, :1]).all()
    assert float((a[:, 0] == 1).double().mean()) == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(4000))
    assert torch.equal(batch_module.unconditional_weight(config, 4000, 0) == 0, a[:, 0] == 1)


def test_style_ids_are_uniform():
    ids = draw_inputs(build_config(generated=2000), STYLED, 0).style_ids
    assert ids.shape == (10_000, 4)
    counts = torch.bincount(ids.flatten(), minlength=6).double()
    assert len(counts) == 6
    error = math.sqrt(40_000 * (1 / 6) * (5 / 6))
    assert float((counts - 40_000 / 6).abs().max()) < 5.2 * error
    assert draw_inputs(build_config(), MLP, 0).style_ids.shape == (20, 0)


@pytest.mark.parametrize("law", ["uniform", "inverse-cube", "inverse-fifth"])
def test_equal_strength_bounds_give_that_strength(law):
    config = build_config(strength_low=1.5, strength_high=1.5, strength_law=law)
    torch.testing.assert_close(draw_inputs(config, MLP, 0).strength, torch.full((20,), 1.5))


# ---- Unconditional negatives ----


def test_strength_and_unconditional_weight_per_class():
    """w_u = (a − 1)(g − 1)/u for every class."""
    config = build_config(generated=4, unconditional=6)
    a = batch_module.strengths(config, 5, 9).view(5, 4)
    assert (a == a[:, :1]).all()
    assert len(a[:, 0].unique()) == 5
    weights = batch_module.unconditional_weight(config, 5, 9)
    for c in range(5):
        assert float(weights[c]) == pytest.approx((float(a[c, 0]) - 1) * 3 / 6, rel=1e-6)
        # their total weight is a − 1 times that of the g − 1 other generated samples of a query
        assert 6 * float(weights[c]) == pytest.approx((float(a[c, 0]) - 1) * 3, rel=1e-6)
    assert torch.equal(draw_inputs(config, MLP, 9).strength, a.flatten())


def test_unconditional_weight_is_0_at_strength_1():
    config = build_config(unconditional=6, strength_low=1.0, strength_high=1.0)
    assert batch_module.unconditional_weight(config, 5, 0).tolist() == [0.0] * 5


# ---- Features of real images ----


def encode(values):
    """Return two scales that differ between an image and its mirror image."""
    weight = torch.arange(64, dtype=values.dtype).view(8, 8)
    return (values.flatten(1)[:, :5], (values * weight).sum((1, 2, 3), keepdim=False).unsqueeze(1))


def encode_literally(samples, index, mirrored):
    image = samples.values[index].float() / 127.5 - 1
    image = image.flip(-1) if mirrored else image
    first, second = (group[0] for group in encode(image[None]))
    return torch.cat((first, second))


@pytest.fixture
def samples():
    return small_samples()


def build_positives(samples, at_once=None, unconditional=0, dtype=torch.float32):
    batches = ClassBatches(samples.labels, 3, n=5, seed=2, flips=samples.flips)
    return Positives(
        batches, OnTheFlyFeatures(samples, encode, device=CPU, dtype=dtype, at_once=at_once), unconditional
    )


@pytest.mark.parametrize("at_once", [None, 4])
def test_positives_are_images_of_their_class(samples, at_once):
    positives = build_positives(samples, at_once)
    features, batch = positives.at(3), positives.batches.at(3)
    assert features.shape == (3, 5, 6)
    assert 0 < int(batch.mirrored.sum()) < 15
    for c in range(3):
        for i in range(5):
            index = int(batch.indices[c, i])
            assert int(samples.labels[index]) == c
            expected = encode_literally(samples, index, bool(batch.mirrored[c, i]))
            torch.testing.assert_close(features[c, i], expected)


def test_unconditional_negatives_are_of_any_class(samples):
    positives = build_positives(samples, unconditional=9)
    features, batch = positives.unconditional(1), positives.batches.unconditional(1, 9)
    assert features.shape == (9, 6)
    assert len(samples.labels[batch.indices].unique()) == 3
    expected = [encode_literally(samples, int(i), bool(m)) for i, m in zip(batch.indices, batch.mirrored, strict=True)]
    torch.testing.assert_close(features, torch.stack(expected))


def test_features_have_the_dtype_of_the_run_and_at_least_float32(samples):
    assert build_positives(samples, dtype=torch.float64).at(0).dtype == torch.float64
    half = OnTheFlyFeatures(
        samples, lambda v: tuple(f.bfloat16() for f in encode(v)), device=CPU, dtype=torch.float32, at_once=3
    )
    assert half(Batch(torch.arange(4), torch.zeros(4, dtype=torch.bool))).dtype == torch.float32


def test_features_need_no_gradient_and_may_have_no_rows(samples):
    weight = torch.ones(1, requires_grad=True)
    lookup = OnTheFlyFeatures(
        samples, lambda v: (v.flatten(1) * weight,), device=CPU, dtype=torch.float32, at_once=None
    )
    assert not lookup(Batch(torch.arange(2), torch.zeros(2, dtype=torch.bool))).requires_grad
    assert lookup(Batch(torch.arange(0), torch.zeros(0, dtype=torch.bool))).shape == (0, 64)


# ---- Pixels as one more scale ----


WITH_PIXELS = {"pixels": True, "feature_scale": "mean-distance"}


@pytest.mark.parametrize("u", [0, 3], ids=["unguided", "guided"])
def test_gradients_with_pixels_equal_the_formulas(u):
    config = small_config(objective=WITH_PIXELS | {"estimator_neg": "standard"}, batch={"unconditional": u})
    config = dataclasses.replace(config, encoder=convnet(3, 5))
    step, samples = build_small_step(config), small_samples()
    encoder = encoders.build(config.encoder, sample_shape=samples.sample_shape).double()

    def encode_with_pixels(values):
        return (*encoder(values), values.flatten(1))

    run = LiteralRun(config, step.state.generator, encode_with_pixels, samples)
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(run.loss(1), run.theta)])
    assert float((gradient_vector(step, 1) - expected).norm() / expected.norm()) < 1e-8
    run.encode = encoder  # negative control
    without = torch.cat([g.flatten() for g in torch.autograd.grad(run.loss(1), run.theta)])
    assert float((without - expected).norm() / expected.norm()) > 0.05


def test_cached_and_encoded_features_have_the_same_pixels(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    features = []
    for cached in (True, False):
        config = small_config(objective=WITH_PIXELS, engine={"precision": "float32", "cached_positives": cached})
        features.append(build_setup(config, Parts(), small_samples(), CPU, no_progress).step.positives.at(0))
    cached_features, encoded_features = features
    assert len(list((tmp_path / "features").glob("*.npy"))) == 1
    assert cached_features.shape == encoded_features.shape
    assert torch.allclose(cached_features, encoded_features, atol=1e-5)
    assert torch.equal(cached_features[-1], encoded_features[-1])


def test_pixels_as_encoder_and_as_scale_are_rejected():
    config = dataclasses.replace(small_config(objective=WITH_PIXELS), encoder=PixelsOptions())
    with pytest.raises(UserError, match=r"objective.pixels is true with encoder.kind pixels; .*; leave it out"):
        build_small_step(config)
