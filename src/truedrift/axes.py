"""The axes of the tensors in this library, and types that state them, as in `Float[Tensor, "*batch B D"]`.

| axis | meaning                                                      |
|------|--------------------------------------------------------------|
| B    | queries x at which a centroid or the field is evaluated      |
| n    | references y of a centroid (m, u: references of other sides) |
| W, s | windows of references, and the references per window         |
| D    | feature dimension                                            |
| T    | temperatures τ                                               |
| ...  | any leading dimensions: classes C, feature scales S, …       |

The types come from `jaxtyping` if that package is installed (a development dependency); otherwise they are plain
tensors. They are checked at run time only under pytest.
"""

from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Shaped
else:
    try:
        from jaxtyping import Bool, Float, Int, Shaped
    except ImportError:

        class _Plain:
            def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
                return item[0]

        Bool = Float = Int = Shaped = _Plain

__all__ = ["Bool", "Float", "Int", "Shaped", "Tensor"]
