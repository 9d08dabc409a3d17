"""How the kernel matrix k_ij of queries i and references j is normalized before it weights a centroid.

Columns are [neg | pos]. With row sums r_i = Σ_j k_ij over both sides jointly, column sums c_j = Σ_i k_ij over the
queries, and masked entries left out of both,

| normalization     | A_ij            |                                                                         |
|-------------------|-----------------|-------------------------------------------------------------------------|
| row               | k_ij / r_i      | softmax of a row: the estimator that the theorems are about             |
| bidirectional     | k_ij / √(r_i c_j) | √(softmax_row · softmax_col), the image recipe                        |
| bidirectional-loo | k_ij / √(r_i (c_j − k_ij)) | a query's own term left out of the column sums that weight it |

In the second, c_j is estimated from a batch that holds query i itself; that correlation leaves an O(1/n) bias which
ABC does not see. Leaving the own term out removes most of it from T⁺, and none from T⁻. It changes only the weights:
the masses keep the ordinary affinity, because k_ij/(c_j − k_ij) is unbounded. Where no other query reaches a column the
row weight is used. Everything stays in log-space.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

import torch

from truedrift.axes import Float, Tensor
from truedrift.kernels.weights import log_softmax, logsumexp_and_without

Normalization = Literal["row", "bidirectional", "bidirectional-loo"]
NORMALIZATIONS: tuple[Normalization, ...] = get_args(Normalization)


class LogAffinity(NamedTuple):
    """Two views of the normalized kernel, which differ only for bidirectional-loo."""

    log_w: Tensor
    """[..., B, n] what weights the centroids."""
    log_A: Tensor
    """[..., B, n] what the masses S⁺ and S⁻ sum."""


def log_affinity(
    log_k: Float[Tensor, "*batch B n"], normalization: Normalization, *, nowhere_empty: bool = False
) -> LogAffinity:
    """log A from log k, over columns [neg | pos]; −∞ where log k is.

    `nowhere_empty` says that no row and no column is masked throughout, which saves the care for it.
    """
    log_row = log_softmax(log_k, -1, nowhere_empty=nowhere_empty)
    if normalization == "row":
        return LogAffinity(log_row, log_row)
    if normalization == "bidirectional":
        log_A = (log_row + log_softmax(log_k, -2, nowhere_empty=nowhere_empty)).mul_(0.5)
        return LogAffinity(log_A, log_A)
    log_c, log_c_others = logsumexp_and_without(log_k, -2)
    log_column = torch.where(log_c_others > -math.inf, log_k - log_c_others, log_row)
    return LogAffinity(log_w=(log_row + log_column).mul_(0.5), log_A=(log_row + (log_k - log_c)).mul_(0.5))
