"""The feature cache: each view is encoded once, looked up bit for bit, and rebuilt after damage.

The last part tests `write_resumable`, which continues an interrupted file after its last complete piece.
"""

import dataclasses
import errno
import fcntl
import os
import re
import resource
import shutil

import numpy as np
import pytest
import torch
from oracles.small_run import CPU, build_small_step, convnet, small_config, small_samples

from truedrift.data import Batch, Samples
from truedrift.encoders import build
from truedrift.errors import UserError
from truedrift.progress import no_progress
from truedrift.training import CachedFeatures, build_feature_cache, feature_cache


class RecordingEncoder:
    """An encoder that records the images it was called with."""

    def __init__(self, encoder):
        self.encoder, self.images = encoder, []

    def __call__(self, values):
        self.images += [image.numpy().tobytes() for image in values]
        return self.encoder(values)


def build_encoder(*channels, seed=1):
    return build(dataclasses.replace(convnet(*channels), seed=seed), sample_shape=(1, 8, 8))


@pytest.fixture
def build_cache(tmp_path):
    """build_cache(samples, encoder) → (path, images that were encoded for it)"""

    def build_and_record(samples=None, encoder=None, precision="float32", directory=tmp_path):
        encoder = encoder or build_encoder(3, 5)
        recording = RecordingEncoder(encoder)
        options = {"directory": directory, "precision": precision, "device": CPU, "progress": no_progress}
        return build_feature_cache(samples or small_samples(), encoder, recording, **options), recording.images

    return build_and_record


# ---- Content ----


def test_both_views_of_every_image_are_encoded_once(build_cache):
    samples = small_samples()
    path, images = build_cache(samples)
    model = samples.values.float() / 127.5 - 1
    views = [image.numpy().tobytes() for image in (*model, *model.flip(-1))]
    assert images == views  # each once, mirrored views after the others
    assert len(set(views)) == 2 * len(samples)
    assert build_cache(samples) == (path, [])


def test_one_view_without_flips(build_cache):
    samples = small_samples(flips=False)
    path, images = build_cache(samples)
    assert len(images) == len(samples)
    assert np.load(path).shape == (1, 27, 8)


def test_lookup_returns_the_stored_view_bit_for_bit(build_cache, monkeypatch):
    monkeypatch.setattr(feature_cache, "AT_ONCE", 10)  # 27 images in 10, 10 and 7
    samples, encoder = small_samples(), build_encoder(3, 5)
    path, _ = build_cache(samples, encoder)
    cache = CachedFeatures(path, encoder, CPU)
    batch = Batch(torch.tensor([26, 0, 3, 3, 9]), torch.tensor([True, False, False, True, True]))
    features = cache(batch)
    assert features.shape == (5, 8)
    content = np.load(path)
    assert content.dtype == np.float32
    model = samples.values.float() / 127.5 - 1
    for row, (index, mirrored) in enumerate(zip(batch.indices.tolist(), batch.mirrored.tolist(), strict=True)):
        stored = torch.from_numpy(content[int(mirrored), index])
        assert torch.equal(features[row], stored)
        image = model[index].flip(-1) if mirrored else model[index]
        expected = torch.cat([group[0] for group in encoder(image[None])])
        torch.testing.assert_close(stored, expected, rtol=1e-5, atol=1e-6)
    assert not torch.equal(features[2], features[3])  # the two views of one image


@pytest.mark.parametrize("pooling", ["locations", "pyramid"])
def test_feature_maps_are_stored_as_float16_and_pooled_after_reading(tmp_path, pooling):
    """The pyramid has more numbers than the maps, so that the maps are stored."""
    samples = small_samples()
    encoder = build(dataclasses.replace(convnet(3, 5), pooling=pooling), sample_shape=(1, 8, 8))
    options = {"directory": tmp_path, "precision": "float32", "device": CPU, "progress": no_progress}
    path = build_feature_cache(samples, encoder, encoder.encode_stored, **options)
    content = np.load(path)
    assert (content.dtype, content.shape) == (np.float16, (2, 27, 3 * 64 + 5 * 16))
    batch = Batch(torch.tensor([26, 0, 3]), torch.tensor([True, False, True]))
    features = CachedFeatures(path, encoder, CPU)(batch)
    model = samples.values.float() / 127.5 - 1
    for row, (index, mirrored) in enumerate(zip(batch.indices.tolist(), batch.mirrored.tolist(), strict=True)):
        image = model[index].flip(-1) if mirrored else model[index]
        expected = torch.cat([group[0].flatten() for group in encoder(image[None])])
        torch.testing.assert_close(features[row], expected, rtol=2e-3, atol=2e-3)
        other = torch.cat([group[0].flatten() for group in encoder(model[index][None])])
        assert mirrored == (not torch.allclose(features[row], other, rtol=2e-3, atol=2e-3))


def test_too_little_space_is_said_before_encoding(build_cache, monkeypatch):
    usage = shutil.disk_usage(".")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(
        UserError, match=r"features of small take 0.0 MB and .* has 0.0 MB left; must fit on the disk; "
    ):
        build_cache()


def test_file_is_memory_mapped(build_cache):
    path, _ = build_cache()
    assert isinstance(CachedFeatures(path, build_encoder(3, 5), CPU).views, np.memmap)


def test_steps_with_cached_positives_have_the_same_gradients(monkeypatch, tmp_path):
    """They encode only the generated images."""
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    gradients = {}
    for cached in (True, False):
        config = small_config(engine={"precision": "float32", "cached_positives": cached}, batch={"unconditional": 3})
        step = build_small_step(config)
        assert isinstance(step.positives.lookup, CachedFeatures) == cached
        sizes = []
        step.encode.register_forward_hook(lambda module, inputs, output, sizes=sizes: sizes.append(len(inputs[0])))
        step.gradients(0)
        assert sorted(sizes) == ([12] if cached else [3, 12, 15])
        gradients[cached] = torch.cat([parameter.grad.flatten() for parameter in step.state.parameters])
    torch.testing.assert_close(gradients[True], gradients[False], rtol=1e-3, atol=1e-5)
    assert len(list((tmp_path / "features").glob("*.npy"))) == 1


@pytest.mark.parametrize("change", [{"precision": "float64"}, {"cached_positives": False}])
def test_cache_is_not_used_in_float64_or_if_disabled(monkeypatch, tmp_path, change):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    build_small_step(small_config(engine={"precision": "float32", "cached_positives": True} | change))
    assert list(tmp_path.iterdir()) == []


# ---- File name ----


def test_other_encoder_data_or_precision_has_another_file(build_cache):
    samples = small_samples()
    rolled = Samples(samples.values.roll(1, 0), samples.labels, samples.classes, "small", True)
    changed = build_encoder(3, 5)
    with torch.no_grad():
        next(changed.network.parameters()).view(-1)[0] += 1e-3
    caches = [
        build_cache(),
        build_cache(encoder=build_encoder(3, 5, seed=2)),
        build_cache(encoder=build_encoder(5, 3)),
        build_cache(encoder=changed),
        build_cache(samples=rolled),
        build_cache(samples=small_samples(flips=False)),
        build_cache(precision="bfloat16"),
    ]
    assert len({path for path, _ in caches}) == len(caches)
    assert all(images for _, images in caches)


def test_file_does_not_depend_on_the_name_of_the_data(build_cache):
    path, _ = build_cache()
    assert build_cache(samples=small_samples(name="renamed")) == (path, [])


# ---- Damage and interruptions ----


def flip_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-4])


DAMAGES = {
    "a flipped bit": flip_bit,
    "a truncated file": truncate,
    "an empty file": lambda path: path.write_bytes(b""),
    "no hash": lambda path: path.with_suffix(".sha256").unlink(),
    "half a hash": lambda path: path.with_suffix(".sha256").write_text("ab"),
    "a hash that is not text": lambda path: path.with_suffix(".sha256").write_bytes(b"\xff\xfe"),
    "no file": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_cache_is_rebuilt(build_cache, damage):
    path, _ = build_cache()
    good = path.read_bytes()
    damage(path)
    rebuilt, images = build_cache()
    assert rebuilt == path
    assert len(images) == 54
    assert path.read_bytes() == good
    assert build_cache()[1] == []


@pytest.mark.parametrize("sync_every", [1, 32], ids=["first piece on disk", "no piece on disk"])
def test_killed_build_is_continued(build_cache, tmp_path, start, monkeypatch, sync_every):
    """After a kill in the second batch the lock is free, and the next process encodes what is missing."""
    monkeypatch.setattr(feature_cache, "AT_ONCE", 10)
    process = start(
        """
        import sys, time
        sys.path.insert(0, sys.argv[1])
        from pathlib import Path
        from oracles.small_run import CPU, convnet, small_samples
        from truedrift.encoders import build
        from truedrift.progress import no_progress
        from truedrift.training import feature_cache

        feature_cache.AT_ONCE, feature_cache.SYNC_EVERY = 10, int(sys.argv[3])
        encoder, calls = build(convnet(3, 5), sample_shape=(1, 8, 8)), []

        def encode(values):
            calls.append(len(values))
            if len(calls) == 2:
                print("half", flush=True)
                time.sleep(60)
            return encoder(values)

        options = {"directory": Path(sys.argv[2]), "precision": "float32", "device": CPU, "progress": no_progress}
        feature_cache.build_feature_cache(small_samples(), encoder, encode, **options)
        """,
        os.path.dirname(os.path.dirname(__file__)),
        tmp_path / "cache",
        str(sync_every),
    )
    process.wait_for("half")
    assert list((tmp_path / "cache").glob("*.writing"))
    process.kill()
    assert not list((tmp_path / "cache").glob("*.npy"))
    path, images = build_cache(directory=tmp_path / "cache")
    assert len(images) == (44 if sync_every == 1 else 54)
    assert {file.suffix for file in path.parent.iterdir()} == {".npy", ".sha256", ".lock"}
    assert path.read_bytes() == build_cache()[0].read_bytes()  # built elsewhere without interruption


def test_second_process_waits_for_the_first(build_cache, tmp_path, start):
    code = """
        import sys, time
        sys.path.insert(0, sys.argv[1])
        from pathlib import Path
        from oracles.small_run import CPU, convnet, small_samples
        from truedrift.encoders import build
        from truedrift.progress import no_progress
        from truedrift.training import build_feature_cache

        encoder = build(convnet(3, 5), sample_shape=(1, 8, 8))

        def encode(values):
            print("encodes", flush=True)
            time.sleep(0.3)
            return encoder(values)

        print("ready", flush=True)
        options = {"directory": Path(sys.argv[2]), "precision": "float32", "device": CPU, "progress": no_progress}
        build_feature_cache(small_samples(), encoder, encode, **options)
        """
    processes = [start(code, os.path.dirname(os.path.dirname(__file__)), tmp_path / "cache") for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    # Only one process encodes, once per view.
    assert sorted(process.lines for process in processes) == [["ready"], ["ready", "encodes", "encodes"]]


# ---- Disk errors ----


def test_full_disk_error_is_one_line_and_leaves_no_file(build_cache, tmp_path):
    """Files are limited to 1000 bytes, so that a write fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(
            UserError, match=r"features of small cannot be cached in .*space.*TRUEDRIFT_CACHE"
        ) as caught:
            build_cache()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(caught.value)
    assert os.strerror(errno.EFBIG) in str(caught.value)
    assert {file.suffix for file in tmp_path.iterdir()} == {".lock"}
    assert len(build_cache()[1]) == 54  # without the limit


def test_file_in_place_of_the_directory_is_rejected(build_cache, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be cached in '.*file' \(File exists\)"):
        build_cache(directory=tmp_path / "file")


@pytest.mark.skipif(os.geteuid() == 0, reason="needs a user other than root, who may write everywhere")
def test_read_only_cache_can_be_read(build_cache, tmp_path):
    path, _ = build_cache()
    tmp_path.chmod(0o500)
    try:
        assert build_cache() == (path, [])
        with pytest.raises(UserError, match="Permission denied"):
            build_cache(encoder=build_encoder(2))
    finally:
        tmp_path.chmod(0o700)


def test_complete_file_needs_no_lock(build_cache, monkeypatch):
    """A cache of another user may be read-only."""
    path, _ = build_cache()
    path.with_suffix(".lock").unlink()
    monkeypatch.setattr(feature_cache, "FileLock", None)
    assert build_cache() == (path, [])


def test_a_file_system_without_locks_is_reported(build_cache, monkeypatch):
    def fail(descriptor, operation):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(UserError, match=r"cannot be cached in .*Function not implemented.*; set TRUEDRIFT_CACHE"):
        build_cache()


def test_progress_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(feature_cache, "AT_ONCE", 20)
    calls = []
    options = {"directory": tmp_path, "precision": "float32", "device": CPU}
    build_feature_cache(
        small_samples(),
        build_encoder(3),
        build_encoder(3),
        progress=lambda *arguments: calls.append(arguments),
        **options,
    )
    assert calls == [("features of small", done, 54) for done in (20, 27, 47, 54)]


# ---- write_resumable ----

PIECES = [b"head", b"a" * 10, b"bb" * 10, b"", b"c" * 7]
SIZES = [len(piece) for piece in PIECES]


class Interruption(BaseException):
    pass


@pytest.fixture
def write_file(tmp_path):
    """write_file(until) → (content, computed pieces). Writing is interrupted before the piece `until`."""
    path = tmp_path / "file"

    def write_until(until=None):
        computed = []

        def piece(number):
            if number == until:
                raise Interruption
            computed.append(number)
            return PIECES[number]

        try:
            feature_cache.write_resumable(path, SIZES, piece)
        except Interruption:
            return None, computed
        return path.read_bytes(), computed

    write_until.path = path
    return write_until


@pytest.mark.parametrize("until", range(5))
def test_interrupted_file_is_continued(write_file, until):
    assert write_file(until) == (None, list(range(until)))
    assert write_file() == (b"".join(PIECES), list(range(until, 5)))


def test_file_interrupted_at_every_piece(write_file):
    for until in range(5):
        assert write_file(until)[1] == list(range(max(0, until - 1), until))
    assert write_file() == (b"".join(PIECES), [4])
    assert write_file() == (b"".join(PIECES), [])


@pytest.mark.parametrize(
    ("change", "computed"),
    {
        "more than was counted": (lambda path, count: path.write_bytes(path.read_bytes() + b"half of one"), [3, 4]),
        "less than was counted": (lambda path, count: path.write_bytes(path.read_bytes()[:-1]), [0, 1, 2, 3, 4]),
        "a changed byte": (lambda path, count: path.write_bytes(b"b" + path.read_bytes()[1:]), [0, 1, 2, 3, 4]),
        "no file": (lambda path, count: path.unlink(), [0, 1, 2, 3, 4]),
        "no count": (lambda path, count: count.unlink(), [0, 1, 2, 3, 4]),
        "a count that is not a number": (lambda path, count: count.write_text("x"), [0, 1, 2, 3, 4]),
        "too large a count": (lambda path, count: count.write_text("6"), [0, 1, 2, 3, 4]),
        "a negative count": (lambda path, count: count.write_text("-1"), [0, 1, 2, 3, 4]),
    }.values(),
)
def test_file_is_rewritten_if_count_and_file_disagree(write_file, change, computed):
    write_file(3)
    change(write_file.path, write_file.path.with_name("file.pieces"))
    assert write_file() == (b"".join(PIECES), computed)


def test_count_is_written_at_intervals(write_file, monkeypatch):
    monkeypatch.setattr(feature_cache, "SYNC_EVERY", 2)
    counts, write_count = [], feature_cache._write_count
    monkeypatch.setattr(
        feature_cache,
        "_write_count",
        lambda path, file, done, sha256: (counts.append(done), write_count(path, file, done, sha256)),
    )
    write_file()
    assert counts == [2, 4, 5]


def test_unfinished_file_is_removed_from_a_full_disk(write_file, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, hard))
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            write_file()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
    assert write_file()[0] == b"".join(PIECES)


def test_remove_unfinished_removes_file_and_count(write_file, tmp_path):
    write_file()
    feature_cache.remove_unfinished(write_file.path)
    feature_cache.remove_unfinished(write_file.path)
    assert list(tmp_path.iterdir()) == []


def test_size_and_free_space_are_said_before_encoding(tmp_path):
    messages = []

    def encode(values):
        assert len(messages) == 1
        return encoder(values)

    encoder = build_encoder(3, 5)
    options = {"directory": tmp_path, "precision": "float32", "device": CPU, "progress": no_progress}
    build_feature_cache(small_samples(), encoder, encode, notify=messages.append, **options)
    size = 2 * len(small_samples()) * encoder.stored_size * 4 / 1e6
    assert re.fullmatch(
        rf"encoding .+ once: {size:.1f} MB in {re.escape(str(tmp_path))}, which has [\d.]+ .B left", messages[0]
    )
    build_feature_cache(small_samples(), encoder, encode, notify=messages.append, **options)
    assert len(messages) == 1  # the file is there
