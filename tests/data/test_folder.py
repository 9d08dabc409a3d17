"""Folders of images: pixels are read back as saved, in a known order, and a bad file is named."""

import os
import struct
import threading
import zlib

import numpy as np
import pytest
from PIL import Image

from truedrift.data import folder, read_folder

COLOR = np.random.default_rng(0).integers(256, size=(4, 6, 3), dtype=np.uint8)
GRAY = COLOR[..., 0]


def save(path, array=COLOR, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)
    return path


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".PNG"])
def test_pixels_round_trip(tmp_path, suffix):
    save(tmp_path / "cat" / f"a{suffix}")
    save(tmp_path / "cat" / f"b{suffix}", COLOR[::-1])
    samples = read_folder(tmp_path)
    assert samples.values.shape == (2, 3, 4, 6)
    assert np.array_equal(samples.values[0].permute(1, 2, 0).numpy(), COLOR)
    assert np.array_equal(samples.values[1].permute(1, 2, 0).numpy(), COLOR[::-1])
    assert (samples.classes, samples.name, samples.flips) == (("cat",), "folder", True)


@pytest.mark.parametrize(
    ("suffix", "options"), [(".jpg", {"quality": 95}), (".jpeg", {}), (".webp", {"lossless": True})]
)
def test_lossy_formats_round_trip_approximately(tmp_path, suffix, options):
    smooth = np.fromfunction(lambda i, j, k: 40 + 4 * i + 2 * j + 20 * k, (16, 24, 3)).astype(np.uint8)
    save(tmp_path / f"a{suffix}", smooth, **options)
    (back,) = read_folder(tmp_path).values.permute(0, 2, 3, 1).numpy().astype(int)
    assert np.abs(back - smooth).max() <= 8


def test_classes_and_files_are_in_the_order_of_their_names(tmp_path):
    for name in ("b/2.png", "b/10.png", "a/z.png", "c/0.png", ".hidden/0.png", "a/.hidden.png"):
        save(tmp_path / name, np.full((2, 2), len(name) * 10 + ord(name[2]), dtype=np.uint8))
    (tmp_path / "a" / "notes.txt").write_text("no image")
    (tmp_path / "README.md").touch()
    samples = read_folder(tmp_path)
    assert samples.classes == ("a", "b", "c")
    assert samples.labels.tolist() == [0, 1, 1, 2]
    expected = [len(name) * 10 + ord(name[2]) for name in ("a/z.png", "b/10.png", "b/2.png", "c/0.png")]
    assert samples.values[:, 0, 0, 0].tolist() == [each % 256 for each in expected]


def test_a_class_name_that_is_not_utf8_is_refused(tmp_path):
    save(tmp_path / "dog" / "a.png")
    save(tmp_path / os.fsdecode(b"caf\xe9") / "a.png")
    with pytest.raises(ValueError, match=r"the folder 'caf\\udce9' has a name that is not UTF-8; .*; rename") as caught:
        read_folder(tmp_path)
    assert str(caught.value).encode()  # can be printed
    (tmp_path / os.fsdecode(b"caf\xe9")).rename(tmp_path / "café")
    assert read_folder(tmp_path).classes == ("café", "dog")


def test_images_in_the_folder_itself_are_one_class(tmp_path):
    save(tmp_path / "a.png")
    save(tmp_path / "b.png")
    samples = read_folder(tmp_path)
    assert (samples.classes, samples.labels.tolist()) == (("all",), [0, 0])


def test_gray_images_have_one_channel_unless_one_has_color(tmp_path):
    save(tmp_path / "a.png", GRAY)
    assert np.array_equal(read_folder(tmp_path).values.numpy(), GRAY[None, None])
    save(tmp_path / "b.png", COLOR)
    assert read_folder(tmp_path).values.shape == (2, 3, 4, 6)


def test_transparent_pixels_are_white_and_palettes_are_converted(tmp_path):
    clear = np.zeros((2, 2, 4), dtype=np.uint8)
    clear[0, 0] = (10, 20, 30, 255)
    save(tmp_path / "a.png", clear)
    Image.fromarray(COLOR[:2, :2]).quantize(4).save(tmp_path / "b.png")
    samples = read_folder(tmp_path)
    assert samples.values[0, :, 0, 0].tolist() == [10, 20, 30]
    assert samples.values[0, :, 1, 1].tolist() == [255, 255, 255]
    with Image.open(tmp_path / "b.png") as palette:
        assert np.array_equal(samples.values[1].permute(1, 2, 0).numpy(), np.asarray(palette.convert("RGB")))


def test_a_damaged_exif_is_ignored_without_a_warning(tmp_path):
    """Pillow would print it to the terminal."""
    save(tmp_path / "a.jpg", COLOR)
    whole = (tmp_path / "a.jpg").read_bytes()
    exif = b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\xff\xff" + bytes(range(100))
    (tmp_path / "a.jpg").write_bytes(whole[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + whole[2:])
    with pytest.warns(UserWarning, match="EXIF"), Image.open(tmp_path / "a.jpg") as image:
        image.getexif()
    assert read_folder(tmp_path).sample_shape == (3, 4, 6)


def test_exif_orientation_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90° clockwise
    save(tmp_path / "a.png", COLOR, exif=exif)
    (turned,) = read_folder(tmp_path).values.permute(0, 2, 3, 1).numpy()
    assert np.array_equal(turned, np.rot90(COLOR, -1))


def test_the_central_square_is_resized_without_aliasing(tmp_path):
    wide = np.zeros((40, 100), dtype=np.uint8)
    wide[:, 30:70] = 100
    wide[::2, 30:70] += 50  # alternating lines, whose mean is constant
    save(tmp_path / "wide.png", wide)
    save(tmp_path / "tall.png", wide.T.copy())
    samples = read_folder(tmp_path, image_size=5)
    assert samples.values.shape == (2, 1, 5, 5)
    assert (samples.values.float() - 125).abs().max() <= 4  # neither the black sides nor the lines are visible
    save(tmp_path / "small.png", np.full((3, 2), 7, dtype=np.uint8))
    assert (read_folder(tmp_path, image_size=5).values[0] == 7).all()  # enlarged


def test_the_square_keeps_its_orientation(tmp_path):
    corner = np.zeros((8, 8), dtype=np.uint8)
    corner[:4, 4:] = 200
    save(tmp_path / "a.png", corner)
    (small,) = read_folder(tmp_path, image_size=2).values[:, 0].tolist()
    assert small[0][1] > 150
    assert max(small[0][0], *small[1]) < 50


def test_splits_are_folders(tmp_path):
    save(tmp_path / "train" / "cat" / "a.png", COLOR)
    save(tmp_path / "train" / "dog" / "b.png", COLOR)
    save(tmp_path / "test" / "dog" / "c.png", COLOR[::-1])
    save(tmp_path / "test" / "cat" / "c.png", COLOR[::-1])
    assert read_folder(tmp_path, split="train").labels.tolist() == [0, 1]
    assert np.array_equal(read_folder(tmp_path, split="test").values[1].permute(1, 2, 0).numpy(), COLOR[::-1])
    everything = read_folder(tmp_path, split="all")
    assert (everything.labels.tolist(), everything.classes) == ([0, 1, 0, 1], ("cat", "dog"))


def test_classes_have_one_number_in_all_splits(tmp_path):
    for name in ("train/cat/a.png", "train/dog/b.png", "test/dog/c.png"):
        save(tmp_path / name)
    samples = read_folder(tmp_path, split="test")
    assert (samples.classes, samples.labels.tolist()) == (("cat", "dog"), [1])
    (tmp_path / "test" / "dog" / "c.png").unlink()
    with pytest.raises(ValueError, match=r"test' holds no images; "):
        read_folder(tmp_path, split="test")


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links of POSIX")
def test_links_out_of_the_tree_are_followed(tmp_path):
    save(tmp_path / "elsewhere" / "a.png")
    (tmp_path / "mine" / "cat").mkdir(parents=True)
    (tmp_path / "mine" / "cat" / "link.png").symlink_to(tmp_path / "elsewhere" / "a.png")
    (tmp_path / "mine" / "dog").symlink_to(tmp_path / "elsewhere")
    assert read_folder(tmp_path / "mine").classes == ("cat", "dog")


def png_claiming(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def whole_png(tmp_path):
    return save(
        tmp_path / "whole.png", np.random.default_rng(1).integers(256, size=(64, 64, 3), dtype=np.uint8)
    ).read_bytes()


BAD = {
    "text.png": (lambda whole: b"hello", "it is not a complete PNG"),
    "empty.png": (lambda whole: b"", "it is not a complete PNG"),
    "cut.png": (lambda whole: whole[: len(whole) // 2], "it is not a complete PNG"),
    "flipped.png": (lambda whole: whole[:200] + b"\xff" * 8 + whole[208:], "it is not a complete PNG"),
    "gif.png": (lambda whole: b"GIF89a" + bytes(20), "it is not a complete PNG"),
    "large.png": (lambda whole: png_claiming(8193, 8193), "it has more than 67108864 pixels"),
    "bomb.png": (lambda whole: png_claiming(60_000, 60_000), "it has more than 67108864 pixels"),
    "warned.png": (lambda whole: png_claiming(10_000, 10_000), "it has more than 67108864 pixels"),
    "link.png": (None, "it is not a complete PNG"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_named(tmp_path, name):
    damage, message = BAD[name]
    whole = whole_png(tmp_path)
    if damage:
        (tmp_path / name).write_bytes(damage(whole))
    else:
        (tmp_path / name).symlink_to(tmp_path / "missing")
    with pytest.raises(ValueError, match=rf"{name}' cannot be read \({message}.*\); must be .*; repair"):
        read_folder(tmp_path, image_size=8)


def test_sixteen_bits_are_refused(tmp_path):
    save(tmp_path / "deep.png", np.full((2, 2), 40_000, dtype=np.uint16))
    with pytest.raises(ValueError, match=r"deep.png' cannot be read \(its pixels have more than 8 bits\)"):
        read_folder(tmp_path)


def test_images_of_several_sizes_need_an_image_size(tmp_path):
    save(tmp_path / "a.png")
    save(tmp_path / "b.png", COLOR[:3])
    with pytest.raises(ValueError, match=r"a.png is 6×4 and b.png is 6×3; must have the same size.*; set image_size"):
        read_folder(tmp_path)
    assert read_folder(tmp_path, image_size=3).values.shape == (2, 3, 3, 3)


def test_a_set_beyond_memory_is_refused_before_allocation(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "LARGEST_BYTES", 100)
    save(tmp_path / "a.png")
    save(tmp_path / "b.png")
    with pytest.raises(ValueError, match="2 images of 72 bytes are 0 GiB; must be at most 0 GiB in memory; use a"):
        read_folder(tmp_path)


@pytest.mark.parametrize("size", [0, -3, 5000])
def test_image_sizes_out_of_range_are_refused(tmp_path, size):
    with pytest.raises(ValueError, match=rf"image_size is {size}; must be 1 to 4096; "):
        read_folder(tmp_path, image_size=size)


def test_directories_without_images_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"missing' is not a directory; "):
        read_folder(tmp_path / "missing")
    with pytest.raises(ValueError, match=r"holds no images; must hold .* \(.png, .*; check the directory"):
        read_folder(tmp_path)
    save(tmp_path / "cat" / "a.png")
    with pytest.raises(ValueError, match=r"has no test split; must contain the folders train and test; "):
        read_folder(tmp_path, split="test")
    (tmp_path / "dog").mkdir()
    with pytest.raises(ValueError, match=r"dog' holds no images; .*.png, .*; "):
        read_folder(tmp_path)
    save(tmp_path / "dog" / "a.png")
    save(tmp_path / "loose.png")
    with pytest.raises(ValueError, match=r"holds 1 images next to the folders cat, dog; .*; move them"):
        read_folder(tmp_path)


def test_a_large_jpeg_is_decoded_at_a_smaller_scale(tmp_path, monkeypatch):
    """The same pixels up to rounding, and fewer of them are decoded."""
    rows, columns = np.indices((1200, 1600))
    photo = np.stack([128 + 100 * np.sin(rows / 90), 128 + 100 * np.cos(columns / 70), 0 * rows + 60], -1)
    photo = photo.astype(np.uint8)
    save(tmp_path / "small" / "a.jpg", photo, quality=95)
    save(tmp_path / "exact" / "a.png", photo)
    drafted, exact = (read_folder(tmp_path / name, image_size=16).values[0].int() for name in ("small", "exact"))
    assert (drafted - exact).abs().max() <= 4
    # The scale is used: on noise, the average over blocks of the decoder differs a little from the filter.
    noise = np.random.default_rng(0).integers(256, size=(1200, 1600, 3), dtype=np.uint8)
    save(tmp_path / "noise" / "a.jpg", noise)
    found = read_folder(tmp_path / "noise", image_size=16).values
    monkeypatch.setattr(folder, "DRAFT", 1000)
    assert not found.equal(read_folder(tmp_path / "noise", image_size=16).values)


def test_progress_counts_the_images(tmp_path):
    for number in range(3):
        save(tmp_path / f"{number}.png")
    calls = []
    read_folder(tmp_path, progress=lambda *call: calls.append(call))
    assert calls == [(what, done, 3) for what in ("checking images", "reading images") for done in (1, 2, 3)]


@pytest.mark.parametrize("threads", [1, 2])
def test_images_are_read_by_several_threads(tmp_path, monkeypatch, threads):
    """Two threads meet at a barrier; one thread waits there in vain."""
    for number in range(2 * folder.AT_ONCE):
        save(tmp_path / f"{number:02}.png", GRAY + np.uint8(number))
    barrier, read_header, alone = threading.Barrier(2), folder._read_header, []

    def meet(path):
        if path.stem in ("00", f"{folder.AT_ONCE:02}"):
            try:
                barrier.wait(timeout=20 if threads == 2 else 0.05)
            except threading.BrokenBarrierError:
                alone.append(path.stem)
        return read_header(path)

    monkeypatch.setattr(folder, "_read_header", meet)
    monkeypatch.setattr(os, "cpu_count", lambda: threads)
    values = read_folder(tmp_path).values[:, 0, 0, 0].numpy()
    assert np.array_equal(values, GRAY[0, 0] + np.arange(2 * folder.AT_ONCE, dtype=np.uint8))
    assert len(alone) == (0 if threads == 2 else 2)


def test_the_description_has_classes_and_files_that_are_skipped(tmp_path):
    for name in ("car/1.png", "car/2.JPG", "ship/1.webp"):
        save(tmp_path / name)
    assert folder.describe_folder(tmp_path) == "2 classes: car 2, ship 1"
    for name in ("1.heic", "2.HEIC", "3.tif", ".DS_Store"):
        (tmp_path / "car" / name).touch()
    assert folder.describe_folder(tmp_path) == (
        "2 classes: car 2, ship 1; 3 files are skipped, since they are not PNG, JPEG, WebP or BMP (.heic 2, .tif 1)"
    )
    save(tmp_path / "single" / "car" / "1.png")
    assert folder.describe_folder(tmp_path / "single") == "1 class: car 1"
    assert folder.describe_folder(tmp_path / "ship") == "one class of 1 images"
    for number in range(12):
        save(tmp_path / "many" / f"class {number:02}" / "1.png")
    assert folder.describe_folder(tmp_path / "many").endswith(", class 09 1, and 2 more")
