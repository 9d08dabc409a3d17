"""The confidence in an estimated bias: high, medium or low, from the jackknife numbers of `uncertainty`.

It rates the bias of ABC at n. With the ratio of the expansion (3 m_2 g_2 − 2 g_3)/n² to the exact bias, both from the
same references:

| level  | condition                                                       | meaning                               |
|--------|-----------------------------------------------------------------|---------------------------------------|
| low    | relative_noise, log_error or abs(extrapolation) above its limit | too few references: do not use it     |
| medium | else, ratio beyond a factor of AGREEMENT                        | use it at this n; the expansion fails |
| high   | else                                                            | both are within a factor of 2         |

The rule does not apply in two cases. If there are fewer distinct references than jackknife groups, the level is low. If
the bias of ABC is not resolved (`expected_weights.FLOOR`), the numbers in the rule are rounding errors. The level is
then high (the bias is negligible) if 1/Σα² over distinct references is at least GROUPS for 95 % of the queries, and
low otherwise. The reason is that minibatches of n ≫ N draws contain each of the N references and have no bias, although
minibatches from the population may have one.

Medium is typical of n_eff near 1. The bias at n is known, but its dependence on n is not, and a correction of higher
order does not help. The limits were chosen on 600 simulated populations (`tools/confidence_calibration.py`).
CALIBRATION contains the rates on 300 other populations.
"""

import math
from dataclasses import dataclass

from truedrift.bias.diagnosis import Confidence, Level, Quantiles, Weights
from truedrift.bias.expected_weights import FLOOR
from truedrift.bias.uncertainty import GROUPS, Estimate

LARGEST_RELATIVE_NOISE = 0.9
LARGEST_LOG_ERROR = 0.4
LARGEST_EXTRAPOLATION = 0.5
AGREEMENT = 1.7


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Rates over `cases` populations that were not used to choose the limits."""

    cases: int
    usable: float
    """Fraction of cases in which estimate and expansion are within a factor of 2 of the truth."""
    false_high: float
    """Fraction of the cases of high confidence that are not usable."""
    usable_called_high: float
    """Fraction of the usable cases that have high confidence."""
    coverage: tuple[float, ...]
    """Coverage of the 95 % intervals for standard, ABC and ABC-2."""


CALIBRATION = Calibration(
    cases=300, usable=0.55, false_high=0.014388, usable_called_high=0.8303, coverage=(0.93667, 0.93, 0.93333)
)


def confidence_level(*, relative_noise: float, log_error: float, extrapolation: float, agreement: float) -> Level:
    """Apply the rule of confidence to the bias of ABC.

    Args:
        relative_noise: Error of the bias vector divided by the bias; low above 0.9.
        log_error: Standard error of the logarithm of the bias; low above 0.4.
        extrapolation: Change of that logarithm if there were more references; low above 0.5 in absolute value.
        agreement: Ratio of the expansion in 1/n to the exact bias; medium beyond a factor of 1.7.

    Returns:
        "low", "medium" or "high".

    Example:
        >>> confidence_level(relative_noise=0.2, log_error=0.1, extrapolation=0.1, agreement=1.2)
        'high'
    """
    if (
        relative_noise > LARGEST_RELATIVE_NOISE
        or log_error > LARGEST_LOG_ERROR
        or abs(extrapolation) > LARGEST_EXTRAPOLATION
    ):
        return "low"
    return "high" if 1 / AGREEMENT <= agreement <= AGREEMENT else "medium"


def rate_confidence(
    abc: Estimate, expansion: float, weights: Weights, references_eff: Quantiles, distinct: int, floor: float
) -> Confidence:
    """Rate the estimates of the bias by that of ABC, and its expansion in 1/n from the same references."""
    # Two cases in which the rule does not apply
    if distinct < GROUPS:
        return Confidence(level="low", reason=f"too few distinct references: {distinct}, fewer than {GROUPS}")
    if abc.norm <= floor:
        if references_eff.p05 >= GROUPS:
            reason = f"negligible: the bias of ABC is less than {FLOOR:g} of the spread"
            return Confidence(level="high", reason=reason)
        count = f"effectively {references_eff.p05:.2g} per query"
        return Confidence(level="low", reason=f"too few references: {count}, so the bias cannot be resolved")
    # The rule
    agreement = expansion / abc.norm
    level = confidence_level(
        relative_noise=abc.relative_noise,
        log_error=abc.log_error,
        extrapolation=abc.extrapolation,
        agreement=agreement,
    )
    return Confidence(
        level=level,
        reason=_reason(level, abc, agreement, weights.n_eff.p50),
        noise=abc.relative_noise,
        error=abc.log_error,
        drift=abc.extrapolation,
        agreement=agreement,
    )


def _reason(level: Level, abc: Estimate, agreement: float, n_eff: float) -> str:
    """Explain the level in one line."""
    if level == "high":
        return "estimate and expansion in 1/n agree, and are stable when references are left out"
    if level == "medium":
        off = max(agreement, 1 / agreement) if agreement > 0 else math.inf
        wrong = f"the expansion in 1/n is wrong by a factor of {off:.2g} (n_eff = {n_eff:.2g})"
        return f"the bias at this n is known, but {wrong}"
    if abc.relative_noise > LARGEST_RELATIVE_NOISE:
        return f"too few references: the noise of the bias vector is {abc.relative_noise:.2g} times the bias"
    if abc.log_error > LARGEST_LOG_ERROR:
        factor = math.exp(min(2 * abc.log_error, 99.0))
        return f"too few references: the bias is known only to within a factor of {factor:.2g}"
    change = math.exp(min(abs(abc.extrapolation), 99.0))
    return f"too few references: with more, the estimated bias would change by a factor of {change:.2g}"
