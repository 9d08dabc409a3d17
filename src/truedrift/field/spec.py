"""The options of a drifting field: normalization, form, estimators and matching."""

from dataclasses import dataclass
from typing import Literal, get_args

from truedrift.centroids.estimator import Estimator

Normalization = Literal["row", "bidirectional", "bidirectional-loo", "symmetric", "sinkhorn"]
NORMALIZATIONS: tuple[Normalization, ...] = get_args(Normalization)
JOINT_NORMALIZATIONS: tuple[Normalization, ...] = ("row", "bidirectional", "bidirectional-loo")
"""Normalizations over both sides jointly; the others treat each side by itself."""
OVER_QUERIES: tuple[Normalization, ...] = ("bidirectional", "bidirectional-loo", "sinkhorn")
"""Normalizations with sums over all queries of a batch."""

Form = Literal["separate", "product", "potential"]
FORMS: tuple[Form, ...] = get_args(Form)
CENTROID_FORMS: tuple[Form, ...] = ("separate", "product")
"""Forms that are differences of two centroids, possibly with a factor."""
WEIGHTINGS: tuple[tuple[Normalization, Form], ...] = (
    *((normalization, form) for normalization in (*JOINT_NORMALIZATIONS, "symmetric") for form in CENTROID_FORMS),
    ("sinkhorn", "separate"),
    ("row", "potential"),
)
"""The pairs of normalization and form that have a meaning."""


@dataclass(frozen=True)
class FieldSpec:
    """The options that turn a kernel matrix into a field.

    Args:
        normalization: How the kernel matrix is normalized, one of `NORMALIZATIONS`.
        form: "separate", "product" or "potential".
        estimator_pos: The estimator of γ⁺.
        estimator_neg: The estimator of γ⁻.
        matched: Whether both centroids are means over windows of the same size, see `truedrift.field.matching`.
    """

    normalization: Normalization
    form: Form
    estimator_pos: Estimator
    estimator_neg: Estimator
    matched: bool = False

    @property
    def per_side(self) -> bool:
        """Whether the weights of each side are computed by itself, by `truedrift.field.matching`."""
        return self.matched or self.form == "potential" or self.normalization in ("symmetric", "sinkhorn")
