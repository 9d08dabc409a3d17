"""A centroid estimator is a reweighting: log w → γ with Σγ = 1, followed by one product T = Σ γ_i y_i.

Every correction of the paper is linear in y once the weights are known, so an estimator never touches y, and the
cost of a correction is O(n) a query on top of the O(nD) of the plain centroid. `weighted_mean` is the only place
in the library where weights meet references (`streaming` excepted, which has no weights to keep).

`reweight` evaluates in float64, where the device has it, and rounds once: 1 − p_2 and its like cancel when one weight
holds nearly everything, and a float32 γ would keep five digits of the seven that its log-weights had. Where those
digits do not matter, as in the training loss, `gamma` takes α in any format.

γ_i = α_i: the minibatch centroid T_n = Σ α_i y_i (`eq:centroid`).

It is biased by −E[w²(y − T*)] / (n E[w]²) + O(n⁻²) (`thm:ratio_bias`). At n = 1 the bias is −Cov(w, y)/E[w] exactly
(`thm:bias_n1`); it vanishes for constant weights and for data that are symmetric about the query (`thm:zero_bias`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from truedrift.axes import Float, Tensor
from truedrift.kernels.precision import cast_like, to_widest
from truedrift.kernels.weights import softmax


@runtime_checkable
class Estimator(Protocol):
    """log w [..., n] → γ [..., n] with Σγ = 1 over the references that are not masked (l = −∞).

    A row in which everything is masked has γ = 0.
    """

    @property
    def name(self) -> str:
        """The word by which it is asked for."""

    @property
    def bias_order(self) -> int:
        """k where the bias of the centroid is O(n^−k)."""

    def budget(self, n: int) -> int:
        """How many references one estimate of size n draws."""

    def reweight(self, log_w: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """γ in at least float32. `generator` is for estimators that draw."""


class AlphaEstimator(ABC):
    """An estimator on the n references given whose γ is a function of α = softmax(log w) alone."""

    @abstractmethod
    def gamma(self, alpha: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        """γ(α)."""

    def reweight(self, log_w: Float[Tensor, "*batch n"], generator: torch.Generator | None = None) -> Tensor:
        """γ(softmax(log w))."""
        return cast_like(self.gamma(softmax(to_widest(log_w))), log_w)

    def budget(self, n: int) -> int:
        """n: nothing is drawn beyond the references given."""
        return n


def weighted_mean(gamma: Float[Tensor, "*#batch B n"], y: Float[Tensor, "*#batch n D"]) -> Float[Tensor, "*batch B D"]:
    """T = Σ_i γ_i y_i."""
    return gamma @ y.to(gamma.dtype)


@dataclass(frozen=True)
class Standard(AlphaEstimator):
    """γ = α."""

    name: str = "standard"
    bias_order: int = 1

    def gamma(self, alpha: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return alpha
