"""Checks of the options of a field: which normalizations, forms and sides go together."""

from truedrift.centroids.catalog import estimator as estimator_of
from truedrift.centroids.estimator import Estimator
from truedrift.errors import UserError, require_choice
from truedrift.field.spec import (
    FORMS,
    JOINT_NORMALIZATIONS,
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
        forms = " or ".join(f"form={each!r}" for of, each in WEIGHTINGS if of == normalization)
        problem, fix = f"is {normalization!r} with form {form!r}", f"choose one of these, or pass {forms}"
        raise UserError(problem, f"must be one of {allowed} for this form", fix, field="normalization")
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
        given = ", ".join(_options_without_guidance(spec, independent))
        joint = ", ".join(map(repr, JOINT_NORMALIZATIONS))
        allowed = (
            f"guidance allows normalization {joint}, form 'separate' or 'product', and no matched or fresh negatives"
        )
        fix = f"omit the unconditional negatives, or {given}"
        raise UserError(f"unconditional negatives are given with {given}", allowed, fix)
    if not spec.matched:
        return
    if min(n, m) < 2:
        problem = f"is True with {_count(n, 'positive')} and {_count(m, 'negative')} per query"
        raise UserError(problem, "both must be at least 2", "use more references, or matched=False", field="matched")
    if spec.normalization in OVER_QUERIES and not independent:
        problem = f"is {spec.normalization!r} with matched=True"
        allowed = "its sums over the queries contain the negatives"
        fix = "pass 'row' or 'symmetric', or use fresh negatives"
        raise UserError(problem, allowed, fix, field="normalization")


def _options_without_guidance(spec: FieldSpec, independent: bool) -> list[str]:
    """Return the given options that unconditional negatives do not allow, for a message."""
    options = {
        "matched=True": spec.matched,
        f"normalization={spec.normalization!r}": spec.normalization not in JOINT_NORMALIZATIONS,
        f"form={spec.form!r}": spec.form == "potential",
        "fresh negatives": independent,
    }
    return [name for name, is_given in options.items() if is_given]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
