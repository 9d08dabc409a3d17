"""`truedrift evaluate RUN`: FID, KID, precision, recall and Inception Score, each with its protocol."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro

from truedrift import distributed
from truedrift.cli.progress import ProgressDisplay, is_rank_zero
from truedrift.data.samples import Samples
from truedrift.distributed import resolve_device
from truedrift.errors import UserError, require_integer
from truedrift.evaluation.catalog import build_extractor, default_extractor
from truedrift.evaluation.evaluate import evaluate
from truedrift.evaluation.record import EVALUATIONS, EvaluationRecord
from truedrift.evaluation.reference import compute_reference
from truedrift.options import validated
from truedrift.recipes.evaluator import load_reference_data
from truedrift.records.provenance import provenance
from truedrift.records.store import append, writable_directory
from truedrift.report.screens import evaluation_summary
from truedrift.training.config import DataOptions, RunConfig
from truedrift.training.load import LoadedGenerator, Weights, load_generator
from truedrift.training.run_directory import is_run, open_run
from truedrift.training.setup import memory_errors_as_user_errors


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Evaluate a run: FID, KID, precision, recall and Inception Score, each with its protocol.

    Every class has the same number of samples. Their noise is a function of the seed; batch size and number of
    processes change the results by rounding only. Features of the data are computed once and cached. Results are
    appended to RUN/evaluations.jsonl. Several processes: torchrun --nproc-per-node 2 -m truedrift evaluate RUN.

    Try it:
      truedrift evaluate runs/digits-0123456789ab
      truedrift evaluate runs/cifar10-0123456789ab --extractor inception --samples 50000
      truedrift evaluate runs/fashion-mnist-0123456789ab --extractor encoder:convnet --samples 5000
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run directory; or, with --data, a folder written by `truedrift convert` or save_pretrained."""

    extractor: str | None = None
    """inception (standard FID), abc-release (as in the published code), digits, or encoder:NAME."""

    samples: int | None = None
    """Number of samples; if not given, the value in the run's configuration (50 000 for CIFAR)."""

    data: str | None = None
    """Name of the data set to compare with; if not given, the data set of the run."""

    root: Path | None = None
    """Directory or archive of that data set; the cache if not given."""

    split: Literal["train", "test", "all"] | None = None
    """Split of the data; if not given, the split in the run's configuration (usually train, as in the literature)."""

    reference: int | None = None
    """Number of reference samples from that split, chosen with a fixed seed; if not given, the run's value, or all."""

    seed: int | None = None
    """Seed of noise and styles."""

    strength: float = 1.0
    """Guidance strength, an input of the generator."""

    batch: int = 256
    """Samples per batch."""

    weights: Weights = "ema"
    """ema: averaged weights; model: weights of the last step."""

    device: str = "auto"
    """auto, cpu, cuda or mps."""

    out: Path | None = None
    """Directory of evaluations.jsonl; the run directory if not given."""

    def prepare(self) -> Callable[[], str]:
        """Check the options; those of the run's configuration apply where a flag is not given."""
        require_integer("batch", self.batch, 1, 256)
        if not 0 <= self.strength <= 1e6:
            fix = "pass 1 to 4, as in training"
            raise UserError(f"is {self.strength}", "must be from 0 to 1e6", fix, field="strength")
        config = open_run(self.run).config if is_run(self.run) else RunConfig()
        flags = {name: getattr(self, name) for name in ("extractor", "samples", "split", "reference", "seed")}
        given = {name: value for name, value in flags.items() if value is not None}
        options = validated(replace(config.evaluation, **given))
        data = config.data if self.data is None else DataOptions(name=self.data)
        if self.root is not None:
            data = replace(data, root=str(self.root))
        return partial(_evaluate, self, replace(config, evaluation=options, data=data), resolve_device(self.device))


def _evaluate(command: Evaluate, config: RunConfig, device: torch.device) -> str:
    """Load the generator and the data, evaluate, append the record and return the summary; only rank 0 writes."""
    options = config.evaluation
    trained, data = _load(command, config)
    name = options.extractor or default_extractor(data.sample_shape)
    out = writable_directory(command.out or command.run)
    # Evaluate.
    started = time.monotonic()
    extractor = build_extractor(name, sample_shape=data.sample_shape, device=device)
    rank_zero = is_rank_zero()
    with (
        memory_errors_as_user_errors("pass a smaller --batch"),
        distributed.process_group(extractor.device),
        ProgressDisplay(quiet=not rank_zero) as progress,
    ):
        reference = compute_reference(data, extractor, split=options.split, progress=progress)
        metrics, protocol = evaluate(
            trained.generator.to(extractor.device),
            reference,
            extractor,
            samples=options.samples,
            seed=options.seed,
            strength=command.strength,
            batch=command.batch,
            weights=command.weights,
            progress=progress,
        )
    if not rank_zero:
        return ""
    # Record the numbers with their protocol.
    seconds = time.monotonic() - started
    record = EvaluationRecord(
        run=command.run.resolve().name,
        step=trained.step,
        metrics=metrics,
        protocol=protocol,
        seconds=seconds,
        provenance=provenance(seed=options.seed, wall_seconds=seconds),
    )
    append(out / EVALUATIONS, record)
    return f"{trained.source}\n{evaluation_summary(record)}\nwritten: {out / EVALUATIONS}"


def _load(command: Evaluate, config: RunConfig) -> tuple[LoadedGenerator, Samples]:
    """Load the generator and the data to compare with, whose shapes must be equal."""
    trained = load_generator(command.run, weights=command.weights)
    if command.data is None and not is_run(command.run):
        problem = f"{str(command.run)!r} is a folder of weights"
        raise UserError(problem, "the data set to compare with must be given", "add for example --data cifar10")
    data = load_reference_data(config.data, config.evaluation, seed=config.seed)
    if tuple(trained.generator.sample_shape) != data.sample_shape:
        problem = f"samples of the generator have shape {tuple(trained.generator.sample_shape)}"
        allowed = f"must be {data.sample_shape}, the shape of {data.name}"
        raise UserError(problem, allowed, "pass the data set that the generator was trained on")
    return trained, data
