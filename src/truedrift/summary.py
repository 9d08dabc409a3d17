"""Short texts on results: what a result shows in an interactive session instead of all its tensors."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from truedrift.errors import short_repr

LISTED = 4
"""Number of values that are listed."""


def summarize(result: Any, *lines: str) -> str:
    """Return the name of a dataclass, its fields with the shapes of tensors, and lines on what matters most.

    Args:
        result: An instance of a dataclass. Private fields are left out.
        lines: Texts that follow, one per line.

    Returns:
        The text, for `__repr__`.

    Example:
        >>> import torch
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Centroid:
        ...     T: torch.Tensor
        ...     n: int
        ...     def __repr__(self):
        ...         return summarize(self, f"mean {self.T.mean():.3g}")
        >>> Centroid(torch.ones(2, 3), 8)
        Centroid(T=[2, 3], n=8)
          mean 1
    """
    public = (each.name for each in fields(result) if each.repr and not each.name.startswith("_"))
    values = ", ".join(f"{name}={_describe_value(getattr(result, name))}" for name in public)
    return "\n  ".join((f"{type(result).__name__}({values})", *lines))


def list_numbers(values: Iterable[float]) -> str:
    """Join numbers with three digits; of many, the first ones.

    Example:
        >>> list_numbers([0.12345, 2]), list_numbers(range(9))
        ('0.123, 2', '0, 1, 2, 3, …')
    """
    texts = [f"{value:.3g}" for value in values]
    return ", ".join((*texts[:LISTED], "…") if len(texts) > LISTED else texts)


def mean_value(tensor: Any) -> str:
    """Return the mean of a tensor with three digits; "?" if it has no values, as on the device meta."""
    return "?" if tensor.is_meta else f"{float(tensor.detach().double().mean()):.3g}"


def _describe_value(value: Any) -> str:
    return str(list(value.shape)) if hasattr(value, "shape") else short_repr(value)
