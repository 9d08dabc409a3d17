"""The two-line change in a plain PyTorch loop: a generator x = f(z) learns eight Gaussians in the plane by drifting.

With α = softmax(−‖x − y‖/τ) over the references y of a minibatch, T = Σ α_i y_i and V = T⁺ − T⁻, the loss is
‖x − sg(x + V)‖². T is a ratio of two sums over n references, so its expectation is off by O(1/n);
`abc_weights` removes that order. The two lines marked "truedrift" are the change; the rest is the original loop.
"""

import argparse
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import truedrift  # only for --whole-loss
from truedrift import abc_weights  # truedrift: line 1 of 2

BATCH, TAU = 16, 1.0
# The loop's own field in the words of drift_loss, which divides it by its RMS and corrects both sides with ABC.
WHOLE_LOSS = {"temperatures": (TAU,), "normalization": "row", "form": "separate", "feature_scale": "none"}


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
    parser.add_argument("--whole-loss", action="store_true", help="truedrift.drift_loss instead of the loop's own loss")
    args = parser.parse_args()

    random = torch.Generator().manual_seed(args.seed)
    z, y = torch.randn(args.steps * BATCH, 2, generator=random), eight_gaussians(args.steps * BATCH, random)
    z_test, y_test = torch.randn(4096, 2, generator=random), eight_gaussians(4096, random)
    fresh = sliced_wasserstein(eight_gaussians(4096, random), y_test)
    print(f"sliced Wasserstein distance to held-out data (of fresh data: {fresh:.4f})")

    torch.manual_seed(args.seed)  # the initial weights of the layers
    f = nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(f.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, args.steps)

    def show(step):
        with torch.no_grad():
            print(f"step {step:5d}   distance {sliced_wasserstein(f(z_test), y_test):.4f}", flush=True)

    reports = []
    for step, (z_batch, y_batch) in enumerate(DataLoader(TensorDataset(z, y), BATCH)):
        if step % max(1, args.steps // 4) == 0:
            show(step)
        x = f(z_batch)
        if args.whole_loss:
            result = truedrift.drift_loss(x, y_batch, **WHOLE_LOSS)
            loss, reports = result.loss, [*reports[:1], result.report]
        else:
            V = centroid(x, y_batch) - centroid(x, x, y_is_x=True)
            loss = ((x - (x + V).detach()) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    show(args.steps)
    if args.whole_loss:
        print(f"loss {loss:.4f}, constant by construction; the report of the first and of the last step moves:")
        for name, first in reports[0].summary().items():
            print(f"  {name:15s} {first.item():8.4f} {reports[-1].summary()[name].item():8.4f}")


if __name__ == "__main__":
    main()
