"""Every data set by its name: where it is found, what it holds, and the message if it is missing."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from oracles.idx_files import small_files, write_files
from sklearn.datasets import load_digits

from truedrift.data import FOUR_MODES, NAMES, REMOTE_ASSETS, THREE_CLUSTERS, PinnedFile, Source, load
from truedrift.storage import cache_directory

TOYS = ("three-clusters", "four-modes", "eight-gaussians", "checkerboard", "swiss-roll", "two-moons")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "cache"))
    package = Source("installed", str(tmp_path / "package"), package="dataset-fashion-mnist")
    fashion = replace(REMOTE_ASSETS["fashion-mnist"], sources=(package,))
    monkeypatch.setitem(REMOTE_ASSETS, "fashion-mnist", fashion)
    return tmp_path / "cache"


def test_names_of_all_data_sets():
    assert (*TOYS, "digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "folder", "array") == NAMES


@pytest.mark.parametrize(("name", "parts"), list(zip(TOYS, (3, 4, 8, 1, 1, 2), strict=True)))
def test_toys_are_a_function_of_name_split_and_seed(name, parts):
    train, test, everything = (load(name, split=split) for split in ("train", "test", "all"))
    assert (train.values.dtype, train.values.shape, train.flips) == (torch.float32, (10_000, 2), False)
    assert len(train.classes) == len(train.labels.unique()) == parts
    assert torch.equal(load(name).values, train.values)
    assert torch.equal(everything.values, torch.cat((train.values, test.values)))
    assert torch.equal(everything.labels, torch.cat((train.labels, test.labels)))
    assert len({train.digest(), test.digest(), load(name, seed=1).digest(), everything.digest()}) == 4


@pytest.mark.parametrize(("name", "mixture"), [("three-clusters", THREE_CLUSTERS), ("four-modes", FOUR_MODES)])
def test_labels_of_mixtures_are_the_named_modes(name, mixture):
    samples = load(name)
    for k, where in enumerate(samples.classes):
        center = samples.values[samples.labels == k].mean(0)
        assert (center - torch.tensor(mixture.means[k])).abs().max() < 0.03
        assert ("right" in where) == (center[0] > 0)
        assert ("upper" in where) == (center[1] > 0.1)


def test_digits_agree_with_scikit_learn():
    stored = load_digits()
    train, test, everything = (load("digits", split=split) for split in ("train", "test", "all"))
    assert everything.values.shape == (1797, 1, 8, 8)
    assert np.array_equal(everything.values.numpy()[:, 0], np.rint(stored.images * 255 / 16))
    assert everything.labels.tolist() == stored.target.tolist()
    assert (everything.values.min(), everything.values.max()) == (0, 255)
    assert test.labels.tolist() == stored.target[::5].tolist()
    assert train.labels.tolist() == np.delete(stored.target, slice(None, None, 5)).tolist()
    assert len(train) + len(test) == 1797
    assert (train.classes, train.flips) == (tuple("0123456789"), False)


def test_the_own_directory_precedes_the_cache_and_the_package(cache, tmp_path):
    places = {"cache": cache / "fashion-mnist", "package": tmp_path / "package", "own": tmp_path / "own"}
    for place in places.values():
        place.mkdir(parents=True)
    write_files(places["package"])
    assert load("fashion-mnist").labels.tolist() == [1, 0, 2, 2, 1]
    (write_files(places["cache"], zipped=False) / "train-labels-idx1-ubyte").write_bytes(
        b"\0\0\x08\x01\0\0\0\x05" + bytes((9, 9, 9, 9, 9))
    )
    assert load("fashion-mnist").labels.tolist() == [9] * 5
    write_files(places["own"])
    own = load("fashion-mnist", root=places["own"], split="all")
    assert own.labels.tolist() == [1, 0, 2, 2, 1, 0, 2]
    assert (own.classes[9], own.flips) == ("ankle boot", False)
    mnist = load("mnist", root=places["own"])
    assert (mnist.classes[9], mnist.flips) == ("9", False)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(("name", "other"), [("mnist", "fashion-mnist"), ("fashion-mnist", "mnist")])
@pytest.mark.parametrize("file", ["train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"])
def test_files_of_the_other_set_are_refused(tmp_path, monkeypatch, zipped, name, other, file):
    """The hashes of the small files are registered as those of `other`."""
    write_files(tmp_path, zipped)
    assert len(load(name, root=tmp_path)) == 5
    pinned = PinnedFile(file, 1, hashlib.sha256(small_files()[file]).hexdigest())
    monkeypatch.setitem(REMOTE_ASSETS, other, replace(REMOTE_ASSETS[other], files=(pinned,)))
    with pytest.raises(ValueError, match=rf"' holds {other}; must hold {name}; .* use {other}$"):
        load(name, root=tmp_path)
    assert len(load(other, root=tmp_path)) == 5


def test_the_hashes_of_the_two_sets_differ():
    mnist, fashion = ({file.sha256 for file in REMOTE_ASSETS[name].files} for name in ("mnist", "fashion-mnist"))
    assert mnist.isdisjoint(fashion)
    assert (len(mnist), len(fashion)) == (4, 4)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "cifar100"])
def test_a_missing_data_set_names_the_command_that_fetches_it(name, tmp_path):
    fix = rf"run truedrift data fetch {name}, or add --data DIR \(evaluate: --root DIR\)$"
    message = rf"{name} is not in the cache \('.*{name}'\); .*; {fix}"
    with pytest.raises(ValueError, match=message):
        load(name)
    with pytest.raises(ValueError, match=rf"does not hold {name}; must hold .*; check the directory"):
        load(name, root=tmp_path)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cifar", {}, "the data set is 'cifar'; must be one of 'three-clusters', .*; did you mean 'cifar10'"),
        ("digits", {"split": "validation"}, "split is 'validation'; must be one of 'train', 'test', 'all'; "),
        ("digits", {"root": "HERE"}, "was given for digits; digits is part of the library .*; leave --data out"),
        ("two-moons", {"root": "HERE"}, "was given for two-moons; "),
        ("mnist", {"root": "HERE/missing"}, "missing' does not exist; must be a directory or an archive; "),
        ("digits", {"image_size": 8}, "an image size was given for digits; only the data set folder can be resized; "),
        ("folder", {}, "no directory was given; .*; add --data DIR"),
        ("folder", {"root": "HERE"}, "holds no images; "),
        ("cifar10", {"root": "FILE"}, r"cannot be read as CIFAR \(not a gzip file\); .*; fetch it again"),
    ],
)
def test_every_mistake_is_one_sentence_of_three_parts(name, options, message, tmp_path):
    (tmp_path / "FILE").write_bytes(b"no archive")
    if "root" in options:
        options = {"root": tmp_path / options["root"].replace("HERE", "./")}
    with pytest.raises(ValueError, match=message) as caught:
        load(name, **options)
    assert str(caught.value).count("; ") >= 2


def test_the_cache_directory_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("TRUEDRIFT_CACHE", "~/mine")
    assert cache_directory("cifar10") == tmp_path / "mine" / "cifar10"
    monkeypatch.delenv("TRUEDRIFT_CACHE")
    assert cache_directory("cifar10") == tmp_path / "xdg" / "truedrift" / "cifar10"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_directory() == tmp_path / ".cache" / "truedrift"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == tmp_path / ".cache" / "truedrift"


def test_some_classes_of_any_split():
    every, chosen = load("digits", split="test"), load("digits", split="test", classes=("8", "3"))
    assert chosen.classes == ("8", "3")
    assert len(chosen) == int(((every.labels == 8) | (every.labels == 3)).sum())
    assert torch.equal(chosen.values[chosen.labels == 1], every.values[every.labels == 3])
    with pytest.raises(ValueError, match=r"classes contains 'eight'; must be among 0, 1, "):
        load("digits", classes=("eight",))
