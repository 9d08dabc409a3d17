"""IDX files are read back byte for byte, raw or gzipped, and every defect of a file is one line of three parts."""

import gzip

import numpy as np
import pytest
from oracles.idx_files import IMAGES, LABELS, encoded, put

from truedrift.data import images
from truedrift.data.images import holds_idx, read_idx, read_split

NAMES = ("a", "b", "c")


def read(folder, split):
    return read_split(folder, split, name="few", classes=NAMES, flips=True)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("dotted", [True, False])
def test_images_and_labels_round_trip(tmp_path, zipped, dotted):
    put(tmp_path, zipped, dotted)
    assert holds_idx(tmp_path)
    train, test = read(tmp_path, "train"), read(tmp_path, "test")
    assert np.array_equal(train.values.numpy(), IMAGES[:, None])
    assert train.labels.tolist() == LABELS.tolist()
    assert test.values[1, 0, 1, 2] == IMAGES[2, 1, 2]
    assert test.labels.tolist() == [0, 2]
    assert (train.classes, train.name, train.flips) == (NAMES, "few", True)


def test_a_folder_without_one_file_does_not_hold_the_set(tmp_path):
    put(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    assert not holds_idx(tmp_path)
    assert len(read(tmp_path, "train")) == 5
    with pytest.raises(ValueError, match=r"holds no file t10k-labels-idx1-ubyte; must be .*; check the directory"):
        read(tmp_path, "test")


WHOLE = encoded(IMAGES)
BAD = {
    "empty": (b"", "it begins with nothing instead of 00 00 08 03"),
    "labels": (encoded(LABELS), "it begins with 00 00 08 01 instead of 00 00 08 03"),
    "floats": (b"\x00\x00\x0d\x03" + WHOLE[4:], "it begins with 00 00 0d 03"),
    "header": (WHOLE[:9], "unpack requires a buffer of 12 bytes"),
    "short": (WHOLE[:-1], "it claims 30 bytes and has 29"),
    "long": (WHOLE + b"\0", "it claims 30 bytes and has more"),
    "huge": (WHOLE[:4] + b"\xff" * 12 + WHOLE[16:], "it claims 79228162458924105385300197375 bytes"),
    "none": (WHOLE[:4] + b"\0" * 12, "it claims 0 bytes"),
}


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_line_of_three_parts(tmp_path, name, suffix):
    content, message = BAD[name]
    path = tmp_path / f"{name}{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    with pytest.raises(ValueError, match=rf"cannot be read as IDX \({message}.*\); must be .*; fetch it again$"):
        read_idx(path, 3)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda whole: b"no gzip at all", "Not a gzipped file"),
        (lambda whole: whole[:-12], "Compressed file ended"),
        (lambda whole: whole[:-8] + b"12345678", "CRC check failed"),
        (lambda whole: whole[:12] + b"\xff\xff" + whole[14:], "Error -3"),
    ],
)
def test_a_damaged_gzip_is_refused(tmp_path, damage, message):
    path = tmp_path / "damaged.gz"
    path.write_bytes(damage(gzip.compress(encoded(np.random.default_rng(0).integers(256, size=(9, 9, 9), dtype="u1")))))
    with pytest.raises(ValueError, match=rf"cannot be read as IDX \({message}"):
        read_idx(path, 3)


def test_no_more_than_it_claims_is_decompressed(tmp_path, monkeypatch):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(WHOLE + bytes(50_000_000)))
    taken = []
    read = gzip.GzipFile.read
    monkeypatch.setattr(gzip.GzipFile, "read", lambda self, size: taken.append(size) or read(self, size))
    with pytest.raises(ValueError, match="it claims 30 bytes and has more"):
        read_idx(path, 3)
    assert max(taken) == 31


def test_more_than_the_limit_is_refused_before_allocation(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "LARGEST_BYTES", 29)
    (tmp_path / "a").write_bytes(WHOLE)
    with pytest.raises(ValueError, match="it claims 30 bytes, which is not in 1 to 29"):
        read_idx(tmp_path / "a", 3)


def test_one_label_per_image(tmp_path):
    put(tmp_path, zipped=False)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(encoded(LABELS[:4]))
    with pytest.raises(ValueError, match=r"has 5 images and 4 labels of the train split; .*; fetch both files again"):
        read(tmp_path, "train")


def test_a_label_beyond_the_classes(tmp_path):
    put(tmp_path, zipped=False)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(encoded(LABELS + 1))
    with pytest.raises(ValueError, match=r"labels of few range from 1 to 3; must be 0 to 2, "):
        read(tmp_path, "train")
