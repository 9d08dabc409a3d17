"""A sample is a function of (seed, id), independent of the batch size and of other samples."""

import pytest
import torch
from oracles.generator_zoo import CLASSES, ZOO, make_generator, perturb

from truedrift.generators import draw_inputs, sample
from truedrift.seeding import stream

EVERY = pytest.mark.parametrize("name", ZOO)
LABELS = torch.arange(150) % (CLASSES + 1)


@EVERY
@pytest.mark.parametrize("batch", [1, 7, 64, 65, 1000])
def test_the_batch_size_does_not_matter(name, batch):
    # Matrix products of another shape round differently, depending on the processor; hence float64.
    generator = perturb(make_generator(name)).double()
    labels = LABELS if batch > 1 else LABELS[:9]
    wanted = sample(generator, labels, seed=3)
    assert wanted.shape == (len(labels), *generator.sample_shape)
    torch.testing.assert_close(sample(generator, labels, seed=3, batch=batch), wanted, rtol=1e-10, atol=1e-10)


@EVERY
def test_samples_do_not_depend_on_other_samples(name):
    generator = perturb(make_generator(name)).double()
    wanted = sample(generator, LABELS, seed=3)
    for first in (1, 63, 64, 100):
        part = sample(generator, LABELS[first : first + 40], seed=3, first_id=first)
        torch.testing.assert_close(part, wanted[first : first + 40], rtol=1e-10, atol=1e-10)
    shifted = sample(generator, LABELS[:40], seed=3, first_id=1)
    assert (shifted - wanted[:40]).abs().max() > 0.01  # the control: ids matter


@EVERY
def test_inputs_come_from_the_streams_of_their_blocks(name):
    generator = make_generator(name)
    z, style_ids = draw_inputs(generator, range(60, 140), seed=8)
    for i, at in ((60, 0), (63, 3), (64, 4), (139, 79)):
        numbers = stream(8, "sample", i // 64)
        noise = torch.randn(64, *generator.noise_shape, generator=numbers)
        styles = torch.randint(max(generator.style_entries, 1), (64, generator.style_draws), generator=numbers)
        assert torch.equal(z[at], noise[i % 64])
        assert torch.equal(style_ids[at], styles[i % 64])
    other, _ = draw_inputs(generator, range(60, 140), seed=9)
    assert not torch.equal(z, other)


def test_noise_is_normal_and_styles_are_uniform():
    generator = make_generator("drift-dit")
    z, style_ids = draw_inputs(generator, range(1000), seed=0)
    # 72 000 values: standard error 0.0037 of the mean and 0.0026 of the deviation; five of them.
    assert abs(z.mean()) < 0.019
    assert abs(z.std() - 1) < 0.014
    counts = torch.bincount(style_ids.flatten(), minlength=7)
    assert len(counts) == 7
    assert (counts - 5000 / 7).abs().max() < 5 * (5000 / 7) ** 0.5


def test_no_two_samples_share_their_noise():
    z, _ = draw_inputs(make_generator("mlp points"), range(500), seed=0)
    assert len(torch.unique(z, dim=0)) == 500


def test_strength_is_one_number_or_one_per_sample():
    generator = perturb(make_generator("drift-dit"))
    labels = LABELS[:10]
    one = sample(generator, labels, seed=0, strength=2.5)
    assert torch.equal(one, sample(generator, labels, seed=0, strength=torch.full((10,), 2.5)))
    mixed = sample(generator, labels, seed=0, strength=torch.tensor([2.5] * 5 + [1.0] * 5))
    torch.testing.assert_close(mixed[:5], one[:5])
    assert (mixed[5:] - one[5:]).abs().max() > 1e-3
    torch.testing.assert_close(mixed[5:], sample(generator, labels, seed=0)[5:])


def test_samples_are_float32_and_global_random_state_is_unchanged():
    generator = perturb(make_generator("mlp points")).double()
    before = torch.random.get_rng_state()
    x = sample(generator, LABELS, seed=0)
    assert (x.dtype, x.device.type, x.requires_grad) == (torch.float32, "cpu", False)
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(sample(generator, LABELS, seed=0, device="cpu"), x)
    assert sample(generator, LABELS[:0], seed=0).shape == (0, 2)


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (torch.tensor([0, 5]), {}, "^labels has values from 0 to 5; must be 0 to 3, or 4 for no label; "),
        (torch.tensor([-1, 2]), {}, "^labels has values from -1 to 2; "),
        (torch.tensor([0.0]), {}, r"^labels is torch.float32 \[1\]; "),
        (torch.zeros(2, 2, dtype=torch.long), {}, r"^labels is torch.int64 \[2, 2\]; "),
        ([0, 1], {}, "^labels is a list; "),
        (LABELS, {"batch": 0}, "^batch is 0; must be an integer ≥ 1; "),
        (LABELS, {"first_id": -1}, "^first_id is -1; must be an integer ≥ 0; "),
        (LABELS, {"strength": torch.ones(3)}, r"^strength has shape \[3\]; must be one number or have shape \[150\]; "),
    ],
)
def test_wrong_arguments_are_refused(labels, options, message):
    with pytest.raises(ValueError, match=message):
        sample(make_generator("mlp points"), labels, seed=0, **options)


def test_ids_must_be_consecutive():
    with pytest.raises(ValueError, match=r"^ids is range\(0, 9, 2\); "):
        draw_inputs(make_generator("mlp points"), range(0, 9, 2), seed=0)
