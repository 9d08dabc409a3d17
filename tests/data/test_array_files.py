"""Arrays in files: saved values are read back, and every defect of a file is one line of three parts."""

import io
import os
import pickle
import struct
import tracemalloc
import warnings
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from truedrift.data import array_files, read_arrays
from truedrift.data.arrays import read_array_samples
from truedrift.errors import UserError

ROWS = np.arange(6.0).reshape(2, 3)


def npy_header(text, version=b"\x01\x00"):
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text.encode()


def npy(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def make_npz(**entries):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<f4", ">f4", "<f2", "<i4", ">i8", "u1", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_round_trip(tmp_path, dtype, order):
    array = np.array(ROWS, dtype=dtype, order=order)
    np.save(tmp_path / "a.npy", array)
    (back,) = read_arrays(tmp_path / "a.npy").values()
    assert back.dtype.is_floating_point
    assert np.array_equal(back.double().numpy(), array.astype(float))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_round_trip(tmp_path, save):
    save(tmp_path / "a.npz", queries=ROWS, references=ROWS.T.astype("f4"))
    back = read_arrays(tmp_path / "a.npz")
    assert list(back) == ["queries", "references"]
    assert back["references"].dtype == torch.float32
    assert np.array_equal(back["references"].numpy(), ROWS.T)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int32])
def test_safetensors_round_trip(tmp_path, dtype):
    save_file({"weights": torch.tensor(ROWS).to(dtype)}, tmp_path / "a.safetensors")
    back = read_arrays(tmp_path / "a.safetensors")["weights"]
    assert back.dtype == (torch.float64 if dtype == torch.int32 else dtype)
    assert np.array_equal(back.double().numpy(), ROWS)


class Armed:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


BAD = {
    "nothing.npy": (b"", "is empty"),
    "text.npy": (b"1 2 3\n4 5 6\n", "cannot be read as .npy"),
    "cut.npy": (npy(ROWS)[:-5], "cannot be read as .npy"),
    "cut_header.npy": (npy(ROWS)[:40], "cannot be read as .npy"),
    "evil.npy": (npy(np.array([Armed()], dtype=object), allow_pickle=True), "pickled Python objects"),
    "pickle.npy": (pickle.dumps([1, 2]), "cannot be read as .npy"),
    "words.npy": (npy(np.array(["a", "b"])), "entries of type <U1"),
    "complex.npy": (npy(ROWS + 1j), "entries of type complex128"),
    "dates.npy": (npy(np.array(["2020-01-01"], dtype="M8[D]")), "entries of type datetime64"),
    "record.npy": (npy(np.zeros(2, dtype=[("a", "f8")])), "entries of type"),
    "nan.npy": (npy(np.array([[1.0, np.nan]])), "1 entries that are NaN or infinite"),
    "inf.npy": (npy(np.array([[1.0, -np.inf, np.inf]])), "2 entries that are NaN or infinite"),
    "no_rows.npy": (npy(np.zeros((0, 3))), "must not be empty"),
    "huge.npy": (
        npy_header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 1000000), }"),
        r"claims arrays of 8e\+06 GB",
    ),
    "large.npy": (
        npy_header("{'descr': '<f8', 'fortran_order': False, 'shape': (100000, 1000), }"),
        "claims arrays .* times its own size",
    ),
    "negative.npy": (
        npy_header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 2), }") + b"0" * 64,
        "cannot be",
    ),
    "open.npy": (npy_header("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2), "), "cannot be read as .npy"),
    "code.npy": (npy_header("__import__('os').abort()"), "cannot be read as .npy"),
    "version.npy": (npy_header("{}", b"\x09\x00"), "cannot be read as .npy"),
    "text.npz": (b"PK but not really", "cannot be read as .npz"),
    "cut.npz": (make_npz(a=npy(ROWS))[:-30], "cannot be read as .npz"),
    "empty.npz": (make_npz(), "holds no arrays"),
    "member.npz": (make_npz(a=b"hello"), "cannot be read as .npz"),
    "evil.npz": (make_npz(a=npy(np.array([Armed()], dtype=object), allow_pickle=True)), "pickled Python objects"),
    "nan.npz": (make_npz(a=npy(ROWS), b=npy(np.array([np.nan]))), "b in .* 1 entries that are NaN"),
    "huge.npz": (
        make_npz(a=npy_header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 9), }")),
        "claims arrays of 72 GB; must be at most 8 GB",
    ),
    "text.safetensors": (b"hello, this is not it", "cannot be read as .safetensors"),
    "cut.safetensors": (struct.pack("<Q", 1 << 60) + b"{}", "cannot be read as .safetensors"),
    "pickle.pt": (pickle.dumps(1), "ends in '.pt'"),
    "noextension": (b"0", "has no extension"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_line_of_three_parts(tmp_path, name):
    content, message = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_arrays(tmp_path / name)
    text = str(caught.value)
    assert text.count("; ") >= 2
    assert "\n" not in text


def test_a_damaged_archive_is_refused(tmp_path):
    whole = bytearray(make_npz(a=npy(np.random.default_rng(0).random((50, 50)))))
    whole[len(whole) // 2] ^= 0xFF
    (tmp_path / "a.npz").write_bytes(whole)
    with pytest.raises(ValueError, match=r"cannot be read as \.npz"):
        read_arrays(tmp_path / "a.npz")


@pytest.mark.parametrize(("name", "message"), [("missing.npy", "does not exist"), ("folder.npy", "is a directory")])
def test_a_missing_file_is_refused(tmp_path, name, message):
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(ValueError, match=f"{message}; must be a file.*; "):
        read_arrays(tmp_path / name)


def test_an_unreadable_file_is_reported(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", ROWS)

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(array_files, "_read_npy", refuse)
    with pytest.raises(ValueError, match=r"cannot be read as \.npy \(Permission denied\); .*; "):
        read_arrays(tmp_path / "a.npy")


def test_the_single_array_has_a_name(tmp_path):
    np.save(tmp_path / "a.npy", ROWS)
    assert list(read_arrays(tmp_path / "a.npy")) == [array_files.ONLY]


def test_a_small_file_of_large_arrays_is_refused(tmp_path):
    """Many compressed arrays of zeros, each smaller than the limit: 8 kB of file per 8 MB of memory."""
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(40):
            archive.writestr(f"{number}.npy", npy(np.zeros(1 << 20)))
    with pytest.raises(ValueError, match=r"claims arrays [\d,]+ times its own size; must be at most 100 times; save"):
        read_arrays(tmp_path / "a.npz")


def test_the_limit_is_an_option(tmp_path):
    np.save(tmp_path / "a.npy", ROWS)
    with pytest.raises(ValueError, match=r"must be at most 1e-08 GB; .*--largest-gigabytes"):
        read_arrays(tmp_path / "a.npy", largest_gigabytes=1e-8)


def test_a_fifo_is_refused(tmp_path):
    os.mkfifo(tmp_path / "a.npy")
    with pytest.raises(ValueError, match=r"is a FIFO or a device; must be a file .*; pass a regular file"):
        read_arrays(tmp_path / "a.npy")


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_a_negative_size_in_a_header_is_refused_before_anything_is_read(tmp_path, name):
    """The product of (-1, 5) passes every limit, and `read(-40)` returned all 100 MB."""
    header = npy_header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 5), }")
    content = header + bytes(100 << 20 if name == "a.npz" else 80)
    (tmp_path / name).write_bytes(make_npz(X=content) if name == "a.npz" else content)
    del content
    tracemalloc.start()
    with pytest.raises(UserError, match=r"its header claims the shape \(-1, 5\)"):
        read_arrays(tmp_path / name)
    assert tracemalloc.get_traced_memory()[1] < 10 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("names", [("X.npy", "X.npy"), ("X", "X.npy")])
def test_two_arrays_with_one_name_are_refused(tmp_path, names):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            archive.writestr(name, npy(ROWS))
    with pytest.raises(UserError, match=r"a\.npz' holds two arrays named 'X'; must have one array per name; save it"):
        read_arrays(tmp_path / "a.npz")


# ---- Labels ----

NAMES = ["b", "ä", "b", "ä"]


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (np.array(NAMES), ("b", "ä")),
        (np.array(NAMES).astype(">U7"), ("b", "ä")),
        (np.char.encode(NAMES, "utf-8"), ("b", "ä")),
        (np.array([1, 0, 1, 0], dtype=">i2"), ("0", "1")),
        (np.array([True, False] * 2), ("0", "1")),
        (np.array([2.0, 1.0] * 2), ("1", "2")),
        (np.array([2**53, 2**53 + 1] * 2), (str(2**53), str(2**53 + 1))),
        (np.array([2**64 - 1, 2**64 - 2] * 2, dtype="u8"), (str(2**64 - 2), str(2**64 - 1))),
    ],
)
def test_labels_of_numbers_and_text_are_read(tmp_path, y, classes):
    np.savez(tmp_path / "a.npz", X=np.arange(8.0).reshape(4, 2), y=y)
    samples = read_array_samples(tmp_path / "a.npz")
    assert samples.classes == classes
    assert samples.labels.tolist() == [0, 1, 0, 1] if y.dtype.kind in "US" or y[0] < y[1] else [1, 0, 1, 0]


def test_large_integers_in_safetensors_stay_different(tmp_path):
    tensors = {"X": torch.arange(8.0).reshape(4, 2), "y": torch.tensor([2**53, 2**53 + 1] * 2)}
    save_file(tensors, tmp_path / "a.safetensors")
    assert read_array_samples(tmp_path / "a.safetensors").classes == (str(2**53), str(2**53 + 1))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (
            np.array(NAMES, dtype=object),
            r"^y in '.*' holds pickled Python objects; .*; convert them with \.astype\(str\)",
        ),
        (np.zeros(4, "M8[D]"), r"^y in '.*' holds entries of type datetime64"),
        (np.array([b"\xff"] * 4), r"^y in '.*' holds bytes that are not text; "),
        (np.array(["a\0b"] * 4), r"^y in '.*' holds bytes that are not text; "),
        (np.array(["\ud800"] * 4), r"^y in '.*' holds bytes that are not text; "),
        (np.full(4, 0x7FFFFFFF, "<i4").view("<U1"), r"^y in '.*' holds bytes that are not text; "),
        (np.array([1.0, np.nan] * 2), r"^y in '.*' has 2 entries that are NaN"),
        (np.array([], dtype="U3"), r"^y in '.*' has shape \[0\]; must not be empty"),
    ],
)
def test_labels_that_cannot_be_read_name_y(tmp_path, y, message):
    np.savez(tmp_path / "a.npz", X=np.arange(8.0).reshape(4, 2), y=y)
    with pytest.raises(UserError, match=message):
        read_array_samples(tmp_path / "a.npz")


def test_text_outside_the_labels_is_refused_by_name(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.array(NAMES), y=np.array(NAMES))
    with pytest.raises(UserError, match=r"^X in '.*' holds entries of type <U1; must hold real numbers; "):
        read_array_samples(tmp_path / "a.npz")
