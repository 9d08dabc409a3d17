"""`fit`, `load` and `Model`: samples in the user's units and classes, saved and loaded models, clear errors."""

import json
import math
import os
import re
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_iris

import truedrift
from truedrift.data.arrays import samples_from_arrays
from truedrift.data.class_batches import ClassBatches
from truedrift.data.toys import EIGHT_GAUSSIANS
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
    assert repr(loaded) == repr(iris) == "Model(MLP, 56,004 parameters, samples [4], 3 classes)"
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
    with pytest.raises(UserError, match=r"holds another run.*; choose another directory with out=$"):
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
        (RNG.normal(size=60), ()),
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


def test_samples_do_not_fill_the_gaps_between_clusters(monkeypatch):
    """Eight clusters on a circle, without classes; 0.7 % of the data are in gaps. Control: without signs."""
    X, _ = EIGHT_GAUSSIANS.sample_with_modes(1500, torch.Generator().manual_seed(0))
    angles = torch.arange(8, dtype=torch.float64) * math.pi / 4
    centers = torch.stack((angles.cos(), angles.sin()), -1)

    def share_in_gaps(steps):
        samples = truedrift.fit(X, steps=steps, device="cpu", progress=False).sample(4000)
        return (torch.cdist(torch.from_numpy(samples).double(), centers).amin(-1) > 0.3).double().mean()

    assert share_in_gaps(800) < 0.08
    monkeypatch.setattr("truedrift.recipes.arrays.SIGNS", 0)
    assert share_in_gaps(200) > 0.2


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
        (np.zeros((4, 2)), np.array(3.0), r"y is array\(3\.\); must have one label per sample; pass a column"),
        (np.zeros((4, 2)), "abab", r"y is 'abab'; must have one label per sample"),
        (np.array(["2020", "2021"], "M8[D]"), None, r"X cannot be read as numbers \(it has dates or times\)"),
        ([[np.timedelta64(1, "s"), 2], [3, 4]], None, r"X cannot be read as numbers \(it has dates or times\)"),
        ([[10**400], [1]], None, r"X cannot be read as numbers \(int too large"),
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


def test_offsets_are_not_constants():
    X = np.stack((1.7e12 + RNG.normal(size=200), np.resize([0.3, 0.1 + 0.2], 200)), 1)  # times; rounding errors
    samples = truedrift.fit(X, steps=60, device="cpu", progress=False).sample(300)
    assert 0.3 < samples[:, 0].std() < 3
    assert np.ptp(samples[:, 1]) == 0


@pytest.mark.parametrize("size", [1e200, 1e-200, 1e-310, 1e307])
def test_units_of_any_finite_numbers(size):
    """Standardized values do not depend on the unit of X, also where squares overflow or underflow."""
    for values in (RNG.normal(size=(200, 2)), RNG.normal(size=(50, 4, 3))):
        plain, scaled = samples_from_arrays(values), samples_from_arrays(values * size)
        np.testing.assert_allclose(scaled.values, plain.values, atol=1e-5)
        np.testing.assert_allclose(scaled.units.to_user(scaled.values) / size, values, atol=1e-5)


def test_the_largest_numbers_are_fitted():
    X = np.finfo(float).max * np.resize([1, -1, -1], (60, 2))
    samples = truedrift.fit(X, steps=3, device="cpu", progress=False).sample(50)
    assert np.isfinite(samples).all()


def test_one_axis_gives_samples_of_one_axis(tmp_path):
    x = RNG.normal(size=60)
    model = truedrift.fit(x, steps=3, device="cpu", progress=False)
    assert model.sample(5).shape == (5,)
    loaded = truedrift.load(model.save(tmp_path))
    np.testing.assert_array_equal(loaded.sample(5), model.sample(5))
    assert loaded.evaluate(x).value == loaded.evaluate(x[:, None]).value == model.evaluate().value


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.full((5, 4), np.nan), r"X has 20 entries that are NaN or infinite; must be finite numbers"),
        (np.zeros((1, 4)), r"X has shape \[1, 4\]; .*; pass at least two samples"),
        (np.zeros((0, 4)), r"X has shape \[0, 4\]"),
        (np.array([["a"] * 4] * 3), r"X cannot be read as numbers"),
        ("text", r"X cannot be read as numbers"),
        (np.full((3, 4), 1e300), r"X has values up to 1e\+300; must be near the data of the fit"),
    ],
)
def test_mistakes_in_held_out_data_are_one_line(iris, X, message):
    with pytest.raises(UserError, match=message):
        iris.evaluate(X)


def test_held_out_data_of_any_kind_are_compared(iris):
    expected = iris.evaluate(IRIS.data).value
    for X in (IRIS.data.tolist(), IRIS.data.astype(object), Table(IRIS.data.copy())):
        assert iris.evaluate(X).value == expected


def test_strengths_outside_of_the_training_are_refused_or_noted(iris):
    np.testing.assert_array_equal(iris.sample(5, strength=1), iris.sample(5))
    with pytest.raises(UserError, match=r"strength is 5; must be 1: the model was trained without guidance; leave it"):
        iris.sample(5, strength=5)
    for strength in (math.nan, math.inf, "2", -1, True, 10**400):
        with pytest.raises(UserError, match=r"strength is .*; must be a number from 0 to 1e\+06; "):
            iris.sample(5, strength=strength)
    guided = replace(iris, strengths=(1.0, 4.0))
    with pytest.warns(UserWarning, match=r"strength is 5, and the model was trained with strengths from 1 to 4"):
        guided.sample(5, strength=5)
    guided.sample(5, strength=np.float32(2))


@pytest.mark.parametrize("seed", ["x", None, 2**70, -1, 1.0, True])
def test_seeds_that_are_no_seeds_are_refused(iris, seed):
    for use in (lambda: iris.sample(2, seed=seed), lambda: iris.sample(2, label="setosa", seed=seed)):
        with pytest.raises(
            UserError, match=r"seed is .*; must be (an integer )?from 0 to 2147483647; pass for example 0"
        ):
            use()
    with pytest.raises(UserError, match="seed is"):
        iris.evaluate(seed=seed)
    with pytest.raises(UserError, match="seed is"):
        truedrift.fit(IRIS.data, steps=1, seed=seed)


def test_integers_of_numpy_are_integers(iris):
    np.testing.assert_array_equal(iris.sample(np.int64(3), seed=np.uint8(1)), iris.sample(3, seed=1))
    arguments = {"device": "cpu", "progress": False}
    one = truedrift.fit(IRIS.data, steps=np.int64(5), seed=np.int32(2), **arguments)
    np.testing.assert_array_equal(one.sample(3), truedrift.fit(IRIS.data, steps=5, seed=2, **arguments).sample(3))


@pytest.mark.parametrize(
    ("y", "label"),
    [
        ([True, False], True),
        ([1.0, 0.0], 1.0),
        ([1, 0], np.float32(1)),
        ([np.float32(1), np.float32(0)], 1),
        ([np.True_, np.False_], np.True_),
        ([b"one", b"two"], b"one"),
        (np.array([b"one", b"two"]), "one"),
        (["\ud800", "b"], "\ud800"),
    ],
)
def test_labels_of_y_are_labels_of_samples(y, label, tmp_path):
    X = np.concatenate((RNG.normal(9, 0.1, (30, 2)), RNG.normal(size=(30, 2))))
    model = truedrift.fit(
        X,
        np.repeat(np.array(y), 30) if isinstance(y, np.ndarray) else sorted(y * 30, key=y.index),
        steps=3,
        device="cpu",
        progress=False,
    )
    assert truedrift.load(model.save(tmp_path)).classes == model.classes
    number = int(model.samples.labels[0])
    _, names = model.sample(3, label=label, return_labels=True)
    assert set(names) == {model.classes[number]}
    np.testing.assert_array_equal(model.sample(2, label=[label] * 2), model.sample(2, label=model.classes[number]))


def test_a_label_of_another_type_is_one_line(iris):
    for label in (object(), {"a": 1}, [[0], [1]], math.nan):
        with pytest.raises(UserError, match=r"^label "):
            iris.sample(2, label=label)


def test_a_path_that_cannot_be_written_is_one_line(iris, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"the folder '.*file' cannot be written \(File exists\); must be a folder"):
        iris.save(tmp_path / "file")


def set_of_model(**change):
    return lambda tree: tree | change


def set_of_units(**change):
    return lambda tree: tree | {"units": tree["units"] | change}


@pytest.mark.parametrize(
    "change",
    [
        set_of_model(schema=2),
        set_of_model(schema=True),
        set_of_model(classes=[]),
        set_of_model(classes="abc"),
        set_of_model(classes={"a": 1, "b": 2, "c": 3}),
        set_of_model(classes=["a", "a", "b"]),
        set_of_model(classes=["a", "\ud800", "b"]),
        set_of_model(shares=[2.0, 0.0, 0.0]),
        set_of_model(shares=[0.0, 0.0, 0.0]),
        set_of_model(strength=math.nan),
        set_of_model(strength=math.inf),
        set_of_model(strength=10**400),
        set_of_model(strength=True),
        set_of_model(strengths=[0, 10**400]),
        set_of_model(strengths=[False, True]),
        set_of_model(strengths=[2, 1]),
        set_of_model(units={"shift": [0]}),
        set_of_model(units={"shift": [0.0] * 5, "scale": [1.0] * 5, "shape": [5]}),
        set_of_units(shift=[10**400, 0, 0, 0]),
        set_of_units(shape=[math.inf]),
        set_of_units(shape=[-2, -2]),
        set_of_units(shape=[1] * 64 + [4]),
        set_of_units(shape="4"),
        set_of_units(scale=[-1.0, 1.0, 1.0, 1.0]),
        lambda tree: [tree],
    ],
)
def test_damaged_model_is_one_line(iris, tmp_path, change):
    folder = iris.save(tmp_path)
    tree = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(change(tree)))
    with pytest.raises(
        UserError, match=r"model.json' is damaged; must be the file that Model.save wrote; save"
    ) as raised:
        truedrift.load(folder)
    assert not re.search("\n", str(raised.value))


@pytest.mark.parametrize("replace_file", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("nothing")])
def test_model_file_that_is_no_file_is_refused(iris, tmp_path, replace_file):
    path = iris.save(tmp_path) / "model.json"
    path.unlink()
    replace_file(path)
    with pytest.raises(UserError, match=r"model.json' is damaged"):
        truedrift.load(tmp_path)


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
