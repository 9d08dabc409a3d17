"""E[Π_a Σ_i w_i^{k_a} f_a(y_i) / S^m] as one-dimensional integrals: the partition rule, m = Σ k_a and S = Σ_i w_i.

A centroid whose weights are polynomials of α, p_2 and p_3 is a polynomial in the normalized power sums
p_k = Σ α_i^k and Y_k = Σ α_i^k y_i. Every monomial has as many powers of w above as below, and

    1/S^m = ∫₀^∞ t^{m−1}/(m−1)! e^{−tS} dt

makes the draws independent. Expanding the product over which factors fall on the same draw,

    E[Π_a Σ_i f_a(i) / S^m] = ∫ dt/t /(m−1)! Σ_π n(n−1)…(n−|π|+1) Π_{B∈π} t^{k_B} E[w^{k_B} f_B e^{−tw}] φ(t)^{n−|π|},

φ(t) = E[e^{−tw}], over the partitions π of the factors; the powers of t are those of the blocks. What is left of π is
how many blocks there are, the power of each, and how many factors y each holds: none (a scalar), one (a vector), or
both of a squared norm (‖y‖²).

The partition rule of `power_sums` for strata: n_s draws from each of several pools s, one common S = Σ w.

    E[Π_a Σ_{i∈s_a} f_a(i) / S^m]
      = ∫ dt/t /(m−1)! Σ_π Π_s { n_s(n_s−1)…(n_s−b_s+1) φ_s(t)^{n_s−b_s} Π_{B∈π_s} t^{k_B} E_s[w^{k_B} f_B e^{−tw}] }

with φ_s(t) = E_s[e^{−tw}]. Draws of two strata are never the same one, so that a block of π holds factors of one
stratum only: π = (π_s), a partition of the factors of each stratum, with b_s blocks.

With A_s = Σ_{i∈s} α_i and B_s = Σ_{i∈s} α_i y_i, the centroids of joined references are

| standard       | T = Σ_s B_s                                                        |
| ABC            | T + Σ α² y − p_2 T                                    (`eq:abc`)   |
| stratified ABC | T + Σ α² y − p_2 T + T Σ_s A_s²/n_s − Σ_s A_s B_s/n_s      (new)   |

The last is Σ γ_i y_i for γ_i = α_i (1 − p_2 + α_i) − α_i (A_{s(i)}/n_{s(i)} − Σ_s A_s²/n_s).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import product
from math import factorial, prod
from typing import NamedTuple


class Factor(NamedTuple):
    """Σ_i w_i^power y_i^ys with ys = 0 or 1; as a block of factors also ys = 2, which stands for ‖y‖²."""

    power: int
    ys: int


Monomial = tuple[Factor, ...]
Polynomial = Mapping[Monomial, float]
Blocks = tuple[Factor, ...]


def _Y(k: int, *powers: int) -> Monomial:
    """Y_k times the p of these powers."""
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
"""T = Y_1, T + Y_2 − p_2 Y_1 (`eq:abc`), and T + (1 − 3p_2)(Y_2 − p_2 T) + 2(Y_3 − p_3 T)."""


@cache
def mean(name: str) -> dict[Blocks, float]:
    """E[T] of that centroid: coefficients of the integrals by their blocks."""
    return _integrals(CENTROIDS[name])


@cache
def second_moment(name: str) -> dict[Blocks, float]:
    """E‖T‖² of that centroid."""
    square: defaultdict[Monomial, float] = defaultdict(float)
    for a, coefficient_a in CENTROIDS[name].items():
        for b, coefficient_b in CENTROIDS[name].items():
            square[tuple(sorted(a + b))] += coefficient_a * coefficient_b
    return _integrals(square)


def _integrals(polynomial: Polynomial) -> dict[Blocks, float]:
    total: defaultdict[Blocks, float] = defaultdict(float)
    for monomial, coefficient in polynomial.items():
        m = sum(factor.power for factor in monomial)
        for blocks, ways in partitions(monomial).items():
            total[blocks] += coefficient * ways / factorial(m - 1)
    return dict(total)


def partitions(monomial: Monomial) -> Counter[Blocks]:
    """The partitions of the factors, by what is left of them, and how many there are of each."""
    return Counter(tuple(sorted(_block(block) for block in partition)) for partition in set_partitions(monomial))


def _block(factors: Monomial) -> Factor:
    return Factor(sum(f.power for f in factors), sum(f.ys for f in factors))


def set_partitions(items: Monomial) -> Iterator[list[Monomial]]:
    """Every way to split the items, told apart by position, into blocks."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for partition in set_partitions(rest):
        yield [(first,), *partition]
        for k, block in enumerate(partition):
            yield [*partition[:k], (first, *block), *partition[k + 1 :]]


Monomials = tuple[Monomial, ...]
"""A product of sums: the factors of each stratum."""
StrataPolynomial = Mapping[Monomials, float]
Term = tuple[Blocks, ...]
"""What is left of π: the blocks of each stratum."""

STRATA_ESTIMATORS = ("standard", "abc", "stratified-abc")


@cache
def strata_mean(name: str, n: tuple[int, ...]) -> dict[Term, float]:
    """E[T] of that centroid with n_s draws from stratum s: coefficients of the integrals, with n_s(n_s−1)… in them."""
    total: defaultdict[Term, float] = defaultdict(float)
    for monomials, coefficient in strata_centroid(name, n).items():
        m = sum(factor.power for of_stratum in monomials for factor in of_stratum)
        for splits in product(*(partitions(of_stratum).items() for of_stratum in monomials)):
            term = tuple(blocks for blocks, _ in splits)
            ways = prod(count for _, count in splits) * prod(map(_falling, n, map(len, term)))
            total[term] += coefficient * ways / factorial(m - 1)
    return {term: coefficient for term, coefficient in total.items() if coefficient != 0}


def strata_centroid(name: str, n: tuple[int, ...]) -> StrataPolynomial:
    """The centroid of joined references as a polynomial in the sums of the strata."""
    strata = range(len(n))

    def single(s: int, power: int, ys: int) -> StrataPolynomial:
        return {tuple((Factor(power, ys),) if r == s else () for r in strata): 1.0}

    def over_strata(power: int, ys: int) -> StrataPolynomial:
        return _sum(single(s, power, ys) for s in strata)

    A, B = ([single(s, 1, ys) for s in strata] for ys in (0, 1))
    T = over_strata(1, 1)
    if name == "standard":
        return T
    abc = _sum((T, over_strata(2, 1), _product(over_strata(2, 0), T, -1)))
    if name == "abc":
        return abc
    square = _sum(_product(A[s], A[s], 1 / n[s]) for s in strata)
    return _sum((abc, _product(square, T), *(_product(A[s], B[s], -1 / n[s]) for s in strata)))


def _sum(polynomials: Iterable[StrataPolynomial]) -> StrataPolynomial:
    total: defaultdict[Monomials, float] = defaultdict(float)
    for polynomial in polynomials:
        for monomials, coefficient in polynomial.items():
            total[monomials] += coefficient
    return total


def _product(a: StrataPolynomial, b: StrataPolynomial, scale: float = 1) -> StrataPolynomial:
    total: defaultdict[Monomials, float] = defaultdict(float)
    for left, of_left in a.items():
        for right, of_right in b.items():
            both = tuple(tuple(sorted(of_a + of_b)) for of_a, of_b in zip(left, right, strict=True))
            total[both] += scale * of_left * of_right
    return total


def _falling(n: int, b: int) -> int:
    """n(n−1)…(n−b+1)."""
    return prod(range(n - b + 1, n + 1)) if b <= n else 0
