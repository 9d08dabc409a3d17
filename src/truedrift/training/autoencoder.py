"""The masked autoencoder that trains an encoder, its batches and its loss.

    x' = x · (1 − m)                                 patches of 2×2 pixels set to 0, each with probability ½
    L  = Σ m (decoder(encoder(x')) − x)² / Σ m       ℓ₂ on the masked patches only
       + λ · cross-entropy(head(mean of the last map of encoder(x')), class)       optional, after the first steps

The encoder is a `truedrift.encoders.resnet.ResNet`. The decoder starts from the smallest map and doubles its size, with
one 3×3 convolution per size, up to the image. It sees no other map: what the image needs has to pass through the last
stage. Images are mirrored, where the data set allows it, and shifted by a few pixels. All random numbers of a step are
functions of (seed, step).

Reference: He et al., Masked autoencoders are scalable vision learners, 2022, with the masks of the official code of
drifting for a convolutional encoder.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from truedrift.axes import Bool, Float, Int, Tensor
from truedrift.data.class_batches import Batch, gather_samples
from truedrift.data.samples import Samples, to_model_range
from truedrift.encoders.resnet import ResNet, ResNetOptions, group_norm, initialize_weights
from truedrift.options import Within
from truedrift.seeding import stream

# ---- Network ----


class MaskedAutoencoder(nn.Module):
    """Encoder, decoder and a linear classifier of the mean of the last map.

    Args:
        options: Size of the encoder.
        sample_shape: (C, H, W).
        classes: Number of classes.
        seed: Seed of the initial weights.
    """

    def __init__(self, options: ResNetOptions, *, sample_shape: Sequence[int], classes: int, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):  # layers draw weights, which are drawn again below
            self.encoder = ResNet(sample_shape[0], options)
            self.decoder = Decoder(options.channels[1:], sample_shape[0])
            self.head = nn.Linear(options.channels[-1], classes)
        initialize_weights(self, stream(seed, "autoencoder"))
        nn.init.zeros_(self.head.weight)  # the first prediction is uniform

    def forward(self, masked: Float[Tensor, "B C H W"]) -> tuple[Float[Tensor, "B C H W"], Float[Tensor, "B K"]]:
        """Return the images that the masked ones are completed to, and one logit per class."""
        maps = self.encoder(masked)
        sizes = [tuple(each.shape[-2:]) for each in maps]
        return self.decoder(maps[-1], sizes[-2::-1]), self.head(maps[-1].mean((-2, -1)))


class Decoder(nn.Module):
    """Last map → image: convolution, norm, relu and bilinear upsampling per stage, then one more convolution."""

    def __init__(self, widths: Sequence[int], channels: int) -> None:
        super().__init__()
        outputs = [*reversed(widths[:-1]), widths[0]]
        pairs = zip(reversed(widths), outputs, strict=True)
        self.convs = nn.ModuleList(nn.Conv2d(inside, outside, 3, padding=1, bias=False) for inside, outside in pairs)
        self.norms = nn.ModuleList(map(group_norm, outputs))
        self.last = nn.Conv2d(widths[0], channels, 3, padding=1)

    def forward(self, h: Float[Tensor, "B C h w"], sizes: Sequence[tuple[int, ...]]) -> Float[Tensor, "B C2 H W"]:
        """Return the image; `sizes` are those of the maps before the last one, in reverse order."""
        for conv, norm, size in zip(self.convs, self.norms, sizes, strict=True):
            h = F.relu(norm(conv(h)))
            if h.shape[-2:] != size:
                h = F.interpolate(h, size, mode="bilinear", align_corners=False)
        return self.last(h)


# ---- Batch ----


@dataclass(frozen=True, kw_only=True)
class AutoencoderOptions:
    """The images of a step and the loss."""

    batch: Annotated[int, Within(1, 65_536)] = 64
    """Images per step; all images of the data set if there are fewer."""
    patch: Annotated[int, Within(1, 64)] = 2
    """Side of the masked patches in pixels."""
    masked: Annotated[float, Within(0, 1, above=True)] = 0.5
    """Probability of a patch to be masked."""
    shift: Annotated[int, Within(0, 64)] = 2
    """Images are shifted by up to this many pixels in each direction."""
    classifier_weight: Annotated[float, Within(0, 1000, above=True)] = 0.1
    """λ, the weight of the cross-entropy in the classifier steps."""

    def images_per_step(self, images: int) -> int:
        """Return the number of images of a step: `batch`, or all images of the data set if there are fewer."""
        return min(self.batch, images)


class ImageBatch(NamedTuple):
    """The images of a step, in [−1, 1], with their classes and masks; True is masked."""

    images: Float[Tensor, "B C H W"]
    labels: Int[Tensor, " B"]
    mask: Bool[Tensor, "B 1 H W"]


def draw_batch(samples: Samples, options: AutoencoderOptions, *, seed: int, step: int) -> ImageBatch:
    """Draw the images of a step. A pass through the data set repeats no image.

    Args:
        samples: The images.
        options: Size of the batch, masks and shifts.
        seed: Seed of the run.
        step: Number of the step, counted from 0.

    Returns:
        The batch, a function of the arguments. It has as many images as the data set if that is smaller.

    Example:
        >>> from truedrift.data import load
        >>> batch = draw_batch(load("digits"), AutoencoderOptions(batch=5), seed=0, step=7)
        >>> batch.images.shape, batch.labels.shape, batch.mask.shape
        (torch.Size([5, 1, 8, 8]), torch.Size([5]), torch.Size([5, 1, 8, 8]))
    """
    # Positions in the permutation of this pass.
    count = options.images_per_step(len(samples))
    number, slot = divmod(step, len(samples) // count)
    order = torch.randperm(len(samples), generator=stream(seed, "encoder images", number))
    chosen = order[slot * count : (slot + 1) * count]
    # Mirror and shift.
    numbers = stream(seed, "encoder augmentation", step)
    mirrored = (torch.rand(count, generator=numbers) < 0.5) & samples.flips
    shifts = torch.randint(-options.shift, options.shift + 1, (count, 2), generator=numbers)
    images = shift_images(gather_samples(samples.values, Batch(chosen, mirrored)), shifts)
    # Mask.
    mask = draw_mask(count, images.shape[-2:], options, stream(seed, "encoder masks", step))
    return ImageBatch(to_model_range(images), samples.labels[chosen], mask)


def shift_images(images: Tensor, shifts: Int[Tensor, "B 2"]) -> Tensor:
    """Move each image [B, C, H, W] up and left by its numbers of pixels; pixels at the border are repeated.

    Example:
        >>> shift_images(torch.tensor([[[[1, 2, 3]]]]), torch.tensor([[0, 1]])).flatten()
        tensor([2, 3, 3])
    """
    height, width = images.shape[-2:]
    rows = (torch.arange(height) + shifts[:, :1]).clamp(0, height - 1)
    columns = (torch.arange(width) + shifts[:, 1:]).clamp(0, width - 1)
    each = torch.arange(len(images))[:, None, None]
    return images[each, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def draw_mask(
    count: int, size: Sequence[int], options: AutoencoderOptions, generator: torch.Generator
) -> Bool[Tensor, "B 1 H W"]:
    """Mask every patch of every image with the probability `options.masked`; a patch at the border may be smaller."""
    height, width = size
    side = options.patch
    patches = torch.rand(count, 1, -(-height // side), -(-width // side), generator=generator) < options.masked
    return patches.repeat_interleave(side, -2).repeat_interleave(side, -1)[..., :height, :width]


# ---- Loss ----


class AutoencoderLoss(NamedTuple):
    """The loss of a step, its parts, and the fraction of masked images that the classifier gets right."""

    loss: Tensor
    reconstruction: Tensor
    classification: Tensor
    accuracy: Tensor


def autoencoder_loss(network: nn.Module, batch: ImageBatch, classifier_weight: float) -> AutoencoderLoss:
    """Compute the loss of a batch.

    Args:
        network: A `MaskedAutoencoder`.
        batch: Images, classes and masks on the device of the network.
        classifier_weight: λ; with 0 the classifier gets no gradient.

    Returns:
        The loss with its parts.
    """
    masked = batch.images.masked_fill(batch.mask, 0.0)
    completed, logits = network(masked)
    square = (completed - batch.images).square() * batch.mask
    reconstruction = square.sum() / (batch.mask.sum() * batch.images.shape[1]).clamp_min(1)
    classification = F.cross_entropy(logits, batch.labels)
    loss = reconstruction + classifier_weight * classification if classifier_weight > 0 else reconstruction
    accuracy = (logits.argmax(1) == batch.labels).float().mean()
    return AutoencoderLoss(loss, reconstruction, classification, accuracy)
