"""Normalization and size of images against the literal formulas."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from truedrift.encoders import preprocessing


def test_normalization_uses_the_imagenet_statistics():
    values = torch.tensor([-1.0, 0.0, 1.0]).view(1, 3, 1, 1)  # red 0, green 1/2, blue 1
    expected = torch.tensor([(0 - 0.485) / 0.229, (0.5 - 0.456) / 0.224, (1 - 0.406) / 0.225])
    torch.testing.assert_close(preprocessing.ImageNetNormalization()(values).flatten(), expected)


def test_statistics_are_buffers_outside_of_the_state_dict():
    """A call subtracts and divides, and creates no other tensor."""
    normalization = preprocessing.ImageNetNormalization()
    assert not normalization.state_dict()
    assert {buffer.dtype for buffer in normalization.double().buffers()} == {torch.float64}
    called = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            called.append(function.__name__)
            return function(*args, **(kwargs or {}))

    with Watch():
        normalization(torch.rand(1, 3, 2, 2, dtype=torch.float64))
    assert [name for name in called if not name.startswith("rand")] == ["sub.Tensor", "div.Tensor"]
    assert normalization.to("meta")(torch.empty(1, 3, 2, 2, device="meta", dtype=torch.float64)).is_meta


def test_enlarging_is_linear_between_pixel_centers():
    """At twice the size, new centers lie at 1/4 and 3/4 between old ones; outside the first center nothing is added."""
    row = torch.tensor([0.0, 1.0, 4.0])
    values = row.expand(1, 1, 3, 3)
    expected = torch.tensor([0, 0.25, 0.75, 1.75, 3.25, 4])
    torch.testing.assert_close(preprocessing.resize(values, 6)[0, 0, 2], expected)
    torch.testing.assert_close(preprocessing.resize(values.mT, 6)[0, 0, :, 2], expected)


def test_an_image_of_the_right_size_is_unchanged():
    values = torch.rand(1, 3, 5, 5)
    assert preprocessing.resize(values, 5) is values


def test_larger_images_are_smoothed():
    """At half the size the weights are (1, 3, 3, 1)/8; plain interpolation, with (1, 1)/2, would not see the 2."""
    row = torch.tensor([1.0, 0, 0, 0, 0, 0, 2, 0])
    smoothed = preprocessing.resize(row.expand(1, 1, 8, 8), 4)[0, 0, 1]
    torch.testing.assert_close(smoothed[1:3], torch.tensor([0.0, 2 / 8]))


def test_gray_is_repeated_and_color_is_unchanged():
    gray = torch.rand(2, 1, 3, 3)
    assert torch.equal(preprocessing.rgb(gray), gray.repeat(1, 3, 1, 1))
    color = torch.rand(2, 3, 3, 3)
    assert torch.equal(preprocessing.rgb(color), color)
