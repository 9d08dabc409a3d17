"""A centroid estimator is a reweighting: log w → γ with Σγ = 1, followed by one product T = Σ γ_i y_i.

Every correction of the paper is linear in y once the weights are known. An estimator therefore does not need y, and
a correction costs O(n) per query in addition to the O(nD) of the plain centroid. `weighted_mean` is the only function
in the library that multiplies weights and references, except `streaming`, which stores no weights.

`reweight` computes in float64, where the device has it, and rounds once: terms such as 1 − p_2 cancel when one weight
is close to 1, and a float32 γ would keep five of the seven digits of its log-weights. Where those digits do not
matter, as in the training loss, `gamma` accepts α in any format.

The plain estimator, γ_i = α_i, gives the minibatch centroid T_n = Σ α_i y_i (`eq:centroid`). It is biased by
−E[w²(y − T*)] / (n E[w]²) + O(n⁻²) (`thm:ratio_bias`). At n = 1 the bias is exactly −Cov(w, y)/E[w] (`thm:bias_n1`).
It vanishes for constant weights and for data that are symmetric about the query (`thm:zero_bias`).
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import reduce
from typing import Protocol, runtime_checkable

import torch

from truedrift.axes import Float, Tensor
from truedrift.kernels.precision import cast, cast_like, to_widest
from truedrift.kernels.weights import power_sum, softmax


@runtime_checkable
class Estimator(Protocol):
    """A reweighting log w [..., n] → γ [..., n] with Σγ = 1 over the references that are not masked (l = −∞).

    A row in which everything is masked has γ = 0. Any object with these four members is an estimator; it need not be a
    subclass.
    """

    @property
    def name(self) -> str:
        """The name by which the estimator is selected."""

    @property
    def bias_order(self) -> int:
        """The k for which the bias of the centroid is O(n^−k)."""

    def budget(self, n: int) -> int:
        """Return the number of references that an estimate of size n needs: n, or more (BR-SNIS)."""
        return n

    def reweight(self, log_w: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return γ in at least float32. `generator` provides random numbers to estimators that draw."""


class AlphaEstimator(Estimator):
    """Base class of estimators whose γ depends on α = softmax(log w) alone."""

    @abstractmethod
    def gamma(self, alpha: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        """Return γ(α)."""

    def reweight(
        self,
        log_w: Float[Tensor, "*batch n"],
        generator: torch.Generator | None = None,
        *,
        assume_nonempty: bool = False,
    ) -> Tensor:
        """Return γ(softmax(log w)). `assume_nonempty`: no row is completely masked; this is faster."""
        return cast_like(self.gamma(softmax(to_widest(log_w), assume_nonempty=assume_nonempty)), log_w)


Coefficients = tuple[float | Tensor, ...]


class PolynomialEstimator(AlphaEstimator):
    """Base class of estimators with γ_i = Σ_k q_k α_i^k, where q_1, …, q_K depend on p_2, …, p_K alone."""

    @abstractmethod
    def coefficients(self, *p: Tensor) -> Coefficients:
        """Return (q_1, …, q_K) from the power sums p_2, …, p_K, p_k = Σ α_i^k."""

    @property
    def degree(self) -> int:
        """K, which is also the order k of the bias O(n^−k)."""
        return self.bias_order

    def gamma(self, alpha: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        """Return γ by Horner's rule."""
        *lower, highest = self.coefficients(*(power_sum(alpha, k) for k in range(2, self.degree + 1)))
        total = highest * alpha
        for q in reversed(lower):
            total = (q + total) * alpha
        return total


LONGEST_SUM = 1 << 13
"""Sums of up to this many references are computed in the format of the weights, longer ones in float64."""
BLOCK_ELEMENTS, SMALLEST_BLOCK = 1 << 18, 1 << 8
"""Weights and coordinates of a block of a longer sum, two megabytes of float64; its smallest number of references."""


def weighted_mean(gamma: Float[Tensor, "*#batch B n"], y: Float[Tensor, "*#batch n D"]) -> Float[Tensor, "*batch B D"]:
    """Compute T = Σ_i γ_i y_i.

    The relative error of a float32 sum is up to 6·10⁻⁶ at n = 10⁴ and 6·10⁻⁴ at n = 10⁶. Sums over many references are
    therefore computed in float64, block by block, so that y is not copied.

    Args:
        gamma: Weights [..., B, n].
        y: References [..., n, D].

    Returns:
        T [..., B, D], in the dtype of `gamma`.

    Example:
        >>> weighted_mean(torch.tensor([[0.75, 0.25]]), torch.tensor([[0.0], [4.0]]))
        tensor([[1.]])
    """
    n = y.shape[-2]
    if n <= LONGEST_SUM:
        return gamma @ cast(y, gamma.dtype)
    size = max(SMALLEST_BLOCK, BLOCK_ELEMENTS * n // (gamma.numel() + y.numel()))
    blocks = zip(gamma.split(size, -1), y.split(size, -2), strict=True)
    return cast(reduce(torch.add, (to_widest(some) @ to_widest(of_y) for some, of_y in blocks)), gamma.dtype)


@dataclass(frozen=True)
class Standard(PolynomialEstimator):
    """The plain minibatch centroid: γ = α (`eq:centroid`)."""

    name: str = "standard"
    bias_order: int = 1

    def coefficients(self) -> Coefficients:  # type: ignore[override]
        return (1.0,)

    def gamma(self, alpha: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return alpha
