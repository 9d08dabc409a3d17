"""The two-line change in an Accelerate loop: a generator x = f(z) learns eight Gaussians in the plane by drifting.

With α = softmax(−‖x − y‖/τ) over the references y of a minibatch, T = Σ α_i y_i and V = T⁺ − T⁻, the loss is
‖x − sg(x + V)‖². The two lines marked "truedrift" are the change; the rest is the original loop.
"""

import argparse
import math

import torch
from accelerate import Accelerator
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    accelerator = Accelerator()

    random = torch.Generator().manual_seed(args.seed)
    z, y = torch.randn(args.steps * BATCH, 2, generator=random), eight_gaussians(args.steps * BATCH, random)
    z_test, y_test = torch.randn(4096, 2, generator=random), eight_gaussians(4096, random)
    fresh = sliced_wasserstein(eight_gaussians(4096, random), y_test)
    accelerator.print(f"sliced Wasserstein distance to held-out data (of fresh data: {fresh:.4f})")
    z_test, y_test = z_test.to(accelerator.device), y_test.to(accelerator.device)

    torch.manual_seed(args.seed)  # the initial weights of the layers
    f = nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(f.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, args.steps)
    # The noise is part of the data set, so that each process gets its own share.
    loader = DataLoader(TensorDataset(z, y), BATCH)
    f, optimizer, schedule, loader = accelerator.prepare(f, optimizer, schedule, loader)

    def show(step):
        with torch.no_grad():
            accelerator.print(f"step {step:5d}   distance {sliced_wasserstein(f(z_test), y_test):.4f}", flush=True)

    for step, (z_batch, y_batch) in enumerate(loader):
        if step % max(1, len(loader) // 4) == 0:
            show(step)
        x = f(z_batch)
        V = centroid(x, y_batch) - centroid(x, x, y_is_x=True)
        loss = ((x - (x + V).detach()) ** 2).mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()
    show(len(loader))


if __name__ == "__main__":
    main()
