"""`truedrift diagnose FILE`: the gauge on a user's own weights, distances or features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro

from truedrift.axes import Tensor
from truedrift.bias.diagnose import prepare_diagnosis
from truedrift.bias.diagnose_inputs import require_source
from truedrift.bias.diagnosis import Diagnosis
from truedrift.data.array_files import ONLY, read_arrays
from truedrift.errors import UserError
from truedrift.records.store import writable_directory
from truedrift.report.screens import diagnosis_summary

KEYS = ("weights", "distances", "queries", "references")
ALONE = ("weights", "distances")


@dataclass(frozen=True, kw_only=True)
class Diagnose:
    """How biased is your centroid, and what n do you need? On your own features or weights.

    FILE is .npy, .npz or .safetensors with `weights` [..., n], or `distances` [Q, N], or `queries` [Q, D] and
    `references` [N, D]. Weights tell n_eff and dominance. Distances and features also tell the exact bias of the
    centroid of n references, its interval, the n for a wanted bias, and whether to believe it.

    Try it:
      truedrift diagnose features.npz --tau 0.02 0.05 0.2 --n 64
      truedrift diagnose features.npz --tau 0.05 --n 64 --want 0.001 --json
      truedrift diagnose weights.npy --array weights
    """

    file: Annotated[Path, tyro.conf.Positional]
    """The arrays."""

    tau: tuple[float, ...] = ()
    """Temperature of the kernel, or several. Not needed for weights."""

    n: int = 64
    """References that a centroid sees. Not needed for weights."""

    want: float = 0.01
    """The bias for which n is searched, as a share of the spread √(E‖y − T*‖²)."""

    kernel: Literal["laplace", "gaussian"] = "laplace"
    """exp(−d/τ) or exp(−d²/2τ²)."""

    array: Literal["weights", "distances"] | None = None
    """What the single array of a .npy file is."""

    json: bool = False
    """Print JSON instead of the screen."""

    out: Path | None = None
    """Also write the JSON to this file."""

    seed: int = 0
    """Seed of the sampling of large inputs, and of simulated minibatches."""

    def prepare(self) -> Callable[[], str]:
        """Read the file, and check it and the options."""
        arrays = _named_arrays(self.file, self.array)
        require_source(**arrays)
        if "weights" not in arrays and not self.tau:
            came = f"{str(self.file)!r} holds {' and '.join(arrays)}, and --tau is missing"
            raise UserError(came, "allowed is a positive number, or several", "add for example --tau 0.05")
        work = prepare_diagnosis(**arrays, tau=self.tau, n=self.n, wanted=self.want, kernel=self.kernel, seed=self.seed)
        if self.out is not None:
            _require_output(self.out)
        return partial(_diagnose, work, self)


def _named_arrays(file: Path, array: str | None) -> dict[str, Tensor]:
    """The arrays that the gauge knows; the single one of a .npy file takes the name that the user gives it."""
    arrays = read_arrays(file)
    if ONLY in arrays and file.suffix == ".npy":
        if array is None:
            came = f"{str(file)!r} holds one array without a name"
            raise UserError(came, f"allowed are {' and '.join(ALONE)}", f"add --array {' or --array '.join(ALONE)}")
        return {array: arrays[ONLY]}
    if array is not None:
        came = f"--array is {array}, and {str(file)!r} has names of its own"
        raise UserError(came, "allowed is --array for .npy files", "leave it out")
    known = {name: arrays[name] for name in KEYS if name in arrays}
    if not known:
        raise UserError(
            f"{str(file)!r} holds {', '.join(arrays)}",
            "allowed are the keys weights, or distances, or queries and references",
            "save the arrays under these names",
        )
    return known


def _require_output(out: Path) -> None:
    if out.is_dir():
        raise UserError(f"--out {str(out)!r} is a directory", "allowed is a file", "name one in it")
    writable_directory(out.parent)


def _diagnose(work: Callable[[], Diagnosis], options: Diagnose) -> str:
    diagnosis = work()
    if options.out is not None:
        options.out.write_text(diagnosis.to_json() + "\n", encoding="utf-8")
    return diagnosis.to_json() if options.json else diagnosis_summary(diagnosis, options.file.name)
