"""Expectations of centroids as one-dimensional integrals: the partition rule.

A centroid whose weights are polynomials of α, p_2 and p_3 is a polynomial in the normalized power sums
p_k = Σ α_i^k and Y_k = Σ α_i^k y_i. Every monomial has as many powers of w above as below, and with S = Σ_i w_i,

    1/S^m = ∫₀^∞ t^{m−1}/(m−1)! e^{−tS} dt

makes the draws independent. The references are n_s draws from each of one or more pools (strata) s. Let factor a of a
monomial be Σ_{i∈s_a} f_a(i), with f_a(i) = w_i^{k_a} or w_i^{k_a} y_i, and m = Σ_a k_a. Expanding the product over
which factors fall on the same draw,

    E[Π_a Σ_{i∈s_a} f_a(i) / S^m]
      = ∫ dt/t /(m−1)! Σ_π Π_s { n_s(n_s−1)…(n_s−b_s+1) φ_s(t)^{n_s−b_s} Π_{B∈π_s} t^{k_B} E_s[w^{k_B} f_B e^{−tw}] }

with φ_s(t) = E_s[e^{−tw}]. Draws from two strata are never the same draw, so a block of π holds factors of one stratum
only: π = (π_s), a partition of the factors of each stratum into b_s blocks. Three things about π matter: the number of
blocks, the power of each, and how many factors y each holds: none (a scalar), one (a vector), or both of a squared norm
(‖y‖²).

With A_s = Σ_{i∈s} α_i and B_s = Σ_{i∈s} α_i y_i, the centroids are

| standard       | T = Y_1 = Σ_s B_s                                                         |
| ABC            | T + Y_2 − p_2 T                                              (`eq:abc`)   |
| ABC-2          | T + (1 − 3 p_2)(Y_2 − p_2 T) + 2 (Y_3 − p_3 T)                  (new)     |
| stratified ABC | T + Y_2 − p_2 T + T Σ_s A_s²/n_s − Σ_s A_s B_s/n_s              (new)     |

The last is Σ γ_i y_i for γ_i = α_i (1 − p_2 + α_i) − α_i (A_{s(i)}/n_{s(i)} − Σ_s A_s²/n_s).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from math import factorial, prod
from typing import NamedTuple


class Factor(NamedTuple):
    """Σ_i w_i^power y_i^ys with ys = 0 or 1. A block of factors may also have ys = 2, which stands for ‖y‖²."""

    power: int
    ys: int


Monomial = tuple[Factor, ...]
Polynomial = Mapping[Monomial, float]
Blocks = tuple[Factor, ...]
StrataMonomial = tuple[Monomial, ...]
"""A product of sums: the factors of each stratum."""
Term = tuple[Blocks, ...]
"""The blocks of each stratum, which determine an integral."""
Terms = dict[Term, float]
"""The coefficient of each integral, without n(n−1)…(n−b+1)."""
Sizes = tuple[int, ...]
"""n_s of each stratum."""


def _Y(k: int, *powers: int) -> Monomial:
    """Y_k Π_j p_j over these powers j."""
    return (*(Factor(power, 0) for power in powers), Factor(k, 1))


CENTROIDS: dict[str, Polynomial] = {
    "standard": {_Y(1): 1},
    "abc": {_Y(1): 1, _Y(2): 1, _Y(1, 2): -1},
    "abc2": {
        _Y(1): 1,
        _Y(2): 1,
        _Y(3): 2,
        _Y(1, 2): -1,
        _Y(2, 2): -3,
        _Y(1, 2, 2): 3,
        _Y(1, 3): -2,
    },
}
"""The centroids that do not distinguish strata, as polynomials in p_k and Y_k."""

STRATA_ESTIMATORS = ("standard", "abc", "stratified-abc")


@cache
def mean_terms(name: str, n: Sizes = (1,)) -> Terms:
    """Return E[T] of a centroid as integrals, for len(n) strata; only stratified ABC depends on n itself."""
    return _integrals(centroid_polynomial(name, n))


@cache
def second_moment_terms(name: str) -> Terms:
    """Return E‖T‖² of a centroid of `CENTROIDS`, with references from one pool, as integrals."""
    square: defaultdict[Monomial, float] = defaultdict(float)
    for a, coefficient_a in CENTROIDS[name].items():
        for b, coefficient_b in CENTROIDS[name].items():
            square[tuple(sorted(a + b))] += coefficient_a * coefficient_b
    return _integrals(_split_over_strata(square, 1))


def powers(terms: Terms) -> list[int]:
    """Return the powers of w whose transforms the terms need."""
    return sorted({block.power for term in terms for blocks in term for block in blocks})


def centroid_polynomial(name: str, n: Sizes) -> dict[StrataMonomial, float]:
    """Return a centroid as a polynomial in the sums of the strata; only stratified ABC depends on n."""
    if name != "stratified-abc":
        return _split_over_strata(CENTROIDS[name], len(n))
    strata = range(len(n))
    total: defaultdict[StrataMonomial, float] = defaultdict(float)
    total.update(_split_over_strata(CENTROIDS["abc"], len(n)))
    A, B = Factor(1, 0), Factor(1, 1)
    for s in strata:
        # T A_s²/n_s, with T = Σ_r B_r
        for r in strata:
            total[_assign((A, A, B), (s, s, r), len(n))] += 1 / n[s]
        # −A_s B_s/n_s
        total[_assign((A, B), (s, s), len(n))] -= 1 / n[s]
    return dict(total)


def _split_over_strata(polynomial: Polynomial, strata: int) -> dict[StrataMonomial, float]:
    """Write each sum over all references as a sum over strata, and multiply out."""
    total: defaultdict[StrataMonomial, float] = defaultdict(float)
    for monomial, coefficient in polynomial.items():
        for choice in product(range(strata), repeat=len(monomial)):
            total[_assign(monomial, choice, strata)] += coefficient
    return dict(total)


def _assign(monomial: Monomial, choice: Sequence[int], strata: int) -> StrataMonomial:
    """Return the factors of each stratum when factor a belongs to stratum choice[a]."""
    return tuple(tuple(f for f, s in zip(monomial, choice, strict=True) if s == stratum) for stratum in range(strata))


def _integrals(polynomial: Mapping[StrataMonomial, float]) -> Terms:
    """Apply the partition rule to each monomial."""
    total: defaultdict[Term, float] = defaultdict(float)
    for monomials, coefficient in polynomial.items():
        m = sum(factor.power for monomial in monomials for factor in monomial)
        for choice in product(*(partitions(monomial).items() for monomial in monomials)):
            term = tuple(blocks for blocks, _ in choice)
            total[term] += coefficient * prod(count for _, count in choice) / factorial(m - 1)
    return dict(total)


def partitions(monomial: Monomial) -> Counter[Blocks]:
    """Count the partitions of the factors by their blocks."""
    return Counter(
        tuple(sorted(Factor(sum(f.power for f in block), sum(f.ys for f in block)) for block in partition))
        for partition in set_partitions(monomial)
    )


def set_partitions(items: Monomial) -> Iterator[list[Monomial]]:
    """Yield every way to split the items into blocks; equal items at different positions are distinct."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for partition in set_partitions(rest):
        yield [(first,), *partition]
        for k, block in enumerate(partition):
            yield [*partition[:k], (first, *block), *partition[k + 1 :]]
