"""What each of several processes computes in the tests of distributed runs; the results go to files."""

from __future__ import annotations

import dataclasses
import itertools
import os
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
from oracles.little_run import CPU, convnet, little_config, little_samples, little_step
from safetensors.torch import save_file
from torch import Tensor

from truedrift import distributed
from truedrift.data.class_batches import ClassBatches
from truedrift.data.samples import Samples
from truedrift.field import NORMALIZATIONS
from truedrift.objective import FEATURE_SCALES
from truedrift.progress import no_progress
from truedrift.training.batch import Positives, draw_inputs
from truedrift.training.feature_cache import CachedFeatures, build_feature_cache
from truedrift.training.step import Step

CASES = list(itertools.product(NORMALIZATIONS, FEATURE_SCALES, (0, 4), ("live", "kept")))
"""Normalization, feature scale, unconditional negatives, where positives come from."""


def step_of(normalization: str, feature_scale: str, u: int, source: str, directory: Path) -> Step:
    """Five positives and five generated samples of three classes: 15 rows, 4 unconditional ones."""
    config = little_config(
        batch={"n": 5, "generated": 5, "unconditional": u},
        objective={"normalization": normalization, "feature_scale": feature_scale},
        engine={"micro_batch": 2 if feature_scale == "none" else None},
    )
    step = little_step(config)
    return step if source == "live" else dataclasses.replace(step, positives=kept(step, directory))


def kept(step: Step, directory: Path) -> Positives:
    """Positives that each process looks up in one file."""
    samples, encoder = little_samples(), step.encode
    options = {"directory": directory / "cache", "precision": "test", "device": CPU, "progress": no_progress}
    path = build_feature_cache(samples, encoder, lambda values: encoder(values.double()), **options)
    batch = step.config.batch
    batches = ClassBatches(samples.labels, 3, n=batch.n, seed=step.config.seed, flips=samples.flips)
    return Positives(batches, CachedFeatures(path, encoder.dimensions, CPU), batch.unconditional)


def fewer_rows_than_processes() -> Step:
    """One class of two samples: of three processes one has nothing."""
    few = little_samples()
    samples = Samples(few.values[:7], few.labels[:7], ("a",), "few", True)
    config = dataclasses.replace(little_config(batch={"n": 2, "generated": 2}), encoder=convnet(4))
    return little_step(config, samples)


def pixels_beside() -> Step:
    """Features of the encoder are dealt out and gathered, pixels are looked up by everyone."""
    objective = {"pixels": True, "feature_scale": "mean-distance"}
    return little_step(little_config(batch={"n": 5, "generated": 5, "unconditional": 4}, objective=objective))


def results(directory: Path) -> dict[str, Tensor]:
    """Everything that must not depend on the number of processes."""
    out: dict[str, Tensor] = {}
    for case in CASES:
        name = "/".join(map(str, case))
        step = step_of(*case, directory)
        out[f"{name} loss"] = step.gradients(1).loss.clone()
        out[f"{name} gradient"] = torch.cat([p.grad.flatten() for p in step.state.parameters])
    for name, step in (("few", fewer_rows_than_processes()), ("beside", pixels_beside())):
        out[f"{name} loss"] = step.gradients(0).loss.clone()
        out[f"{name} gradient"] = torch.cat([p.grad.flatten() for p in step.state.parameters])
    step = step_of("bidirectional", "standardize-l2", 4, "live", directory)
    for number in range(3):
        step(number)
    out |= {f"weights {file} {name}": t for file, each in step.state.tensors().items() for name, t in each.items()}
    return out


def own_draws() -> dict[str, Tensor]:
    """Rows that are this process's."""
    step = little_step(little_config(batch={"n": 5, "generated": 5}))
    whole = draw_inputs(step.config, step.state.generator, 4)
    rows = whole.rows(*distributed.row_range(len(whole)))
    return {f"own {field.name}": getattr(rows, field.name) for field in dataclasses.fields(rows)}


def operations() -> dict[str, Tensor]:
    """The collectives themselves."""
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
    """Every process believes that the batch is its own rows, again and again."""
    repeated = rows.detach().repeat(-(-total // len(rows)), *[1] * (rows.ndim - 1))[:total].clone()
    start, end = distributed.row_range(total)
    repeated[start:end] = rows.detach()
    return repeated


def together(size: int, directory: Path, mutant: bool = False) -> None:
    """As many processes, forked from this one, which has imported everything."""
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            try:
                work(rank, size, directory, mutant)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * size


def work(rank: int, size: int, directory: Path, mutant: bool) -> None:
    """Process number `rank` of `size`; a mutant gathers nothing."""
    torch.set_num_threads(1)
    if size > 1:
        store = f"file://{directory}/store-{size}-{mutant}"
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size)
    if mutant:
        distributed.gather_rows = broken_gather
        step = step_of("bidirectional", "standardize-l2", 0, "live", directory)
        out = {"gradient": (step.gradients(1), torch.cat([p.grad.flatten() for p in step.state.parameters]))[1]}
    else:
        with distributed.process_group(CPU):  # they are joined already
            out = results(directory) | own_draws() | operations()
    save_file(out, directory / f"{'mutant' if mutant else size}-{rank}.safetensors")
    if size > 1:
        dist.destroy_process_group()
