"""A run small enough for float64 loops: three classes of unequal size, images that are not their mirror images."""

from __future__ import annotations

import dataclasses

import torch

from truedrift.data import Samples
from truedrift.encoders import ConvNetOptions
from truedrift.generators import MLPOptions
from truedrift.progress import no_progress
from truedrift.training import Parts, RunConfig, Step, build_setup

CPU = torch.device("cpu")
CLASSES = ("a", "b", "c")


def small_samples(flips: bool = True, name: str = "small", seed: int = 5) -> Samples:
    """Return 27 images 8×8 of three classes; the position of a bright corner depends on the class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor([0] * 7 + [1] * 11 + [2] * 9)
    values = torch.randint(0, 120, (27, 1, 8, 8), generator=generator)
    for i, c in enumerate(labels.tolist()):
        values[i, :, 2 * c : 2 * c + 3, 0:3] += 100 + 10 * c
    return Samples(values.to(torch.uint8), labels, CLASSES, name, flips)


def small_config(**changes: dict[str, object]) -> RunConfig:
    """Return a run with n = 5, 4 generated samples per class, two equal scales and float64; `changes` by section."""
    config = RunConfig(
        recipe="small", seed=3, generator=MLPOptions(width=12, depth=1, noise=3, embedding=4), encoder=convnet(4, 4)
    )
    defaults: dict[str, dict[str, object]] = {
        "batch": {"n": 5, "generated": 4},
        "engine": {"precision": "float64", "cached_positives": False},
        "objective": {"temperatures": (0.1, 0.4)},
        "optimizer": {"warmup_steps": 4, "learning_rate": 0.01},
        "cadence": {"epochs": 2, "steps_per_epoch": 2, "log_every": 1, "checkpoint_every": 2, "grid_every": None},
    }
    for section in defaults.keys() | changes.keys():
        options = defaults.get(section, {}) | dict(changes.get(section, {}))
        replaced = dataclasses.replace(getattr(config, section), **options)
        config = dataclasses.replace(config, **{section: replaced})
    return config


def convnet(*channels: int) -> ConvNetOptions:
    return ConvNetOptions(channels=channels, seed=1)


def build_small_step(config: RunConfig, samples: Samples | None = None, parts: Parts | None = None) -> Step:
    return build_setup(config, parts or Parts(), samples or small_samples(), CPU, no_progress).step


def gradient_vector(step: Step, number: int = 0) -> torch.Tensor:
    """Return all gradients of that step as one vector."""
    step.gradients(number)
    return torch.cat([parameter.grad.flatten() for parameter in step.state.parameters])
