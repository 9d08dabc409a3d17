"""The configuration of a run: data, generator, encoder, batch, objective, optimizer, engine, cadence, evaluation, seed.

Two configurations that compute the same steps are the same run, and the id of a run is a hash of what determines its
steps (`identity`). Device, threads and the number of processes are not part of a configuration.

`config_checks.py` reads configurations and checks them.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from truedrift.choices import Estimator, Kernel
from truedrift.encoders.base import PixelsOptions
from truedrift.encoders.catalog import EncoderOptions
from truedrift.field.spec import Form, Normalization
from truedrift.generators.catalog import GeneratorOptions
from truedrift.generators.mlp import MLPOptions
from truedrift.objective.feature_scale import FeatureScale
from truedrift.options import NonEmpty, Within

Count = Annotated[int, Within(1, 2**31 - 1)]
LARGEST_SIZE = 65_536
"""Largest size in a batch or a network. Larger ones fit no memory, and a lack of memory would not name the option."""
Size = Annotated[int, Within(1, LARGEST_SIZE)]


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """The training data."""

    name: str = "digits"
    """One of `truedrift.data.NAMES`; any name if the samples are a Python object (`Parts`)."""
    root: str | None = None
    """A directory or archive; none for the cache of `truedrift data fetch`."""
    image_size: Annotated[int, Within(4, 1024)] | None = None
    """Height and width to which images of a folder are resized; other data sets have their own size."""
    classes: tuple[str, ...] = ()
    """Names of the classes to train on, in the order of their labels; all classes if empty."""
    mirror: bool | None = None
    """Mirror half of the training images; none for the default of the data set: photographs are, digits are not."""


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """The samples of a step: n positives and `generated` generated samples per class of the step."""

    n: Size = 8
    """Positives per class, over all processes: the n of the paper."""
    generated: Size | None = None
    """Generated samples per class; n by default."""
    labels: Size | None = None
    """Number of classes in a step, drawn without replacement; none for all classes."""
    sampling: Literal["without-replacement", "queue", "with-replacement"] = "without-replacement"
    """`queue` draws with replacement from the latest `queue_size` images of the class, as the published code does;
    `with-replacement` from all of them, for classes of very different sizes."""
    queue_size: Size = 256
    """Length of the queue of each class."""
    unconditional: Annotated[int, Within(0, LARGEST_SIZE)] = 0
    """Real images of any class per step, used as weighted negatives for guidance."""
    fresh_negatives: Annotated[int, Within(0, LARGEST_SIZE)] = 0
    """Additional generated samples per class, drawn anew in every step, that are the only negatives and get no
    gradient; 0: the generated samples are each other's negatives. With n of them the expected training signal is
    exactly zero where generated and real samples have the same distribution."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveOptions:
    """The loss and its features."""

    temperatures: Annotated[tuple[Annotated[float, Within(1e-6, 1e6)], ...], NonEmpty()] = (0.02, 0.05, 0.2)
    """Temperatures τ on the scale of the scaled features."""
    estimator_pos: Estimator = "abc"
    """Estimator of the centroid of the positives."""
    estimator_neg: Estimator = "abc"
    """Estimator of the centroid of the negatives."""
    arithmetic: Literal["stable", "abc-release", "official"] = "stable"
    """`abc-release` is the arithmetic of the code released with the ABC paper, which underflows at small temperatures;
    `official` is that of the official drifting models, with its own normalization and no correction."""
    normalization: Normalization = "bidirectional"
    """row, bidirectional or bidirectional-loo, see `truedrift.field.affinity`; symmetric or sinkhorn, see
    `truedrift.field.matching`."""
    form: Form = "product"
    """separate, V = T⁺ − T⁻, product, V = S⁺S⁻ (T⁺ − T⁻), or potential, a field that is a gradient."""
    matched: bool = False
    """Average both centroids over windows of equally many references, so that the expected field is exactly zero where
    generated and real samples have the same distribution. Requires the normalization row or symmetric, or fresh
    negatives."""
    feature_scale: FeatureScale = "standardize-l2"
    """standardize-l2, mean-distance or none, see `truedrift.objective.feature_scale`."""
    kernel: Kernel = "laplace"
    pixels: bool = False
    """Add the pixels as one more scale, since pooled features say little about position."""
    share_normalization: Literal["group", "map"] = "group"
    """What shares the mean distance and the RMS of the field: `group`, every class at every location by itself; `map`,
    all classes and locations of a feature map and statistic, as in the official code."""
    locations: Size | None = None
    """Largest number of locations per feature map and statistic in a step, drawn at random; none for all."""


@dataclass(frozen=True, kw_only=True)
class ConditionOptions:
    """The inputs of the generator besides noise."""

    label_dropout: Annotated[float, Within(0, 1)] = 0.1
    """Fraction of samples whose label is hidden from the generator; they still drift as their class."""
    strength_low: Annotated[float, Within(1, 100)] = 1.0
    """Smallest guidance strength."""
    strength_high: Annotated[float, Within(1, 100)] = 4.0
    """Largest guidance strength, at least `strength_low`."""
    strength_law: Literal["uniform", "inverse-cube", "inverse-fifth"] = "uniform"
    """Distribution of the strength a: uniform, p(a) ∝ a⁻³, or p(a) ∝ a⁻⁵. Drawn per sample, or per class if there are
    unconditional negatives."""
    strength_one_fraction: Annotated[float, Within(0, 1)] = 0.0
    """Probability that a strength is exactly `strength_low`, usually 1: no guidance."""


@dataclass(frozen=True, kw_only=True)
class OptimizerOptions:
    """AdamW with a learning-rate schedule, and exponential moving averages of the weights."""

    learning_rate: Annotated[float, Within(0, 10, above=True)] = 2e-4
    beta1: Annotated[float, Within(0, 0.9999)] = 0.9
    beta2: Annotated[float, Within(0, 0.999999)] = 0.95
    weight_decay: Annotated[float, Within(0, 10)] = 0.01
    warmup_steps: Annotated[int, Within(0, 2**31 - 1)] = 2000
    """Steps until the learning rate is reached, on a straight line."""
    schedule: Literal["constant", "cosine"] = "constant"
    """What follows the warm-up: the constant learning rate, or half a cosine down to `final_fraction` of it at the last
    step. With `cosine` the length of a run determines its steps, so that a run of another length is another run."""
    final_fraction: Annotated[float, Within(0, 1)] = 0.01
    """Learning rate of the last step of the schedule `cosine`, relative to `learning_rate`."""
    clip: Annotated[float, Within(0, 1e9, above=True)] | None = 2.0
    """Largest norm of the gradient; none for no clipping."""
    ema: Annotated[float, Within(0, 0.9999999)] = 0.999
    """Decay of the average per step; 0 for no averaging."""
    more_ema: tuple[Annotated[float, Within(0, 0.9999999)], ...] = ()
    """Decays of further averages, which are saved and evaluated besides the main one."""
    ema_warmup: bool = False
    """Reduce the decay of update t = 1, 2, … of every average to (1 + t)/(10 + t) where that is smaller, so that short
    runs are not dominated by the initial weights."""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How a step is computed. These options change the results only by rounding."""

    micro_batch: Count | None = None
    """Samples that pass through the generator at a time, to limit memory; none for all at once."""
    precision: Literal["float32", "bfloat16", "float64"] = "float32"
    """Precision of generator and encoder. Kernels and weights of the field are at least float32."""
    compiled: bool = False
    """Compile generator and encoder with `torch.compile`."""
    cached_positives: bool = True
    """Encode positives once, in both views, and cache their features on disk. No effect on points and pixels."""
    nonfinite: Literal["raise", "skip"] = "raise"
    """What to do if a loss or gradient is NaN or infinite. Weights stay finite in either case."""


@dataclass(frozen=True, kw_only=True)
class CadenceOptions:
    """Length of the run and intervals of all outputs, in steps unless the field name contains `epochs`."""

    epochs: Count = 10
    steps_per_epoch: Count = 100
    log_every: Count = 50
    """Interval of the lines in metrics.jsonl and of the reports of `train`."""
    checkpoint_every: Count = 500
    """Interval of checkpoints. Evaluated steps and the last step are saved as well."""
    keep_last: Annotated[int, Within(1, 10_000)] = 2
    """Number of the newest checkpoints to keep; the best one is kept as well."""
    keep_every: Count | None = None
    """Checkpoints of steps divisible by this number are never removed."""
    grid_every: Count | None = 500
    """Interval of pictures of samples; none for no pictures."""
    evaluate_every_epochs: Count = 25
    """Epochs between two evaluations. The last step is evaluated as well."""

    @property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        return self.epochs * self.steps_per_epoch


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """How a run is evaluated: every `cadence.evaluate_every_epochs` epochs, at its end, and by `evaluate RUN`."""

    extractor: str | None = None
    """inception, abc-release, digits or encoder:NAME; none for no evaluation during training."""
    samples: Annotated[int, Within(2, 10_000_000)] = 50_000
    """Number of generated samples, equally many per class."""
    split: Literal["train", "test", "all"] = "train"
    """Split of the data set to compare with."""
    reference: Annotated[int, Within(2, 10_000_000)] | None = None
    """Number of images of that split, chosen by a fixed seed, to save time on a CPU; none for all."""
    seed: Annotated[int, Within(0, 2**31 - 1)] = 0
    """Seed of noise and styles."""
    strength: Annotated[float, Within(1, 100)] | None = None
    """Guidance strength of evaluations, pictures and samples, limited to the strengths of the training; none for the
    smallest of them."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The complete configuration of a run.

    `recipe` returns the configurations of the library. One that is built by hand is checked by `train`.

    Example:
        >>> config = RunConfig(seed=1, batch=BatchOptions(n=16))
        >>> config.positives_seen(100), config.cadence.steps
        (1600, 1000)
    """

    recipe: str = "custom"
    """First part of the name of the run directory."""
    seed: Annotated[int, Within(0, 2**31 - 1)] = 0
    """Seed of toy data, initial weights, batches, noise and all other random numbers of training."""
    data: DataOptions = field(default_factory=DataOptions)
    generator: GeneratorOptions = field(default_factory=MLPOptions)
    encoder: EncoderOptions = field(default_factory=PixelsOptions)
    encoders: tuple[EncoderOptions, ...] = ()
    """Further encoders. Their feature groups are added to those of `encoder`."""
    batch: BatchOptions = field(default_factory=BatchOptions)
    objective: ObjectiveOptions = field(default_factory=ObjectiveOptions)
    condition: ConditionOptions = field(default_factory=ConditionOptions)
    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)
    cadence: CadenceOptions = field(default_factory=CadenceOptions)
    evaluation: EvaluationOptions = field(default_factory=EvaluationOptions)

    def tree(self) -> dict[str, Any]:
        """Return the configuration as nested dictionaries that can be written as JSON."""
        return asdict(self)

    @property
    def generated(self) -> int:
        """Generated samples per class."""
        return self.batch.generated or self.batch.n

    @property
    def sample_strength(self) -> float:
        """Guidance strength of evaluations, pictures and samples."""
        low, high, wanted = self.condition.strength_low, self.condition.strength_high, self.evaluation.strength
        return low if wanted is None else min(max(wanted, low), high)

    def references(self, side: str) -> int:
        """Return the references of a centroid of the side "positive" or "negative", those of one window if matched."""
        pos, neg = self.batch.n, self.batch.fresh_negatives or self.generated - 1 + self.batch.unconditional
        if self.objective.matched:
            return min(pos, neg)
        return pos if side == "positive" else neg

    def classes_per_step(self, classes: int) -> int:
        """Return how many of that many classes a step has."""
        return self.batch.labels or classes

    def positives_seen(self, step: int, classes: int | None = None) -> int:
        """Return the positives per class after that many steps, the paper's measure of progress.

        Args:
            step: The number of steps.
            classes: The number of all classes. It is needed if a step has only some of them (`batch.labels`); the
                result is then a mean over the classes. None: every step has all classes.

        Returns:
            n per step, times the fraction of the classes that a step has, rounded down.
        """
        if classes is None:
            return self.batch.n * step
        return self.batch.n * step * self.classes_per_step(classes) // classes


ADDED_OPTIONS: dict[str, dict[str, Any]] = {
    "data": {"classes": (), "mirror": None},
    "batch": {"fresh_negatives": 0, "labels": None},
    "objective": {"matched": False, "share_normalization": "group", "locations": None},
    "generator": {"label_vector": True, "final_norm": True, "signs": 0},
    "encoder": {"pooling": "none"},
    "condition": {"strength_one_fraction": 0.0},
    "optimizer": {"schedule": "constant", "final_fraction": 0.01, "more_ema": (), "ema_warmup": False},
    "evaluation": {"strength": None},
}
"""Options that older configurations do not have, with their defaults, which do what was done before."""


def identity(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a configuration that determines the steps.

    The length of a run, what it writes and when, its evaluation, its micro-batches, and its reaction to non-finite
    steps may change from one start to the next. The learning rates of the schedule `cosine` depend on the number of
    steps, so that it is part of the identity of such a run.
    """
    engine = {name: value for name, value in tree["engine"].items() if name not in ("micro_batch", "nonfinite")}
    kept = {name: value for name, value in tree.items() if name not in ("cadence", "evaluation")} | {"engine": engine}
    if tree["optimizer"].get("schedule") == "cosine":
        # The name is for the message about a directory with a run of another length.
        kept["steps of the cosine schedule"] = tree["cadence"]["epochs"] * tree["cadence"]["steps_per_epoch"]
    return drop_added_defaults(kept)


def drop_added_defaults(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration without options that earlier versions did not have, where they have their defaults."""
    sections = {
        section: {
            name: value
            for name, value in tree[section].items()
            if (tuple(value) if isinstance(value, list) else value) != options.get(name, object())  # lists are JSON
        }
        for section, options in ADDED_OPTIONS.items()
        if section in tree  # runs of `train-encoder` have some of the sections
    }
    kept = {name: value for name, value in tree.items() if name != "encoders" or value}
    return {**kept, **sections}


def run_id(tree: dict[str, Any]) -> str:
    """Return a short hash of a configuration.

    Args:
        tree: Nested dictionaries that can be written as JSON, such as `RunConfig.tree()` or `identity` of it. The order
            of the keys does not matter.

    Returns:
        Twelve hexadecimal digits.

    Example:
        >>> run_id({"seed": 0, "n": 8}) == run_id({"n": 8, "seed": 0})
        True
    """
    canonical = json.dumps(tree, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]
