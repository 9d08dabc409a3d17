"""Reading and checking configurations: every option by itself, then options that must agree with each other."""

import re
from collections.abc import Mapping
from typing import Any

from truedrift.data.load import NAMES, TOYS
from truedrift.errors import UserError
from truedrift.field.checks import make_field_spec, require_sides
from truedrift.options import from_dict
from truedrift.training.config import (
    LARGEST_SIZE,
    ConditionOptions,
    DataOptions,
    OptimizerOptions,
    RunConfig,
)


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
    require_schedule(config.optimizer, config.cadence.steps)
    _require_different_encoders(config)
    _require_different_averages(config.optimizer)
    _require_sides(config)
    if config.batch.unconditional > 0:
        _require_guidance(config)
    if config.objective.arithmetic != "stable":
        _require_values(config, RELEASE if config.objective.arithmetic == "abc-release" else OFFICIAL)
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


def require_schedule(optimizer: OptimizerOptions, steps: int) -> None:
    """Require that the schedule `cosine` has steps after its warm-up.

    Args:
        optimizer: The options of the schedule.
        steps: The number of steps of the run.

    Raises:
        UserError: If the warm-up takes all of them.
    """
    warmup = optimizer.warmup_steps
    if optimizer.schedule == "cosine" and warmup >= steps:
        raise UserError(
            f"is {warmup} with optimizer.schedule cosine and {steps} steps",
            "must be below the number of steps of the run",
            "set fewer, or set optimizer.schedule=constant",
            field="optimizer.warmup_steps",
        )


def _require_different_encoders(config: RunConfig) -> None:
    """Require that no features are counted twice."""
    encoders = (config.encoder, *config.encoders)
    for number, options in enumerate(config.encoders):
        if options in encoders[: number + 1]:
            raise UserError(
                f"is {options.kind} with the options of an earlier encoder",
                "all encoders must differ",
                "leave it out",
                field=f"encoders[{number}]",
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
            "set objective.matched=false, or batch.unconditional=0",
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


RELEASE: Mapping[str, tuple[object, ...]] = {
    "objective.normalization": ("bidirectional",),
    "objective.form": ("product",),
    "objective.feature_scale": ("standardize-l2",),
    "objective.kernel": ("laplace",),
    "objective.estimator_pos": ("abc", "standard", "abc2"),
    "objective.estimator_neg": ("abc", "standard", "abc2"),
    "objective.share_normalization": ("group",),
    "objective.matched": (False,),
    "batch.unconditional": (0,),
    "batch.fresh_negatives": (0,),
    "engine.precision": ("float32", "bfloat16"),
}
OFFICIAL: Mapping[str, tuple[object, ...]] = {
    "objective.normalization": ("bidirectional",),
    "objective.form": ("product",),
    "objective.feature_scale": ("mean-distance",),
    "objective.kernel": ("laplace",),
    "objective.estimator_pos": ("standard",),
    "objective.estimator_neg": ("standard",),
    "objective.share_normalization": ("map",),
    "objective.matched": (False,),
    "batch.fresh_negatives": (0,),
}
"""Options of the arithmetics that are one fixed formula, with the values that they allow, the usual one first."""


def _require_values(config: RunConfig, allowed: Mapping[str, tuple[object, ...]]) -> None:
    """Require values that the arithmetic allows; the message names everything that has to be set."""
    values = {field: _value_at(config, field) for field in allowed}
    wrong = [field for field, value in values.items() if value not in allowed[field]]
    if wrong:
        first = wrong[0]
        settings = " ".join(f"{field}={_format_setting(allowed[field][0])}" for field in wrong)
        raise UserError(
            f"is {values[first]!r} with objective.arithmetic {config.objective.arithmetic}",
            f"must be {' or '.join(map(repr, allowed[first]))}",
            f"set {settings}, or set objective.arithmetic=stable",
            field=first,
        )


def _value_at(config: RunConfig, field: str) -> object:
    section, name = field.split(".")
    return getattr(getattr(config, section), name)


def _format_setting(value: object) -> str:
    """Write a value as a setting of the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)
