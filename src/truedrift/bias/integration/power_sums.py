"""E[Π_a Σ_i w_i^{k_a} f_a(y_i) / S^m] as one-dimensional integrals: the partition rule, m = Σ k_a and S = Σ_i w_i.

A centroid whose weights are polynomials of α, p_2 and p_3 is a polynomial in the normalized power sums
p_k = Σ α_i^k and Y_k = Σ α_i^k y_i. Every monomial has as many powers of w above as below, and

    1/S^m = ∫₀^∞ t^{m−1}/(m−1)! e^{−tS} dt

makes the draws independent. Expanding the product over which factors fall on the same draw,

    E[Π_a Σ_i f_a(i) / S^m] = ∫ dt/t /(m−1)! Σ_π n(n−1)…(n−|π|+1) Π_{B∈π} t^{k_B} E[w^{k_B} f_B e^{−tw}] φ(t)^{n−|π|},

φ(t) = E[e^{−tw}], over the partitions π of the factors; the powers of t are those of the blocks. What is left of π is
how many blocks there are, the power of each, and how many factors y each holds: none (a scalar), one (a vector), or
both of a squared norm (‖y‖²).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from math import factorial
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
