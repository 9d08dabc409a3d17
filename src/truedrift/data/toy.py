"""p(y) = (1/K) Σ_k N(y; μ_k, σ² I): isotropic Gaussian mixtures in the plane (`fig:illustration`, `app:toy`).

y = μ_k + σ ε with k uniform on the K modes and ε ~ N(0, I).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from truedrift.axes import Float, Int, Tensor
from truedrift.validation import mistake


@dataclass(frozen=True)
class GaussianMixture:
    """K equally likely modes μ_k (`means`) with one standard deviation σ (`std`) in every direction."""

    means: tuple[tuple[float, ...], ...]
    std: float

    def __post_init__(self) -> None:
        dimensions = {len(mean) for mean in self.means}
        if len(dimensions) != 1 or 0 in dimensions:
            raise mistake(
                f"means is {self.means!r}",
                "allowed is one point or more of one dimension",
                "pass ((0, 0),) or more",
            )
        if not all(math.isfinite(value) for value in (self.std, *sum(self.means, ()))) or self.std < 0:
            raise mistake(
                f"means is {self.means!r} and std is {self.std!r}",
                "allowed are finite numbers with std ≥ 0",
                "take the distance of the modes as the scale",
            )

    @property
    def mean(self) -> tuple[float, ...]:
        """E[y] = (1/K) Σ_k μ_k."""
        return tuple(math.fsum(axis) / len(self.means) for axis in zip(*self.means, strict=True))

    def sample(
        self, count: int, generator: torch.Generator, *, dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "count D"]:
        """`count` independent points y [count, D] on the generator's device."""
        return self.labelled(count, generator, dtype=dtype)[0]

    def labelled(
        self, count: int, generator: torch.Generator, *, dtype: torch.dtype = torch.float32
    ) -> tuple[Float[Tensor, "count D"], Int[Tensor, " count"]]:
        """The same points, and the mode k [count] that each one is of."""
        if count < 0:
            raise mistake(f"count is {count}", "allowed is 0 or more", "pass the number of points")
        means = torch.tensor(self.means, dtype=dtype, device=generator.device)
        k = torch.randint(len(self.means), (count,), generator=generator, device=generator.device)
        noise = torch.randn(count, means.shape[-1], generator=generator, dtype=dtype, device=generator.device)
        return means[k] + self.std * noise, k


THREE_CLUSTERS = GaussianMixture(means=((-1.2, 0.0), (1.0, 0.7), (1.0, -0.7)), std=0.25)
"""The clusters of `fig:illustration`; the paper names no coordinates, so these are ours."""

FOUR_MODES = GaussianMixture(means=((0.5, 0.5), (0.5, -0.5), (-0.5, 0.5), (-0.5, -0.5)), std=0.1)
"""The four modes (±0.5, ±0.5) with σ = 0.1 of `app:toy`."""

EIGHT_GAUSSIANS = GaussianMixture(
    means=tuple((math.cos(k * math.pi / 4), math.sin(k * math.pi / 4)) for k in range(8)), std=0.1
)
"""Eight modes around the unit circle with σ = 0.1."""
