"""configuration → what `train` calls to judge a run on its way: the same code as `truedrift evaluate`.

`training` and `evaluation` do not know of each other; here they meet.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from truedrift.data.load import load
from truedrift.data.samples import Samples
from truedrift.errors import UserError
from truedrift.evaluation.catalog import build_extractor
from truedrift.evaluation.evaluate import evaluate
from truedrift.evaluation.extractors import Extractor
from truedrift.evaluation.reference import Reference, compute_reference
from truedrift.generators.base import Generator
from truedrift.progress import Progress, no_progress
from truedrift.seeding import stream
from truedrift.training.config import DataOptions, EvaluationOptions, RunConfig


class RunEvaluator:
    """Called with the averaged generator and the step; the reference is computed, or found, when it is first needed."""

    def __init__(
        self, options: EvaluationOptions, data: Samples, extractor: Extractor, *, progress: Progress = no_progress
    ) -> None:
        self.options, self.data, self.extractor, self.progress = options, data, extractor, progress

    @cached_property
    def reference(self) -> Reference:
        """Of the split that the options name, or of as many of it as they say."""
        return compute_reference(self.data, self.extractor, split=self.options.split, progress=self.progress)

    def __call__(self, generator: Generator, step: int) -> Mapping[str, Any]:
        metrics, protocol = evaluate(
            generator, self.reference, self.extractor, samples=self.options.samples, seed=self.options.seed
        )
        return dataclasses.asdict(metrics) | {"protocol": dataclasses.asdict(protocol)}


def build_evaluator(
    config: RunConfig, *, device: torch.device, progress: Progress = no_progress
) -> RunEvaluator | None:
    """The judge that the configuration names; None if it names none."""
    if config.evaluation.extractor is None:
        return None
    try:
        data = load_reference_data(config.data, config.evaluation, seed=config.seed)
    except UserError as error:
        raise error.with_prefix(f"data.name {config.data.name}") from None
    extractor = build_extractor(config.evaluation.extractor, sample_shape=data.sample_shape, device=device)
    return RunEvaluator(config.evaluation, data, extractor, progress=progress)


def load_reference_data(data: DataOptions, options: EvaluationOptions, *, seed: int) -> Samples:
    """The data that samples are compared with; `seed` is that of toys."""
    root = None if data.root is None else Path(data.root)
    whole = load(data.name, split=options.split, root=root, seed=seed, image_size=data.image_size)
    if options.reference is None or options.reference >= len(whole):
        return whole
    ids = torch.randperm(len(whole), generator=stream(0, "reference images"))[: options.reference].sort().values
    return dataclasses.replace(whole, values=whole.values[ids], labels=whole.labels[ids])
