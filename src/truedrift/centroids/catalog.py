"""The estimators by name, with the settings of the paper."""

from truedrift.centroids.analytical import ABC, ABC2
from truedrift.centroids.estimator import Estimator, Standard
from truedrift.centroids.resampling import BRSNIS, Bootstrap, Jackknife
from truedrift.errors import UserError, require_choice

_INSTANCES: tuple[Estimator, ...] = (Standard(), ABC(), ABC2(), Jackknife(), Bootstrap(), BRSNIS())
ESTIMATORS: dict[str, Estimator] = {instance.name: instance for instance in _INSTANCES}


def estimator(name: str | Estimator, *, field: str = "estimator") -> Estimator:
    """Look up an estimator by name.

    Args:
        name: A key of `ESTIMATORS` ("standard", "abc", "abc2", "jackknife", "bootstrap", "br-snis"), or an estimator
            object, which is returned unchanged.
        field: The argument that an error message names.

    Returns:
        The estimator, with the settings of the paper if it was given by name.

    Raises:
        UserError: If the name is unknown, or if the object does not have the methods of an `Estimator`.

    Example:
        >>> from truedrift import estimator
        >>> estimator("abc").bias_order
        2
    """
    if not isinstance(name, str):
        if isinstance(name, type) or not isinstance(name, Estimator):
            members = "name, bias_order, budget and reweight"
            allowed = f"must be a name ({', '.join(ESTIMATORS)}) or an object with {members}"
            raise UserError(f"is {name!r}", allowed, "pass one of the names", field=field)
        return name
    require_choice(field, name, ESTIMATORS)
    return ESTIMATORS[name]
