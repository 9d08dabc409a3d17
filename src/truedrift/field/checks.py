"""Checks of the options of a field: which normalizations, forms and sides go together."""

from truedrift.centroids.catalog import estimator as estimator_of
from truedrift.centroids.estimator import Estimator
from truedrift.errors import UserError, require_choice
from truedrift.field.spec import (
    FORMS,
    NORMALIZATIONS,
    OVER_QUERIES,
    WEIGHTINGS,
    FieldSpec,
    Form,
    Normalization,
)


def make_field_spec(
    normalization: Normalization,
    form: Form,
    estimator_pos: str | Estimator,
    estimator_neg: str | Estimator,
    matched: bool = False,
) -> FieldSpec:
    """Check the options and look up both estimators. An error names the argument that is wrong."""
    require_choice("normalization", normalization, NORMALIZATIONS)
    require_choice("form", form, FORMS)
    if (normalization, form) not in WEIGHTINGS:
        allowed = ", ".join(each for each, of_form in WEIGHTINGS if of_form == form)
        problem, fix = f"is {normalization!r} with form {form!r}", "choose one of these, or another form"
        raise UserError(problem, f"must be one of {allowed}", fix, field="normalization")
    return FieldSpec(
        normalization,
        form,
        estimator_of(estimator_pos, field="estimator_pos"),
        estimator_of(estimator_neg, field="estimator_neg"),
        matched,
    )


def require_sides(spec: FieldSpec, n: int, m: int, *, independent: bool, unconditional: bool = False) -> None:
    """Require sides that windows, fresh negatives and the normalization allow.

    Args:
        spec: The options.
        n: The number of positives.
        m: The number of negatives of a query.
        independent: Whether the negatives are independent of the queries.
        unconditional: Whether there are unconditional negatives as well.
    """
    if unconditional and (spec.per_side or independent):
        allowed = "guidance moves the equilibrium on purpose"
        fix = "omit the unconditional negatives, or matched, fresh negatives, 'symmetric', 'sinkhorn' and 'potential'"
        raise UserError("unconditional negatives are given with matched or fresh negatives", allowed, fix)
    if not spec.matched:
        return
    if min(n, m) < 2:
        problem = f"is True with {n} positives and {m} negatives per query"
        raise UserError(problem, "both must be at least 2", "use more references, or matched=False", field="matched")
    if spec.normalization in OVER_QUERIES and not independent:
        problem = f"is {spec.normalization!r} with matched=True"
        allowed = "its sums over the queries contain the negatives"
        fix = "pass 'row' or 'symmetric', or use fresh negatives"
        raise UserError(problem, allowed, fix, field="normalization")
