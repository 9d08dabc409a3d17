"""Features are encoded once a view and image, kept, looked up bit for bit, and made again if anything is wrong."""

import dataclasses
import errno
import fcntl
import os
import resource

import numpy as np
import pytest
import torch
from oracles.little_run import CPU, convnet, little_config, little_samples, little_step

from truedrift.data.class_batches import Batch
from truedrift.data.samples import Samples
from truedrift.encoders.catalog import build
from truedrift.errors import UserError
from truedrift.progress import no_progress
from truedrift.training import feature_cache
from truedrift.training.feature_cache import CachedFeatures, build_feature_cache


class Counted:
    """The encoder, and how often it saw each image."""

    def __init__(self, encoder):
        self.encoder, self.images = encoder, []

    def __call__(self, values):
        self.images += [image.numpy().tobytes() for image in values]
        return self.encoder(values)


def encoder_of(*channels, seed=1):
    return build(dataclasses.replace(convnet(*channels), seed=seed), sample_shape=(1, 8, 8))


@pytest.fixture
def made(tmp_path):
    """made(samples, encoder) → (path, images that were encoded for it)"""

    def make(samples=None, encoder=None, precision="float32", directory=tmp_path):
        encoder = encoder or encoder_of(3, 5)
        counted = Counted(encoder)
        options = {"directory": directory, "precision": precision, "device": CPU, "progress": no_progress}
        return build_feature_cache(samples or little_samples(), encoder, counted, **options), counted.images

    return make


# ---- once, and exactly ---------------------------------------------------------------------------------------------


def test_both_views_of_every_image_are_encoded_once_and_never_again(made):
    samples = little_samples()
    path, images = made(samples)
    model = samples.values.float() / 127.5 - 1
    views = [image.numpy().tobytes() for image in (*model, *model.flip(-1))]
    assert images == views  # each once, mirrored ones after the others
    assert len(set(views)) == 2 * len(samples)
    again, encoded = made(samples)
    assert (again, encoded) == (path, [])


def test_without_flips_there_is_one_view(made):
    samples = little_samples(flips=False)
    path, images = made(samples)
    assert len(images) == len(samples)
    assert np.load(path).shape == (1, 27, 8)


def test_a_lookup_is_the_file_bit_for_bit_and_a_mirrored_one_the_mirrored_view(made, monkeypatch):
    monkeypatch.setattr(feature_cache, "AT_ONCE", 10)  # 27 images in 10, 10 and 7
    samples, encoder = little_samples(), encoder_of(3, 5)
    path, _ = made(samples, encoder)
    kept = CachedFeatures(path, encoder.dimensions, CPU)
    batch = Batch(torch.tensor([26, 0, 3, 3, 9]), torch.tensor([True, False, False, True, True]))
    features = kept(batch)
    assert features.shape == (5, 2, 5)
    content = np.load(path)
    assert content.dtype == np.float32
    model = samples.values.float() / 127.5 - 1
    for row, (index, mirrored) in enumerate(zip(batch.indices.tolist(), batch.mirrored.tolist(), strict=True)):
        stored = torch.from_numpy(content[int(mirrored), index])
        assert torch.equal(features[row, 0, :3], stored[:3])
        assert torch.equal(features[row, 1], stored[3:])
        assert features[row, 0, 3:].tolist() == [0, 0]  # the narrower scale is padded
        image = model[index].flip(-1) if mirrored else model[index]
        alone = torch.cat([group[0] for group in encoder(image[None])])
        torch.testing.assert_close(stored, alone, rtol=1e-5, atol=1e-6)
    assert not torch.equal(features[2], features[3])  # the two views of one image


def test_the_file_is_mapped_and_not_read(made):
    path, _ = made()
    assert isinstance(CachedFeatures(path, (3, 5), CPU).views, np.memmap)


def test_the_whole_of_training_uses_it(monkeypatch, tmp_path):
    """Steps with kept positives have the gradients of steps that encode them, and encode generated images alone."""
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    gradients = {}
    for cached in (True, False):
        config = little_config(engine={"precision": "float32", "cached_positives": cached}, batch={"unconditional": 3})
        step = little_step(config)
        assert isinstance(step.positives.lookup, CachedFeatures) == cached
        seen = []
        step.encode.register_forward_hook(lambda module, inputs, output, seen=seen: seen.append(len(inputs[0])))
        step.gradients(0)
        assert sorted(seen) == ([12] if cached else [3, 12, 15])
        gradients[cached] = torch.cat([parameter.grad.flatten() for parameter in step.state.parameters])
    torch.testing.assert_close(gradients[True], gradients[False], rtol=1e-3, atol=1e-5)
    assert len(list((tmp_path / "features").glob("*.npy"))) == 1


@pytest.mark.parametrize("change", [{"precision": "float64"}, {"cached_positives": False}])
def test_some_runs_keep_nothing(monkeypatch, tmp_path, change):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    little_step(little_config(engine={"precision": "float32", "cached_positives": True} | change))
    assert list(tmp_path.iterdir()) == []


# ---- whose they are ------------------------------------------------------------------------------------------------


def test_other_encoders_data_and_precisions_never_share(made):
    samples = little_samples()
    moved = Samples(samples.values.roll(1, 0), samples.labels, samples.classes, "little", True)
    changed = encoder_of(3, 5)
    with torch.no_grad():
        next(changed.network.parameters()).view(-1)[0] += 1e-3
    kinds = [
        made(),
        made(encoder=encoder_of(3, 5, seed=2)),
        made(encoder=encoder_of(5, 3)),
        made(encoder=changed),
        made(samples=moved),
        made(samples=little_samples(flips=False)),
        made(precision="bfloat16"),
    ]
    assert len({path for path, _ in kinds}) == len(kinds)
    assert all(images for _, images in kinds)


def test_the_name_of_the_data_does_not_matter(made):
    path, _ = made()
    assert made(samples=little_samples(name="renamed")) == (path, [])


# ---- damage --------------------------------------------------------------------------------------------------------


def flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncated(path):
    path.write_bytes(path.read_bytes()[:-4])


DAMAGES = {
    "a flipped bit": flipped,
    "a truncated file": truncated,
    "an empty file": lambda path: path.write_bytes(b""),
    "no hash": lambda path: path.with_suffix(".sha256").unlink(),
    "half a hash": lambda path: path.with_suffix(".sha256").write_text("ab"),
    "a hash that is no text": lambda path: path.with_suffix(".sha256").write_bytes(b"\xff\xfe"),
    "no file": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_is_noticed_and_made_good(made, damage):
    path, _ = made()
    good = path.read_bytes()
    damage(path)
    again, images = made()
    assert again == path
    assert len(images) == 54
    assert path.read_bytes() == good
    assert made()[1] == []


@pytest.mark.parametrize("synced", [1, 32], ids=["what is on the disk is kept", "nothing is on the disk yet"])
def test_a_process_that_is_killed_while_it_makes_the_file_is_gone_on_with(made, tmp_path, start, monkeypatch, synced):
    """Killed at the second batch, the lock is free, and the next process encodes what is missing."""
    monkeypatch.setattr(feature_cache, "AT_ONCE", 10)
    killed = start(
        """
        import sys, time
        sys.path.insert(0, sys.argv[1])
        from pathlib import Path
        from oracles.little_run import CPU, convnet, little_samples
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
        feature_cache.build_feature_cache(little_samples(), encoder, encode, **options)
        """,
        os.path.dirname(os.path.dirname(__file__)),
        tmp_path / "cache",
        str(synced),
    )
    killed.wait_for("half")
    assert list((tmp_path / "cache").glob("*.writing"))
    killed.kill()
    assert not list((tmp_path / "cache").glob("*.npy"))
    path, images = made(directory=tmp_path / "cache")
    assert len(images) == (44 if synced == 1 else 54)
    left = {file.suffix for file in path.parent.iterdir()}
    assert left == {".npy", ".sha256", ".lock"}
    assert path.read_bytes() == made()[0].read_bytes()  # made elsewhere in peace


def test_of_two_that_want_the_same_file_one_encodes_and_the_other_waits(made, tmp_path, start):
    code = """
        import sys, time
        sys.path.insert(0, sys.argv[1])
        from pathlib import Path
        from oracles.little_run import CPU, convnet, little_samples
        from truedrift.encoders import build
        from truedrift.progress import no_progress
        from truedrift.training.feature_cache import build_feature_cache

        encoder = build(convnet(3, 5), sample_shape=(1, 8, 8))

        def encode(values):
            print("encodes", flush=True)
            time.sleep(0.3)
            return encoder(values)

        print("ready", flush=True)
        options = {"directory": Path(sys.argv[2]), "precision": "float32", "device": CPU, "progress": no_progress}
        build_feature_cache(little_samples(), encoder, encode, **options)
        """
    both = [start(code, os.path.dirname(os.path.dirname(__file__)), tmp_path / "cache") for _ in range(2)]
    assert [each.wait() for each in both] == [0, 0]
    assert sorted(each.lines for each in both) == [["ready"], ["ready", "encodes", "encodes"]]  # the two views


# ---- disks ---------------------------------------------------------------------------------------------------------


def test_a_full_disk_is_told_in_one_line_and_leaves_nothing(made, tmp_path):
    """No file may grow beyond 1000 bytes, which ends a write as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(
            UserError, match=r"features of little cannot be cached in .*space.*TRUEDRIFT_CACHE"
        ) as caught:
            made()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(caught.value)
    assert os.strerror(errno.EFBIG) in str(caught.value)
    assert {file.suffix for file in tmp_path.iterdir()} == {".lock"}
    assert len(made()[1]) == 54  # with room again


def test_a_place_that_is_none_is_told_in_one_line(made, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be cached in '.*file' \(File exists\)"):
        made(directory=tmp_path / "file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_that_cannot_be_written_can_still_be_read(made, tmp_path):
    path, _ = made()
    tmp_path.chmod(0o500)
    try:
        assert made() == (path, [])
        with pytest.raises(UserError, match="Permission denied"):
            made(encoder=encoder_of(2))
    finally:
        tmp_path.chmod(0o700)


def test_a_whole_file_needs_no_lock(made, monkeypatch):
    """A cache that others wrote may be read-only."""
    path, _ = made()
    path.with_suffix(".lock").unlink()
    monkeypatch.setattr(feature_cache, "_lock_cache", None)
    assert made() == (path, [])


def test_where_files_cannot_be_locked_the_file_is_made_all_the_same(made, monkeypatch, tmp_path):
    def refuse(descriptor, operation):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    (tmp_path / "other.writing-1").write_text("")
    path, images = made()
    assert len(images) == 54
    assert made() == (path, [])
    assert (tmp_path / "other.writing-1").exists()


def test_progress_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(feature_cache, "AT_ONCE", 20)
    told = []
    options = {"directory": tmp_path, "precision": "float32", "device": CPU}
    build_feature_cache(
        little_samples(), encoder_of(3), encoder_of(3), progress=lambda *said: told.append(said), **options
    )
    assert told == [("features of little", done, 54) for done in (20, 27, 47, 54)]
