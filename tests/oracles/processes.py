"""Computations of the processes in the tests of distributed runs. Each process writes its results to a file."""

from __future__ import annotations

import dataclasses
import itertools
import os
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
from oracles.small_run import CPU, build_small_step, convnet, small_config, small_samples
from safetensors.torch import save_file
from torch import Tensor

from truedrift import distributed
from truedrift.data import ClassBatches, Samples
from truedrift.field import JOINT_NORMALIZATIONS
from truedrift.objective import FEATURE_SCALES
from truedrift.progress import no_progress
from truedrift.training import CachedFeatures, Positives, Step, build_feature_cache, draw_inputs

CASES = list(itertools.product(JOINT_NORMALIZATIONS, FEATURE_SCALES, (0, 4), ("encoded", "cached")))
"""Normalization, feature scale, number of unconditional negatives, source of the positives."""

REFERENCES = {
    "fresh": ({"fresh_negatives": 5}, {}),
    "fresh, matched": ({"n": 6, "fresh_negatives": 3}, {"matched": True}),
    "matched": ({}, {"normalization": "row", "matched": True}),
    "two of three classes": ({"labels": 2, "unconditional": 4}, {}),
}
"""Options of batch and objective. The 15 and 9 fresh negatives of three classes are not a multiple of 2."""


def build_step_with_references(name: str) -> Step:
    """Build a step with five generated samples of three classes, in micro-batches, and these references."""
    batch, objective = REFERENCES[name]
    batch = {"n": 5, "generated": 5} | batch
    return build_small_step(small_config(batch=batch, objective=objective, engine={"micro_batch": 2}))


def build_step(normalization: str, feature_scale: str, u: int, source: str, directory: Path) -> Step:
    """Build a step with five positives and five generated samples of three classes: 15 rows, and 4 unconditional."""
    config = small_config(
        batch={"n": 5, "generated": 5, "unconditional": u},
        objective={"normalization": normalization, "feature_scale": feature_scale},
        engine={"micro_batch": 2 if feature_scale == "none" else None},
    )
    step = build_small_step(config)
    return step if source == "encoded" else dataclasses.replace(step, positives=cached_positives(step, directory))


def cached_positives(step: Step, directory: Path) -> Positives:
    """Return positives that every process looks up in the same file."""
    samples, encoder = small_samples(), step.encode
    options = {"directory": directory / "cache", "precision": "test", "device": CPU, "progress": no_progress}
    path = build_feature_cache(samples, encoder, lambda values: encoder(values.double()), **options)
    batch = step.config.batch
    batches = ClassBatches(samples.labels, 3, n=batch.n, seed=step.config.seed, flips=samples.flips)
    return Positives(batches, CachedFeatures(path, encoder, CPU), batch.unconditional)


def build_step_with_few_rows() -> Step:
    """Build a step with one class and two samples: one of three processes has no rows."""
    three_classes = small_samples()
    samples = Samples(three_classes.values[:7], three_classes.labels[:7], ("a",), "few", True)
    config = dataclasses.replace(small_config(batch={"n": 2, "generated": 2}), encoder=convnet(4))
    return build_small_step(config, samples)


def build_step_with_pixels() -> Step:
    """Build a step whose encoder features are divided and gathered, while every process looks up all pixels."""
    objective = {"pixels": True, "feature_scale": "mean-distance"}
    return build_small_step(small_config(batch={"n": 5, "generated": 5, "unconditional": 4}, objective=objective))


def compute_steps(directory: Path) -> dict[str, Tensor]:
    """Compute everything that must not depend on the number of processes."""
    out: dict[str, Tensor] = {}
    for case in CASES:
        name = "/".join(map(str, case))
        step = build_step(*case, directory)
        out[f"{name} loss"] = step.gradients(1).loss.clone()
        out[f"{name} gradient"] = torch.cat([p.grad.flatten() for p in step.state.parameters])
    others = {"few": build_step_with_few_rows(), "pixels": build_step_with_pixels()}
    others |= {name: build_step_with_references(name) for name in REFERENCES}
    for name, step in others.items():
        out[f"{name} loss"] = step.gradients(0).loss.clone()
        out[f"{name} gradient"] = torch.cat([p.grad.flatten() for p in step.state.parameters])
    step = build_step("bidirectional", "standardize-l2", 4, "encoded", directory)
    for number in range(3):
        step(number)
    out |= {f"weights {file} {name}": t for file, named in step.state.tensors().items() for name, t in named.items()}
    return out


def draw_own_rows() -> dict[str, Tensor]:
    """Draw the rows of this process."""
    step = build_small_step(small_config(batch={"n": 5, "generated": 5}))
    inputs = draw_inputs(step.config, step.state.generator, 4)
    rows = inputs.rows(*distributed.row_range(len(inputs)))
    return {f"own {field.name}": getattr(rows, field.name) for field in dataclasses.fields(rows)}


def run_collectives() -> dict[str, Tensor]:
    """Call every collective operation."""
    rank, size = distributed.rank(), distributed.size()
    start, end = distributed.row_range(7)
    rows = torch.arange(14.0).view(7, 2)[start:end]
    summed = [torch.full((2,), float(rank)), torch.ones(3, dtype=torch.float64), torch.ones((2, 2))]
    distributed.all_reduce_sum(summed)
    copied = [torch.full((2,), float(rank) + 5)]
    distributed.broadcast_tensors(copied)
    flags = [distributed.any_process(flag) for flag in (False, rank == size - 1, True)]
    return {
        "op gathered": distributed.gather_rows(rows.requires_grad_(), 7),
        **{f"op summed {i}": tensor for i, tensor in enumerate(summed)},
        "op copied": copied[0],
        "op any": torch.tensor(flags),
    }


def broken_gather(rows: Tensor, total: int) -> Tensor:
    """Fill the batch with copies of the own rows instead of the rows of other processes."""
    repeated = rows.detach().repeat(-(-total // len(rows)), *[1] * (rows.ndim - 1))[:total].clone()
    start, end = distributed.row_range(total)
    repeated[start:end] = rows.detach()
    return repeated


def run_processes(size: int, directory: Path, mutant: bool = False) -> None:
    """Fork `size` processes from this one, which has imported everything, and wait for them."""
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            try:
                run_process(rank, size, directory, mutant)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * size


def run_process(rank: int, size: int, directory: Path, mutant: bool) -> None:
    """Compute the results of process number `rank` of `size`; the mutant gathers nothing."""
    torch.set_num_threads(1)
    if size > 1:
        store = f"file://{directory}/store-{size}-{mutant}"
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size)
    if mutant:
        gather_rows, fresh_features = distributed.gather_rows, Step.fresh_features

        def fresh_features_of_this_process(self: Step, step: int) -> Tensor | None:
            distributed.gather_rows = broken_gather
            features = fresh_features(self, step)
            distributed.gather_rows = gather_rows
            return features

        Step.fresh_features = fresh_features_of_this_process
        step = build_step_with_references("fresh")
        out = {"fresh gradient": (step.gradients(0), torch.cat([p.grad.flatten() for p in step.state.parameters]))[1]}
        Step.fresh_features, distributed.gather_rows = fresh_features, broken_gather
        step = build_step("bidirectional", "standardize-l2", 0, "encoded", directory)
        out |= {"gradient": (step.gradients(1), torch.cat([p.grad.flatten() for p in step.state.parameters]))[1]}
    else:
        with distributed.process_group(CPU):  # the process group exists already
            out = compute_steps(directory) | draw_own_rows() | run_collectives()
    save_file(out, directory / f"{'mutant' if mutant else size}-{rank}.safetensors")
    if size > 1:
        dist.destroy_process_group()
