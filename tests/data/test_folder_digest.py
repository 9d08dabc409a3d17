"""The digest of a folder is known until any of its files, the options or the versions change."""

import json
import os
import shutil

import numpy as np
import pytest
from PIL import Image

from truedrift.data import folder_digest as module
from truedrift.data import read_folder
from truedrift.data.folder_digest import folder_digest

OLD = 10**18
"""A time of modification in the year 2001, in nanoseconds."""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "folders"


@pytest.fixture
def root(tmp_path):
    """Images of two classes, the same size and an old time of modification; one of them in the split test."""
    for number, name in enumerate(("train/a/0.bmp", "train/a/1.bmp", "train/b/0.bmp", "test/a/0.bmp")):
        save(tmp_path / "images" / name, number)
        os.utime(tmp_path / "images" / name, ns=(OLD, OLD))
    return tmp_path / "images"


def save(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((4, 4), value, dtype=np.uint8)).save(path)


def remember(root, **options):
    """Read the images, and write their digest to the cache."""
    digest = folder_digest(root, **options)
    samples = read_folder(root, split=options.get("split", "train"), image_size=options.get("image_size"))
    digest.write(samples.select_classes(options["classes"]) if "classes" in options else samples)


def test_a_folder_that_was_read_is_known(root, cache):
    assert folder_digest(root).read() is None
    remember(root)
    samples = read_folder(root)
    assert folder_digest(root).read() == {"sha256": samples.digest(), "sample_shape": [1, 4, 4], "classes": ["a", "b"]}
    assert len(list(cache.iterdir())) == 1


def overwrite(root):
    """Change the pixels; size and time of modification stay as they were."""
    path = root / "train/a/0.bmp"
    before = path.stat()
    save(path, 99)
    while path.stat().st_mtime_ns != OLD or path.stat().st_ctime_ns == before.st_ctime_ns:  # the clock has ticks
        os.utime(path, ns=(OLD, OLD))
    assert path.stat().st_size == before.st_size


CHANGES = {
    "changed": lambda root: save(root / "train/a/0.bmp", 99),
    "overwritten with the same size and time": overwrite,
    "touched": lambda root: os.utime(root / "train/a/0.bmp"),
    "older": lambda root: os.utime(root / "train/a/0.bmp", ns=(0, 0)),
    "added": lambda root: save(root / "train/a/2.bmp", 99),
    "removed": lambda root: (root / "train/a/1.bmp").unlink(),
    "renamed": lambda root: (root / "train/a/1.bmp").rename(root / "train/a/2.bmp"),
    "moved": lambda root: (root / "train/a/1.bmp").rename(root / "train/b/1.bmp"),
    "swapped": lambda root: [
        (root / "train/a/1.bmp").rename(root / "x"),
        (root / "train/b/0.bmp").rename(root / "train/a/1.bmp"),
        (root / "x").rename(root / "train/b/0.bmp"),
    ],
    "class renamed": lambda root: (root / "train/b").rename(root / "train/c"),
    "class added": lambda root: save(root / "train/c/0.bmp", 99),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_any_file_is_noticed(root, change):
    remember(root)
    CHANGES[change](root)
    digest = folder_digest(root)
    assert digest is None or digest.read() is None
    if digest is not None:
        remember(root)  # the new state replaces the old one
        assert folder_digest(root).read()["sha256"] == read_folder(root).digest()


def test_files_that_are_not_read_do_not_matter(root):
    remember(root)
    save(root / "test/a/0.bmp", 99)
    (root / "train/a/notes.txt").write_text("no image")
    (root / "train/a/.hidden.bmp").touch()
    assert folder_digest(root).read() is not None


def test_options_have_digests_of_their_own(root, cache, tmp_path):
    choices = [{}, {"split": "test"}, {"split": "all"}, {"image_size": 2}, {"classes": ("b",)}, {"classes": ("b", "a")}]
    for number, options in enumerate(choices):
        assert folder_digest(root, **options).read() is None
        remember(root, **options)
        assert len(list(cache.iterdir())) == number + 1
    digests = [folder_digest(root, **options).read()["sha256"] for options in choices]
    assert len(set(digests)) == len(choices)
    shutil.copytree(root, tmp_path / "copy")
    assert folder_digest(tmp_path / "copy").read() is None


@pytest.mark.parametrize("target", ["__version__", "PIL.__version__"])
def test_another_version_reads_again(root, target, monkeypatch):
    remember(root)
    if target == "__version__":
        monkeypatch.setattr(module, target, "0.0.1")
    else:
        monkeypatch.setattr(target, "1.0.0")
    assert folder_digest(root).read() is None


DAMAGED = [b"", b"{", b"[]", b"null", b"\xff", b'{"state": 1}', b'{"data": {}}', b"[" * 100_000]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_is_ignored_and_written_again(root, cache, content):
    remember(root)
    (file,) = cache.iterdir()
    known, state = file.read_bytes(), json.loads(file.read_bytes())["state"]
    file.write_bytes(content)
    assert folder_digest(root).read() is None
    for data in ("null", "3", '"x"'):
        file.write_text(f'{{"state": "{state}", "data": {data}}}')
        assert folder_digest(root).read() is None
    remember(root)
    assert file.read_bytes() == known


@pytest.mark.parametrize("place", ["a file", "a folder in place of the digest"])
def test_a_cache_that_cannot_be_written_costs_only_time(root, cache, place):
    if place == "a file":
        cache.parent.write_text("in the way")
    else:
        folder_digest(root).path.mkdir(parents=True)
    remember(root)
    assert folder_digest(root).read() is None


def test_a_folder_that_cannot_be_listed_has_no_digest(root, tmp_path):
    assert folder_digest(tmp_path / "missing") is None
    (root / "train/a/link.bmp").symlink_to(tmp_path / "missing")
    assert folder_digest(root) is None
