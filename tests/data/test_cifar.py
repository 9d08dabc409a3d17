"""CIFAR's binary format on small archives: bytes are read back, and damaged copies are refused."""

import hashlib
import io
import tarfile

import numpy as np
import pytest

from truedrift.data.download import PinnedFile
from truedrift.data.images import CIFAR10, CIFAR100, CifarFormat, find_cifar, read_cifar

RECORDS = 4


def made(label_bytes, seed):
    """Records of labels and images, as bytes and as arrays."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(3, size=(RECORDS, label_bytes), dtype=np.uint8)
    if label_bytes == 2:
        labels[:, 0] += 17  # coarse labels that are no fine ones
    images = generator.integers(256, size=(RECORDS, 3, 32, 32), dtype=np.uint8)
    return np.concatenate((labels, images.reshape(RECORDS, -1)), axis=1).tobytes(), labels[:, -1], images


class Little:
    """A data set of three files, two of them of the train split."""

    def __init__(self, label_bytes):
        self.parts = {name: made(label_bytes, seed) for seed, name in enumerate(("one.bin", "two.bin", "test.bin"))}
        pins = [
            PinnedFile(name, len(data), hashlib.sha256(data).hexdigest()) for name, (data, *_) in self.parts.items()
        ]
        self.layout = CifarFormat("little", "little.tar.gz", "little-bin", (*pins[:2],), (pins[2],), "names.txt",
                             ("x", "y", "z"), label_bytes)  # fmt: skip
        self.files = {name: data for name, (data, *_) in self.parts.items()}

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
    return Little(request.param)


@pytest.mark.parametrize("form", ["archive", "folder"])
def test_images_and_fine_labels_round_trip(little, tmp_path, form):
    place = getattr(little, form)(tmp_path / "place.tar.gz")
    train = read_cifar(place, little.layout, "train")
    little.expect(train, "one.bin", "two.bin")
    little.expect(read_cifar(place, little.layout, "test"), "test.bin")
    assert (train.classes, train.name, train.flips) == (("x", "y", "z"), "little", True)


def test_the_order_of_members_does_not_matter(little, tmp_path):
    backwards = dict(reversed(little.files.items()))
    little.expect(read_cifar(little.archive(tmp_path / "a", backwards), little.layout, "train"), "one.bin", "two.bin")


def test_nothing_is_extracted(little, tmp_path):
    place = little.archive(tmp_path / "a.tar.gz")
    read_cifar(place, little.layout, "train")
    assert list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize("form", ["archive", "folder"])
@pytest.mark.parametrize(
    ("text", "classes"),
    [(b"p\nq\nr\n\n", ("p", "q", "r")), (b"p\nq\n", ("x", "y", "z")), (b"\xff\xfe\n", ("x", "y", "z"))],
)
def test_class_names_in_the_data_are_used_if_there_is_one_per_class(little, tmp_path, form, text, classes):
    place = getattr(little, form)(tmp_path / "place", little.files | {"names.txt": text})
    assert read_cifar(place, little.layout, "test").classes == classes


def test_find_cifar(little, tmp_path):
    assert find_cifar(tmp_path, little.layout) is None
    archive = little.archive(tmp_path / "little.tar.gz")
    assert find_cifar(tmp_path, little.layout) == find_cifar(archive, little.layout) == archive
    folder = little.folder(tmp_path / "little-bin")
    assert find_cifar(tmp_path, little.layout) == find_cifar(folder, little.layout) == folder
    (folder / "test.bin").unlink()
    assert find_cifar(tmp_path, little.layout) == archive


def changed(data):
    return data[:1000] + bytes((data[1000] ^ 1,)) + data[1001:]


@pytest.mark.parametrize("form", ["archive", "folder"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda files: files | {"two.bin": changed(files["two.bin"])}, "the sha256 of two.bin differs from"),
        (lambda files: files | {"two.bin": files["one.bin"]}, "the sha256 of two.bin differs from"),
        (lambda files: files | {"two.bin": files["two.bin"][:-1]}, r"two.bin has \d+ instead of \d+ bytes"),
        (lambda files: files | {"two.bin": files["two.bin"] + b"0"}, r"two.bin has more than \d+ bytes"),
        (lambda files: {"one.bin": files["one.bin"]}, "two.bin is missing"),
    ],
)
def test_a_copy_that_differs_is_refused(little, tmp_path, form, damage, message):
    place = getattr(little, form)(tmp_path / "place", damage(little.files))
    with pytest.raises(ValueError, match=rf"cannot be read as CIFAR \({message}.*\); must be .*; fetch it again$"):
        read_cifar(place, little.layout, "train")


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
        read_cifar(place, little.layout, "train")
    assert "\n" not in str(caught.value)


def test_links_in_an_archive_are_skipped(little, tmp_path):
    place = tmp_path / "a.tar.gz"
    with tarfile.open(place, "w:gz") as archive:
        for name in little.files:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(member)
    with pytest.raises(ValueError, match=r"one\.bin is missing"):
        read_cifar(place, little.layout, "train")


def test_a_label_beyond_the_classes_is_refused(tmp_path):
    data = bytes((3,)) + bytes(3072)
    pin = PinnedFile("one.bin", len(data), hashlib.sha256(data).hexdigest())
    layout = CifarFormat("little", "", "", (pin,), (pin,), "names.txt", ("x", "y", "z"), 1)
    (tmp_path / "one.bin").write_bytes(data)
    with pytest.raises(ValueError, match="labels of little range from 3 to 3; must be 0 to 2"):
        read_cifar(tmp_path, layout, "train")


@pytest.mark.parametrize(("layout", "classes"), [(CIFAR10, 10), (CIFAR100, 100)])
def test_the_official_layouts_hold_60_000_records(layout, classes):
    record = layout.label_bytes + 3072
    assert sum(part.size for part in layout.train) == 50_000 * record
    assert sum(part.size for part in layout.test) == 10_000 * record
    assert len(set(layout.classes)) == len(layout.classes) == classes
    assert list(layout.classes) == sorted(layout.classes)  # both sets number their classes by the alphabet
    parts = (*layout.train, *layout.test)
    assert len({part.sha256 for part in parts}) == len(parts)
    assert all(len(bytes.fromhex(part.sha256)) == 32 for part in parts)
