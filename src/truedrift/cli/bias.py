"""`truedrift bias POOL`: the bias of the centroid of n references, for a toy or a pool in a file."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from truedrift.axes import Tensor
from truedrift.cli.options.studies import Bias
from truedrift.data.array_files import read_arrays
from truedrift.data.toys import FOUR_MODES, THREE_CLUSTERS, GaussianMixture
from truedrift.errors import UserError, list_names, require_integer, suggest_name
from truedrift.paper import pool_bias
from truedrift.paper.catalog import render_record
from truedrift.paper.pool_bias import Question, compute_pool_bias
from truedrift.progress_display import ProgressDisplay
from truedrift.records.store import RECORDS, append, writable_directory
from truedrift.seeding import require_seed
from truedrift.tensor_checks import require_matrices

TOYS: dict[str, GaussianMixture] = {"four-modes": FOUR_MODES, "three-clusters": THREE_CLUSTERS}
TOY_POINTS = 1_000_000


def prepare(command: Bias) -> Callable[[], str]:
    """Check the options, the file and the directory."""
    if not command.tau:
        raise UserError("is empty", "must hold at least one number", "pass for example --tau 0.1", field="tau")
    require_seed(command.seed)
    require_integer("queries", command.queries, 1, 50)
    questions = [
        Question(
            tau=tau,
            n=tuple(dict.fromkeys(command.n)),
            estimators=command.estimator,
            kernel=command.kernel,
            trials=command.trials,
            replacement=not command.without_replacement,
            seed=command.seed,
        )
        for tau in command.tau
    ]
    arrays = {} if command.pool in TOYS else _read_pool(command.pool, command.largest_gigabytes)
    return partial(_run, command, questions, arrays, None if command.out is None else writable_directory(command.out))


def _run(command: Bias, questions: list[Question], arrays: dict[str, Tensor], out: Path | None) -> str:
    """Answer the questions, one per temperature; return their summaries."""
    pool, queries = _pool_and_queries(command, arrays)
    name = command.pool if command.pool in TOYS else Path(command.pool).name
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


def _pool_and_queries(command: Bias, arrays: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the pool [N, D] and the queries [Q, D]; draw what is not among the arrays."""
    generator = torch.Generator().manual_seed(command.seed)
    if command.pool in TOYS:
        toy = TOYS[command.pool]
        pool, queries = (toy.sample(count, generator, dtype=torch.float64) for count in (TOY_POINTS, command.queries))
        return pool, queries
    pool = arrays["pool"]
    if "queries" in arrays:
        return pool, arrays["queries"]
    return pool, pool[torch.randperm(len(pool), generator=generator)[: command.queries]]


def _read_pool(name: str, largest_gigabytes: float) -> dict[str, Tensor]:
    """Read the `pool`, and the `queries` if the file has any."""
    path = Path(name)
    if not path.suffix and not path.exists():
        allowed = f"must be {', '.join(TOYS)}, or a .npy, .npz or .safetensors file"
        raise UserError(f"is {name!r}", allowed, suggest_name(name, TOYS, "pass one of these"), field="pool")
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
