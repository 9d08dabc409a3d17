"""A run, complete: data, generator, encoder, batch, objective, optimizer, engine, cadence, evaluation, seed.

Two configurations that compute the same steps are the same run, and its id is a hash of what decides them (`identity`).
Device, threads and the number of processes are not part of a configuration.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from truedrift.encoders import EncoderOptions
from truedrift.encoders.pixels import PixelsOptions
from truedrift.field import Form, Normalization
from truedrift.generators import GeneratorOptions
from truedrift.generators.mlp import MLPOptions
from truedrift.objective.feature_scale import FeatureScale
from truedrift.options import Within, to_tree

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

    temperatures: tuple[Annotated[float, Within(1e-6, 1e6)], ...] = (0.02, 0.05, 0.2)
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
        return to_tree(self)

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
