"""`fit(X, y)`: train a one-step generator on arrays; `load(path)`: load a saved model, a run, or one of the package.

    >>> import numpy as np, truedrift
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = truedrift.fit(X, steps=10, progress=False)
    >>> model.sample(3).shape
    (3, 2)

A model makes samples in the units of its data: values of arrays are standardized before training, and samples are
converted back.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from truedrift.choices import Estimator
from truedrift.data.arrays import name_class, samples_from_arrays, to_finite_tensor
from truedrift.data.samples import Samples, to_uint8
from truedrift.data.units import Units
from truedrift.errors import (
    UserError,
    error_text,
    import_package,
    list_names,
    read_number,
    require_integer,
    short_repr,
)
from truedrift.generators.base import CONFIG, WEIGHTS, Generator
from truedrift.generators.sampling import draw_labels, sample
from truedrift.hub import download_model, is_hub_name
from truedrift.progress import Progress, no_progress
from truedrift.recipes.arrays import array_config
from truedrift.seeding import require_seed
from truedrift.storage import read_regular, write_atomically
from truedrift.training.load import default_strength, load_config, load_generator
from truedrift.training.setup import Parts
from truedrift.training.telemetry import describe_energy
from truedrift.training.train import train

MODEL = "model.json"
SCHEMA = 1
LARGEST_STRENGTH = 1e6
MOST_COMPARED = 2000
"""Largest number of samples on each side of an energy distance: its cost grows with their square."""


@dataclass(frozen=True, kw_only=True)
class EnergyDistance:
    """The energy distance 2 E‖x − y‖ − E‖x − x′‖ − E‖y − y′‖ of samples x to data y, in units of E‖y − y′‖.

    It is estimated without bias, so that it is 0 on average, and sometimes negative, for samples of the same
    distribution.
    """

    value: float
    samples: int
    references: int

    def __str__(self) -> str:
        return f"energy distance {self.value:.4f} ({self.samples} samples, {self.references} references)"


@dataclass(frozen=True, eq=False)
class Model:
    """A one-step generator with the units and classes of its data. `fit` and `load` return it.

    Args:
        generator: The network, in evaluation mode.
        classes: Names of the classes.
        shares: The fraction of the data in each class; samples without a label follow it.
        units: Units of arrays; None for images.
        strength: Guidance strength of samples if none is given.
        strengths: Smallest and largest guidance strength of the training; None: unknown.
        samples: The data of `fit`, for `evaluate`; it is not saved.
    """

    generator: Generator
    classes: tuple[str, ...]
    shares: tuple[float, ...]
    units: Units | None = None
    strength: float = 1.0
    strengths: tuple[float, float] | None = None
    samples: Samples | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        shape = self.generator.sample_shape if self.units is None else self.units.shape
        count = sum(parameter.numel() for parameter in self.generator.parameters())
        kind = type(self.generator).__name__
        return f"Model({kind}, {count:,} parameters, samples {list(shape)}, {len(self.classes)} classes)"

    @property
    def has_guidance(self) -> bool:
        """Whether the model was trained with several guidance strengths, or may have been."""
        return self.strengths is None or self.strengths[0] < self.strengths[1]

    def sample(
        self, n: int, label: Any = None, *, seed: int = 0, strength: float | None = None, return_labels: bool = False
    ) -> Any:
        """Draw samples, each in one step from noise.

        Args:
            n: Number of samples.
            label: The class of all samples, or one class per sample, as in y or as in `classes`; None: classes as
                frequent as in the data.
            seed: Seed of noise and classes. The same seed gives the same samples, and a larger n more of them.
            strength: Guidance strength, for models trained with guidance. One that was not part of the training gives a
                warning.
            return_labels: Also return the class of every sample.

        Returns:
            A NumPy array: [n, …] in the units and the shape of X, or images as bytes [n, H, W] or [n, H, W, 3]. With
            `return_labels`, this array and an array of class names.

        Raises:
            UserError: If there is no such class, or if the model was trained without guidance and `strength` is another
                one than that of its training.
        """
        numpy: Any = import_package("numpy", "samples as arrays", "train")
        n = require_integer("n", n, 1, 100)
        strength = self.strength if strength is None else self._checked_strength(strength)
        labels = self._labels(n, label, seed)
        values = sample(self.generator, labels, seed=seed, strength=strength)
        if self.units is not None:
            found = self.units.to_user(values).numpy()
        elif values.ndim == 4:
            images = to_uint8(values).permute(0, 2, 3, 1)
            found = (images.squeeze(-1) if images.shape[-1] == 1 else images).numpy()
        else:
            found = values.numpy()
        return (found, numpy.array([self.classes[k] for k in labels.tolist()])) if return_labels else found

    def _labels(self, n: int, label: Any, seed: int) -> torch.Tensor:
        """Return the number of the class of every sample."""
        if label is None:
            return draw_labels(self.shares, n, seed)
        wanted = label.tolist() if hasattr(label, "tolist") else label
        is_one = isinstance(wanted, (str, bytes)) or not isinstance(wanted, Iterable)
        given = [wanted] * n if is_one else list(wanted)
        if len(given) != n:
            raise UserError(
                f"has {len(given)} entries", f"must be one class or {n}", "pass one per sample", field="label"
            )
        names = [name_class(each) for each in given]
        numbers = {name: number for number, name in enumerate(self.classes)}
        unknown = [each for each, name in zip(given, names, strict=True) if name not in numbers]
        if unknown:
            allowed = f"must be one of {list_names(self.classes)}"
            raise UserError(f"is {short_repr(unknown[0])}", allowed, "pass a class of the data", field="label")
        return torch.tensor([numbers[name] for name in names])

    def _checked_strength(self, strength: float) -> float:
        """Return the strength that the user gave; warn if the model was trained with others."""
        given = read_number(strength)
        if not 0 <= given <= LARGEST_STRENGTH:
            allowed = f"must be a number from 0 to {LARGEST_STRENGTH:g}"
            raise UserError(f"is {short_repr(strength)}", allowed, "pass for example 1", field="strength")
        if self.strengths is None or self.strengths[0] <= given <= self.strengths[1]:
            return given
        low, high = self.strengths
        if not self.has_guidance:
            allowed = f"must be {low:g}: the model was trained without guidance"
            raise UserError(f"is {given:g}", allowed, "leave it out", field="strength")
        note = f"strength is {given:g}, and the model was trained with strengths from {low:g} to {high:g}"
        warnings.warn(note, stacklevel=3)
        return given

    def evaluate(self, X: Any = None, *, seed: int = 0) -> EnergyDistance:
        """Compute the energy distance of samples to data, in standardized values.

        It is 0 on average for samples of the same distribution, and then negative half of the time. A value far above
        that of another half of the data, `energy_distance(half, other half)`, is a difference. Pass held-out data: the
        distance to the data of `fit` does not show copies.

        Args:
            X: Data [N, …] that was not used for training, N ≥ 2; None: the data of `fit`.
            seed: Seed of the samples.

        Returns:
            The distance, of up to 2,000 samples and references.

        Raises:
            UserError: If X cannot be used, if the model was loaded and X is None, or if the model makes images.

        Example:
            >>> import numpy as np
            >>> rng = np.random.default_rng(0)
            >>> model = fit(rng.normal(size=(100, 2)), steps=5, progress=False)
            >>> print(model.evaluate(rng.normal(size=(300, 2))))  # doctest: +ELLIPSIS
            energy distance ... (2000 samples, 300 references)
        """
        seed = require_seed(seed)
        if self.units is None:
            raise UserError("the model makes images", "energy distances are for arrays", "run truedrift evaluate")
        if X is None and self.samples is None:
            raise UserError("is missing", "a loaded model does not have its data", "pass held-out data", field="X")
        if X is None:
            y = self.samples.values if self.samples is not None else torch.empty(0)
        else:
            given = to_finite_tensor(X)
            shape, one_column = tuple(given.shape[1:]), ((), (1,))
            if shape != self.units.shape and not (shape in one_column and self.units.shape in one_column):
                allowed = f"must have the shape {['N', *self.units.shape]}".replace("'", "")
                raise UserError(f"has shape {list(given.shape)}", allowed, "pass the same columns", field="X")
            y = self.units.to_model(given)
            if not bool(torch.isfinite(y).all()):
                problem = f"has values up to {given.abs().max().item():g}"
                raise UserError(problem, "must be near the data of the fit", "pass values of the same units", field="X")
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))[:MOST_COMPARED]
        labels = self._labels(MOST_COMPARED, None, seed)
        x = sample(self.generator, labels, seed=seed, strength=self.strength)
        return EnergyDistance(value=energy_distance(x, y[order]), samples=len(x), references=len(order))

    def save(self, path: str | Path) -> Path:
        """Save weights, classes and units to a folder, from which `truedrift.load` loads them.

        Args:
            path: The folder, which is made if it is missing.

        Returns:
            The folder: model.safetensors, config.json and model.json.

        Raises:
            UserError: If the folder cannot be written.
        """
        folder = Path(path)
        tree = {
            "schema": SCHEMA,
            "classes": list(self.classes),
            "shares": list(self.shares),
            "strength": self.strength,
            "strengths": self.strengths,
            "units": None if self.units is None else self.units.describe(),
        }
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.generator.save_pretrained(folder)
            write_atomically(folder / MODEL, (json.dumps(tree, indent=1, ensure_ascii=False) + "\n").encode())
        except OSError as error:
            problem = f"the folder {str(folder)!r} cannot be written ({error_text(error)})"
            raise UserError(problem, "must be a folder in a writable place", "pass another path") from None
        return folder


def energy_distance(x: torch.Tensor, y: torch.Tensor) -> float:
    """Compute the unbiased energy distance of x [n, D] and y [m, D], in units of the mean distance in y."""
    x, y = x.double(), y.double()
    between = torch.cdist(x, y).mean()
    among_x, among_y = (torch.cdist(each, each).sum() / max(1, len(each) * (len(each) - 1)) for each in (x, y))
    return float((2 * between - among_x - among_y) / among_y.clamp_min(torch.finfo(torch.float64).tiny))


def fit(
    X: Any,
    y: Any = None,
    *,
    steps: int = 2000,
    seed: int = 0,
    estimator: Estimator = "abc",
    device: str = "auto",
    out: str | Path | None = None,
    progress: bool | Progress = True,
) -> Model:
    """Train a one-step generator on arrays: tables, points or small images.

    Values are standardized, references are matched, and sizes follow from the data (`truedrift.recipes.arrays`). For
    photographs, use the recipe `folder`, whose features come from an encoder.

    Args:
        X: Numbers [N, …], N from about 50 to a million, with up to a few thousand entries per sample.
        y: One class per sample [N], numbers or text; None: no classes.
        steps: Number of training steps.
        seed: Seed of all random numbers.
        estimator: Estimator of the centroids: "standard", "abc", "abc2", "jackknife" or "bootstrap".
        device: auto, cpu, cuda or mps.
        out: Run directory to keep; the same call resumes it. None: a temporary directory.
        progress: Whether to show a progress bar; or a function (what, done, total).

    Returns:
        The trained model, with averaged weights.

    Raises:
        UserError: If X or y cannot be used.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = np.concatenate([rng.normal(0, 1, (60, 3)), rng.normal(5, 1, (60, 3))])
        >>> model = fit(X, ["a"] * 60 + ["b"] * 60, steps=20, progress=False)
        >>> model.sample(4, label="b").shape
        (4, 3)
    """
    steps, seed = require_integer("steps", steps, 1, 2000), require_seed(seed)
    samples = samples_from_arrays(X, y)
    config = array_config(samples, steps=steps, seed=seed, estimator=estimator)
    with ExitStack() as stack:
        stack.enter_context(_arguments_instead_of_options())
        path = Path(stack.enter_context(tempfile.TemporaryDirectory()) if out is None else out)
        show: Progress = no_progress if isinstance(progress, bool) else progress
        if progress is True and find_spec("rich") is not None:  # rich is part of the app extra
            show = stack.enter_context(import_module("truedrift.progress_display").ProgressDisplay())
        for report in train(config, parts=Parts(samples=samples), out=path, device=device, progress=show):
            if hasattr(show, "set_note"):
                show.set_note("training", describe_energy(report.metrics))
            if report.interrupted is not None:
                raise KeyboardInterrupt(f"{report.interrupted}: stopped at step {report.step} of {report.steps}")
        return replace(load(path), samples=samples)


@contextmanager
def _arguments_instead_of_options() -> Iterator[None]:
    """Name the argument `out` in errors that name the option --out of the command line."""
    try:
        yield
    except UserError as error:
        if "with --out" not in error.fix:
            raise
        fix = error.fix.replace("with --out", "with out=")
        raise UserError(error.problem, error.allowed, fix, field=error.field) from None


def load(path: str | Path) -> Model:
    """Load a model.

    Args:
        path: A folder of `Model.save` or `truedrift export`, a run directory of `truedrift train`, a folder of
            `save_pretrained`, a name such as "pretrained:digits", or USER/NAME on the Hugging Face Hub, unless a
            folder USER exists.

    Returns:
        The model. Samples of a run or of the package have their usual guidance strength.

    Raises:
        UserError: If there is no such model.

    Example:
        >>> load("pretrained:digits").sample(5, label=3).shape
        (5, 8, 8)
    """
    source = download_model(str(path), (CONFIG, WEIGHTS, MODEL)) if is_hub_name(path) else Path(path)
    loaded = load_generator(source)
    if os.path.lexists(source / MODEL):  # also a FIFO or a directory, which is refused
        return _read_model(source / MODEL, loaded.generator)
    shares = loaded.shares or (1 / len(loaded.classes),) * len(loaded.classes)
    config = load_config(source)
    strengths = None if config is None else (config.condition.strength_low, config.condition.strength_high)
    return Model(loaded.generator, loaded.classes, shares, loaded.units, default_strength(source), strengths)


def _read_model(path: Path, generator: Generator) -> Model:
    """Read model.json, check its fields, and return the model of this generator."""
    try:
        tree = json.loads(read_regular(path).decode())
        classes, shares, strengths = tree["classes"], tree["shares"], tree.get("strengths")
        units = None if tree["units"] is None else Units.from_description(tree["units"])
        fits = (
            type(tree["schema"]) is int
            and tree["schema"] == SCHEMA
            and _are_classes(classes, generator.classes)
            and isinstance(shares, list)
            and len(shares) == len(classes)
            and all(isinstance(each, float) and 0 <= each <= 1 for each in shares)
            and sum(shares) > 0
            and _is_strength(tree["strength"])
            and (strengths is None or _is_range(strengths))
            and (units is None or math.prod(units.shape) == math.prod(generator.sample_shape))
        )
    except (OSError, AttributeError, ValueError, KeyError, TypeError, RecursionError):
        fits = False
    if not fits:
        raise UserError(f"{str(path)!r} is damaged", "must be the file that Model.save wrote", "save the model again")
    low_high = None if strengths is None else (float(strengths[0]), float(strengths[1]))
    return Model(generator, tuple(classes), tuple(shares), units, float(tree["strength"]), low_high)


def _are_classes(names: Any, count: int) -> bool:
    """Return whether these are that many different names, which UTF-8 can encode."""
    return (
        isinstance(names, list)
        and len(names) == count
        and all(isinstance(name, str) and not re.search("[\ud800-\udfff]", name) for name in names)
        and len(set(names)) == count
    )


def _is_strength(value: Any) -> bool:
    return 0 <= read_number(value) <= LARGEST_STRENGTH


def _is_range(values: Any) -> bool:
    """Return whether these are two strengths in ascending order."""
    return isinstance(values, list) and len(values) == 2 and all(map(_is_strength, values)) and values[0] <= values[1]
