"""The axes of every tensor in the library, and shape-typed names for them.

| axis | meaning                                                    |
|------|------------------------------------------------------------|
| B    | queries x at which a centroid or the field is evaluated    |
| n    | references y that a centroid sees (m, u: further sides)    |
| D    | feature dimension                                          |
| T    | temperatures τ                                             |
| ...  | any leading dimensions: classes C, feature scales S, …     |

The names are `jaxtyping` types where that package is installed (a development dependency) and plain tensors
elsewhere. They are checked at run time only under pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
else:
    try:
        from jaxtyping import Bool, Float, Int
    except ImportError:

        class _Plain:
            def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
                return item[0]

        Bool = Float = Int = _Plain

__all__ = ["Bool", "Float", "Int", "Tensor"]
