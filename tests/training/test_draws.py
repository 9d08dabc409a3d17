"""What a step draws: a function of seed and step alone, with the distributions that are promised.

Statistical checks: each has a false-alarm rate of at most 1e-6 for a fresh seed (5 standard errors of a mean, or the
Dvoretzky-Kiefer-Wolfowitz bound 2 exp(−2Nε²) for a whole distribution), and the seeds are fixed.
"""

import dataclasses
import math

import pytest
import torch
from oracles.little_run import CPU, little_config

from truedrift import seeding
from truedrift.generators.catalog import build
from truedrift.generators.drift_dit import DriftDiTOptions
from truedrift.generators.mlp import MLPOptions
from truedrift.training import batch as module
from truedrift.training.batch import GeneratorInputs, draw_inputs, strengths, unconditional_weight

MLP = build(MLPOptions(width=8, depth=1, noise=3, embedding=4), sample_shape=(2,), classes=5, seed=0)
STYLED = build(
    DriftDiTOptions(width=16, depth=1, heads=2, patch=2, registers=0, style_draws=4, style_entries=6),
    sample_shape=(1, 4, 4),
    classes=5,
    seed=0,
)


def config_of(generated=4, unconditional=0, seed=3, **condition):
    batch = {"generated": generated, "unconditional": unconditional}
    return dataclasses.replace(little_config(batch=batch, condition=condition), seed=seed)


def equal(a, b):
    return [torch.equal(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(GeneratorInputs)]


def allowed_distance(count):
    """ε with 2 exp(−2Nε²) = 1e-6."""
    return math.sqrt(math.log(2e6) / (2 * count))


def distance_from(values, law):
    """sup |F_N − F|."""
    ordered = values.double().flatten().sort().values
    expected = law(ordered)
    N = len(ordered)
    above = torch.arange(1, N + 1, dtype=torch.float64) / N - expected
    below = expected - torch.arange(N, dtype=torch.float64) / N
    return float(torch.maximum(above, below).max())


# ---- a pure function -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("generator", [MLP, STYLED], ids=["mlp", "styles"])
def test_the_same_seed_and_step_draw_the_same(generator):
    torch.manual_seed(1)
    first = draw_inputs(config_of(), generator, 7)
    torch.manual_seed(2)  # global state has no say
    draw_inputs(config_of(), generator, 6)  # nor have other steps
    assert all(equal(draw_inputs(config_of(), generator, 7), first))


def test_another_seed_or_step_draws_anew():
    config = config_of(generated=64, label_dropout=0.5)
    for other in (
        draw_inputs(config, STYLED, 8),
        draw_inputs(config_of(generated=64, label_dropout=0.5, seed=4), STYLED, 7),
    ):
        assert not any(equal(draw_inputs(config, STYLED, 7), other))


def test_neither_rank_nor_world_size_is_asked(monkeypatch):
    """Distributed tests compare real processes; here nobody can even look."""
    assert not hasattr(module, "collectives")
    expected = draw_inputs(config_of(), STYLED, 3)
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "3"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    assert all(equal(draw_inputs(config_of(), STYLED, 3), expected))


def test_purposes_do_not_share_numbers():
    """Noise of one step against noise, styles and strengths of the same: uncorrelated. 5 standard errors of 1e4."""
    config = config_of(generated=2000)
    d = draw_inputs(config, MLP, 0)
    z, a = d.z[:, 0], (d.strength - 2.5) / math.sqrt(0.75)
    assert abs(float((z * a).mean())) < 5 / math.sqrt(len(z))
    hidden = torch.rand(10_000, generator=seeding.stream(3, "label-dropout", 0))
    assert not torch.equal(hidden, torch.rand(10_000, generator=seeding.stream(3, "strength", 0)))


def test_rows_are_by_global_sample_id():
    whole = draw_inputs(config_of(label_dropout=0.0), STYLED, 2)
    assert whole.labels.tolist() == [c for c in range(5) for _ in range(4)]
    parts = [whole.rows(start, end) for start, end in ((0, 6), (6, 13), (13, 20))]
    joined = GeneratorInputs(
        *(torch.cat([getattr(p, f.name) for p in parts]) for f in dataclasses.fields(GeneratorInputs))
    )
    assert all(equal(joined, whole))
    assert [len(part) for part in parts] == [6, 7, 7]


def test_dtypes_of_the_run():
    d = draw_inputs(config_of(), STYLED, 0)
    wide = d.to(CPU, torch.float64)
    assert (wide.z.dtype, wide.strength.dtype, wide.labels.dtype) == (torch.float64, torch.float64, torch.int64)
    assert torch.equal(wide.z.float(), d.z)  # the stream is that of float32


# ---- distributions -------------------------------------------------------------------------------------------------


def test_noise_is_standard_normal():
    z = draw_inputs(config_of(generated=4000), MLP, 0).z
    assert z.shape == (20_000, 3)
    assert distance_from(z, torch.special.ndtr) < allowed_distance(z.numel())
    assert distance_from(1.05 * z, torch.special.ndtr) > allowed_distance(z.numel())  # the control


def test_labels_are_hidden_at_the_rate_asked_for():
    config = config_of(generated=4000)
    assert config.condition.label_dropout == 0.1
    labels = draw_inputs(config, MLP, 0).labels
    share = float((labels == 5).float().mean())
    assert abs(share - 0.1) < 5 * math.sqrt(0.09 / 20_000)
    shown = labels != 5
    assert torch.equal(labels[shown], torch.arange(5).repeat_interleave(4000)[shown])
    for rate, expected in ((0.0, 0), (1.0, 20_000)):
        assert int((draw_inputs(config_of(generated=4000, label_dropout=rate), MLP, 0).labels == 5).sum()) == expected


def test_strength_is_uniform_one_a_sample():
    a = draw_inputs(config_of(generated=4000), MLP, 0).strength
    assert 1 <= float(a.min()) < float(a.max()) <= 4
    assert len(a.unique()) > 19_000
    assert distance_from(a, lambda v: (v - 1) / 3) < allowed_distance(len(a))


def test_strength_by_the_inverse_cube():
    """p(a) ∝ a⁻³ on [1, 4]: F(a) = (1 − a⁻²)/(1 − 1/16), mean 2 (1 − 1/4)/(1 − 1/16) = 1.6."""
    a = draw_inputs(config_of(generated=4000, strength_law="inverse-cube"), MLP, 0).strength
    assert 1 <= float(a.min()) < float(a.max()) <= 4.0001
    assert distance_from(a, lambda v: (1 - v**-2) / (1 - 1 / 16)) < allowed_distance(len(a))
    assert distance_from(a, lambda v: (v - 1) / 3) > 10 * allowed_distance(len(a))
    assert float(a.double().mean()) == pytest.approx(1.6, abs=5 * 0.66 / math.sqrt(20_000))


def test_styles_are_uniform_over_the_entries():
    ids = draw_inputs(config_of(generated=2000), STYLED, 0).style_ids
    assert ids.shape == (10_000, 4)
    counts = torch.bincount(ids.flatten(), minlength=6).double()
    assert len(counts) == 6
    error = math.sqrt(40_000 * (1 / 6) * (5 / 6))
    assert float((counts - 40_000 / 6).abs().max()) < 5.2 * error
    assert draw_inputs(config_of(), MLP, 0).style_ids.shape == (20, 0)


@pytest.mark.parametrize("law", ["uniform", "inverse-cube"])
def test_a_strength_alone_is_that_strength(law):
    config = config_of(strength_low=1.5, strength_high=1.5, strength_law=law)
    torch.testing.assert_close(draw_inputs(config, MLP, 0).strength, torch.full((20,), 1.5))


# ---- unconditional negatives ---------------------------------------------------------------------------------------


def test_with_unconditional_negatives_a_class_has_one_strength_and_its_weight_is_theirs():
    """w_u = (a − 1)(g − 1)/u, by hand for every class."""
    config = config_of(generated=4, unconditional=6)
    a = strengths(config, 5, 9).view(5, 4)
    assert (a == a[:, :1]).all()
    assert len(a[:, 0].unique()) == 5
    weights = unconditional_weight(config, 5, 9)
    for c in range(5):
        assert float(weights[c]) == pytest.approx((float(a[c, 0]) - 1) * 3 / 6, rel=1e-6)
        # together they weigh a − 1 times the g − 1 other generated samples of a query
        assert 6 * float(weights[c]) == pytest.approx((float(a[c, 0]) - 1) * 3, rel=1e-6)
    assert torch.equal(draw_inputs(config, MLP, 9).strength, a.flatten())


def test_strength_one_gives_them_no_weight():
    config = config_of(unconditional=6, strength_low=1.0, strength_high=1.0)
    assert unconditional_weight(config, 5, 0).tolist() == [0.0] * 5
