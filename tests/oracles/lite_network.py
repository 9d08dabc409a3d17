"""EfficientNet-Lite0 layer by layer, as it is described: nothing folded, padding written out, double precision."""

import torch
from torch.nn import functional as F

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
# kernel, stride, widened, out of each block, written out once more
LAYERS = [
    (3, 1, 32, 16),
    *[(3, 2, 96, 24), (3, 1, 144, 24)],
    *[(5, 2, 144, 40), (5, 1, 240, 40)],
    *[(3, 2, 240, 80), (3, 1, 480, 80), (3, 1, 480, 80)],
    *[(5, 1, 480, 112), (5, 1, 672, 112), (5, 1, 672, 112)],
    *[(5, 2, 672, 192), (5, 1, 1152, 192), (5, 1, 1152, 192), (5, 1, 1152, 192)],
    (3, 1, 1152, 320),
]


def random_weights():
    """Every convolution and norm of the network, asymmetric, on a scale that keeps activations of order 1."""
    generator = torch.Generator().manual_seed(3)
    weights = {}

    def layer(convolution, norm, *shape):
        fan_in = shape[1] * shape[2] * shape[3]
        weights[f"{convolution}.weight"] = torch.randn(*shape, generator=generator) * (2 / fan_in) ** 0.5
        for name, low, high in (("weight", 0.6, 1.4), ("bias", -0.3, 0.8), ("running_mean", -0.2, 0.2)):
            weights[f"{norm}.{name}"] = low + (high - low) * torch.rand(shape[0], generator=generator)
        weights[f"{norm}.running_var"] = 0.5 + torch.rand(shape[0], generator=generator)
        weights[f"{norm}.num_batches_tracked"] = torch.tensor(9)

    layer("_conv_stem", "_bn0", 32, 3, 3, 3)
    inputs = 32
    for i, (kernel, _, wide, outputs) in enumerate(LAYERS):
        if i > 0:
            layer(f"_blocks.{i}._expand_conv", f"_blocks.{i}._bn0", wide, inputs, 1, 1)
        layer(f"_blocks.{i}._depthwise_conv", f"_blocks.{i}._bn1", wide, 1, kernel, kernel)
        layer(f"_blocks.{i}._project_conv", f"_blocks.{i}._bn2", outputs, wide, 1, 1)
        inputs = outputs
    return weights


def literal_maps(values, weights, side):
    """Resize, then normalize; TensorFlow's "same" padding; batch norm by its formula; all in double precision."""
    w = {name: tensor.double() for name, tensor in weights.items()}

    def same(values, kernel, stride, groups=1):
        k, side = kernel.shape[-1], values.shape[-1]
        total = max((-(-side // stride) - 1) * stride + k - side, 0)
        padding = (total // 2, total - total // 2) * 2
        return F.conv2d(F.pad(values, padding), kernel, stride=stride, groups=groups)

    def norm(values, name):
        return F.batch_norm(
            values,
            w[f"{name}.running_mean"],
            w[f"{name}.running_var"],
            w[f"{name}.weight"],
            w[f"{name}.bias"],
            eps=1e-3,
        )

    values = F.interpolate((values.double() + 1) / 2, (side, side), mode="bilinear", align_corners=False)
    h = norm(same((values - MEAN.double()) / STD.double(), w["_conv_stem.weight"], 2), "_bn0").clamp(0, 6)
    maps = []
    for i, (_, stride, wide, _) in enumerate(LAYERS):
        before, block = h, f"_blocks.{i}."
        if i > 0:
            h = norm(F.conv2d(h, w[f"{block}_expand_conv.weight"]), f"{block}_bn0").clamp(0, 6)
        h = norm(same(h, w[f"{block}_depthwise_conv.weight"], stride, wide), f"{block}_bn1").clamp(0, 6)
        h = norm(F.conv2d(h, w[f"{block}_project_conv.weight"]), f"{block}_bn2")
        h = h + before if h.shape == before.shape else h
        maps.append(h)
    return maps
