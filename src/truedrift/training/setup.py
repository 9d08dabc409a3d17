"""What does not fit into memory is told in one sentence, with what makes a run smaller.

A run's parts that are Python objects of the user's: data, generator, encoder, kernel, estimators.

They stand in place of what the configuration names. A run remembers what they are called, and is resumed only with
parts of the same names; that they are the same inside is the user's word.

Configuration → a step that can be taken: data loaded, networks built, everything checked before any work.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from truedrift.axes import Tensor
from truedrift.centroids.estimator import Estimator
from truedrift.data.class_batches import ClassBatches
from truedrift.data.load import load
from truedrift.data.samples import Samples
from truedrift.encoders.base import Encoder, Pixels, gradient_weights
from truedrift.encoders.catalog import build as build_encoder
from truedrift.errors import UserError
from truedrift.generators.base import Generator
from truedrift.generators.catalog import build as build_generator
from truedrift.kernels.kernel import LogKernel
from truedrift.progress import Progress
from truedrift.storage import cache_directory
from truedrift.training.batch import (
    Encode,
    EncoderWithPixels,
    FeatureSource,
    FeaturesWithPixels,
    OnTheFlyFeatures,
    Positives,
)
from truedrift.training.config import RunConfig
from truedrift.training.feature_cache import CachedFeatures, build_feature_cache
from truedrift.training.state import TrainingState
from truedrift.training.step import DTYPES, Objective, Step, autocast

SAID = ("can't allocate memory", "not enough memory", "out of memory", "Storage size calculation overflowed")
"""What torch says on a CPU, where it has no class of its own for it."""

SMALLER = "set engine.micro_batch, or a smaller batch.n, batch.generated or generator"


@contextmanager
def memory_errors_as_user_errors(do: str = SMALLER) -> Iterator[None]:
    """A `Mistake` in place of an error of memory; any other error stays what it is."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError):
        raise _out_of_memory(do) from None
    except RuntimeError as error:
        if any(said in str(error) for said in SAID):
            raise _out_of_memory(do) from None
        raise


def _out_of_memory(do: str) -> UserError:
    return UserError("this does not fit into memory", "allowed is what this machine or its GPU can hold", do)


OF_A_GENERATOR = ("noise_shape", "sample_shape", "classes", "style_draws", "style_entries")
"""What a generator must say of itself (`generators/base.py`)."""


def _generates(part: Any) -> bool:
    return isinstance(part, nn.Module) and all(hasattr(part, name) for name in OF_A_GENERATOR)


_ESTIMATOR = (lambda part: isinstance(part, Estimator), "an object with name, bias_order, budget and reweight")
ALLOWED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "samples": (lambda part: isinstance(part, Samples), "a truedrift.data.Samples"),
    "generator": (_generates, f"a module with {', '.join(OF_A_GENERATOR)}"),
    "encoder": (callable, "a function of values [B, *sample_shape]"),
    "kernel": (callable, "a function (x, y, tau) → log k"),
    "estimator_pos": _ESTIMATOR,
    "estimator_neg": _ESTIMATOR,
}
"""Whether an object can be that part, and what can."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What is given replaces what the configuration names."""

    samples: Samples | None = None
    generator: Generator | Any | None = None
    """A `Generator` or any module with its attributes; its weights as they are at the start of a new run."""
    encoder: Callable[[Tensor], tuple[Tensor, ...]] | None = None
    """values [B, *sample_shape] in [−1, 1] → one tensor [B, D_s] a scale; a module is frozen."""
    kernel: LogKernel | None = None
    estimator_pos: Estimator | None = None
    estimator_neg: Estimator | None = None

    def __post_init__(self) -> None:
        for name, (fits, told) in ALLOWED.items():
            part = getattr(self, name)
            if part is not None and (isinstance(part, type) or not fits(part)):
                came = f"the class {part.__name__}" if isinstance(part, type) else f"a {type(part).__name__}"
                raise UserError(f"the part {name} is {came}", f"allowed is {told}", "pass such an object")

    def names(self) -> dict[str, str]:
        """What stands in place of what, for config.json."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: _name(part) for name, part in given.items() if part is not None}


def _name(part: Any) -> str:
    if isinstance(part, Samples):
        return f"{part.name} {part.digest()[:12]}"
    named = part if hasattr(part, "__qualname__") else type(part)
    return f"{named.__module__}.{named.__qualname__}"


DEVICES = ("auto", "cpu", "cuda", "mps")


@dataclass(frozen=True)
class TrainingSetup:
    """What a run works with."""

    samples: Samples
    step: Step

    @property
    def state(self) -> TrainingState:
        """What the step changes."""
        return self.step.state


def resolve_device(name: str) -> torch.device:
    """The device of that name; `auto` takes a GPU if there is one. Of several, each process takes its own."""
    if name not in DEVICES:
        raise UserError(f"device is {name!r}", f"allowed are {', '.join(DEVICES)}", "choose one of them")
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, is_there in there.items() if is_there)
    if not there[name]:
        found = ", ".join(kind for kind, is_there in there.items() if is_there)
        raise UserError(f"device is {name!r}, which this machine has not", f"here are {found}", "choose one, or auto")
    return _local_gpu() if name == "cuda" else torch.device(name)


def _local_gpu() -> torch.device:
    """torchrun numbers the processes of a machine."""
    number, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if number >= there:
        came = f"process {number + 1} of this machine has no GPU of its own"
        raise UserError(came, f"here are {there}", f"start torchrun with --nproc-per-node {there} or fewer")
    return torch.device("cuda", number)


def load_samples(config: RunConfig, parts: Parts) -> Samples:
    """The training data."""
    if parts.samples is not None:
        return parts.samples
    options = config.data
    root = None if options.root is None else Path(options.root)
    try:
        return load(options.name, root=root, seed=config.seed, image_size=options.image_size)
    except UserError as error:
        raise error.with_prefix(f"data.name {options.name}") from None


def build_setup(
    config: RunConfig, parts: Parts, samples: Samples, device: torch.device, progress: Progress
) -> TrainingSetup:
    """Everything that the configuration names, on the device."""
    dtype = DTYPES[config.engine.precision]
    batches = _batches(config, samples)
    _require_place(config, parts)
    generator = parts.generator or _generator(config, samples)
    _require_fit(generator, samples)
    network, dimensions = _encoder(config, parts, samples, device, dtype)
    encode = _encode_in_precision(network, config.engine.precision, device)
    lookup = _feature_source(config, samples, network, encode, device, progress)
    if config.objective.pixels:
        _require_no_pixels(network)
        network, lookup = EncoderWithPixels(network), FeaturesWithPixels(lookup, samples)
        dimensions = (*dimensions, math.prod(samples.sample_shape))
    generator = generator.to(device, dtype)
    if parts.generator is not None:
        _require_pure(generator, device, dtype)
    state = TrainingState(generator, config.optimizer, compiled=config.engine.compiled)
    step = Step(
        config=config,
        state=state,
        encode=torch.compile(network) if config.engine.compiled else network,
        positives=Positives(batches, lookup, config.batch.unconditional),
        objective=Objective(
            config.objective,
            gradient_weights(dimensions, config.objective.feature_scale),
            estimator_pos=parts.estimator_pos,
            estimator_neg=parts.estimator_neg,
            kernel=parts.kernel,
        ),
        device=device,
    )
    return TrainingSetup(samples, step)


def _with_section(section: str, options: Any, build: Callable[[], Any]) -> Any:
    """What `build` makes of the options; its mistakes name them with their section of the configuration."""
    try:
        return build()
    except UserError as error:
        raise error.in_section(section) from None


def _generator(config: RunConfig, samples: Samples) -> Generator:
    shape, classes = samples.sample_shape, len(samples.classes)
    return _with_section(
        "generator",
        config.generator,
        lambda: build_generator(config.generator, sample_shape=shape, classes=classes, seed=config.seed),
    )


def _batches(config: RunConfig, samples: Samples) -> ClassBatches:
    options = config.batch
    if options.unconditional > len(samples):
        came = f"batch.unconditional is {options.unconditional}"
        raise UserError(came, f"allowed is up to {len(samples)}, the images there are", "take fewer")
    return _with_section(
        "batch",
        options,
        lambda: ClassBatches(
            samples.labels,
            len(samples.classes),
            n=options.n,
            seed=config.seed,
            flips=samples.flips,
            sampling=options.sampling,
            queue_size=options.queue_size,
            names=samples.classes,
        ),
    )


def _require_place(config: RunConfig, parts: Parts) -> None:
    """The published arithmetic is one formula, in which no kernel and no estimator of one's own has a place."""
    given = [name for name in ("kernel", "estimator_pos", "estimator_neg") if getattr(parts, name) is not None]
    if given and config.objective.arithmetic == "abc-release":
        came = f"the part {given[0]} is given with objective.arithmetic abc-release"
        raise UserError(came, "that arithmetic has its own", "take the arithmetic stable")


def _require_no_pixels(network: Any) -> None:
    if isinstance(network, Pixels):
        came = "objective.pixels is true with encoder.kind pixels"
        raise UserError(came, "their features are the pixels", "leave it out, or take another encoder")


def _require_fit(generator: Generator, samples: Samples) -> None:
    if not any(parameter.requires_grad for parameter in generator.parameters()):
        raise UserError(
            "the generator has no parameter that requires a gradient", "allowed is one or more", "unfreeze it"
        )
    if tuple(generator.sample_shape) != samples.sample_shape or generator.classes != len(samples.classes):
        raise UserError(
            f"the generator makes samples {tuple(generator.sample_shape)} of {generator.classes} classes",
            f"{samples.name} has {samples.sample_shape} of {len(samples.classes)}",
            "build it for these",
        )


def _require_pure(generator: Generator, device: torch.device, dtype: torch.dtype) -> None:
    """A sample is a function of its own inputs: no dropout, and nothing that looks at the rest of the batch."""
    z = torch.randn(4, *generator.noise_shape, generator=torch.Generator().manual_seed(0)).to(device, dtype)
    labels = torch.arange(4, device=device) % generator.classes
    styles = torch.zeros(4, generator.style_draws, dtype=torch.long, device=device)
    inputs = (z, labels, torch.ones(4, device=device, dtype=dtype), styles)
    with torch.no_grad():
        tried = copy.deepcopy(generator)  # which may count its calls
        once, again = tried(*inputs), tried(*inputs)
        apart = torch.cat([tried(*(each[rows] for each in inputs)) for rows in (slice(0, 2), slice(2, 4))])
    if not torch.equal(once, again) or not torch.allclose(once, apart, rtol=1e-2, atol=1e-3):
        raise UserError(
            "the generator gives other samples for the same noise, or looks at the rest of the batch",
            "a sample must be a function of its own inputs",
            "take dropout and batch normalization out of it",
        )


def _encoder(
    config: RunConfig, parts: Parts, samples: Samples, device: torch.device, dtype: torch.dtype
) -> tuple[Any, Sequence[int]]:
    """The encoder and the dimensions D_s of its scales."""
    if parts.encoder is None:
        encoder = _with_section(
            "encoder", config.encoder, lambda: build_encoder(config.encoder, sample_shape=samples.sample_shape)
        )
        return encoder.to(device, dtype), encoder.dimensions
    given = parts.encoder
    if isinstance(given, nn.Module):
        given = given.requires_grad_(False).eval().to(device, dtype)
    with torch.no_grad():
        groups = given(torch.zeros(1, *samples.sample_shape, device=device, dtype=dtype))
    of_one = isinstance(groups, (tuple, list)) and [f for f in groups if isinstance(f, Tensor) and f.ndim == 2]
    if not of_one or len(of_one) != len(groups) or not all(len(f) == 1 and f.is_floating_point() for f in of_one):
        raise UserError(
            f"the encoder made {_describe(groups)} of values [1, {', '.join(map(str, samples.sample_shape))}]",
            "allowed is a tuple of real tensors [B, D], one a scale",
            "flatten what it returns",
        )
    return given, [f.shape[-1] for f in of_one]


def _describe(groups: Any) -> str:
    if isinstance(groups, Tensor):
        return f"a tensor {list(groups.shape)}"
    if not isinstance(groups, (tuple, list)):
        return f"a {type(groups).__name__}"
    return f"({', '.join(map(_describe, groups))})"


def _encode_in_precision(network: Any, precision: str, device: torch.device) -> Encode:
    """The encoder in the precision of the run."""

    def encode(values: Tensor) -> tuple[Tensor, ...]:
        with autocast(precision, device):
            return tuple(network(values))

    return encode


def _feature_source(
    config: RunConfig, samples: Samples, network: Any, encode: Encode, device: torch.device, progress: Progress
) -> FeatureSource:
    """Where features of positives come from: kept ones if the encoder does any work and its name can be a key."""
    engine = config.engine
    keeps = engine.cached_positives and isinstance(network, Encoder) and not isinstance(network, Pixels)
    if not keeps or engine.precision == "float64":
        dtype = DTYPES[engine.precision]
        return OnTheFlyFeatures(samples, encode, device=device, dtype=dtype, at_once=engine.micro_batch)
    where = cache_directory("features")
    precision = engine.precision
    path = build_feature_cache(
        samples, network, encode, directory=where, precision=precision, device=device, progress=progress
    )
    return CachedFeatures(path, network.dimensions, device)
