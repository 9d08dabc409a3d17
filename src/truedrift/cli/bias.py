"""`truedrift bias POOL`: how biased is the centroid of n references of a pool?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro

from truedrift.axes import Tensor
from truedrift.cli.progress import ProgressDisplay
from truedrift.data.array_files import read_arrays
from truedrift.data.toys import FOUR_MODES, THREE_CLUSTERS, GaussianMixture
from truedrift.errors import UserError
from truedrift.paper import pool_bias
from truedrift.paper.catalog import render_record
from truedrift.paper.pool_bias import Question, compute_pool_bias
from truedrift.records.store import RECORDS, append, writable_directory

TOYS: dict[str, GaussianMixture] = {"four-modes": FOUR_MODES, "three-clusters": THREE_CLUSTERS}
TOY_POINTS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Bias:
    """How biased is the centroid of n references? Exactly, for a named toy or your own pool.

    POOL is four-modes or three-clusters, or a file of points [N, D]: .npy, .npz or .safetensors with `pool` or with
    one array; an array `queries` [Q, D] beside it is where the bias is asked for, else points of the pool are taken.
    Exact for standard, abc, abc2, jackknife and br-snis; with --trials by Monte Carlo, for bootstrap too.

    Try it:
      truedrift bias four-modes --tau 0.1
      truedrift bias four-modes --tau 0.1 0.2 --n 8 64 512 --estimator standard abc
      truedrift bias four-modes --n 16 --estimator bootstrap --trials 2000 --queries 20
    """

    pool: Annotated[str, tyro.conf.Positional]
    """Name of a toy, or a file."""

    tau: tuple[float, ...] = (0.1,)
    """Temperature of the kernel, or several."""

    n: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256, 512)
    """References in a minibatch."""

    estimator: tuple[str, ...] = ("standard", "abc", "abc2")
    """standard, abc, abc2, jackknife, br-snis; with --trials also bootstrap."""

    kernel: Literal["laplace", "gaussian"] = "laplace"
    """exp(−d/τ) or exp(−d²/2τ²)."""

    queries: int = 50
    """How many points are taken as queries, if none are given."""

    trials: int | None = None
    """Minibatches for each query by Monte Carlo; exact if none are asked for."""

    without_replacement: bool = False
    """Draw without replacement (Monte Carlo)."""

    seed: int = 0
    """Seed of toys, of the choice of queries and of trials."""

    out: Path | None = None
    """Directory for the records and tables; none are written without one."""

    def prepare(self) -> Callable[[], str]:
        """Read the pool, check the question and the directory."""
        if not self.tau:
            raise UserError("no tau was given", "allowed is one or more", "take for example --tau 0.1")
        if not 0 <= self.seed < 1 << 31:
            raise UserError(f"seed is {self.seed}", f"allowed is 0 to {(1 << 31) - 1}", "take for example 0")
        pool, x = self._pool_and_queries()
        questions = [
            Question(
                name=self.pool if self.pool in TOYS else Path(self.pool).name,
                pool=pool,
                queries=x,
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
        return partial(_answers, questions, None if self.out is None else writable_directory(self.out))

    def _pool_and_queries(self) -> tuple[Tensor, Tensor]:
        if self.queries < 1:
            raise UserError(f"queries is {self.queries}", "allowed is an integer from 1", "take for example 50")
        generator = torch.Generator().manual_seed(self.seed)
        if self.pool in TOYS:
            toy = TOYS[self.pool]
            pool, x = (toy.sample(count, generator, dtype=torch.float64) for count in (TOY_POINTS, self.queries))
            return pool, x
        pool, queries = _from_file(self.pool)
        if queries is None:
            queries = pool[torch.randperm(len(pool), generator=generator)[: self.queries]]
        return pool, queries


def _from_file(name: str) -> tuple[Tensor, Tensor | None]:
    path = Path(name)
    if not path.suffix and not path.exists():
        raise UserError(
            f"pool is {name!r}", f"allowed are {', '.join(TOYS)}, or a .npy, .npz or .safetensors file", "choose one"
        )
    arrays = read_arrays(path)
    queries = arrays.pop("queries", None)
    if "pool" not in arrays and len(arrays) != 1:
        raise UserError(
            f"{name!r} holds {', '.join(arrays) or 'nothing'} beside queries",
            "allowed is an array named pool, or a single one",
            "save the points under the name pool",
        )
    return arrays.get("pool", next(iter(arrays.values()))), queries


def _answers(questions: list[Question], out: Path | None) -> str:
    told = []
    for question in questions:
        with ProgressDisplay() as progress:
            record = compute_pool_bias(question, progress)
        if out is None:
            told.append(pool_bias.summary(record))
        else:
            append(out / RECORDS, record)
            told.append(render_record(record, out))
    return "\n\n".join(told)
