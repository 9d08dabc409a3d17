"""The partition rule of `power_sums` for strata: n_s draws from each of several pools s, one common S = Σ w.

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

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import product
from math import factorial, prod

from truedrift.bias.integration.power_sums import Blocks, Factor, Monomial, partitions

Monomials = tuple[Monomial, ...]
"""A product of sums: the factors of each stratum."""
Polynomial = Mapping[Monomials, float]
Term = tuple[Blocks, ...]
"""What is left of π: the blocks of each stratum."""

ESTIMATORS = ("standard", "abc", "stratified-abc")


@cache
def mean(name: str, n: tuple[int, ...]) -> dict[Term, float]:
    """E[T] of that centroid with n_s draws from stratum s: coefficients of the integrals, with n_s(n_s−1)… in them."""
    total: defaultdict[Term, float] = defaultdict(float)
    for monomials, coefficient in centroid(name, n).items():
        m = sum(factor.power for of_stratum in monomials for factor in of_stratum)
        for splits in product(*(partitions(of_stratum).items() for of_stratum in monomials)):
            term = tuple(blocks for blocks, _ in splits)
            ways = prod(count for _, count in splits) * prod(map(_falling, n, map(len, term)))
            total[term] += coefficient * ways / factorial(m - 1)
    return {term: coefficient for term, coefficient in total.items() if coefficient != 0}


def centroid(name: str, n: tuple[int, ...]) -> Polynomial:
    """The centroid of joined references as a polynomial in the sums of the strata."""
    strata = range(len(n))

    def single(s: int, power: int, ys: int) -> Polynomial:
        return {tuple((Factor(power, ys),) if r == s else () for r in strata): 1.0}

    def over_strata(power: int, ys: int) -> Polynomial:
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


def _sum(polynomials: Iterable[Polynomial]) -> Polynomial:
    total: defaultdict[Monomials, float] = defaultdict(float)
    for polynomial in polynomials:
        for monomials, coefficient in polynomial.items():
            total[monomials] += coefficient
    return total


def _product(a: Polynomial, b: Polynomial, scale: float = 1) -> Polynomial:
    total: defaultdict[Monomials, float] = defaultdict(float)
    for left, of_left in a.items():
        for right, of_right in b.items():
            both = tuple(tuple(sorted(of_a + of_b)) for of_a, of_b in zip(left, right, strict=True))
            total[both] += scale * of_left * of_right
    return total


def _falling(n: int, b: int) -> int:
    """n(n−1)…(n−b+1)."""
    return prod(range(n - b + 1, n + 1)) if b <= n else 0
