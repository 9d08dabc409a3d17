"""Advice in plain sentences, composed from the numbers of a diagnosis or of a training log.

With b_e the bias of the estimator e as a fraction of the spread, and w the wanted one, the sentence on a temperature is

| condition                       | sentence                                                                         |
|---------------------------------|----------------------------------------------------------------------------------|
| confidence is low               | there are too few references, and why; pass more references                      |
| b_standard ≤ w                  | the bias; no correction is needed                                                |
| else b_ABC ≤ w or b_ABC-2 ≤ w   | the bias, that with the correction; use it, or the n that suffices without it    |
| else                            | the bias; take the n that suffices, or the τ, with ABC if it needs fewer         |

ABC "does not change that" if b_ABC is within 25 % of b_standard.

**Sufficient τ.** The bias is computed at the same n for the τ of the series 1, 2, 5, 10, … above the given one, up to a
hundred times it, as long as τ is not too warm. The smallest one from which the bias stays at or below the wanted
fraction of its spread is named. A larger τ also changes the target T*, which becomes smoother.
"""

import math
from collections.abc import Callable, Sequence

from truedrift.bias.diagnosis import Bias, TemperatureDiagnosis, Weights

NAMES = {"standard": "standard", "abc": "ABC", "abc2": "ABC-2"}
UNCHANGED = 1.25
"""A correction that changes the bias by a smaller factor than this does not change it."""
FEW_EFFECTIVE = 2.0
"""n_eff below which the centroid is mostly the nearest reference, so that no correction helps."""
MOST_WARM = 100.0
"""The largest τ that is tried, over the given one."""


def advise_on_bias(
    at: TemperatureDiagnosis,
    *,
    n: int,
    wanted: float | None,
    references: int,
    sufficient_tau: Callable[[str], float | None],
) -> str:
    """Say what the bias at one temperature is, and what to do about it.

    Args:
        at: The diagnosis at the temperature, with biases and confidence.
        n: The number of references per centroid.
        wanted: The wanted bias as a fraction of the spread; None for no advice on it.
        references: The number of distinct references, beyond which the required n is extrapolated.
        sufficient_tau: Name of an estimator → the smallest τ that suffices with it, None if none does. It is called
            only if no estimator suffices at n.

    Returns:
        Two sentences, and a third one if the temperature is too warm.
    """
    assert at.confidence is not None  # distances or features
    where = f"At τ = {at.tau:g} and n = {n:,}"
    if at.confidence.level == "low":
        return f"{where} there are {at.confidence.reason}. Pass more references."
    standard, *corrected = at.biases
    off = f"{where} the centroid is off by {format_percent(standard.of_spread)} of the spread"
    sentences = [f"{off}{_compare(standard, corrected[:1])}."]
    if wanted is not None:
        enough = next((bias for bias in at.biases if bias.of_spread <= wanted), None)
        if enough is None:
            sentences.append(_advise_more(at, n, references, sufficient_tau))
        elif enough is standard:
            sentences.append(f"That is within the wanted {format_percent(wanted)}, so no correction is needed.")
        else:
            used = corrected[: corrected.index(enough) + 1]
            sentences = [f"{off}{_compare(standard, used)}.", _advise_correction(enough, standard, n)]
    if at.dead == "too warm":
        sentences.append("The query has almost no influence on the centroid at this τ: take a smaller one.")
    return " ".join(sentences)


def _compare(standard: Bias, corrected: Sequence[Bias]) -> str:
    """Say what the corrections make of the bias."""
    (abc, *_) = corrected
    if len(corrected) == 1 and standard.of_spread <= UNCHANGED * abc.of_spread <= UNCHANGED**2 * standard.of_spread:
        return "; ABC does not change that"
    return "".join(f", with {NAMES[bias.estimator]} by {format_percent(bias.of_spread)}" for bias in corrected)


def _advise_correction(enough: Bias, standard: Bias, n: int) -> str:
    """Advise the correction that suffices, and the n that suffices without it if it is known."""
    known = standard.needed_n is not None and not standard.needed_is_extrapolated and standard.needed_n > n
    alternative = f", or n ≈ {round_up(standard.needed_n):,} without it" if known and standard.needed_n else ""
    return f"Use {NAMES[enough.estimator]}{alternative}."


def _advise_more(
    at: TemperatureDiagnosis, n: int, references: int, sufficient_tau: Callable[[str], float | None]
) -> str:
    """Advise the smallest n that suffices, or a larger τ, if no estimator suffices at n."""
    best = min(at.biases[1::-1], key=lambda bias: bias.needed_n or math.inf)  # ABC first
    choices = []
    # The expansion in 1/n, by which n is extrapolated, holds only with high confidence.
    trusted = not best.needed_is_extrapolated or (at.confidence is not None and at.confidence.level == "high")
    if best.needed_n is not None and trusted:
        if best.needed_n > n:
            choices.append(f"n ≈ {round_up(best.needed_n):,}")
    elif references >= n:
        choices.append(f"n > {references:,}")
    tau = sufficient_tau(best.estimator)
    if tau is not None:
        choices.append(f"τ ≥ {tau:g}")
    if not choices:
        return "No n or τ that suffices was found."
    correction = "" if best.estimator == "standard" else f" with {NAMES[best.estimator]}"
    return f"Take {' or '.join(choices)}{correction}."


def larger_temperatures(tau: float) -> tuple[float, ...]:
    """Return the τ of the series 1, 2, 5, 10, … above `tau`, at most a hundred times it.

    Example:
        >>> larger_temperatures(0.05)
        (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
    """
    decade = math.floor(math.log10(tau))
    series = (float(f"{digit}e{decade + k}") for k in range(4) for digit in (1, 2, 5))
    return tuple(each for each in series if tau < each < math.inf and each <= MOST_WARM * tau * (1 + 1e-9))


def advise_on_weights(weights: Weights) -> str:
    """Say what rows of weights show without the references.

    Args:
        weights: Statistics of the rows.

    Returns:
        Two sentences.
    """
    n_eff = weights.n_eff.p50
    found = f"n_eff is {n_eff:.2g} of n = {weights.n:,} for half of the rows"
    if n_eff < FEW_EFFECTIVE:
        return f"{found}: {NEAREST}. Take a larger τ or more references."
    return f"{found}. Pass distances, or queries and references, to measure the bias."


NEAREST = "the centroid is mostly the nearest reference, and no correction helps"


def advise_on_n_eff(
    temperatures: Sequence[float], n_eff: Sequence[float | None], side: str, *, more: str, matched: bool = False
) -> str:
    """Say at which temperatures of a run the references of a side are effectively fewer than two.

    Args:
        temperatures: The temperatures τ of the run.
        n_eff: The effective number of references at each of them, None where it is not known.
        side: "positive" or "negative".
        more: What to increase for a larger n_eff, such as "more positives (batch.n)".
        matched: Whether references are matched, so that the biases of both sides cancel.

    Returns:
        Two or three sentences; an empty string if there is no such temperature.

    Example:
        >>> advise_on_n_eff((0.05, 0.5), (1.2, 9.0), "positive", more="more positives")
        'n_eff of the positives is below 2 at τ = 0.05: the centroid is mostly the nearest reference, and no \
correction helps. Take a larger τ there, or more positives.'
    """
    few = sorted(
        tau for tau, each in zip(temperatures, n_eff, strict=True) if each is not None and each < FEW_EFFECTIVE
    )
    if not few:
        return ""
    *others, last = (f"{tau:g}" for tau in few)
    listed = f"{', '.join(others)} and {last}" if others else last
    found = f"n_eff of the {side}s is below {FEW_EFFECTIVE:g} at τ = {listed}: {NEAREST}."
    cancel = " Matched references cancel its bias where samples match the data." if matched else ""
    return f"{found}{cancel} Take a larger τ there, or {more}."


def format_percent(share: float) -> str:
    """Format a share in percent with two digits that count.

    Example:
        >>> [format_percent(share) for share in (0.1, 0.0042, 1.234, 1e-9, 0.0)]
        ['10 %', '0.42 %', '123 %', 'less than 0.01 %', '0 %']
    """
    if 0 < share < 1e-4:
        return "less than 0.01 %"
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.2g} %"


def round_up(n: int) -> int:
    """Round up to two digits that count.

    Example:
        >>> [round_up(n) for n in (7, 64, 641, 1900)]
        [7, 64, 650, 1900]
    """
    unit = 10 ** max(0, len(str(n)) - 2)
    return -(-n // unit) * unit
