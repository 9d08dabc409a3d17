"""The 1 797 handwritten digits of scikit-learn, 8 × 8 pixels v in 0 … 16, as bytes b = round(255 v / 16).

Every fifth one (index 0, 5, 10, …) is of the test split; the others are of the train split.
"""

from __future__ import annotations

import torch

from truedrift.data.class_names import DIGITS
from truedrift.data.samples import Samples
from truedrift.validation import mistake


def digits(split: str) -> Samples:
    """The digits of that split: "train", "test" or "all", in the order of scikit-learn."""
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # noqa: PLC0415  an extra
    except ImportError:
        raise mistake(
            "scikit-learn is not installed", "the digits come with it", "run pip install 'truedrift[train]'"
        ) from None
    stored = load_digits()
    values = torch.from_numpy(stored.images).mul(255 / 16).round().to(torch.uint8)[:, None]
    labels = torch.from_numpy(stored.target).to(torch.int64)
    fifth = torch.arange(len(values)) % 5 == 0
    mine = {"train": ~fifth, "test": fifth, "all": fifth | ~fifth}[split]
    return Samples(values[mine], labels[mine], DIGITS, "digits", flips=False)
