"""The grouped drift loss, forward and backward: 10 classes × 4 scales × 3 temperatures, D = 384, ABC on both sides.

It is compared with the literal loop of the tests, with the package drift-models 0.1.1 if it is installed (a similar
cost but another function: no correction, another normalization), and with itself without the correction. Each pair is
timed in a new process, because the state of the memory allocator after one variant changes the time of the next. The
placement of memory in a process changes a ratio by several percent, so the median of three processes is taken.
"""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from statistics import median

import torch
from torch import Tensor

from benchmarks.memory import peak_extra_bytes
from benchmarks.results import Result
from benchmarks.timing import best_window_medians
from tests.oracles.drift_loss import literal_drift_loss
from truedrift.objective import drift_loss

TITLE = "Grouped drift loss, forward and backward, 10 classes × 4 scales × 3 temperatures, D = 384, float32"
TEMPERATURES = (0.02, 0.05, 0.2)
CLASSES, SCALES, D = 10, 4, 384
THREADS = 2
PROCESSES = 3

Loss = Callable[[Tensor, Tensor], Tensor]


def measure(n: int) -> list[Result]:
    """Measure the ratios at that n, each in new processes."""
    small = n == 8
    loop, compiled = _ratio(n, "loop", "abc"), _ratio(n, "loop", "abc, compiled")
    correction = _ratio(n, "abc", "standard")
    correction_compiled = _ratio(n, "abc, compiled", "standard, compiled")
    results = [
        Result(f"literal loop / grouped loss, n = {n}", loop, "×", "≥", 36 if small else 6.5),
        Result(f"literal loop / grouped loss, compiled, n = {n}", compiled, "×", "≥", 60 if small else 8),
        Result(f"ABC / standard, n = {n}", correction, "×", "≤", 1.06),
        Result(f"ABC / standard, compiled, n = {n}", correction_compiled, "×", "≤", 1.05),
        Result(f"general path / Gram path, n = {n}", _ratio(n, "general", "abc")),
        Result(f"bidirectional-loo / bidirectional, n = {n}", _ratio(n, "loo", "abc")),
        Result(
            f"peak memory, n = {n}", _in_new_process(_peak_megabytes, n), "MB", *((None, None) if small else ("≤", 26))
        ),
    ]
    if _drift_models() is not None:
        other = _ratio(n, "drift-models", "abc")
        results.insert(2, Result(f"drift-models 0.1.1 / grouped loss, n = {n}", other, "×", "≥", 11 if small else 3))
    return results


def _ratio(n: int, numerator: str, denominator: str) -> float:
    return median(_in_new_process(_ratio_here, n, numerator, denominator) for _ in range(PROCESSES))


def _in_new_process(function: Callable[..., float], *arguments: object) -> float:
    """Return the result of the function in a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


def _ratio_here(n: int, numerator: str, denominator: str) -> float:
    steps = {name: partial(_step, _loss(name), *_features(n)) for name in (numerator, denominator)}
    _configure_torch()
    seconds = best_window_medians(steps)
    return seconds[numerator] / seconds[denominator]


def _peak_megabytes(n: int) -> float:
    _configure_torch()
    return peak_extra_bytes(partial(_step, _loss("abc"), *_features(n))) / 1e6


def _configure_torch() -> None:
    torch.set_num_threads(THREADS)
    warnings.filterwarnings("ignore", category=FutureWarning)


def _features(n: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    gen = torch.randn(CLASSES, SCALES, n, D, generator=generator, requires_grad=True)
    return gen, torch.randn(CLASSES, SCALES, n, D, generator=generator) + 0.3


def _step(loss: Loss, gen: Tensor, pos: Tensor) -> None:
    gen.grad = None
    loss(gen, pos).mean().backward()


def _loss(name: str) -> Loss:
    if name == "drift-models":
        return _drift_models()
    losses = {
        "loop": literal_drift_loss,
        "abc": partial(_grouped, estimator="abc"),
        "standard": partial(_grouped, estimator="standard"),
        "general": partial(_grouped, estimator="abc", path="general"),
        "loo": partial(_grouped, estimator="abc", normalization="bidirectional-loo"),
    }
    base, compiled = name.removesuffix(", compiled"), name.endswith(", compiled")
    if not compiled:
        return losses[base]
    # The variants share their code. Without isolation, calls of the first would check the guards of the second.
    return torch.compile(losses[base], fullgraph=True, isolate_recompiles=True)


def _grouped(gen: Tensor, pos: Tensor, *, estimator: str, **options: str) -> Tensor:
    return drift_loss(
        gen, pos, temperatures=TEMPERATURES, estimator_pos=estimator, estimator_neg=estimator, **options
    ).loss


def _drift_models() -> Loss | None:
    """Return `feature_space_drifting_loss` with one slot per class and scale; None if it is not installed."""
    try:
        from drifting_models.drift_field import DriftFieldConfig  # noqa: PLC0415
        from drifting_models.drift_loss import DriftingLossConfig, FeatureDriftingConfig, feature_space_drifting_loss  # noqa: PLC0415
    except ImportError:
        return None
    base = DriftingLossConfig(drift_field=DriftFieldConfig())
    features = FeatureDriftingConfig(
        temperatures=TEMPERATURES, temperature_aggregation="sum_drifts_then_mse", share_location_normalization=False
    )

    def loss(gen: Tensor, pos: Tensor) -> Tensor:
        slots = {name: f.flatten(0, 1).transpose(0, 1) for name, f in (("gen", gen), ("pos", pos))}
        return feature_space_drifting_loss(
            generated_feature_vectors={"all": slots["gen"]},
            positive_feature_vectors={"all": slots["pos"]},
            unconditional_feature_vectors=None,
            base_loss_config=base,
            feature_config=features,
        )[0]

    return loss
