"""A small data set of five and two images in the IDX format, as the four files of MNIST."""

import gzip
import struct

import numpy as np

IMAGES = np.arange(5 * 2 * 3, dtype=np.uint8).reshape(5, 2, 3)
LABELS = np.array([1, 0, 2, 2, 1], dtype=np.uint8)


def encode_idx(array):
    """Return magic, sizes and bytes."""
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def small_files():
    """Return the content of each file by name."""
    return {
        f"{stem}-{name}": encode_idx(array[part])
        for stem, part in (("train", slice(None)), ("t10k", slice(1, 3)))
        for name, array in (("images-idx3-ubyte", IMAGES), ("labels-idx1-ubyte", LABELS))
    }


def write_files(folder, zipped=True, dotted=False):
    """Write the four files to the folder, gzipped or not, under one of their two usual names."""
    for name, content in small_files().items():
        path = folder / f"{name.replace('-idx', '.idx') if dotted else name}{'.gz' if zipped else ''}"
        path.write_bytes(gzip.compress(content) if zipped else content)
    return folder
