"""IDX and CIFAR files are read back byte for byte, and every defect of a file is one line of three parts."""

import gzip
import hashlib
import io
import tarfile

import numpy as np
import pytest
from oracles.idx_files import IMAGES, LABELS, encode_idx, write_files

from truedrift.data import PinnedFile, images

# ---- IDX ----

NAMES = ("a", "b", "c")


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """The class names of a data set `few`."""
    monkeypatch.setitem(images.IDX, "few", NAMES)


def read_split(folder, split):
    return images.read_idx_split(images.find_idx(folder), "few", split)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("dotted", [True, False])
def test_idx_images_and_labels_round_trip(tmp_path, zipped, dotted):
    write_files(tmp_path, zipped, dotted)
    train, test = read_split(tmp_path, "train"), read_split(tmp_path, "test")
    assert np.array_equal(train.values.numpy(), IMAGES[:, None])
    assert train.labels.tolist() == LABELS.tolist()
    assert test.values[1, 0, 1, 2] == IMAGES[2, 1, 2]
    assert test.labels.tolist() == [0, 2]
    assert (train.classes, train.name, train.flips) == (NAMES, "few", False)


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"])
def test_a_folder_without_one_of_the_four_files_is_not_found(tmp_path, name):
    (write_files(tmp_path) / name).unlink()
    assert images.find_idx(tmp_path) is None


WHOLE = encode_idx(IMAGES)
BAD = {
    "empty": (b"", "it begins with nothing instead of 00 00 08 03"),
    "labels": (encode_idx(LABELS), "it begins with 00 00 08 01 instead of 00 00 08 03"),
    "floats": (b"\x00\x00\x0d\x03" + WHOLE[4:], "it begins with 00 00 0d 03"),
    "header": (WHOLE[:9], "unpack requires a buffer of 12 bytes"),
    "short": (WHOLE[:-1], "it claims 30 bytes and has 29"),
    "long": (WHOLE + b"\0", "it claims 30 bytes and has more"),
    "huge": (WHOLE[:4] + b"\xff" * 12 + WHOLE[16:], "it claims 79228162458924105385300197375 bytes"),
    "none": (WHOLE[:4] + b"\0" * 12, "it claims 0 bytes"),
}


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("name", BAD)
def test_a_bad_idx_file_is_one_line_of_three_parts(tmp_path, name, suffix):
    content, message = BAD[name]
    path = tmp_path / f"{name}{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    with pytest.raises(ValueError, match=rf"cannot be read as IDX \({message}.*\); must be .*; fetch it again$"):
        images.read_idx(path, 3)


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
    path.write_bytes(
        damage(gzip.compress(encode_idx(np.random.default_rng(0).integers(256, size=(9, 9, 9), dtype="u1"))))
    )
    with pytest.raises(ValueError, match=rf"cannot be read as IDX \({message}"):
        images.read_idx(path, 3)


def test_decompression_stops_after_the_claimed_size(tmp_path, monkeypatch):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(WHOLE + bytes(50_000_000)))
    taken = []
    read = gzip.GzipFile.read
    monkeypatch.setattr(gzip.GzipFile, "read", lambda self, size: taken.append(size) or read(self, size))
    with pytest.raises(ValueError, match="it claims 30 bytes and has more"):
        images.read_idx(path, 3)
    assert max(taken) == 31


def test_more_than_the_limit_is_refused_before_allocation(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "LARGEST_BYTES", 29)
    (tmp_path / "a").write_bytes(WHOLE)
    with pytest.raises(ValueError, match="it claims 30 bytes, which is not in 1 to 29"):
        images.read_idx(tmp_path / "a", 3)


def test_a_compressed_file_may_not_claim_more_than_a_multiple_of_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "ALWAYS_ALLOWED", 100)
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(encode_idx(np.zeros((200, 40, 40), dtype=np.uint8)), mtime=0))
    with pytest.raises(ValueError, match=rf"it claims 320000 bytes, which is not in 1 to {100 * path.stat().st_size}"):
        images.read_idx(path, 3)


def test_the_numbers_of_images_and_labels_must_agree(tmp_path):
    write_files(tmp_path, zipped=False)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(encode_idx(LABELS[:4]))
    with pytest.raises(ValueError, match=r"has 5 images and 4 labels of the train split; .*; fetch both files again"):
        read_split(tmp_path, "train")


def test_an_idx_label_beyond_the_classes_is_refused(tmp_path):
    write_files(tmp_path, zipped=False)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(encode_idx(LABELS + 1))
    with pytest.raises(ValueError, match=r"labels of few range from 1 to 3; must be 0 to 2, "):
        read_split(tmp_path, "train")


# ---- CIFAR ----

RECORDS = 4


def random_records(label_bytes, seed):
    """Records of labels and images, as bytes and as arrays."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(3, size=(RECORDS, label_bytes), dtype=np.uint8)
    if label_bytes == 2:
        labels[:, 0] += 17  # coarse labels differ from all fine labels
    images = generator.integers(256, size=(RECORDS, 3, 32, 32), dtype=np.uint8)
    return np.concatenate((labels, images.reshape(RECORDS, -1)), axis=1).tobytes(), labels[:, -1], images


def pinned(name, data):
    return PinnedFile(name, len(data), hashlib.sha256(data).hexdigest())


class SmallCifar:
    """A data set of three files, two of them of the train split."""

    def __init__(self, label_bytes):
        self.parts = {
            name: random_records(label_bytes, seed) for seed, name in enumerate(("one.bin", "two.bin", "test.bin"))
        }
        self.files = {name: data for name, (data, *_) in self.parts.items()}
        pins = tuple(pinned(name, data) for name, data in self.files.items())
        self.layout = images.CifarFormat("little", "little.tar.gz", "little-bin", pins, ("x", "y", "z"), label_bytes)

    def archive(self, path, files=None, prefix="little-bin/"):
        with tarfile.open(path, "w:gz") as archive:
            for name, data in (files or self.files).items():
                member = tarfile.TarInfo(prefix + name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        return path

    def folder(self, path, files=None):
        path.mkdir(parents=True)
        for name, data in (files or self.files).items():
            (path / name).write_bytes(data)
        return path

    def expect(self, samples, *names):
        labels, images = (np.concatenate([self.parts[name][k] for name in names]) for k in (1, 2))
        assert np.array_equal(samples.values.numpy(), images)
        assert samples.labels.tolist() == labels.tolist()


@pytest.fixture(params=[1, 2], ids=["one label", "coarse and fine label"])
def little(request):
    return SmallCifar(request.param)


@pytest.mark.parametrize("form", ["archive", "folder"])
def test_cifar_images_and_fine_labels_round_trip(little, tmp_path, form):
    place = getattr(little, form)(tmp_path / "place.tar.gz")
    train = images.read_cifar(place, little.layout, "train")
    little.expect(train, "one.bin", "two.bin")
    little.expect(images.read_cifar(place, little.layout, "test"), "test.bin")
    assert (train.classes, train.name, train.flips) == (("x", "y", "z"), "little", True)


def test_the_order_of_members_does_not_matter(little, tmp_path):
    backwards = dict(reversed(little.files.items()))
    little.expect(
        images.read_cifar(little.archive(tmp_path / "a", backwards), little.layout, "train"), "one.bin", "two.bin"
    )


def test_nothing_is_extracted(little, tmp_path):
    place = little.archive(tmp_path / "a.tar.gz")
    images.read_cifar(place, little.layout, "train")
    assert list(tmp_path.iterdir()) == [place]


def test_find_cifar(little, tmp_path):
    assert images.find_cifar(tmp_path, little.layout) is None
    archive = little.archive(tmp_path / "little.tar.gz")
    assert images.find_cifar(tmp_path, little.layout) == images.find_cifar(archive, little.layout) == archive
    folder = little.folder(tmp_path / "little-bin")
    assert images.find_cifar(tmp_path, little.layout) == images.find_cifar(folder, little.layout) == folder
    (folder / "test.bin").unlink()
    assert images.find_cifar(tmp_path, little.layout) == archive


def change_one_bit(data):
    return data[:1000] + bytes((data[1000] ^ 1,)) + data[1001:]


@pytest.mark.parametrize("form", ["archive", "folder"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda files: files | {"two.bin": change_one_bit(files["two.bin"])}, "the sha256 of two.bin differs from"),
        (lambda files: files | {"two.bin": files["one.bin"]}, "the sha256 of two.bin differs from"),
        (lambda files: files | {"two.bin": files["two.bin"][:-1]}, "the sha256 of two.bin differs from"),
        (lambda files: files | {"two.bin": files["two.bin"] + b"0"}, "the sha256 of two.bin differs from"),
        (lambda files: {"one.bin": files["one.bin"]}, "two.bin is missing"),
    ],
)
def test_a_copy_that_differs_is_refused(little, tmp_path, form, damage, message):
    place = getattr(little, form)(tmp_path / "place", damage(little.files))
    with pytest.raises(ValueError, match=rf"cannot be read as CIFAR \({message}.*\); must be .*; fetch it again$"):
        images.read_cifar(place, little.layout, "train")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda whole: b"no archive", "not a gzip file"),
        (lambda whole: whole[: len(whole) // 2], ""),
        (lambda whole: whole[:500] + b"\xff" * 50 + whole[550:], ""),
        (lambda whole: b"", ""),
    ],
)
def test_a_damaged_archive_is_one_line(little, tmp_path, damage, message):
    place = little.archive(tmp_path / "a.tar.gz")
    place.write_bytes(damage(place.read_bytes()))
    with pytest.raises(ValueError, match=rf"cannot be read as CIFAR \({message}.*\); .*; ") as caught:
        images.read_cifar(place, little.layout, "train")
    assert "\n" not in str(caught.value)


def test_links_in_an_archive_are_skipped(little, tmp_path):
    place = tmp_path / "a.tar.gz"
    with tarfile.open(place, "w:gz") as archive:
        for name in little.files:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(member)
    with pytest.raises(ValueError, match=r"one\.bin is missing"):
        images.read_cifar(place, little.layout, "train")


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.GNUTYPE_SPARSE])
def test_a_large_header_in_an_archive_is_refused(little, tmp_path, monkeypatch, kind):
    """tarfile would read it into memory."""
    monkeypatch.setattr(images, "LARGEST_HEADER", 1000)
    member = tarfile.TarInfo("x")
    member.type, member.size = kind, 5000
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(member.tobuf() + bytes(5120)))
    with pytest.raises(ValueError, match=r"a header of type .* claims 5000 bytes"):
        images.read_cifar(tmp_path / "a.tar.gz", little.layout, "train")


def test_an_archive_of_too_many_members_is_refused(little, tmp_path, monkeypatch):
    monkeypatch.setattr(images, "MOST_MEMBERS", 10)
    place = little.archive(tmp_path / "a.tar.gz", {f"{number}.txt": b"" for number in range(11)})
    with pytest.raises(ValueError, match="it has more than 10 members"):
        images.read_cifar(place, little.layout, "train")


def test_a_cifar_label_beyond_the_classes_is_refused(tmp_path):
    data = bytes((3,)) + bytes(3072)
    layout = images.CifarFormat("little", "", "", (pinned("one.bin", data),) * 2, ("x", "y", "z"), 1)
    (tmp_path / "one.bin").write_bytes(data)
    with pytest.raises(ValueError, match="labels of little range from 3 to 3; must be 0 to 2"):
        images.read_cifar(tmp_path, layout, "train")


@pytest.mark.parametrize(("name", "classes"), [("cifar10", 10), ("cifar100", 100)])
def test_the_official_layouts_hold_60_000_records(name, classes):
    layout = images.CIFAR[name]
    record = layout.label_bytes + 3072
    assert sum(part.size for part in layout.files[:-1]) == 50_000 * record
    assert layout.files[-1].size == 10_000 * record
    assert len(set(layout.classes)) == len(layout.classes) == classes
    assert list(layout.classes) == sorted(layout.classes)  # classes are numbered alphabetically
    assert len({part.sha256 for part in layout.files}) == len(layout.files)
    assert all(len(bytes.fromhex(part.sha256)) == 32 for part in layout.files)
