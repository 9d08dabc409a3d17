"""The Fréchet distance against the general matrix root and against torchmetrics, and the cost of evaluating a run.

Covariances of 768 dimensions, from 2 000 features each. The digits are evaluated as in their recipe (2 000 samples).
"""

from __future__ import annotations

import tempfile
from unittest.mock import patch

import torch
from scipy.linalg import sqrtm
from torch import Tensor
from torchmetrics.image.fid import _compute_fid

from benchmarks.results import Result
from benchmarks.steps import build_step, step_runner
from benchmarks.timing import best_window_medians
from truedrift.evaluation.metrics import Moments, batch_moments, frechet_distance
from truedrift.recipes.evaluator import build_evaluator
from truedrift.recipes.recipes import digits
from truedrift.training.setup import Parts, load_samples

TITLE = "Evaluation: Fréchet distance in 768 dimensions, and evaluating the digits"
DIMENSIONS, FEATURES, STEPS = 768, 2000, 100


def general_root(a: Moments, b: Moments) -> float:
    """Compute d² by a general root of Σ_1 Σ_2, as many tools do."""
    root = sqrtm((a.covariance @ b.covariance).numpy()).real
    shift = (a.mean - b.mean).square().sum()
    return float(shift + a.covariance.trace() + b.covariance.trace() - 2 * root.trace())


def torchmetrics_distance(a: Moments, b: Moments) -> Tensor:
    """Compute d² by torchmetrics, from the eigenvalues of the product."""
    return _compute_fid(a.mean, a.covariance, b.mean, b.covariance)


def measure() -> list[Result]:
    """Measure the ratios."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(2, FEATURES, DIMENSIONS, generator=generator)
    a, b = batch_moments(features[0]), batch_moments(2 * features[1] + 1)
    distances = {"ours": frechet_distance, "general": general_root, "torchmetrics": torchmetrics_distance}
    runs = {name: lambda distance=distance: distance(a, b) for name, distance in distances.items()}
    seconds = best_window_medians(runs, windows=3, repeats=1, warm_up=1)
    with tempfile.TemporaryDirectory() as cache, patch.dict("os.environ", TRUEDRIFT_CACHE=cache):
        seconds_of_run = _time_run()
    return [
        Result("matrix root of scipy / ours", seconds["general"] / seconds["ours"], "×", "≥", 1.0),
        Result("torchmetrics / ours", seconds["torchmetrics"] / seconds["ours"], "×", "≥", 1.0),
        Result("Fréchet distance, ours", seconds["ours"] * 1e3, "ms"),
        Result(
            f"one evaluation / {STEPS} steps of the digits",
            seconds_of_run["evaluation"] / (STEPS * seconds_of_run["step"]),
        ),
    ]


def _time_run() -> dict[str, float]:
    """Time one evaluation and one step of the recipe."""
    config = digits()
    step = build_step(config, load_samples(config, Parts()))
    evaluator = build_evaluator(config, device=torch.device("cpu"))
    assert evaluator is not None
    average = step.state.average.generator
    runs = {"evaluation": lambda: evaluator(average, 0), "step": step_runner(step)}
    return best_window_medians(runs, windows=3, repeats=3, warm_up=1)
