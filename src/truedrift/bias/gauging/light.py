"""Whether to believe the gauge: a light for the bias of ABC, calibrated on simulated populations.

From the numbers of `leave_out` for ABC at n, and (3 m_2 g_2 − 2 g_3)/n² from the same references over its exact bias:

| color  | when                                                 | what it says                                      |
|--------|------------------------------------------------------|---------------------------------------------------|
| red    | noise > NOISE or error > ERROR or abs(drift) > DRIFT | too few references: do not believe the estimate   |
| yellow | else, the ratio is beyond a factor of AGREEMENT      | believe it at this n; the expansion in 1/n fails  |
| green  | else                                                 | estimate and expansion are within a factor of 2   |

Two things come before the rule. With fewer distinct references than groups to leave out the light is red. And where
ABC's bias is below what is resolved (`expected_weights.FLOOR`), those numbers are those of rounding errors and say
nothing. The light is green then, for a bias that does not matter, if 95 % of the queries see GROUPS distinct references
or more, 1/Σα² ≥ GROUPS; and red if not, because minibatches of n ≫ N draws hold each of N references and have no bias,
while those of the population may.

Yellow is what n_eff near 1 looks like: the bias at n is known, but not its law in n, and a correction of higher order
gains nothing. The thresholds were chosen on 600 populations of `experiments/light_calibration.py`; MEASURED is what 300
others showed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from truedrift.bias.diagnosis import Color, Light, Quantiles, Weights
from truedrift.bias.gauging.expected_weights import FLOOR
from truedrift.bias.gauging.leave_out import GROUPS, Estimate

NOISE = 0.9
ERROR = 0.4
DRIFT = 0.5
AGREEMENT = 1.7


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Of `cases` populations that had no part in choosing the thresholds."""

    cases: int
    usable: float
    """Share of cases in which estimate and expansion are within a factor of 2 of the truth."""
    false_green: float
    """Share of green lights in which one of both is not."""
    unusable_called_green: float
    usable_called_green: float
    believed: float
    """Share of cases that are green or yellow."""
    falsely_believed: float
    """Share of those in which the estimate is not within a factor of 2."""
    right_called_believed: float
    """Share of cases with an estimate within a factor of 2 that are green or yellow."""
    coverage: tuple[float, ...]
    """Of the 95 % intervals for standard, ABC and ABC-2."""


MEASURED = Measured(
    cases=300,
    usable=0.55,
    false_green=0.014388,
    unusable_called_green=0.014815,
    usable_called_green=0.8303,
    believed=0.77333,
    falsely_believed=0.012931,
    right_called_believed=0.81786,
    coverage=(0.93667, 0.93, 0.93333),
)


def color(*, noise: float, error: float, drift: float, agreement: float) -> Color:
    """The rule."""
    if noise > NOISE or error > ERROR or abs(drift) > DRIFT:
        return "red"
    return "green" if 1 / AGREEMENT <= agreement <= AGREEMENT else "yellow"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the references are, beside the estimates from them."""

    distinct: int
    n_eff: Quantiles
    """1/Σα² over the distinct references, over queries."""
    floor: float
    """FLOOR times the spread."""


def light(estimates: Sequence[Estimate], closed: float, weights: Weights, evidence: Evidence) -> Light:
    """From the estimates, one of them ABC's, and the closed form of ABC's bias from the same references."""
    (abc,) = (each for each in estimates if each.estimator == "abc")
    if evidence.distinct < GROUPS or abc.norm <= evidence.floor:
        return _without_the_rule(evidence)
    agreement = closed / abc.norm
    shown = color(noise=abc.noise, error=abc.error, drift=abc.drift, agreement=agreement)
    return Light(
        color=shown,
        reason=_reason(shown, abc, agreement, weights.n_eff.p50),
        noise=abc.noise,
        error=abc.error,
        drift=abc.drift,
        agreement=agreement,
    )


def _without_the_rule(evidence: Evidence) -> Light:
    """Where the numbers of the rule are unknown."""
    if evidence.distinct < GROUPS:
        return Light(color="red", reason=f"too few distinct references: {evidence.distinct}, of {GROUPS} at least")
    if evidence.n_eff.p05 < GROUPS:
        seen = f"a query sees {evidence.n_eff.p05:.2g} of them"
        return Light(color="red", reason=f"too few references: {seen}, which says nothing of a bias this small")
    return Light(color="green", reason=f"below what matters: ABC's bias is less than {FLOOR:g} of the spread")


def _reason(shown: Color, abc: Estimate, agreement: float, n_eff: float) -> str:
    if shown == "green":
        return "the estimate and the expansion in 1/n agree, and hold when references are left out"
    if shown == "yellow":
        off = max(agreement, 1 / agreement) if agreement > 0 else math.inf
        return f"believe the bias at this n; at n_eff = {n_eff:.2g} the expansion is off {off:.2g}-fold"
    if abc.noise > NOISE:
        return f"too few references: the noise of the bias vector is {abc.noise:.2g} times the bias"
    if abc.error > ERROR:
        return f"too few references: the bias is known to a factor of {math.exp(min(2 * abc.error, 99.0)):.2g} only"
    change = math.exp(min(abs(abc.drift), 99.0))
    return f"too few references: more of them would change the bias by a factor of {change:.2g}"
