"""x = b/127.5 − 1 and its inverse, digests of samples, and samples that are refused."""

import itertools

import pytest
import torch

from truedrift.data import Samples, to_model_range, to_uint8

BYTES = torch.arange(256, dtype=torch.uint8)


def images(count=3, **changes):
    values = torch.arange(count * 12, dtype=torch.uint8).view(count, 1, 3, 4)
    options = {"values": values, "labels": torch.arange(count) % 2, "classes": ("a", "b"), "name": "few", "flips": True}
    return Samples(**options | changes)


def test_every_byte_round_trips():
    x = to_model_range(BYTES)
    assert x.dtype == torch.float32
    assert x.tolist() == pytest.approx([b / 127.5 - 1 for b in range(256)], abs=1e-7)
    assert (x[0], x[-1]) == (-1, 1)
    assert torch.equal(to_uint8(x), BYTES)
    assert torch.equal(BYTES, torch.arange(256, dtype=torch.uint8))  # the input is unchanged


@pytest.mark.parametrize(
    ("x", "b"), [(-1.3, 0), (1.7, 255), (float("inf"), 255), (-float("inf"), 0), (0.9961, 255), (0.9959, 254)]
)
def test_model_output_is_rounded_and_clamped(x, b):
    assert to_uint8(torch.tensor([x])).tolist() == [b]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_images_of_any_dtype_become_bytes_and_are_not_changed(dtype):
    x = torch.tensor([-1.0, 0.25, 1.0], dtype=dtype, requires_grad=True)
    assert to_uint8(x).tolist() == [0, 159, 255]
    assert x.tolist() == [-1.0, 0.25, 1.0]


def test_points_are_unchanged():
    points = torch.tensor([[3.0, -7.5]])
    assert torch.equal(to_model_range(points), points)


def test_shapes():
    assert (images().sample_shape, images().is_images, len(images())) == ((1, 3, 4), True, 3)
    points = Samples(torch.zeros(5, 2), torch.zeros(5, dtype=torch.int64), ("all",), "points", flips=False)
    assert (points.sample_shape, points.is_images, len(points)) == ((2,), False, 5)


def test_the_digest_depends_on_values_labels_classes_and_shapes():
    one = images()
    other_value = one.values.clone()
    other_value[2, 0, 2, 3] += 1
    different = [
        one,
        images(values=other_value),
        images(labels=torch.tensor([1, 0, 0])),
        images(classes=("a", "c")),
        images(classes=("ab", "")),
        images(values=one.values.view(3, 1, 4, 3)),
        images(2),
    ]
    assert all(a.digest() != b.digest() for a, b in itertools.combinations(different, 2))
    assert images(name="another", flips=False).digest() == one.digest()
    strided = torch.stack((one.values, one.values), -1)[..., 0]
    assert not strided.is_contiguous()
    assert images(values=strided).digest() == one.digest()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"values": torch.zeros(3, 1, 3, 4)},
            r"values of few are torch.float32 \[3, 1, 3, 4\]; must be uint8 .*; ",
        ),
        ({"values": torch.zeros(3, 2, dtype=torch.float64)}, r"values of few are torch.float64 \[3, 2\]; "),
        (
            {"labels": torch.zeros(2, dtype=torch.int64)},
            r"labels of few are torch.int64 \[2\]; must be int64 \[3\]; ",
        ),
        ({"labels": torch.zeros(3)}, r"labels of few are torch.float32 \[3\]; "),
        ({"labels": torch.tensor([0, 2, 1])}, r"labels of few range from 0 to 2; must be 0 to 1, .*; "),
        ({"labels": torch.tensor([0, -1, 1])}, r"labels of few range from -1 to 1; "),
    ],
)
def test_inconsistent_samples_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        images(**changes)


def test_selected_classes_are_renumbered_in_the_order_of_their_names():
    labels = torch.tensor([2, 0, 1, 2, 0])
    every = images(5, labels=labels, classes=("a", "b", "c"))
    chosen = every.select_classes(["c", "a"])
    assert chosen.classes == ("c", "a")
    assert chosen.labels.tolist() == [0, 1, 0, 1]  # samples keep their order
    assert torch.equal(chosen.values, every.values[[0, 1, 3, 4]])
    assert (chosen.name, chosen.flips) == ("few (c, a)", True)
    digests = {each.digest() for each in (every, chosen, every.select_classes(["a", "c"]), every.select_classes("abc"))}
    assert len(digests) == 3  # all classes in their order are the whole data set
    assert every.select_classes("abc").digest() == every.digest()


def test_name_of_many_selected_classes_is_short():
    names = tuple(map(str, range(30)))
    every = images(30, labels=torch.arange(30), classes=names)
    assert every.select_classes(names[:11]).name == "few (11 of 30 classes)"


def test_message_does_not_list_many_classes():
    names = tuple(f"class {k}" for k in range(20_000))
    many = images(2, labels=torch.tensor([0, 1]), classes=names)
    with pytest.raises(ValueError, match=r"must be among class 0, .*, class 9, … and 19,990 more; use these names$"):
        many.select_classes(["x"])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "x"], r"^classes contains 'x'; must be among a, b; use these names$"),
        (["b", "a", "b"], r"^classes contains 'b' twice; must name every class at most once; leave it out$"),
        ([], r"^classes is empty; must be among a, b; "),
    ],
)
def test_classes_that_cannot_be_selected_are_refused(names, message):
    with pytest.raises(ValueError, match=message):
        images().select_classes(names)
