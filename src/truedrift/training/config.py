"""A run, complete: data, generator, encoder, batch, objective, optimizer, engine, cadence, evaluation, seed.

Two configurations that compute the same steps are the same run, and its id is a hash of what decides them (`identity`).
Device, threads and the number of processes are not part of a configuration.

Whether the options of a run fit together: every field by itself, then all that must agree, before any work.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from truedrift.data.load import NAMES, TOYS
from truedrift.encoders import EncoderOptions
from truedrift.encoders.base import PixelsOptions
from truedrift.errors import UserError
from truedrift.field.affinity import Form, Normalization
from truedrift.generators import GeneratorOptions
from truedrift.generators.mlp import MLPOptions
from truedrift.objective.feature_scale import FeatureScale
from truedrift.options import NonEmpty, Within, to_dict, validated

Count = Annotated[int, Within(1, 2**31 - 1)]
LARGEST_SIZE = 65_536
"""Of a batch or a network: what is beyond it would not fit anywhere, and an error of memory names no option."""
Size = Annotated[int, Within(1, LARGEST_SIZE)]
Estimator = Literal["standard", "abc", "abc2", "jackknife", "bootstrap"]


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Where samples come from."""

    name: str = "digits"
    root: str | None = None
    """A directory or archive of the user's; none: the cache of `truedrift data fetch`."""
    image_size: Annotated[int, Within(4, 1024)] | None = None
    """Images of a folder are brought to this many pixels; other sets have their own size."""


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """What a step sees: n positives and `generated` samples of every class."""

    n: Size = 8
    """Positives a class, over all processes: the n of the paper."""
    generated: Size | None = None
    """Generated samples a class; n if none is named."""
    sampling: Literal["without-replacement", "queue"] = "without-replacement"
    """`queue` draws with replacement from the class's latest `queue_size` images, as the published code does."""
    queue_size: Size = 256
    unconditional: Annotated[int, Within(0, LARGEST_SIZE)] = 0
    """Real images of any class a step, as weighted negatives: guidance that has an effect."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveOptions:
    """How features become a loss, and whether pixels are among them."""

    temperatures: Annotated[tuple[Annotated[float, Within(1e-6, 1e6)], ...], NonEmpty()] = (0.02, 0.05, 0.2)
    estimator_pos: Estimator = "abc"
    estimator_neg: Estimator = "abc"
    arithmetic: Literal["stable", "abc-release"] = "stable"
    """`abc-release` is the published code's, which underflows at small temperatures; to study its numbers."""
    normalization: Normalization = "bidirectional"
    form: Form = "product"
    feature_scale: FeatureScale = "standardize-l2"
    kernel: Literal["laplace", "gaussian"] = "laplace"
    pixels: bool = False
    """The samples themselves as one more feature group: what an encoder pools says little of where things are."""


@dataclass(frozen=True, kw_only=True)
class ConditionOptions:
    """What the generator is told beside the noise."""

    label_dropout: Annotated[float, Within(0, 1)] = 0.1
    """Share of samples whose label is hidden; they still drift as their class."""
    strength_low: Annotated[float, Within(1, 100)] = 1.0
    strength_high: Annotated[float, Within(1, 100)] = 4.0
    strength_law: Literal["uniform", "inverse-cube"] = "uniform"
    """Of the strength a: uniform, or p(a) ∝ a⁻³. One a sample, or one a class with unconditional negatives."""


@dataclass(frozen=True, kw_only=True)
class OptimizerOptions:
    """AdamW with a linear warm-up; an exponential average of the weights."""

    learning_rate: Annotated[float, Within(0, 10, above=True)] = 2e-4
    beta1: Annotated[float, Within(0, 0.9999)] = 0.9
    beta2: Annotated[float, Within(0, 0.999999)] = 0.95
    weight_decay: Annotated[float, Within(0, 10)] = 0.01
    warmup_steps: Annotated[int, Within(0, 2**31 - 1)] = 2000
    clip: Annotated[float, Within(0, 1e9, above=True)] | None = 2.0
    """Largest norm of the gradient; none: as it is."""
    ema: Annotated[float, Within(0, 0.9999999)] = 0.999


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How a step is computed; the numbers stay those of the plain step, up to rounding."""

    micro_batch: Count | None = None
    """Samples that go through the generator at a time: bounds memory; none: all at once."""
    precision: Literal["float32", "bfloat16", "float64"] = "float32"
    """Of generator and encoder; kernels and weights of the field are never below float32."""
    compiled: bool = False
    cached_positives: bool = True
    """Positives are encoded once, both views, and kept on disk; has no effect on points and pixels."""
    nonfinite: Literal["raise", "skip"] = "raise"
    """What happens when a loss or gradient is NaN or infinite. Weights stay finite either way."""


@dataclass(frozen=True, kw_only=True)
class CadenceOptions:
    """How long, and how often what is written; in steps, but for epochs."""

    epochs: Count = 10
    steps_per_epoch: Count = 100
    log_every: Count = 50
    checkpoint_every: Count = 500
    keep_last: Annotated[int, Within(1, 10_000)] = 2
    keep_every: Count | None = None
    """Checkpoints of steps that this divides are kept for good."""
    grid_every: Count | None = 500
    evaluate_every_epochs: Count = 25

    @property
    def steps(self) -> int:
        """Of the whole run."""
        return self.epochs * self.steps_per_epoch


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """By what a run is judged: every `cadence.evaluate_every_epochs` epochs and at its end, and by `evaluate RUN`."""

    extractor: str | None = None
    """inception, abc-release, digits or encoder:NAME; none: the run is not judged while it goes on."""
    samples: Annotated[int, Within(2, 10_000_000)] = 50_000
    """Generated, as many of each class."""
    split: Literal["train", "test", "all"] = "train"
    """Of the data set that it is compared with."""
    reference: Annotated[int, Within(2, 10_000_000)] | None = None
    """How many of that split, chosen by a fixed seed: features take time on a CPU; none: all."""
    seed: Annotated[int, Within(0, 2**31 - 1)] = 0
    """Of noise and styles."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that makes a run what it is."""

    recipe: str = "custom"
    seed: Annotated[int, Within(0, 2**31 - 1)] = 0
    data: DataOptions = field(default_factory=DataOptions)
    generator: GeneratorOptions = field(default_factory=MLPOptions)
    encoder: EncoderOptions = field(default_factory=PixelsOptions)
    batch: BatchOptions = field(default_factory=BatchOptions)
    objective: ObjectiveOptions = field(default_factory=ObjectiveOptions)
    condition: ConditionOptions = field(default_factory=ConditionOptions)
    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)
    cadence: CadenceOptions = field(default_factory=CadenceOptions)
    evaluation: EvaluationOptions = field(default_factory=EvaluationOptions)

    def tree(self) -> dict[str, Any]:
        """As what JSON can hold."""
        return to_dict(self)

    @property
    def generated(self) -> int:
        """Generated samples a class."""
        return self.batch.generated or self.batch.n

    def positives_seen(self, step: int) -> int:
        """Per class after that many steps: what the paper counts progress in."""
        return self.batch.n * step


def identity(tree: Mapping[str, Any]) -> dict[str, Any]:
    """What of a configuration's tree decides what a step computes.

    How long a run is, what it writes and when, by what it is judged, how much of a batch goes through at a time, and
    whether it stops at what is not finite may change from one start to the next: it stays the same run.
    """
    engine = tree["engine"]
    kept = {name: value for name, value in engine.items() if name not in ("micro_batch", "nonfinite")}
    return {name: value for name, value in tree.items() if name not in ("cadence", "evaluation")} | {"engine": kept}


def run_id(tree: dict[str, Any]) -> str:
    """Twelve hexadecimal digits of a configuration's tree."""
    canonical = json.dumps(tree, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def validated_config(config: RunConfig) -> RunConfig:
    """The configuration after every field and every pair of fields that must agree was looked at."""
    config = validated(config)
    _require_data_name(config.recipe)
    _require_data_root(config.data)
    _require_sizes("generator", config.generator)
    _require_sizes("encoder", config.encoder)
    _require_strengths(config.condition)
    if config.batch.unconditional > 0:
        _require_guidance(config)
    if config.objective.arithmetic == "abc-release":
        _require_release(config)
    return config


def _require_strengths(condition: ConditionOptions) -> None:
    low, high = condition.strength_low, condition.strength_high
    if low > high:
        came = f"condition.strength_low is {low} above condition.strength_high {high}"
        raise UserError(came, "allowed is at most that", "exchange them")


def _require_guidance(config: RunConfig) -> None:
    """Unconditional negatives need weights, a strength that gives them some, and an estimator that knows of them."""
    beside = f"with batch.unconditional {config.batch.unconditional}"
    estimator, generated = config.objective.estimator_neg, config.generated
    if estimator not in ("standard", "abc"):
        raise UserError(
            f"objective.estimator_neg is {estimator!r} {beside}",
            "its correction assumes one pool of references",
            'choose "abc", which is stratified there, or "standard"',
        )
    if generated < 2:
        raise UserError(
            f"batch.generated is {generated} {beside}",
            "weights of unconditional negatives count the other generated samples",
            "generate 2 or more a class",
        )
    if config.condition.strength_high == 1:
        raise UserError(
            f"condition.strength_high is 1 {beside}",
            "at strength 1 unconditional negatives weigh nothing",
            "set condition.strength_high=4, say",
        )


def _require_data_name(recipe: str) -> None:
    """It is part of the run directory's name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", recipe):
        came = f"recipe is {recipe[:80]!r}"
        raise UserError(came, "allowed are up to 64 letters, digits, _, . and -", "choose a name of these")


def _require_data_root(data: DataOptions) -> None:
    """Of data sets that are known by their name; others are Python objects of the user's (`Parts`)."""
    if data.name not in NAMES:
        return
    if data.root is not None and (data.name in TOYS or data.name == "digits"):
        came = f"data.root is {data.root[:80]!r} with data.name {data.name}"
        raise UserError(came, "that comes with the library and needs none", "leave it out, or take the recipe folder")
    if data.root == "":
        raise UserError("data.root is empty", "allowed is a directory or an archive", "name it, or leave it out")
    if data.image_size is not None and data.name != "folder":
        came = f"data.image_size is {data.image_size} with data.name {data.name}"
        raise UserError(came, "allowed is one for folder", "leave it out, or save the images to a folder")


def _require_sizes(section: str, options: Any) -> None:
    """No size of a network is beyond all memory; a seed is none."""
    for name, value in vars(options).items():
        numbers = value if isinstance(value, tuple) else (value,)
        if name != "seed" and any(isinstance(number, int) and number > LARGEST_SIZE for number in numbers):
            raise UserError(f"{section}.{name} is {value!r}", f"allowed is up to {LARGEST_SIZE}", "take less")


def _require_release(config: RunConfig) -> None:
    """The published arithmetic is one formula: what it has no place for is refused."""
    objective = config.objective
    fixed = {
        "normalization": "bidirectional",
        "form": "product",
        "feature_scale": "standardize-l2",
        "kernel": "laplace",
    }
    for name, value in fixed.items():
        if getattr(objective, name) != value:
            came = f"objective.{name} is {getattr(objective, name)!r} with objective.arithmetic abc-release"
            raise UserError(came, f"allowed is {value!r}", "leave it, or take the arithmetic stable")
    for side in ("estimator_pos", "estimator_neg"):
        if getattr(objective, side) not in ("standard", "abc", "abc2"):
            came = f"objective.{side} is {getattr(objective, side)!r} with objective.arithmetic abc-release"
            raise UserError(came, "allowed are standard, abc and abc2", "choose one, or take the arithmetic stable")
    if config.batch.unconditional > 0:
        came = f"batch.unconditional is {config.batch.unconditional} with objective.arithmetic abc-release"
        raise UserError(came, "allowed is 0", "take the arithmetic stable")
    if config.engine.precision == "float64":
        came = "engine.precision is float64 with objective.arithmetic abc-release"
        raise UserError(came, "that arithmetic is float32", "take the arithmetic stable")
