"""`fit`, `load` and `Model`: samples in the user's units and classes, saved and loaded models, clear errors."""

import json
import math
import re
import signal

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_iris

import truedrift
from truedrift.data.arrays import samples_from_arrays
from truedrift.data.class_batches import ClassBatches
from truedrift.errors import UserError
from truedrift.model import energy_distance
from truedrift.progress_display import ProgressDisplay
from truedrift.recipes.arrays import array_config

IRIS = load_iris()
NAMES = IRIS.target_names[IRIS.target]
RNG = np.random.default_rng(0)


class Table:
    """A table of another library, such as pandas."""

    def __init__(self, values):
        self.values = values
        self.values.flags.writeable = False

    def to_numpy(self):
        return self.values


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
    assert repr(loaded) == repr(iris) == "Model(MLP, 55,748 parameters, samples [4], 3 classes)"
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
        (RNG.integers(0, 256, (60, 6, 5, 3)).astype(np.uint8), (6, 5, 3)),
        (RNG.normal(size=(60, 2))[::-1], (2,)),
        (RNG.normal(size=(60, 2)).astype(">f4"), (2,)),
        (Table(RNG.normal(size=(60, 2)).astype(object)), (2,)),
        (RNG.standard_cauchy((60, 2)), (2,)),
    ],
    ids=[
        "one column",
        "wide",
        "images",
        "bytes",
        "lists",
        "half",
        "booleans",
        "colors",
        "strides",
        "big-endian",
        "table",
        "tails",
    ],
)
def test_arrays_of_any_kind_are_fitted(X, shape):
    model = truedrift.fit(X, steps=3, device="cpu", progress=False)
    samples = model.sample(5)
    assert samples.shape == (5, *shape)
    assert np.isfinite(samples).all()


def test_samples_do_not_fill_the_gap_between_clusters(monkeypatch):
    """Four clusters of width 1 at distance 20, without classes. Control: a generator without signs."""
    angles = torch.arange(4) * math.pi / 2
    centers = torch.stack((angles.cos(), angles.sin()), -1) * 20 / 2**0.5
    X = centers.repeat(150, 1) + torch.randn(600, 2, generator=torch.Generator().manual_seed(0))

    def share_in_gaps():
        samples = truedrift.fit(X, steps=400, device="cpu", progress=False).sample(2000)
        return (torch.cdist(torch.from_numpy(samples), centers.double()).amin(-1) > 5).double().mean()

    found = share_in_gaps()
    monkeypatch.setattr("truedrift.recipes.arrays.SIGNS", 0)
    assert found < 0.02 < share_in_gaps() / 2


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
        ([[1j], [2j]], None, r"X is complex; .*; pass its real and imaginary parts as columns"),
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


def test_a_small_class_does_not_limit_the_others():
    """With replacement, a class of three samples has as many references as the others."""
    X = np.concatenate((RNG.normal(9, 0.01, (3, 2)), RNG.normal(size=(297, 2))))
    samples = samples_from_arrays(X, [0] * 3 + [1] * 297)
    batch = array_config(samples).batch
    assert (batch.sampling, batch.generated, batch.n) == ("with-replacement", 128, 254)
    model = truedrift.fit(X, [0] * 3 + [1] * 297, steps=100, device="cpu", progress=False)
    assert np.linalg.norm(model.sample(50, label=0).mean(0) - 9) < 3
    assert np.linalg.norm(model.sample(50, label=1).mean(0)) < 1


def test_temperatures_follow_the_dimension():
    """The distance to the nearest of 256 points, relative to the mean distance, is about 256^(−1/D)."""
    for D, lowest in ((1, 0.05), (2, 0.062), (20, 0.758), (3000, 0.998)):
        config = array_config(samples_from_arrays(RNG.normal(size=(9, D))))
        assert config.objective.temperatures == pytest.approx([lowest, 4 * lowest, 20 * lowest], rel=0.01)


def test_samples_have_no_bound():
    """A linear map of the noise: samples of twice the noise are farther away, also outside of the data."""
    model = truedrift.fit(RNG.normal(size=(500, 3)), steps=50, device="cpu", progress=False)
    z, labels = torch.randn(64, *model.generator.noise_shape), torch.zeros(64, dtype=torch.int64)
    with torch.no_grad():
        near, far = (model.generator(k * z, labels, torch.ones(64), torch.empty(64, 0).long()) for k in (10, 1000))
    assert far.norm(dim=-1).mean() > 50 * near.norm(dim=-1).mean()


def test_the_work_of_a_step_does_not_grow_with_the_rows():
    """A step of a million rows of one class, or of unequal classes, draws no permutation of them."""
    labels = torch.zeros(1_000_000, dtype=torch.int64)
    labels[:3] = 1
    batches = ClassBatches(labels, 2, n=254, seed=0, flips=False, sampling="with-replacement")
    indices = batches.at(5).indices
    assert (labels[indices[0]] == 0).all()
    assert (labels[indices[1]] == 1).all()
    # 254 of 999,997 are different up to 0.03 pairs on average, and 254 of 3 are all of them.
    assert (len(indices[0].unique()), len(indices[1].unique())) == (254, 3)
    assert torch.equal(indices, batches.at(5).indices)
    assert not torch.equal(indices, batches.at(6).indices)


def test_progress_shows_the_energy_distance(monkeypatch):
    notes = []
    monkeypatch.setattr(ProgressDisplay, "set_note", lambda self, what, note: notes.append((what, note)))
    truedrift.fit(RNG.normal(size=(60, 2)), steps=3, device="cpu")
    assert len(notes) == 1
    assert re.fullmatch(r"energy distance \S+ ± \S+", notes[0][1])


def test_interrupted_fit_does_not_return_a_model(tmp_path):
    def interrupt(what, done, total):
        if done == 2:
            signal.raise_signal(signal.SIGTERM)

    arguments = {"steps": 5, "device": "cpu", "out": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt, match="SIGTERM: stopped at step 2 of 5"):
        truedrift.fit(IRIS.data, progress=interrupt, **arguments)
    resumed = truedrift.fit(IRIS.data, progress=False, **arguments)
    whole = truedrift.fit(IRIS.data, progress=False, **(arguments | {"out": None}))
    np.testing.assert_array_equal(resumed.sample(9), whole.sample(9))
