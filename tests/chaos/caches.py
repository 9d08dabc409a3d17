"""The cache of features and of statistics of the data: flip its bits, and kill the process that fills it.

A run with a damaged cache must end as one with an empty cache.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from oracles.outcomes import Outcome, read_outcome

from truedrift import storage
from truedrift.training import feature_cache

from .commands import Before, find_problem, run
from .flips import Flip
from .operations import AtOperation, read_operations
from .runs import Bench, train_arguments
from .table import Attack


def cached_arguments(out: Path) -> list[str]:
    """Return the arguments of a small run whose positives are encoded once."""
    return train_arguments(out, **{"encoder.kind": "convnet", "encoder.channels": "4,6", "cadence.grid_every": "none"})


def count_every_piece() -> None:
    """Count every piece of the features that is on disk, as for large files."""
    feature_cache.SYNC_EVERY = 1


class CacheBench:
    """A full and an unfinished cache, and the outcome of a run with them."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    def train(self, folder: Path, before: Sequence[Before] = ()) -> str | None:
        """Train with the cache in the folder; return what was lost."""
        ended = run(
            cached_arguments(folder / "run"),
            folder / "output",
            [count_every_piece, *before],
            {"TRUEDRIFT_CACHE": str(folder / "cache")},
        )
        problem = find_problem(ended, allowed=(0,))
        if problem is not None:
            return problem
        return None if read_outcome(folder / "run") == self.outcome else "the outcome differs"

    @cached_property
    def full(self) -> Path:
        """A folder with a run and the full cache. Its operations are logged."""
        folder = self.bench.new_folder()
        ended = run(
            cached_arguments(folder / "run"),
            folder / "output",
            [count_every_piece, AtOperation(folder / "cache", folder / "operations")],
            {"TRUEDRIFT_CACHE": str(folder / "cache")},
        )
        assert ended.status == 0, ended.err
        return folder

    @cached_property
    def outcome(self) -> Outcome:
        return read_outcome(self.full / "run")

    @cached_property
    def operations(self) -> list[str]:
        """The file operations in the cache, while it is filled."""
        assert self.full
        return read_operations(self.full / "operations")

    @cached_property
    def unfinished(self) -> Path:
        """A folder with a cache whose features were being written."""
        folder = self.bench.new_folder()
        counted = [k for k, line in enumerate(self.operations) if line.startswith("rename") and "pieces" in line]
        self.kill(folder, counted[3] + 2)
        assert list((folder / "cache" / "features").glob("*.pieces"))
        return folder

    def kill(self, folder: Path, number: int, before: Sequence[Before] = ()) -> None:
        """Kill a training at an operation in its cache."""
        at = AtOperation(folder / "cache", folder / "operations", number)
        environment = {"TRUEDRIFT_CACHE": str(folder / "cache")}
        run(cached_arguments(folder / "killed"), folder / "output", [count_every_piece, *before, at], environment)

    # ---- Attacks ----

    def draw_flip(self, rng: random.Random, number: int) -> Flip:
        """Draw bits of a file of the full cache, or of the unfinished one."""
        is_full = number % 2 == 1
        cache = (self.full if is_full else self.unfinished) / "cache"
        files = sorted(str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file())
        name = rng.choice([name for name in files if (cache / name).stat().st_size])
        size = 8 * (cache / name).stat().st_size
        return Flip(is_full, name, tuple(rng.randrange(size) for _ in range(rng.choice((1, 3)))))

    def attempt_flip(self, flip: Flip, before: Sequence[Before]) -> str | None:
        """Train with a damaged cache."""
        folder = self.bench.new_folder()
        shutil.copytree((self.full if flip.complete else self.unfinished) / "cache", folder / "cache")
        flip.apply(folder / "cache")
        return self.train(folder, before)

    def attempt_kill(self, number: int, before: Sequence[Before]) -> str | None:
        """Kill the process that fills the cache, and train with what it left."""
        folder = self.bench.new_folder()
        self.kill(folder, number, before)
        return self.train(folder, before)


def trust_files() -> None:
    """Break the reading: hashes in the cache are not compared."""
    feature_cache._is_complete = lambda path: path.exists()

    def read(path: Path) -> object:
        from safetensors.torch import load

        return load(path.read_bytes()) if path.exists() else None

    storage.read_tensors = read


def count_too_many() -> None:
    """Break the continuation: one piece more than there is counts as written."""
    complete = feature_cache._complete_pieces

    def count(path: Path, sizes: Sequence[int]) -> tuple[int, object]:
        done, digest = complete(path, sizes)
        return (done + 1 if 0 < done < len(sizes) else done), digest

    feature_cache._complete_pieces = count


def attacks(bench: Bench) -> list[Attack]:
    caches = CacheBench(bench)

    def draw_features(rng: random.Random, number: int) -> Flip:
        """Flip one bit of every feature."""
        (path,) = (caches.full / "cache" / "features").glob("*.npy")
        return Flip(True, f"features/{path.name}", tuple(range(8 * 130, 8 * path.stat().st_size, 32)))

    def draw_between_pieces(rng: random.Random, number: int) -> int:
        """Kill after the third piece was counted."""
        counted = [k for k, line in enumerate(caches.operations) if line.startswith("rename") and "pieces" in line]
        return counted[2] + 2

    return [
        Attack(
            "bits flipped in the cache: train",
            caches.draw_flip,
            caches.attempt_flip,
            control="hashes not compared",
            broken=trust_files,
            quick_tries=2,
            control_draw=draw_features,
        ),
        Attack(
            "kill -9 while the cache is filled: train",
            lambda rng, number: rng.randint(1, len(caches.operations)),
            caches.attempt_kill,
            control="one piece too many counted",
            broken=count_too_many,
            control_draw=draw_between_pieces,
        ),
    ]
