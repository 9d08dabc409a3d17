"""The configuration of a run: data, generator, encoder, batch, objective, optimizer, engine, cadence, evaluation, seed.

Two configurations that compute the same steps are the same run, and the id of a run is a hash of what determines its
steps (`identity`). Device, threads and the number of processes are not part of a configuration.

`config_from_dict` checks every option by itself, then options that must agree with each other.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from truedrift.data.load import NAMES, TOYS
from truedrift.encoders.base import PixelsOptions
from truedrift.encoders.catalog import EncoderOptions
from truedrift.errors import UserError
from truedrift.field.checks import make_field_spec, require_sides
from truedrift.field.spec import Form, Normalization
from truedrift.generators.catalog import GeneratorOptions
from truedrift.generators.mlp import MLPOptions
from truedrift.objective.feature_scale import FeatureScale
from truedrift.options import NonEmpty, Within, from_dict

Count = Annotated[int, Within(1, 2**31 - 1)]
LARGEST_SIZE = 65_536
"""Largest size in a batch or a network. Larger ones fit no memory, and a lack of memory would not name the option."""
Size = Annotated[int, Within(1, LARGEST_SIZE)]
Estimator = Literal["standard", "abc", "abc2", "jackknife", "bootstrap"]


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


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """The samples of a step: n positives and `generated` generated samples per class of the step."""

    n: Size = 8
    """Positives per class, over all processes: the n of the paper."""
    generated: Size | None = None
    """Generated samples per class; n by default."""
    labels: Size | None = None
    """Number of classes in a step, drawn without replacement; none for all classes."""
    sampling: Literal["without-replacement", "queue"] = "without-replacement"
    """`queue` draws with replacement from the latest `queue_size` images of the class, as the published code does."""
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
    kernel: Literal["laplace", "gaussian"] = "laplace"
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
    "data": {"classes": ()},
    "batch": {"fresh_negatives": 0, "labels": None},
    "objective": {"matched": False, "share_normalization": "group", "locations": None},
    "encoder": {"pooling": "none"},
    "condition": {"strength_one_fraction": 0.0},
    "optimizer": {"schedule": "constant", "final_fraction": 0.01, "more_ema": ()},
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


def config_from_dict(tree: Mapping[str, Any]) -> RunConfig:
    """Build a configuration from nested dictionaries.

    Args:
        tree: Options by section and name, as `RunConfig.tree` returns them. Missing options take their defaults.

    Returns:
        The configuration. Integers become floats and lists become tuples where the option asks for it.

    Raises:
        UserError: If an option is unknown, has a wrong type or value, or does not agree with another one.

    Example:
        >>> config_from_dict({"batch": {"n": 16}}).generated
        16
    """
    config = from_dict(RunConfig, tree)
    _require_recipe_name(config.recipe)
    _require_data_options_agree(config.data)
    _require_sizes("generator", config.generator)
    _require_sizes("encoder", config.encoder)
    for number, encoder in enumerate(config.encoders):
        _require_sizes(f"encoders[{number}]", encoder)
    _require_strengths(config.condition)
    _require_schedule(config)
    _require_different_averages(config.optimizer)
    _require_sides(config)
    if config.batch.unconditional > 0:
        _require_guidance(config)
    if config.objective.arithmetic == "abc-release":
        _require_release(config)
    if config.objective.arithmetic == "official":
        _require_official(config)
    return config


def validated_config(config: RunConfig) -> RunConfig:
    """Check a configuration that may have been built by hand.

    Args:
        config: A configuration whose values were not checked, such as one built with `dataclasses.replace`.

    Returns:
        An equal configuration with every value in its own type, such as 1.0 instead of 1.

    Raises:
        UserError: If an option has a wrong type or value, or does not agree with another one.
    """
    return config_from_dict(config.tree())


def _require_recipe_name(recipe: str) -> None:
    """Require a name that can be part of the run directory's name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", recipe):
        raise UserError(
            f"is {recipe[:80]!r}",
            "must be at most 64 letters, digits, _, . and -, starting with a letter or digit",
            "choose another name",
            field="recipe",
        )


def _require_data_options_agree(data: DataOptions) -> None:
    """Check root and image size of the data sets that have a name. Others are Python objects (`Parts`)."""
    if data.name not in NAMES:
        return
    if data.root is not None and (data.name in TOYS or data.name == "digits"):
        raise UserError(
            f"is {data.root[:80]!r} with data.name {data.name}",
            "that data set is part of the library",
            "leave it out, or use the recipe folder",
            field="data.root",
        )
    if data.root == "":
        raise UserError(
            "is empty", "must be a directory or an archive", "set a path, or leave it out", field="data.root"
        )
    if data.image_size is not None and data.name != "folder":
        raise UserError(
            f"is {data.image_size} with data.name {data.name}",
            "only the data set folder has this option",
            "leave it out, or save the images to a folder",
            field="data.image_size",
        )


def _require_sizes(section: str, options: Any) -> None:
    """Require that no size of a network exceeds `LARGEST_SIZE`. A seed is not a size."""
    for name, value in vars(options).items():
        numbers = value if isinstance(value, tuple) else (value,)
        if name != "seed" and any(isinstance(number, int) and number > LARGEST_SIZE for number in numbers):
            raise UserError(
                f"is {value!r}", f"must be at most {LARGEST_SIZE}", "set a smaller size", field=f"{section}.{name}"
            )


def _require_strengths(condition: ConditionOptions) -> None:
    low, high = condition.strength_low, condition.strength_high
    if low > high:
        raise UserError(
            f"is {low}, above condition.strength_high {high}",
            "must be at most condition.strength_high",
            "swap them",
            field="condition.strength_low",
        )


def _require_schedule(config: RunConfig) -> None:
    """Require that the schedule `cosine` has steps after its warm-up."""
    warmup, steps = config.optimizer.warmup_steps, config.cadence.steps
    if config.optimizer.schedule == "cosine" and warmup >= steps:
        raise UserError(
            f"is {warmup} with optimizer.schedule cosine and {steps} steps",
            "must be below the number of steps of the run",
            "set fewer, or set optimizer.schedule=constant",
            field="optimizer.warmup_steps",
        )


def _require_different_averages(optimizer: OptimizerOptions) -> None:
    decays = (optimizer.ema, *optimizer.more_ema)
    repeated = [decay for k, decay in enumerate(decays) if decay in decays[:k]]
    if repeated:
        raise UserError(
            f"contains {repeated[0]}, which is given twice or is optimizer.ema",
            "the decays of all averages must differ",
            "leave it out",
            field="optimizer.more_ema",
        )


def _require_sides(config: RunConfig) -> None:
    """Require that normalization, form, matching and the sizes of both sides agree."""
    objective, batch = config.objective, config.batch
    if objective.matched:
        _require_matched_sizes(config)
    estimators = objective.estimator_pos, objective.estimator_neg
    try:
        spec = make_field_spec(objective.normalization, objective.form, *estimators, objective.matched)
        negatives, unconditional = batch.fresh_negatives or config.generated - 1, batch.unconditional > 0
        require_sides(spec, batch.n, negatives, independent=batch.fresh_negatives > 0, unconditional=unconditional)
    except UserError as error:
        raise error.in_section("objective") from None


def _require_matched_sizes(config: RunConfig) -> None:
    """Require what windows need: two positives, two negatives, and no unconditional negatives."""
    batch = config.batch
    negatives = ("batch.fresh_negatives", batch.fresh_negatives, 2)
    if not batch.fresh_negatives:
        negatives = ("batch.generated", config.generated, 3)  # a sample is not its own negative
    for name, value, least in (("batch.n", batch.n, 2), negatives):
        if value < least:
            fix = f"set {name}={least} or more, or objective.matched=false"
            raise UserError(f"is {value} with objective.matched", f"must be at least {least}", fix, field=name)
    if batch.unconditional > 0:
        raise UserError(
            f"is {batch.unconditional} with objective.matched",
            "must be 0, since guidance moves the equilibrium on purpose",
            "set objective.matched=false",
            field="batch.unconditional",
        )


def warn_of_sizes(config: RunConfig) -> str | None:
    """Return a warning about the numbers of positives and negatives: a field that is not zero, or windows that overlap.

    The paper's own setting, as many positives as generated samples, is not reported: there g − 1 negatives differ from
    n positives by one. Guidance moves the equilibrium on purpose and is not reported either, and neither are feature
    maps, whose runs end far from the equilibrium.

    Args:
        config: A valid configuration.

    Returns:
        One sentence: what it costs, and the option that fixes it. None if there is nothing to report.
    """
    n, fresh, objective = config.batch.n, config.batch.fresh_negatives, config.objective
    if objective.matched:
        return _warn_of_overlap(n, fresh or config.generated - 1)
    m = fresh or config.generated - 1
    has_equal_sides = n == m and (fresh or objective.normalization in ("row", "symmetric"))
    has_maps = objective.share_normalization == "map"
    if config.batch.unconditional > 0 or has_maps or has_equal_sides or (n == config.generated and not fresh):
        return None
    sides = " and ".join(
        f"{count} {noun}{'' if count == 1 else 's'}"
        for count, noun in ((n, "positive"), (m, "fresh negative" if fresh else "negative"))
    )
    # What fixes it: windows if the normalization allows them, else as many fresh negatives as positives.
    if objective.arithmetic == "abc-release" or min(n, m) < 2:
        fix = "set batch.n and batch.generated to the same number"
    elif fresh or objective.normalization in ("row", "symmetric"):
        fix = "set objective.matched=true"
    else:
        fix = f"set batch.fresh_negatives={n}, or objective.normalization=symmetric with objective.matched=true"
    measured = n > m and not fresh and objective.arithmetic != "abc-release"
    cost = _describe_cost(objective.normalization if measured else "")
    return f"with {sides} per sample the field is not zero at equal distributions: {cost}; {fix}"


def _describe_cost(normalization: str) -> str:
    """Describe what more positives than negatives cost on the digits, from the study `matching`."""
    sizes = "on digits with 126 positives and 8 generated samples the Fréchet distance is"
    if normalization == "row":
        return f"{sizes} 1.07 instead of 0.28, because samples come out too wide"
    if normalization == "bidirectional":
        return f"this did no harm on images: {sizes} 0.34, with 8 and 8 it is 0.42"
    return "the cost on images has not been measured"


def _warn_of_overlap(n: int, m: int) -> str | None:
    """Return a warning if windows of m among n positives overlap."""
    if n <= m + 1 or n % m == 0:  # n = m + 1 has a closed form
        return None
    return (
        f"{n} positives are not a multiple of the {m} negatives: windows overlap, and a step takes longer; "
        f"set batch.n={n - n % m}"
    )


def _require_guidance(config: RunConfig) -> None:
    """Require what unconditional negatives need: two generated samples, a strength above 1, a fitting estimator."""
    setting = f"with batch.unconditional {config.batch.unconditional}"
    estimator, generated = config.objective.estimator_neg, config.generated
    if estimator not in ("standard", "abc"):
        raise UserError(
            f"is {estimator!r} {setting}",
            "its correction assumes one pool of references",
            'choose "abc", which is stratified in this case, or "standard"',
            field="objective.estimator_neg",
        )
    if generated < 2:
        raise UserError(
            f"is {generated} {setting}",
            "must be at least 2, since the weights depend on the other generated samples",
            "set batch.generated to 2 or more",
            field="batch.generated",
        )
    condition = config.condition
    if condition.strength_one_fraction == 1 and condition.strength_low == 1:
        raise UserError(
            f"is 1 {setting}",
            "must be below 1, since unconditional negatives have weight 0 at strength 1",
            "set for example condition.strength_one_fraction=0.5",
            field="condition.strength_one_fraction",
        )
    if condition.strength_high == 1:
        raise UserError(
            f"is 1 {setting}",
            "must be above 1, since unconditional negatives have weight 0 at strength 1",
            "set for example condition.strength_high=4",
            field="condition.strength_high",
        )


def _require_release(config: RunConfig) -> None:
    """Require the options of the published arithmetic, which is one fixed formula."""
    objective = config.objective
    allowed_values: dict[str, tuple[str, ...]] = {
        "normalization": ("bidirectional",),
        "form": ("product",),
        "feature_scale": ("standardize-l2",),
        "kernel": ("laplace",),
        "estimator_pos": ("standard", "abc", "abc2"),
        "estimator_neg": ("standard", "abc", "abc2"),
    }
    for name, allowed in allowed_values.items():
        _require_value("abc-release", f"objective.{name}", getattr(objective, name), allowed)
    _require_value("abc-release", "objective.matched", objective.matched, (False,))
    _require_value("abc-release", "batch.unconditional", config.batch.unconditional, (0,))
    _require_value("abc-release", "batch.fresh_negatives", config.batch.fresh_negatives, (0,))
    _require_value("abc-release", "engine.precision", config.engine.precision, ("float32", "bfloat16"))


def _require_official(config: RunConfig) -> None:
    """Require the options of the official arithmetic, which is one fixed formula."""
    objective, allowed = (
        config.objective,
        {
            "normalization": "bidirectional",
            "form": "product",
            "feature_scale": "mean-distance",
            "kernel": "laplace",
            "estimator_pos": "standard",
            "estimator_neg": "standard",
            "share_normalization": "map",
            "matched": False,
        },
    )
    for name, value in allowed.items():
        _require_value("official", f"objective.{name}", getattr(objective, name), (value,))
    _require_value("official", "batch.fresh_negatives", config.batch.fresh_negatives, (0,))


def _require_value(arithmetic: str, field: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        names = " or ".join(map(repr, allowed))
        raise UserError(
            f"is {value!r} with objective.arithmetic {arithmetic}",
            f"must be {names}",
            f"set {field}, or set objective.arithmetic=stable",
            field=field,
        )
