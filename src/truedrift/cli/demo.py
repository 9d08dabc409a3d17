"""`truedrift demo`: the paper's first figure and its numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from truedrift.experiments import illustration
from truedrift.records import append, writable_directory
from truedrift.report import fig_illustration


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Draw fig:illustration: a minibatch centroid, its correction and the target.

    Three Gaussian clusters, a query near the left one, n references: the plain centroid, the corrected one (ABC) and
    the target. The picture shows draw 0 of the seed, whichever way it falls; the numbers tell what happens over all
    draws.

    Try it:
      truedrift demo
      truedrift demo --seed 1 --out runs/another-draw
      truedrift demo --n 64 --draws 2000
    """

    out: Path = Path("runs/demo")
    """Directory for the picture (PNG, PDF) and the records."""

    seed: int = 0
    """Seed of the draws."""

    draws: int = 10_000
    """Minibatches drawn."""

    n: int = 4
    """References in a minibatch."""

    def prepare(self) -> Callable[[], str]:
        """Check the options and the directory."""
        options = illustration.Options(n=self.n, draws=self.draws, seed=self.seed)
        return partial(_demo, options, writable_directory(self.out))


def _demo(options: illustration.Options, out: Path) -> str:
    record = illustration.run(options)
    append(out / "records.jsonl", record)
    picture, _ = fig_illustration.save(record, out)
    return f"{fig_illustration.summary(record)}\n\nrecord:  {out / 'records.jsonl'}\npicture: {picture}"
