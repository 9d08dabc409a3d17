"""`truedrift diagnose FILE`: estimate the bias of the centroids of a user's own weights, distances or features."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro

from truedrift.axes import Tensor
from truedrift.bias import diagnose
from truedrift.bias.diagnose_inputs import read_settings, require_no_generated, require_source
from truedrift.data.array_files import LARGEST_GIGABYTES, ONLY, read_arrays
from truedrift.errors import UserError, list_names
from truedrift.records.store import writable_directory
from truedrift.report.screens import diagnosis_summary

KEYS = ("weights", "distances", "queries", "references")
SINGLE_ARRAYS = ("weights", "distances")


@dataclass(frozen=True, kw_only=True)
class Diagnose:
    """Estimate the bias of your centroid, and the n you need, from your own features or weights.

    FILE is .npy, .npz or .safetensors with `weights` [..., n], or `distances` [Q, N], or `queries` [Q, D] and
    `references` [N, D]. Weights give n_eff and dominance. Distances and features also give the bias of the centroid of
    n references with an interval, the n for a wanted bias, the confidence in these numbers, and advice. With
    --generated, they also give the push of the field where generated and real samples have the same distribution.

    Try it:
      truedrift diagnose features.npz --tau 0.02 0.05 0.2 --n 64
      truedrift diagnose features.npz --tau 0.05 --n 64 --want 0.001 --json
      truedrift diagnose features.npz --tau 0.05 --n 64 --generated 8
      truedrift diagnose weights.npy --array weights
    """

    file: Annotated[Path, tyro.conf.Positional]
    """File of the arrays."""

    tau: tuple[float, ...] = ()
    """One or more temperatures of the kernel. Not needed for weights."""

    n: int = 64
    """References per centroid. Not needed for weights."""

    want: float = 0.01
    """The wanted bias, as a fraction of √(E‖y − T*‖²); the n that gives it is computed."""

    generated: int | None = None
    """Generated samples g per class of a batch, 3 or more; for the push of n positives and g − 1 negatives."""

    kernel: Literal["laplace", "gaussian"] = "laplace"
    """exp(−d/τ) or exp(−d²/2τ²)."""

    array: Literal["weights", "distances"] | None = None
    """Meaning of the array in a .npy file."""

    json: bool = False
    """Print JSON instead of a table."""

    out: Path | None = None
    """Also write the JSON to this file."""

    largest_gigabytes: float = LARGEST_GIGABYTES
    """Limit for the arrays of the file in memory."""

    seed: int = 0
    """Seed for subsampling large inputs and for simulated minibatches."""

    def prepare(self) -> Callable[[], str]:
        """Read the file, and check the names of its arrays and the options."""
        arrays = _read_named_arrays(self.file, self.array, self.largest_gigabytes)
        require_source(**arrays)
        if "weights" not in arrays:
            if not self.tau:
                problem = f"{str(self.file)!r} holds {' and '.join(arrays)}, and --tau is missing"
                raise UserError(problem, "tau must be one or more positive numbers", "add for example --tau 0.05")
            read_settings(self.tau, self.n, self.want, self.kernel, self.seed, self.generated)
        else:
            require_no_generated(self.generated)
        if self.out is not None:
            if self.out.is_dir():
                raise UserError(f"--out {str(self.out)!r} is a directory", "must be a file", "pass a file in it")
            writable_directory(self.out.parent)
        return partial(self._run, arrays)

    def _run(self, arrays: dict[str, Tensor]) -> str:
        """Diagnose the arrays; return the text to print."""
        found = diagnose(
            **arrays,
            tau=self.tau,
            n=self.n,
            wanted=self.want,
            kernel=self.kernel,
            seed=self.seed,
            generated=self.generated,
        )
        if self.out is not None:
            self.out.write_text(found.to_json() + "\n", encoding="utf-8")  # may be a device, such as /dev/stdout
        return found.to_json() if self.json else diagnosis_summary(found, self.file.name)


def _read_named_arrays(file: Path, array: str | None, largest_gigabytes: float) -> dict[str, Tensor]:
    """Read the arrays that `diagnose` takes, by name. The array of a .npy file gets the name `array`."""
    arrays = read_arrays(file, largest_gigabytes=largest_gigabytes)
    if ONLY in arrays and file.suffix == ".npy":
        if array is None:
            problem = f"{str(file)!r} holds one array without a name"
            allowed = f"must be {' or '.join(SINGLE_ARRAYS)}"
            raise UserError(problem, allowed, f"add --array {' or --array '.join(SINGLE_ARRAYS)}")
        return {array: arrays[ONLY]}
    if array is not None:
        problem = f"--array {array} was given, but the arrays of {str(file)!r} have names"
        raise UserError(problem, "--array is for .npy files", "leave it out")
    known = {name: arrays[name] for name in KEYS if name in arrays}
    if not known:
        raise UserError(
            f"{str(file)!r} holds {list_names(arrays)}",
            "must hold weights, or distances, or queries and references",
            "save the arrays under these names",
        )
    return known
