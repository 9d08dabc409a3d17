"""Your own generator, encoder, kernel and estimator in a training run: `train(config, parts=Parts(...))`.

The recipe provides everything else: batches, optimizer, average, checkpoints, telemetry. The second time you run the
script, it finds the run complete. If you interrupt it and run it again, it continues bit for bit.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from truedrift import Parts, recipe, train
from truedrift.centroids import AlphaEstimator


class Waves(nn.Module):
    """Points on a closed curve of sines, one curve per class, plus noise. Any module with these attributes works."""

    noise_shape, sample_shape = (3,), (2,)
    style_draws = style_entries = 0

    def __init__(self, classes: int, harmonics: int = 8) -> None:
        super().__init__()
        self.classes, self.harmonics = classes, harmonics
        self.center = nn.Embedding(classes + 1, 2)
        self.mix = nn.Sequential(nn.Linear(2 * harmonics + 2 + 2, 64), nn.SiLU(), nn.Linear(64, 2))

    def forward(self, z, labels, strength, style_ids):
        center = self.center(labels)
        angles = z[:, :1] * torch.arange(1, self.harmonics + 1, device=z.device)
        return center + self.mix(torch.cat((angles.cos(), angles.sin(), z[:, 1:], center), -1))


def polynomial(values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Two feature scales of a point: itself, and its second-order terms."""
    x, y = values.unbind(-1)
    return values, torch.stack((x * x, x * y, y * y), -1)


def cauchy(x: torch.Tensor, y: torch.Tensor, tau: float) -> torch.Tensor:
    """log k = −log(1 + d²/τ²): heavier tails than the Laplace kernel."""
    return -torch.log1p(torch.cdist(x, y).square() / tau**2)


@dataclass(frozen=True)
class HalfABC(AlphaEstimator):
    """Half of ABC's correction."""

    name = "half-abc"
    bias_order = 1

    def gamma(self, alpha: torch.Tensor) -> torch.Tensor:
        corrected = alpha * (1 - alpha.square().sum(-1, keepdim=True) + alpha)
        return 0.5 * (alpha + corrected)


def main() -> None:
    """Train on two moons and print the telemetry."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("runs/own-parts"))
    arguments = parser.parse_args()
    config = recipe(
        "toy",
        given={"data": "two-moons"},
        settings=("cadence.steps_per_epoch=20", f"cadence.epochs={max(1, arguments.steps // 20)}"),
    )
    torch.manual_seed(0)  # for the weights of Waves; the training does not use the global generator
    parts = Parts(generator=Waves(classes=2), encoder=polynomial, kernel=cauchy, estimator_pos=HalfABC())
    for report in train(config, parts=parts, out=arguments.out):
        forces = ", ".join(f"{force:.2g}" for force in report.metrics["force"][0])
        print(f"step {report.step} of {report.steps}: force {forces}, distance ratio {report.metrics['spread']:.2f}")
    print(f"pictures in {report.directory / 'samples'}")


if __name__ == "__main__":
    main()
