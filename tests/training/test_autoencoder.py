"""The masked autoencoder: its batches, its masks and its loss, against literal loops."""

import pytest
import torch
from torch.nn import functional as F

from truedrift.data.samples import Samples, to_model_range
from truedrift.encoders import ResNetOptions
from truedrift.training.autoencoder import (
    AutoencoderOptions,
    ImageBatch,
    MaskedAutoencoder,
    autoencoder_loss,
    draw_batch,
    draw_mask,
    shift_images,
)

SHAPE = (2, 12, 10)
STILL = AutoencoderOptions(batch=4, shift=0)


def make_samples(count=11, *, flips=False):
    """Return images whose pixels are all different within an image, with the number of the image in one corner."""
    values = torch.randint(256, (count, *SHAPE), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    values[:, 0, 0, 0] = torch.arange(count)
    return Samples(values, torch.arange(count) % 3, ("a", "b", "c"), "made", flips=flips)


def make_network(**options):
    return MaskedAutoencoder(ResNetOptions(width=8, blocks=(1, 1, 1)), sample_shape=SHAPE, classes=3, seed=0, **options)


def test_a_batch_is_a_function_of_seed_and_step():
    samples, options = make_samples(flips=True), AutoencoderOptions(batch=5)
    a, b = (draw_batch(samples, options, seed=3, step=7) for _ in range(2))
    for x, y in zip(a, b, strict=True):
        assert torch.equal(x, y)
    for other in (draw_batch(samples, options, seed=4, step=7), draw_batch(samples, options, seed=3, step=8)):
        assert not torch.equal(a.images, other.images)
        assert not torch.equal(a.mask, other.mask)


def test_a_small_data_set_is_a_whole_batch():
    for size, count in ((3, 3), (11, 11), (20, 11)):
        options = AutoencoderOptions(batch=size)
        assert options.images_per_step(11) == count
        assert len(draw_batch(make_samples(11), options, seed=0, step=2).images) == count


def test_a_pass_repeats_no_image_and_keeps_labels():
    samples = make_samples()
    batches = [draw_batch(samples, STILL, seed=0, step=step) for step in range(2)]  # 11 // 4 steps per pass
    numbers = torch.cat([((batch.images[:, 0, 0, 0] + 1) * 127.5).round().long() for batch in batches])
    assert len(set(numbers.tolist())) == 8
    assert torch.equal(samples.labels[numbers], torch.cat([batch.labels for batch in batches]))
    for batch, ids in zip(batches, numbers.split(4), strict=True):
        assert torch.equal(batch.images, to_model_range(samples.values[ids]))


def test_images_are_mirrored_only_if_the_data_set_allows_it():
    plain, flipped = (
        torch.cat([draw_batch(make_samples(flips=flips), STILL, seed=0, step=step).images for step in range(20)])
        for flips in (False, True)
    )
    pairs = list(zip(plain, flipped, strict=True))
    same = torch.tensor([torch.equal(a, b) for a, b in pairs])
    mirrored = torch.tensor([torch.equal(a, b.flip(-1)) for a, b in pairs])
    assert (same ^ mirrored).all()
    assert 20 <= mirrored.sum() <= 60  # 80 fair coins: outside with probability 3e-6


def test_shifted_images_repeat_their_border():
    images = torch.arange(2 * 3 * 4 * 5).view(2, 3, 4, 5)
    found = shift_images(images, torch.tensor([[1, -2], [0, 3]]))
    for b, (dy, dx) in enumerate([(1, -2), (0, 3)]):
        for y in range(4):
            for x in range(5):
                source = images[b, :, min(max(y + dy, 0), 3), min(max(x + dx, 0), 4)]
                assert torch.equal(found[b, :, y, x], source)


def test_small_data_sets_and_whole_passes():
    batch = draw_batch(make_samples(3), AutoencoderOptions(batch=64), seed=0, step=5)
    assert sorted(batch.labels.tolist()) == [0, 1, 2]


@pytest.mark.parametrize(("patch", "masked"), [(2, 0.5), (3, 0.2), (1, 1.0)])
def test_masks_are_whole_patches_drawn_independently(patch, masked):
    options = AutoencoderOptions(patch=patch, masked=masked)
    mask = draw_mask(400, (12, 10), options, torch.Generator().manual_seed(0))
    assert mask.shape == (400, 1, 12, 10)
    corners = mask[..., ::patch, ::patch]
    for y in range(12):
        for x in range(10):
            assert torch.equal(mask[..., y, x], corners[..., y // patch, x // patch])
    # Every patch is masked as often as it should be, within five standard errors.
    limit = 5 * (masked * (1 - masked) / 400) ** 0.5
    assert (corners.float().mean(0) - masked).abs().max() <= limit
    if masked < 1:
        pairs = corners.float().flatten(1).T.corrcoef() - torch.eye(corners[0].numel())
        assert pairs.abs().max() < 5 / 400**0.5


def test_the_loss_is_that_of_a_loop():
    network = make_network()
    with torch.no_grad():
        network.head.weight.normal_(generator=torch.Generator().manual_seed(1))
    batch = draw_batch(make_samples(), AutoencoderOptions(batch=5), seed=0, step=0)
    found = autoencoder_loss(network, batch, 0.3)
    # Set masked pixels to 0 and complete the image.
    visible = batch.images.clone()
    for b in range(5):
        for y in range(12):
            for x in range(10):
                if batch.mask[b, 0, y, x]:
                    visible[b, :, y, x] = 0
    completed, logits = network(visible)
    errors = [
        (completed[b, c, y, x] - batch.images[b, c, y, x]).square()
        for b in range(5)
        for c in range(2)
        for y in range(12)
        for x in range(10)
        if batch.mask[b, 0, y, x]
    ]
    torch.testing.assert_close(found.reconstruction, torch.stack(errors).mean())
    torch.testing.assert_close(found.classification, F.cross_entropy(logits, batch.labels))
    torch.testing.assert_close(found.loss, found.reconstruction + 0.3 * found.classification)
    assert found.accuracy.item() == pytest.approx((logits.argmax(1) == batch.labels).float().mean().item())


def test_hidden_pixels_do_not_reach_the_network():
    """What is masked changes the target only, and what is visible changes the completion."""
    network = make_network()
    batch = draw_batch(make_samples(), AutoencoderOptions(batch=3), seed=0, step=0)
    seen = []
    network.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].clone()))
    for where in (batch.mask, ~batch.mask):
        autoencoder_loss(network, ImageBatch(batch.images + 0.5 * where, batch.labels, batch.mask), 0.0)
    autoencoder_loss(network, batch, 0.0)
    assert torch.equal(seen[0], seen[2])
    assert not torch.equal(seen[1], seen[2])


def test_the_classifier_gets_a_gradient_only_with_a_weight():
    batch = draw_batch(make_samples(), AutoencoderOptions(batch=4), seed=0, step=0)
    for weight in (0.0, 0.1):
        network = make_network()
        autoencoder_loss(network, batch, weight).loss.backward()
        assert (network.head.bias.grad is not None) == (weight > 0)
        assert all(each.grad is not None and each.grad.any() for each in network.decoder.parameters())
        assert all(each.grad is not None for each in network.encoder.parameters())


def test_nothing_masked_gives_a_finite_loss():
    batch = draw_batch(make_samples(), STILL, seed=0, step=0)
    empty = batch._replace(mask=torch.zeros_like(batch.mask))
    assert autoencoder_loss(make_network(), empty, 0.0).loss.item() == 0


def test_initial_weights_are_a_function_of_the_seed_and_leave_the_global_state():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    a, b = make_network(), make_network()
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


def make_slopes(count=500):
    """Return images whose brightness is a linear function of the position: their visible half says the rest."""
    slopes = torch.rand(count, 3, 1, 1, generator=torch.Generator().manual_seed(0)) * 2 - 1
    line = torch.linspace(-1, 1, 8)
    bright = (slopes[:, :1] * line + slopes[:, 1:2] * line[:, None] + slopes[:, 2:]) / 3
    return Samples((127.5 + 127.5 * bright).to(torch.uint8), torch.zeros(count).long(), ("all",), "slopes", flips=True)


def test_images_are_completed_better_than_by_their_mean():
    """The mean of the data is the best completion that ignores the image."""
    samples, options = make_slopes(), AutoencoderOptions(batch=32, shift=0)
    network = MaskedAutoencoder(ResNetOptions(width=8, blocks=(1, 1)), sample_shape=(1, 8, 8), classes=1, seed=0)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    for step in range(60):
        optimizer.zero_grad()
        autoencoder_loss(network, draw_batch(samples, options, seed=0, step=step), 0.0).loss.backward()
        optimizer.step()
    batch = draw_batch(samples, options, seed=1, step=0)
    with torch.no_grad():
        found = autoencoder_loss(network, batch, 0.0).loss.item()
    mean = to_model_range(samples.values).mean(0)
    baseline = ((batch.images - mean).square() * batch.mask).sum().item() / batch.mask.sum().item()
    assert found < 0.75 * baseline
