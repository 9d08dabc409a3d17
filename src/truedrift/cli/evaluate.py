"""`truedrift evaluate RUN`: FID, KID, precision, recall and Inception Score, each with its protocol."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro

from truedrift import distributed
from truedrift.cli.progress import ProgressDisplay
from truedrift.data.samples import Samples
from truedrift.errors import UserError, require_integer
from truedrift.evaluation.catalog import build_extractor, default_extractor
from truedrift.evaluation.evaluate import evaluate
from truedrift.evaluation.extractors import Extractor
from truedrift.evaluation.record import EVALUATIONS, EvaluationRecord
from truedrift.evaluation.reference import compute_reference
from truedrift.options import validated
from truedrift.recipes.evaluator import load_reference_data
from truedrift.records.provenance import provenance
from truedrift.records.store import append, writable_directory
from truedrift.report.screens import evaluation_summary
from truedrift.training.config import DataOptions, EvaluationOptions
from truedrift.training.load import LoadedGenerator, Weights, load_generator
from truedrift.training.run_directory import is_run, open_run
from truedrift.training.setup import memory_errors_as_user_errors, resolve_device


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Judge the samples of a run: FID, KID, precision, recall and Inception Score, each with its protocol.

    Samples are as many of each class, their noise is a function of the seed, and neither batch size nor the number of
    processes matters beyond rounding. Features of the data are computed once and kept in the cache. Results are
    appended to RUN/evaluations.jsonl. Several processes: torchrun --nproc-per-node 2 -m truedrift evaluate RUN.

    Try it:
      truedrift evaluate runs/digits-0123456789ab
      truedrift evaluate runs/cifar10-0123456789ab --extractor inception --samples 50000
      truedrift evaluate runs/fashion-mnist-0123456789ab --extractor encoder:convnet --samples 5000
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run directory, or a folder of `truedrift convert` or save_pretrained together with --data."""

    extractor: str | None = None
    """inception (the standard FID), abc-release (the published code's), digits, or encoder:NAME."""

    samples: int | None = None
    """How many are drawn; the run's own number (50 000 for CIFAR) if none is given."""

    data: str | None = None
    """Name of the data set to compare with; the run's own if none is named."""

    root: Path | None = None
    """Directory or archive of that data set; the cache if none is named."""

    split: Literal["train", "test", "all"] | None = None
    """Of the data; train, as in the literature, unless the run says otherwise."""

    reference: int | None = None
    """How many of that split, chosen by a fixed seed; all, unless the run says otherwise."""

    seed: int | None = None
    """Seed of noise and styles."""

    strength: float = 1.0
    """What the generator is told of guidance."""

    batch: int = 256
    """Samples at a time."""

    weights: Weights = "ema"
    """The averaged weights, or those of the last step."""

    device: str = "auto"
    """auto, cpu, cuda or mps."""

    out: Path | None = None
    """Directory of evaluations.jsonl; the run's if none is named."""

    def prepare(self) -> Callable[[], str]:
        """The generator and the extractor, loaded, and the data, found."""
        require_integer("batch", self.batch, 1, 256)
        if not 0 <= self.strength <= 1e6:
            raise UserError(f"strength is {self.strength}", "allowed is 0 to 1e6", "training draws from 1 to 4")
        device = resolve_device(self.device)
        trained = load_generator(self.run, weights=self.weights)
        options, data = self._compared()
        _require_fit(trained, data)
        name = self.extractor or options.extractor or default_extractor(data.sample_shape)
        extractor = build_extractor(name, sample_shape=data.sample_shape, device=device)
        return partial(_evaluate, self, options, trained, data, extractor, writable_directory(self.out or self.run))

    def _compared(self) -> tuple[EvaluationOptions, Samples]:
        """What the run says, what was given over it, and the data of both."""
        options, data, seed = EvaluationOptions(), DataOptions(name=self.data or ""), 0
        if is_run(self.run):
            config = open_run(self.run).config
            options, seed = config.evaluation, config.seed
            data = config.data if self.data is None else data
        elif self.data is None:
            came = f"{str(self.run)!r} is a folder of weights"
            raise UserError(came, "what it is compared with must be named", "add --data cifar10, say")
        if self.root is not None:
            data = dataclasses.replace(data, root=str(self.root))
        options = dataclasses.replace(
            options,
            samples=options.samples if self.samples is None else self.samples,
            split=options.split if self.split is None else self.split,
            reference=options.reference if self.reference is None else self.reference,
            seed=options.seed if self.seed is None else self.seed,
        )
        try:
            return validated(options), load_reference_data(data, options, seed=seed)
        except UserError as error:
            raise UserError(str(error).replace("--data DIR", "--root DIR")) from None


def _require_fit(trained: LoadedGenerator, data: Samples) -> None:
    if tuple(trained.generator.sample_shape) != data.sample_shape:
        came = f"the generator makes samples {tuple(trained.generator.sample_shape)}"
        raise UserError(came, f"{data.name} has {data.sample_shape}", "name the data that it was trained on")


def _evaluate(
    asked: Evaluate,
    options: EvaluationOptions,
    trained: LoadedGenerator,
    data: Samples,
    extractor: Extractor,
    out: Path,
) -> str:
    started = time.monotonic()
    first = os.environ.get("RANK", "0") == "0"
    with (
        memory_errors_as_user_errors("take a smaller --batch"),
        distributed.process_group(extractor.device),
        ProgressDisplay(quiet=not first) as progress,
    ):
        reference = compute_reference(data, extractor, split=options.split, progress=progress)
        metrics, protocol = evaluate(
            trained.generator.to(extractor.device),
            reference,
            extractor,
            samples=options.samples,
            seed=options.seed,
            strength=asked.strength,
            batch=asked.batch,
            weights=asked.weights,
            progress=progress,
        )
    if not first:
        return ""
    seconds = time.monotonic() - started
    record = EvaluationRecord(
        run=asked.run.resolve().name,
        step=trained.step,
        metrics=metrics,
        protocol=protocol,
        seconds=seconds,
        provenance=provenance(seed=options.seed, wall_seconds=seconds),
    )
    append(out / EVALUATIONS, record)
    return f"{trained.source}\n{evaluation_summary(record)}\nwritten: {out / EVALUATIONS}"
