"""`fit`, `load` and `Model`: samples in the user's units and classes, saved and loaded models, clear errors."""

import json
import re

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_iris

import truedrift
from truedrift.errors import UserError
from truedrift.model import energy_distance

IRIS = load_iris()
NAMES = IRIS.target_names[IRIS.target]
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def iris():
    return truedrift.fit(IRIS.data, NAMES, steps=300, device="cpu", progress=False)


def literal_energy_distance(x, y):
    """Sums over all pairs of different samples."""

    def mean(a, b, same):
        pairs = [(i, j) for i in range(len(a)) for j in range(len(b)) if not (same and i == j)]
        return sum(np.linalg.norm(a[i] - b[j]) for i, j in pairs) / len(pairs)

    among = mean(y, y, True)
    return (2 * mean(x, y, False) - mean(x, x, True) - among) / among


def test_energy_distance_equals_the_sums_over_pairs():
    x, y = RNG.normal(size=(7, 3)), RNG.normal(1, 2, size=(5, 3))
    found = energy_distance(torch.from_numpy(x), torch.from_numpy(y))
    assert found == pytest.approx(literal_energy_distance(x, y), rel=1e-12)


def test_samples_have_the_units_and_the_distribution_of_the_data(iris):
    samples = iris.sample(2000)
    assert samples.shape == (2000, 4)
    np.testing.assert_allclose(samples.mean(0), IRIS.data.mean(0), atol=0.15)
    np.testing.assert_allclose(samples.std(0), IRIS.data.std(0), rtol=0.2)
    # Two halves of the data have a distance of about 0.01; untrained samples are far.
    assert iris.evaluate().value < 0.03
    untrained = truedrift.fit(IRIS.data, NAMES, steps=1, device="cpu", progress=False)
    assert untrained.evaluate().value > 0.15


def test_samples_of_a_class_are_like_this_class(iris):
    for name in IRIS.target_names:
        of_class = IRIS.data[name == NAMES]
        np.testing.assert_allclose(iris.sample(500, label=name).mean(0), of_class.mean(0), atol=0.25)
    mixed, labels = iris.sample(300, return_labels=True)
    assert set(labels) == set(IRIS.target_names)
    assert mixed[labels == "setosa"][:, 2].max() < 3 < mixed[labels == "virginica"][:, 2].min()
    each = iris.sample(2, label=["setosa", "virginica"])
    np.testing.assert_allclose(each[:1], iris.sample(1, label="setosa"), rtol=1e-5)  # another size of products


def test_classes_without_a_label_are_as_frequent_as_in_the_data():
    X = RNG.normal(size=(400, 1))
    model = truedrift.fit(X, [0] * 40 + [1] * 360, steps=1, device="cpu", progress=False)
    _, labels = model.sample(4000, return_labels=True)
    # The standard deviation of the share is 0.005; four of them are exceeded with probability 6e-5.
    assert abs((labels == "1").mean() - 0.9) < 0.02


def test_same_seed_gives_the_same_samples_and_a_larger_number_more_of_them(iris):
    np.testing.assert_allclose(iris.sample(300)[:70], iris.sample(70), rtol=1e-5)
    assert not np.array_equal(iris.sample(70), iris.sample(70, seed=1))


def test_saved_model_gives_the_same_samples(iris, tmp_path):
    loaded = truedrift.load(iris.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.sample(50), iris.sample(50))
    assert loaded.classes == ("setosa", "versicolor", "virginica")
    assert repr(loaded) == repr(iris) == "Model(MLP, 55,876 parameters, samples [4], 3 classes)"
    assert loaded.evaluate(IRIS.data).value == iris.evaluate().value
    with pytest.raises(UserError, match=r"X is missing; a loaded model does not have its data; pass held-out data"):
        loaded.evaluate()


def test_run_directory_is_resumed_and_loaded(tmp_path):
    arguments = {"steps": 20, "device": "cpu", "progress": False, "out": tmp_path / "run"}
    first = truedrift.fit(IRIS.data, NAMES, **arguments)
    written = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    second = truedrift.fit(IRIS.data, NAMES, **arguments)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == written
    np.testing.assert_array_equal(first.sample(10), second.sample(10))
    loaded = truedrift.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.sample(9, label="setosa"), first.sample(9, label="setosa"))
    with pytest.raises(UserError, match="holds another run"):
        truedrift.fit(IRIS.data + 1, NAMES, **arguments)


def test_constant_columns_and_large_offsets_are_kept():
    X = np.stack((np.full(100, 7.0), 1e9 + RNG.normal(size=100), 1e-9 * RNG.normal(size=100)), 1)
    samples = truedrift.fit(X, steps=60, device="cpu", progress=False).sample(200)
    assert (samples[:, 0] == 7).all()
    assert 0.3 < samples[:, 1].std() < 3
    assert 0.3e-9 < samples[:, 2].std() < 3e-9


@pytest.mark.parametrize(
    ("X", "shape"),
    [
        (RNG.normal(size=60), (1,)),
        (RNG.normal(size=(50, 300)), (300,)),
        (load_digits().images[:200], (8, 8)),
        ((load_digits().images[:60] * 16).astype(np.uint8), (8, 8)),
        ([[1, 2], [3, 4], [5, 7]], (2,)),
        (torch.randn(40, 2, dtype=torch.float16), (2,)),
        (RNG.random((70, 3)) > 0.5, (3,)),
    ],
    ids=["one column", "wide", "images", "bytes", "lists", "half", "booleans"],
)
def test_arrays_of_any_kind_are_fitted(X, shape):
    model = truedrift.fit(X, steps=3, device="cpu", progress=False)
    samples = model.sample(5)
    assert samples.shape == (5, *shape)
    assert np.isfinite(samples).all()


def test_many_classes_and_small_classes_are_fitted():
    X, y = RNG.normal(size=(120, 2)), np.arange(120) % 40
    model = truedrift.fit(X, y, steps=3, device="cpu", progress=False)
    assert len(model.classes) == 40
    assert model.classes[:3] == ("0", "1", "2")
    assert model.sample(4, label=39).shape == (4, 2)


def test_pretrained_images_are_bytes():
    digits, color = truedrift.load("pretrained:digits"), truedrift.load("pretrained:cifar10")
    assert (digits.sample(3, label=8).shape, digits.sample(1).dtype) == ((3, 8, 8), np.uint8)
    assert color.sample(2, label="ship").shape == (2, 32, 32, 3)
    assert color.strength == 2
    with pytest.raises(UserError, match="the model makes images; energy distances are for arrays"):
        digits.evaluate(np.zeros((3, 8, 8)))


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([["a", "b"]], None, r"X cannot be read as numbers \(.*\); must be finite numbers"),
        ([[1.0]], None, r"X has shape \[1, 1\]; .*; pass at least two samples"),
        (np.zeros((3, 0)), None, r"X has shape \[3, 0\]"),
        ([[1.0], [np.nan], [np.inf]], None, r"X has 2 entries that are NaN or infinite; .*; remove these rows"),
        (np.zeros((2, 70_000)), None, r"X has 70,000 per sample; must be at most 65,536"),
        (np.zeros((4, 2)), [0, 1, 1], r"y has 3 entries for 4 samples"),
        (np.zeros((4, 2)), [0, 0, 1, 2], r"y has 2 classes with one sample \(1, 2\)"),
        (np.zeros((4, 2)), [0.5, 0.5, 1, 1], r"y has numbers with fractions; must be classes"),
        (np.zeros((4, 2)), np.zeros((4, 2)), r"y has several columns; must have one label per sample"),
    ],
)
def test_mistakes_are_one_line(X, y, message):
    with pytest.raises(UserError, match=message):
        truedrift.fit(X, y, steps=1)


def test_unknown_labels_and_numbers_of_samples_are_refused(iris):
    with pytest.raises(UserError, match=r"label is 'rose'; must be one of setosa, versicolor, virginica; "):
        iris.sample(3, label="rose")
    with pytest.raises(UserError, match=r"label has 2 entries; must be one class or 3; "):
        iris.sample(3, label=["setosa", "setosa"])
    with pytest.raises(UserError, match=r"n is 0; must be an integer ≥ 1"):
        iris.sample(0)
    with pytest.raises(UserError, match=r"X has shape \[3, 2\]; must have the shape \[N, 4\]"):
        iris.evaluate(np.zeros((3, 2)))


@pytest.mark.parametrize(
    "change", [{"schema": 2}, {"classes": []}, {"shares": [2.0, 0.0, 0.0]}, {"units": {"shift": [0]}}]
)
def test_damaged_model_is_one_line(iris, tmp_path, change):
    folder = iris.save(tmp_path)
    tree = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(tree | change))
    with pytest.raises(UserError, match=r"damaged; must be .*; (save|train)") as raised:
        truedrift.load(folder)
    assert not re.search("\n", str(raised.value))
