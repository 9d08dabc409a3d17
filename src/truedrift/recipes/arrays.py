"""The recipe of arrays: tables, points and small images, with sizes that follow from the data.

| option                | value                                                                                |
|-----------------------|--------------------------------------------------------------------------------------|
| features              | the standardized values themselves, divided by their mean distance                   |
| classes per step      | up to 16                                                                             |
| generated samples g   | 256 per step, 8 to 128 per class                                                     |
| positives n           | a multiple of g − 1 in up to 2 windows: matched references                           |
| sampling              | without replacement; with replacement if there are more than 16 classes, or if one   |
|                       | has less than half of the mean number of samples                                     |
| temperatures          | τ, 4τ, 20τ with τ = 256^(−1/D): the distance to the nearest of 256 points in D       |
|                       | dimensions, relative to their mean distance; at least 0.05                           |
| generator             | an MLP without a bound on its samples; its width grows with the dimension            |
| noise                 | 6 signs (2 for one column) and D normal entries, at least 2 and at most 58           |
"""

from pathlib import Path

from truedrift.choices import Estimator
from truedrift.data.arrays import read_array_samples
from truedrift.data.samples import Samples
from truedrift.encoders.base import PixelsOptions
from truedrift.errors import require_integer
from truedrift.generators.mlp import MLPOptions
from truedrift.training.config import (
    BatchOptions,
    CadenceOptions,
    ConditionOptions,
    DataOptions,
    ObjectiveOptions,
    OptimizerOptions,
    RunConfig,
)

STEPS = 2000
SAMPLES_PER_STEP, WINDOWS, CLASSES_PER_STEP = 256, 2, 16
SIGNS = 6
"""Without them, samples fill the gaps between clusters, and edges are blurred."""
WITHOUT_DATA = 10_000, 2
"""Number of samples and dimension that the recipe assumes before it knows the data."""


def array(
    *,
    n: int | None = None,
    seed: int = 0,
    estimator: Estimator = "abc",
    data: str | None = None,
    steps: int = STEPS,
) -> RunConfig:
    """Return the recipe of the user's arrays; `data` is a .npz file with X and y, or a .npy file with X.

    The run is that of `truedrift.fit(X, y, seed=seed, steps=steps)`, bit for bit. `recipe` passes the steps of
    cadence.steps_per_epoch, from which the lengths of warm-up and intervals follow.
    """
    if data is None:
        N, D = WITHOUT_DATA
        return _config((N,), D, DataOptions(name="array"), n=n, steps=steps, seed=seed, estimator=estimator)
    path = Path(data).absolute()
    options = DataOptions(name="array", root=str(path))
    samples = read_array_samples(path)
    counts, D = tuple(samples.counts().tolist()), samples.sample_shape[0]
    return _config(counts, D, options, n=n, steps=steps, seed=seed, estimator=estimator)


def array_config(samples: Samples, *, steps: int = STEPS, seed: int = 0, estimator: Estimator = "abc") -> RunConfig:
    """Return the configuration for samples of a user's arrays.

    Args:
        samples: Standardized points, as `samples_from_arrays` returns them.
        steps: Number of training steps.
        seed: Seed of all random numbers.
        estimator: Estimator of both centroids.

    Returns:
        A configuration for `train(config, parts=Parts(samples=samples))`.
    """
    require_integer("steps", steps, 1, STEPS)
    counts, D = tuple(samples.counts().tolist()), samples.sample_shape[0]
    return _config(counts, D, DataOptions(name="array"), n=None, steps=steps, seed=seed, estimator=estimator)


def _config(
    counts: tuple[int, ...], D: int, data: DataOptions, *, n: int | None, steps: int, seed: int, estimator: Estimator
) -> RunConfig:
    """Return the configuration for classes of these sizes and samples of D entries."""
    classes, smallest = min(len(counts), CLASSES_PER_STEP), min(counts)
    # Without replacement, the smallest class limits the references, and a pass of all data is as long as its own.
    balanced = len(counts) <= CLASSES_PER_STEP and 2 * smallest >= sum(counts) / len(counts)
    generated = max(8, min(128, SAMPLES_PER_STEP // classes))
    generated = min(generated, smallest + 1) if balanced else generated
    generated = max(3, generated)  # windows need two references
    window = generated - 1
    windows = max(1, min(WINDOWS, smallest // window)) if balanced else WINDOWS
    # At smaller temperatures a centroid is one reference, and the field is noise.
    tau = round(max(0.05, SAMPLES_PER_STEP ** (-1 / D)), 3)
    signs = min(2, SIGNS) if D == 1 else SIGNS
    return RunConfig(
        recipe="array",
        seed=seed,
        data=data,
        generator=MLPOptions(
            width=128 if D <= 8 else 256 if D <= 128 else 512,
            depth=3,
            noise=signs + max(2, min(58, D)),
            signs=signs,
            embedding=16,
            final_norm=False,
        ),
        encoder=PixelsOptions(),
        batch=BatchOptions(
            n=window * windows if n is None else n,
            generated=generated,
            labels=None if classes == len(counts) else classes,
            sampling="without-replacement" if balanced else "with-replacement",
        ),
        objective=ObjectiveOptions(
            temperatures=(tau, 4 * tau, 20 * tau),
            estimator_pos=estimator,
            estimator_neg=estimator,
            normalization="row",
            form="separate",
            matched=True,
            feature_scale="mean-distance",
        ),
        condition=ConditionOptions(label_dropout=0.0, strength_high=1.0),
        optimizer=OptimizerOptions(
            learning_rate=1e-3, warmup_steps=min(50, steps // 4), schedule="cosine", ema=0.995, ema_warmup=True
        ),
        cadence=CadenceOptions(
            epochs=1,
            steps_per_epoch=steps,
            log_every=max(1, min(50, steps)),
            checkpoint_every=max(1, min(500, steps)),
            grid_every=None,
        ),
    )
