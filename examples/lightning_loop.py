"""The two-line change in a LightningModule: a generator x = f(z) learns eight Gaussians in the plane by drifting.

With α = softmax(−‖x − y‖/τ) over the references y of a minibatch, T = Σ α_i y_i and V = T⁺ − T⁻, the loss is
‖x − sg(x + V)‖². The two lines marked "truedrift" are the change; the rest is the original module.
"""

import argparse
import logging
import math
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from truedrift import abc_weights  # truedrift: line 1 of 2

BATCH, TAU = 16, 1.0


def eight_gaussians(count, random):
    angle = torch.randint(8, (count,), generator=random) * (2 * math.pi / 8)
    return 2 * torch.stack((angle.cos(), angle.sin()), -1) + 0.15 * torch.randn(count, 2, generator=random)


def sliced_wasserstein(a, b):
    """Root mean square distance between the sorted projections of a and b on 64 directions; 0 for equal samples."""
    angle = torch.arange(64, device=a.device) * (math.pi / 64)
    directions = torch.stack((angle.cos(), angle.sin()))
    return ((a @ directions).sort(0).values - (b @ directions).sort(0).values).square().mean().sqrt().item()


@torch.no_grad()
def centroid(x, y, *, y_is_x=False):
    distance = torch.cdist(x, y)
    if y_is_x:
        distance.fill_diagonal_(torch.inf)  # a sample does not repel itself
    alpha = torch.softmax(-distance / TAU, -1)
    alpha = abc_weights(alpha)  # truedrift: line 2 of 2
    return alpha @ y


class Drifting(lightning.LightningModule):
    def __init__(self, steps, z_test, y_test):
        super().__init__()
        self.steps, self.z_test, self.y_test = steps, z_test, y_test
        self.f = nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))

    def training_step(self, batch, step):
        if step % max(1, self.steps // 4) == 0:
            self.show(step)
        z, y = batch
        x = self.f(z)
        V = centroid(x, y) - centroid(x, x, y_is_x=True)
        return ((x - (x + V).detach()) ** 2).mean()

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.f.parameters(), lr=2e-3)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, self.steps)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    @torch.no_grad()
    def show(self, step):
        print(f"step {step:5d}   distance {sliced_wasserstein(self.f(self.z_test), self.y_test):.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    random = torch.Generator().manual_seed(args.seed)
    z, y = torch.randn(args.steps * BATCH, 2, generator=random), eight_gaussians(args.steps * BATCH, random)
    z_test, y_test = torch.randn(4096, 2, generator=random), eight_gaussians(4096, random)
    fresh = sliced_wasserstein(eight_gaussians(4096, random), y_test)
    print(f"sliced Wasserstein distance to held-out data (of fresh data: {fresh:.4f})")

    torch.manual_seed(args.seed)  # the initial weights of the layers
    module = Drifting(args.steps, z_test, y_test)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # no tips, no list of absent devices
    warnings.filterwarnings("ignore", message=".*(LeafSpec|many workers|GPU available but not used)")
    off = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = lightning.Trainer(accelerator="cpu", devices=1, max_epochs=1, **off)
    trainer.fit(module, DataLoader(TensorDataset(z, y), BATCH))
    module.show(args.steps)


if __name__ == "__main__":
    main()
