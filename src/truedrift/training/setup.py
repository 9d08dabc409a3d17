"""Configuration → a step that can be taken: load the data, build the networks, check everything before any work.

`Parts` are Python objects of the user that replace what the configuration names. A run records their names and is
resumed only with parts of the same names. The user must ensure that they are otherwise the same.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from truedrift.axes import Tensor
from truedrift.centroids.estimator import Estimator
from truedrift.data.class_batches import ClassBatches
from truedrift.data.folder_digest import FolderDigest, folder_digest
from truedrift.data.load import load
from truedrift.data.samples import Samples
from truedrift.encoders.base import Encoder, Pixels, PixelsOptions
from truedrift.encoders.catalog import build as build_encoder
from truedrift.encoders.efficientnet_lite0 import FETCH, EfficientNetLite0Options, weights_file
from truedrift.encoders.pooling import GroupShape
from truedrift.errors import UserError
from truedrift.generators.base import Generator
from truedrift.generators.catalog import build as build_generator
from truedrift.kernels.kernel import LogKernel
from truedrift.progress import Progress, no_progress
from truedrift.storage import cache_directory
from truedrift.training.batch import (
    Encode,
    FeatureSource,
    JoinedEncoder,
    JoinedFeatures,
    OnTheFlyFeatures,
    Positives,
)
from truedrift.training.config import DataOptions, RunConfig
from truedrift.training.feature_cache import CachedFeatures, build_feature_cache
from truedrift.training.objective import BatchObjective, FeatureLayout
from truedrift.training.state import TrainingState
from truedrift.training.step import DTYPES, Step, autocast

# ---- Parts ----

_GENERATOR_ATTRIBUTES = ("noise_shape", "sample_shape", "classes", "style_draws", "style_entries")


def _is_generator(part: Any) -> bool:
    return isinstance(part, nn.Module) and all(hasattr(part, name) for name in _GENERATOR_ATTRIBUTES)


_ESTIMATOR = (lambda part: isinstance(part, Estimator), "an object with name, bias_order, budget and reweight")
_PART_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "samples": (lambda part: isinstance(part, Samples), "a truedrift.data.Samples"),
    "generator": (_is_generator, f"a module with {', '.join(_GENERATOR_ATTRIBUTES)}"),
    "encoder": (callable, "a function of values [B, *sample_shape]"),
    "kernel": (callable, "a function (x, y, tau) → log k"),
    "estimator_pos": _ESTIMATOR,
    "estimator_neg": _ESTIMATOR,
}
"""Part → (test of an object, description of allowed objects)."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Python objects that replace those named in the configuration; None keeps what the configuration names.

    Args:
        samples: The training data, a `truedrift.data.Samples`: uint8 images [N, C, H, W] or float32 points [N, D], with
            labels [N].
        generator: A `truedrift.generators.Generator`, or any `torch.nn.Module` that is called in the same way,
            `generator(z, labels, strength, style_ids)` → samples [B, *sample_shape] in [−1, 1] for images, with z
            [B, *noise_shape], labels [B] from 0 to `classes` (the last is "no label"), strength [B] and style_ids
            [B, style_draws]. It must have the attributes `sample_shape`, `noise_shape`, `classes`, `style_draws` and
            `style_entries` (both 0 without styles), and must draw no random numbers itself. A new run starts from its
            current weights.
        encoder: Function of values [B, *sample_shape], images in [−1, 1], that returns a tuple with one tensor [B, D_s]
            per scale, or [B, P_s, D_s] for a feature map with P_s locations. Gradients must flow through it. A module
            is frozen.
        kernel: Function of queries x [..., B, D], references y [..., n, D] and tau that returns log k [..., B, n].
        estimator_pos: Estimator of the centroid of the positives: an object with `name`, `bias_order`, `budget(n)` and
            `reweight(log_w, generator=None)`, which returns γ [..., n] for log w [..., n]. See
            `truedrift.centroids.Estimator`, and `truedrift.estimator(name)` for those of the library.
        estimator_neg: The same for the negatives.
    """

    samples: Samples | None = None
    generator: Generator | Any | None = None
    encoder: Callable[[Tensor], tuple[Tensor, ...]] | None = None
    kernel: LogKernel | None = None
    estimator_pos: Estimator | None = None
    estimator_neg: Estimator | None = None

    def __post_init__(self) -> None:
        for name, (is_allowed, allowed) in _PART_RULES.items():
            part = getattr(self, name)
            if part is not None and (isinstance(part, type) or not is_allowed(part)):
                kind = f"the class {part.__name__}" if isinstance(part, type) else f"a {type(part).__name__}"
                raise UserError(f"is {kind}", f"must be {allowed}", "pass such an object", field=f"the part {name}")

    def names(self) -> dict[str, str]:
        """Return the names of the given parts, for config.json."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: _part_name(part) for name, part in given.items() if part is not None}


def _part_name(part: Any) -> str:
    if isinstance(part, Samples):
        return f"{part.name} {part.digest()[:12]}"
    named = part if hasattr(part, "__qualname__") else type(part)
    return f"{named.__module__}.{named.__qualname__}"


# ---- Data, memory ----


def load_samples(config: RunConfig, parts: Parts, progress: Progress = no_progress) -> Samples:
    """Load the training data.

    Args:
        config: The configuration, which names the data set.
        parts: If it has samples, these are used.
        progress: Called with a description, the number of images read, and their number.

    Returns:
        The split "train", or those of its classes that `data.classes` names; mirrored as `data.mirror` says.

    Raises:
        UserError: If the data set is missing or damaged, or has no such class.
    """
    if parts.samples is None:
        return load_data(config.data, seed=config.seed, progress=progress)
    return _apply_data_options(parts.samples, config.data)


def _apply_data_options(samples: Samples, options: DataOptions) -> Samples:
    """Return the samples of the chosen classes, mirrored or not."""
    with _errors_in_section("data"):
        if options.classes:
            samples = samples.select_classes(options.classes)
        if options.mirror and not samples.is_images:
            problem = "is true and the samples are points"
            raise UserError(problem, "only images can be mirrored", "leave it out", field="mirror")
    return samples if options.mirror is None else replace(samples, flips=options.mirror)


def load_data(options: DataOptions, *, seed: int, progress: Progress = no_progress) -> Samples:
    """Load the split "train" of a data set, or some of its classes; `seed` is that of toys."""
    root = None if options.root is None else Path(options.root)
    digest = _find_digest(options)
    try:
        samples = load(options.name, root=root, seed=seed, image_size=options.image_size, progress=progress)
    except UserError as error:
        raise error.with_prefix(f"data.name {options.name}") from None
    samples = _apply_data_options(samples, options)
    if digest is not None:
        digest.write(samples)
    return samples


def find_description(options: DataOptions) -> dict[str, Any] | None:
    """Return what `load_data(options).describe()` returned for a folder that has not changed; None: it is not known."""
    digest = _find_digest(options)
    return None if digest is None else digest.read()


def _find_digest(options: DataOptions) -> FolderDigest | None:
    """Return the digest of a folder of images in the cache; other data sets are read fast."""
    if options.name != "folder" or options.root is None:
        return None
    return folder_digest(Path(options.root), image_size=options.image_size, classes=options.classes)


_CPU_MEMORY_ERRORS = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "Storage size calculation overflowed",
)
"""Messages of torch on a CPU, where it has no exception class for a lack of memory."""

_SMALLER_RUN = "set engine.micro_batch, or a smaller batch.n, batch.generated or generator"


@contextmanager
def memory_errors_as_user_errors(fix: str = _SMALLER_RUN) -> Iterator[None]:
    """Turn a lack of memory into a UserError."""
    problem = UserError("this does not fit into memory", "must fit into the memory of this machine or its GPU", fix)
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError):
        raise problem from None
    except RuntimeError as error:
        if any(message in str(error) for message in _CPU_MEMORY_ERRORS):
            raise problem from None
        raise


# ---- Setup ----


@dataclass(frozen=True)
class TrainingSetup:
    """The data and the step of a run."""

    samples: Samples
    step: Step

    @property
    def state(self) -> TrainingState[Generator]:
        """The state that the step changes."""
        return self.step.state


def build_setup(
    config: RunConfig,
    parts: Parts,
    samples: Samples,
    device: torch.device,
    progress: Progress,
    notify: Callable[[str], None] | None = None,
) -> TrainingSetup:
    """Build everything that the configuration names, on the device.

    Args:
        config: The configuration of the run.
        parts: Objects that replace those named in the configuration.
        samples: The training data.
        device: The device of the networks.
        progress: Called while features of positives are encoded for the cache, which may take minutes.
        notify: Called with messages for the user.

    Returns:
        The data and the step. The generator has its initial weights; no checkpoint is loaded.

    Raises:
        UserError: If the configuration, the parts and the data do not fit each other, the weights of the encoder are
            missing, or the feature cache cannot be written.
    """
    dtype = DTYPES[config.engine.precision]
    _require_parts_allowed(config, parts)

    # Data.
    try:
        batches = _build_batches(config, samples)
    except UserError as error:
        raise _add_missing_weights(error, config, parts) from None

    # Generator.
    generator = parts.generator or _build_generator(config, samples)
    _require_generator_fits(generator, samples)
    generator = generator.to(device, dtype)
    if parts.generator is not None:
        _require_pure(generator, device, dtype)
    state = TrainingState(generator, config.optimizer, compiled=config.engine.compiled)

    # Encoders and features of the positives.
    encoders, groups = _build_encoders(config, parts, samples, device, dtype)
    _require_locations(config, groups)
    sources = [_build_features(config, each, samples, device, progress, notify) for each in encoders]
    encoder = encoders[0] if len(encoders) == 1 else JoinedEncoder(encoders)
    features = sources[0] if len(sources) == 1 else JoinedFeatures(sources)

    # Step.
    objective = BatchObjective(
        FeatureLayout(groups, together=config.objective.share_normalization == "group"),
        config.objective,
        config.seed,
        estimator_pos=parts.estimator_pos,
        estimator_neg=parts.estimator_neg,
        kernel=parts.kernel,
    )
    step = Step(
        config=config,
        state=state,
        encode=torch.compile(encoder) if config.engine.compiled else encoder,
        positives=Positives(batches, features, config.batch.unconditional),
        objective=objective,
        device=device,
    )
    return TrainingSetup(samples, step)


def _require_parts_allowed(config: RunConfig, parts: Parts) -> None:
    """Refuse a kernel or an estimator with the published arithmetic, which is one fixed formula."""
    given = [name for name in ("kernel", "estimator_pos", "estimator_neg") if getattr(parts, name) is not None]
    if given and config.objective.arithmetic != "stable":
        raise UserError(
            f"the part {given[0]} is given with objective.arithmetic {config.objective.arithmetic}",
            "that arithmetic has its own kernel and estimators",
            "set objective.arithmetic=stable",
        )


@contextmanager
def _errors_in_section(section: str) -> Iterator[None]:
    """Name the section of the configuration in errors about its options."""
    try:
        yield
    except UserError as error:
        raise error.in_section(section) from None


def _add_missing_weights(error: UserError, config: RunConfig, parts: Parts) -> UserError:
    """Return the error, with the command that fetches the weights of an encoder if they are missing as well."""
    encoders = config.encoders if parts.encoder is not None else (config.encoder, *config.encoders)
    if not any(isinstance(each, EfficientNetLite0Options) for each in encoders) or weights_file().is_file():
        return error
    fix = f"{error.fix}; and run {FETCH}, because the weights of the encoder are missing"
    return UserError(error.problem, error.allowed, fix, field=error.field)


def _build_batches(config: RunConfig, samples: Samples) -> ClassBatches:
    options = config.batch
    if options.unconditional > len(samples):
        raise UserError(
            f"is {options.unconditional}",
            f"must be at most {len(samples)}, the number of images",
            "set a smaller number",
            field="batch.unconditional",
        )
    with _errors_in_section("batch"):
        return ClassBatches(
            samples.labels,
            len(samples.classes),
            n=options.n,
            seed=config.seed,
            flips=samples.flips,
            sampling=options.sampling,
            queue_size=options.queue_size,
            names=samples.classes,
            classes_per_step=options.labels,
        )


def _build_generator(config: RunConfig, samples: Samples) -> Generator:
    with _errors_in_section("generator"):
        return build_generator(
            config.generator, sample_shape=samples.sample_shape, classes=len(samples.classes), seed=config.seed
        )


def _require_generator_fits(generator: Generator, samples: Samples) -> None:
    """Require parameters to train, and the shape and the classes of the data."""
    if not any(parameter.requires_grad for parameter in generator.parameters()):
        raise UserError(
            "the generator has no parameter that requires a gradient", "must have at least one", "unfreeze it"
        )
    if tuple(generator.sample_shape) != samples.sample_shape or generator.classes != len(samples.classes):
        raise UserError(
            f"the generator makes samples {tuple(generator.sample_shape)} of {generator.classes} classes",
            f"{samples.name} has {samples.sample_shape} of {len(samples.classes)}",
            "build the generator for this data",
        )


def _require_pure(generator: Generator, device: torch.device, dtype: torch.dtype) -> None:
    """Require that a sample is a function of its own inputs: no dropout, no dependence on the rest of the batch."""
    # Inputs of four samples.
    z = torch.randn(4, *generator.noise_shape, generator=torch.Generator().manual_seed(0)).to(device, dtype)
    labels = torch.arange(4, device=device) % generator.classes
    styles = torch.zeros(4, generator.style_draws, dtype=torch.long, device=device)
    inputs = (z, labels, torch.ones(4, device=device, dtype=dtype), styles)
    # The same batch twice, then in two halves.
    with torch.no_grad():
        copied = copy.deepcopy(generator)  # the module may count its calls
        once, again = copied(*inputs), copied(*inputs)
        halves = torch.cat([copied(*(each[rows] for each in inputs)) for rows in (slice(0, 2), slice(2, 4))])
    if not torch.equal(once, again) or not torch.allclose(once, halves, rtol=1e-2, atol=1e-3):
        raise UserError(
            "the generator returns different samples for the same noise, or they depend on the rest of the batch",
            "a sample must be a function of its own inputs",
            "remove dropout and batch normalization from it",
        )


def _build_encoders(
    config: RunConfig, parts: Parts, samples: Samples, device: torch.device, dtype: torch.dtype
) -> tuple[list[Any], tuple[GroupShape, ...]]:
    """Return all encoders on the device, and the shapes of their groups."""
    shape = samples.sample_shape
    encoders: list[Any] = []
    if parts.encoder is None:
        with _errors_in_section("encoder"):
            encoders.append(build_encoder(config.encoder, sample_shape=shape))
        groups = [*encoders[0].groups]
    else:
        given, groups = _try_encoder(parts.encoder, samples, device, dtype)
        encoders.append(given)
    for number, options in enumerate(config.encoders):
        with _errors_in_section(f"encoders[{number}]"):
            encoders.append(build_encoder(options, sample_shape=shape))
    if config.objective.pixels:
        _require_not_pixels(encoders[0])
        encoders.append(build_encoder(PixelsOptions(), sample_shape=shape))
    for encoder in encoders[1:]:
        groups += encoder.groups
    return [each.to(device, dtype) if isinstance(each, Encoder) else each for each in encoders], tuple(groups)


def _require_locations(config: RunConfig, groups: Sequence[GroupShape]) -> None:
    """Refuse a number of locations where no feature group has any."""
    if config.objective.locations is not None and all(group.problems == 1 for group in groups):
        raise UserError(
            f"is {config.objective.locations} and no feature group has locations",
            "needs the pooling locations or pyramid",
            "set objective.locations=none, or encoder.pooling=pyramid",
            field="objective.locations",
        )


def _try_encoder(
    encoder: Callable[[Tensor], tuple[Tensor, ...]], samples: Samples, device: torch.device, dtype: torch.dtype
) -> tuple[Any, list[GroupShape]]:
    """Return the user's encoder and the shapes of its groups, found with one sample of zeros."""
    given = encoder
    if isinstance(given, nn.Module):
        given = given.requires_grad_(False).eval().to(device, dtype)
    with torch.no_grad():
        scales = given(torch.zeros(1, *samples.sample_shape, device=device, dtype=dtype))
    rows = isinstance(scales, (tuple, list)) and [f for f in scales if isinstance(f, Tensor) and f.ndim in (2, 3)]
    if not rows or len(rows) != len(scales) or not all(len(f) == 1 and f.is_floating_point() for f in rows):
        raise UserError(
            f"the encoder returned {_describe(scales)} for values [1, {', '.join(map(str, samples.sample_shape))}]",
            "must be a tuple of real tensors [B, D], or [B, P, D] for P locations",
            "flatten what it returns",
        )
    return given, [GroupShape(f.shape[-1], (1 if f.ndim == 2 else f.shape[1],)) for f in rows]


def _build_features(
    config: RunConfig,
    encoder: Any,
    samples: Samples,
    device: torch.device,
    progress: Progress,
    notify: Callable[[str], None] | None,
) -> FeatureSource:
    """Return the features of the positives: read from the cache if that saves work, else encoded in every step."""
    engine = config.engine
    if not _can_cache_features(config, encoder):
        encode, dtype = _in_precision(encoder, engine.precision, device), DTYPES[engine.precision]
        return OnTheFlyFeatures(samples, encode, device=device, dtype=dtype, at_once=engine.micro_batch)
    cache = build_feature_cache(
        samples,
        encoder,
        _in_precision(encoder.encode_stored, engine.precision, device),
        directory=cache_directory("features"),
        precision=engine.precision,
        device=device,
        progress=progress,
        notify=notify,
    )
    return CachedFeatures(cache, encoder, device)


def _describe(value: Any) -> str:
    """Describe tensors by their shapes, for an error message."""
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}"
    if not isinstance(value, (tuple, list)):
        return f"a {type(value).__name__}"
    return f"({', '.join(map(_describe, value))})"


def _in_precision(encoder: Any, precision: str, device: torch.device) -> Encode:
    """Return the encoder as a function that computes in the precision of the run."""

    def encode(values: Tensor) -> tuple[Tensor, ...]:
        with autocast(precision, device):
            return tuple(encoder(values))

    return encode


def _can_cache_features(config: RunConfig, encoder: Any) -> bool:
    """Return whether caching saves work and the encoder has a fingerprint to name the file by."""
    is_known_network = isinstance(encoder, Encoder) and not isinstance(encoder, Pixels)
    return config.engine.cached_positives and is_known_network and config.engine.precision != "float64"


def _require_not_pixels(encoder: Any) -> None:
    if isinstance(encoder, Pixels) and encoder.options.pooling == "none":
        raise UserError(
            "is true with encoder.kind pixels",
            "the features of that encoder are the pixels",
            "leave it out, or choose another encoder",
            field="objective.pixels",
        )
