"""`truedrift demo`: what the bias is, and how large, in two pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from truedrift.cli.progress import Shown
from truedrift.cli.reproduce import rendered
from truedrift.experiments import bias_loglog, illustration
from truedrift.experiments.study import Setting
from truedrift.records import RECORDS, append, writable_directory


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Two pictures: a minibatch centroid with its correction, and its exact bias against n.

    First three Gaussian clusters, a query near the left one, n references: the plain centroid, the corrected one (ABC)
    and the target. The picture shows draw 0 of the seed, whichever way it falls; the numbers tell what happens over
    all draws. Then fig:bias_loglog at the paper's full scale, computed without Monte Carlo.

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
    with Shown() as progress:
        drawn = illustration.run(options)
        curves = bias_loglog.run(Setting(seed=options.seed, progress=progress), trials=0)
    for record in (drawn, curves):
        append(out / RECORDS, record)
    return "\n\n".join((rendered(drawn, out), rendered(curves, out), f"records: {out / RECORDS}"))
