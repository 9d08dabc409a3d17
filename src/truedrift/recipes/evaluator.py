"""Evaluation during training, with the same code as `truedrift evaluate`.

`training` and `evaluation` do not import each other; this module connects them.
"""

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
    """The function that `train` calls with the averaged generator and the step.

    The first call computes the reference, or reads it from the cache. Every call returns the metrics by name, and under
    `protocol` how they were computed.

    Args:
        options: Number and seed of the generated samples, and the split to name in the protocol.
        data: The samples to compare with, as `load_reference_data` returns them.
        extractor: The network that gives the features.
        strength: The guidance strength of the samples.
        progress: A callback for the computation of the reference.
    """

    def __init__(
        self,
        options: EvaluationOptions,
        data: Samples,
        extractor: Extractor,
        *,
        strength: float = 1.0,
        progress: Progress = no_progress,
    ) -> None:
        self.options, self.data, self.extractor, self.progress = options, data, extractor, progress
        self.strength = strength

    @cached_property
    def reference(self) -> Reference:
        """The statistics of the data that samples are compared with."""
        return compute_reference(self.data, self.extractor, split=self.options.split, progress=self.progress)

    def __call__(self, generator: Generator, step: int) -> Mapping[str, Any]:
        metrics, protocol = evaluate(
            generator,
            self.reference,
            self.extractor,
            samples=self.options.samples,
            seed=self.options.seed,
            strength=self.strength,
        )
        return dataclasses.asdict(metrics) | {"protocol": dataclasses.asdict(protocol)}


def build_evaluator(
    config: RunConfig, *, device: torch.device, samples: Samples | None = None, progress: Progress = no_progress
) -> RunEvaluator | None:
    """Build the evaluator of a configuration; None if the configuration has no extractor.

    Args:
        config: The configuration of the run.
        device: Where features are computed.
        samples: The training data, if they are loaded already.
        progress: A callback for reading a folder, and for long computations, which come with the first evaluation.

    Returns:
        A function of the averaged generator and the step, to pass to `train` as `evaluate`; or None.

    Raises:
        UserError: If the data or the extractor is not available.
    """
    if config.evaluation.extractor is None:
        return None
    try:
        data = load_reference_data(config.data, config.evaluation, seed=config.seed, train=samples, progress=progress)
    except UserError as error:
        raise error.with_prefix(f"data.name {config.data.name}") from None
    extractor = build_extractor(config.evaluation.extractor, sample_shape=data.sample_shape, device=device)
    return RunEvaluator(config.evaluation, data, extractor, strength=config.sample_strength, progress=progress)


def load_reference_data(
    data: DataOptions,
    options: EvaluationOptions,
    *,
    seed: int,
    train: Samples | None = None,
    progress: Progress = no_progress,
) -> Samples:
    """Load the data that samples are compared with: a split, or a random part of it.

    Args:
        data: The data set, and which of its classes.
        options: The split, and how many of its samples to take (`reference`; None: all).
        seed: The seed of toys. The random part does not depend on it.
        train: The split `train` of these classes, if it is loaded already.
        progress: Called with a description, the number of images read, and their number; for folders only.

    Returns:
        The samples, in the order of the data set.

    Raises:
        UserError: If the data set is missing or damaged.
    """
    if options.split == "train" and train is not None:
        samples = train
    else:
        root = None if data.root is None else Path(data.root)
        samples = load(
            data.name,
            split=options.split,
            root=root,
            seed=seed,
            image_size=data.image_size,
            classes=data.classes,
            progress=progress,
        )
    if options.reference is None or options.reference >= len(samples):
        return samples
    ids = torch.randperm(len(samples), generator=stream(0, "reference images"))[: options.reference].sort().values
    return samples.take(ids)
