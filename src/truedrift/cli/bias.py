"""`truedrift bias POOL`: the bias of the centroid of n references, for a toy or a pool in a file."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro

from truedrift.axes import Tensor
from truedrift.data.array_files import LARGEST_GIGABYTES, read_arrays
from truedrift.data.toys import FOUR_MODES, THREE_CLUSTERS, GaussianMixture
from truedrift.errors import UserError, list_names, require_integer, require_matrices
from truedrift.paper import pool_bias
from truedrift.paper.catalog import render_record
from truedrift.paper.pool_bias import Question, compute_pool_bias
from truedrift.progress_display import ProgressDisplay
from truedrift.records.store import RECORDS, append, writable_directory
from truedrift.seeding import require_seed

TOYS: dict[str, GaussianMixture] = {"four-modes": FOUR_MODES, "three-clusters": THREE_CLUSTERS}
TOY_POINTS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Bias:
    """Compute the exact bias of the centroid of n references, for a named toy or your own pool.

    POOL is four-modes or three-clusters, or a file of points [N, D]: .npy, .npz or .safetensors with an array `pool`
    or with a single array. The bias is computed at the queries: the array `queries` [Q, D] of the file, or points of
    the pool if the file has none. It is exact for standard, abc, abc2, jackknife and br-snis. With --trials it is a
    Monte Carlo estimate, which is also available for bootstrap.

    Try it:
      truedrift bias four-modes --tau 0.1
      truedrift bias four-modes --tau 0.1 0.2 --n 8 64 512 --estimator standard abc
      truedrift bias four-modes --n 16 --estimator bootstrap --trials 2000 --queries 20
    """

    pool: Annotated[str, tyro.conf.Positional]
    """Name of a toy, or path of a file."""

    tau: tuple[float, ...] = (0.1,)
    """One or more temperatures of the kernel."""

    n: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256, 512)
    """One or more minibatch sizes, in references."""

    estimator: tuple[str, ...] = ("standard", "abc", "abc2")
    """One or more of standard, abc, abc2, jackknife, br-snis; with --trials also bootstrap."""

    kernel: Literal["laplace", "gaussian"] = "laplace"
    """exp(−d/τ) or exp(−d²/2τ²)."""

    queries: int = 50
    """Number of queries, if the file has none."""

    trials: int | None = None
    """Monte Carlo minibatches per query; the exact bias is computed if not given."""

    without_replacement: bool = False
    """Draw without replacement (needs --trials)."""

    seed: int = 0
    """Seed of the toy, the choice of queries and the trials."""

    largest_gigabytes: float = LARGEST_GIGABYTES
    """Limit for the arrays of the file in memory."""

    out: Path | None = None
    """Directory for the record and the tables; nothing is written if not given."""

    def prepare(self) -> Callable[[], str]:
        """Check the options, the file and the directory."""
        if not self.tau:
            raise UserError("is empty", "must hold at least one number", "pass for example --tau 0.1", field="tau")
        require_seed(self.seed)
        require_integer("queries", self.queries, 1, 50)
        questions = [
            Question(
                tau=tau,
                n=tuple(dict.fromkeys(self.n)),
                estimators=self.estimator,
                kernel=self.kernel,
                trials=self.trials,
                replacement=not self.without_replacement,
                seed=self.seed,
            )
            for tau in self.tau
        ]
        arrays = {} if self.pool in TOYS else _read_pool(self.pool, self.largest_gigabytes)
        return partial(self._run, questions, arrays, None if self.out is None else writable_directory(self.out))

    def _run(self, questions: list[Question], arrays: dict[str, Tensor], out: Path | None) -> str:
        """Answer the questions, one per temperature; return their summaries."""
        pool, queries = self._pool_and_queries(arrays)
        name = self.pool if self.pool in TOYS else Path(self.pool).name
        texts = []
        for question in questions:
            with ProgressDisplay() as progress:
                record = compute_pool_bias(question, name, pool, queries, progress)
            if out is None:
                texts.append(pool_bias.ITEM.summary(record))
            else:
                append(out / RECORDS, record)
                texts.append(render_record(record, out))
        return "\n\n".join(texts)

    def _pool_and_queries(self, arrays: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the pool [N, D] and the queries [Q, D]; draw what is not among the arrays."""
        generator = torch.Generator().manual_seed(self.seed)
        if self.pool in TOYS:
            toy = TOYS[self.pool]
            pool, queries = (toy.sample(count, generator, dtype=torch.float64) for count in (TOY_POINTS, self.queries))
            return pool, queries
        pool = arrays["pool"]
        if "queries" in arrays:
            return pool, arrays["queries"]
        return pool, pool[torch.randperm(len(pool), generator=generator)[: self.queries]]


def _read_pool(name: str, largest_gigabytes: float) -> dict[str, Tensor]:
    """Read the `pool`, and the `queries` if the file has any."""
    path = Path(name)
    if not path.suffix and not path.exists():
        allowed = f"must be {', '.join(TOYS)}, or a .npy, .npz or .safetensors file"
        raise UserError(f"is {name!r}", allowed, "pass one of these", field="pool")
    arrays = read_arrays(path, largest_gigabytes=largest_gigabytes)
    found = {"queries": arrays.pop("queries")} if "queries" in arrays else {}
    if "pool" not in arrays and len(arrays) != 1:
        raise UserError(
            f"{name!r} contains {list_names(arrays) or 'no array'} in addition to queries",
            "must contain an array named pool, or a single array",
            "save the points under the name pool",
        )
    found["pool"] = arrays.get("pool", next(iter(arrays.values())))
    require_matrices(**found)
    return found
