"""The recipe of arrays: tables, points and small images, with sizes that follow from the data.

| option                | value                                                                                |
|-----------------------|--------------------------------------------------------------------------------------|
| features              | the standardized values themselves, divided by their mean distance                   |
| classes per step      | up to 16                                                                             |
| generated samples g   | 256 per step, 8 to 128 per class                                                     |
| positives n           | a multiple of g − 1 in up to 2 windows: matched references                           |
| generator             | an MLP; its width grows with the dimension                                           |
"""

from pathlib import Path

from truedrift.choices import Estimator
from truedrift.data.array_files import ONLY, read_arrays
from truedrift.data.arrays import samples_from_arrays
from truedrift.data.samples import Samples
from truedrift.encoders.base import PixelsOptions
from truedrift.errors import UserError, list_names, require_integer
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

SAMPLES_PER_STEP, WINDOWS, CLASSES_PER_STEP = 256, 2, 16
TEMPERATURES = (0.05, 0.2, 1.0)


def array_config(samples: Samples, *, steps: int = 2000, seed: int = 0, estimator: Estimator = "abc") -> RunConfig:
    """Return the configuration for samples of a user's arrays.

    Args:
        samples: Standardized points, as `samples_from_arrays` returns them.
        steps: Number of training steps.
        seed: Seed of all random numbers.
        estimator: Estimator of both centroids.

    Returns:
        A configuration for `train(config, parts=Parts(samples=samples))`.
    """
    require_integer("steps", steps, 1, 2000)
    # The smallest class limits the number of references.
    smallest = int(samples.labels.bincount(minlength=len(samples.classes)).min())
    classes = min(len(samples.classes), CLASSES_PER_STEP)
    generated = min(max(8, min(128, SAMPLES_PER_STEP // classes)), smallest + 1)
    window = generated - 1
    D = samples.sample_shape[0]
    return RunConfig(
        recipe="array",
        seed=seed,
        data=DataOptions(name="array"),
        generator=MLPOptions(
            width=128 if D <= 8 else 256 if D <= 128 else 512, depth=3, noise=max(8, min(64, 2 * D)), embedding=16
        ),
        encoder=PixelsOptions(),
        batch=BatchOptions(
            n=window * max(1, min(WINDOWS, smallest // window)),
            generated=generated,
            labels=None if classes == len(samples.classes) else classes,
        ),
        objective=ObjectiveOptions(
            temperatures=TEMPERATURES,
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


def read_array_samples(path: Path) -> Samples:
    """Read the arrays of a file: X, and optionally y with one label per sample.

    Args:
        path: A .npz or .safetensors file with the arrays X and y, or a .npy file with one array.

    Raises:
        UserError: If the file is missing or damaged, or has other arrays.
    """
    arrays = read_arrays(path)
    X = arrays.get("X", arrays.get(ONLY))
    others = set(arrays) - {"X", "y", ONLY}
    if X is None or others:
        problem = f"{str(path)!r} holds {list_names(sorted(arrays))}"
        raise UserError(problem, "must hold X and, for classes, y", "save it with numpy.savez(path, X=X, y=y)")
    return samples_from_arrays(X, arrays.get("y"))
