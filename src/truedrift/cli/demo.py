"""`truedrift demo`: the exact bias, and digits trained with and without the correction, on one HTML page."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

from truedrift.cli.main import CommandExit
from truedrift.cli.progress import ProgressDisplay
from truedrift.errors import require_integer
from truedrift.grids.local import Interrupted, Pool
from truedrift.grids.options import StudyOptions
from truedrift.grids.plan import run_path
from truedrift.page.page import PAGE, render_runs, write_page
from truedrift.paper import demo, fig_bias_loglog, fig_illustration
from truedrift.paper.catalog import render_record
from truedrift.progress import Progress
from truedrift.records.provenance import with_command
from truedrift.records.store import RECORDS, append, writable_directory
from truedrift.training.signals import EXIT_STATUS

TITLE = "truedrift: the bias of a minibatch centroid, and digits trained with and without its correction"


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Compute the exact bias, train on digits with Standard and ABC, and write one HTML page.

    Part 1 shows three Gaussian clusters, a query near the left one, and n references: the plain centroid, the corrected
    one (ABC) and the target. The figure shows draw 0 of the seed, not a selected one; the numbers cover all draws.
    Part 2 is fig:bias_loglog at the paper's full scale, computed without Monte Carlo. Part 3 trains and evaluates the
    recipe digits twice. The page is one self-contained file: it can be opened, printed and sent without a network.

    Try it:
      truedrift demo
      truedrift demo --seed 1 --out runs/another-draw
      truedrift demo --epochs 5
    """

    out: Path = Path("runs/demo")
    """Directory for the page, figures, tables, records and the two runs."""

    seed: int = 0
    """Seed of all random draws."""

    draws: int = 10_000
    """Minibatches in part 1."""

    n: int = 4
    """References per minibatch in part 1."""

    epochs: int = demo.EPOCHS
    """Training epochs on the digits, of 100 steps each; 0 skips training."""

    def prepare(self) -> Callable[[], str]:
        """Check the options and the directory."""
        options = fig_illustration.Options(n=self.n, draws=self.draws, seed=self.seed)
        require_integer("epochs", self.epochs, 0, demo.EPOCHS)
        return partial(_demo, options, writable_directory(self.out), self.epochs, self.command())

    def command(self) -> str:
        """Return the command line that gives the same result."""
        changed = {
            option.name: getattr(self, option.name)
            for option in fields(self)
            if getattr(self, option.name) != option.default
        }
        words = [word for name, value in changed.items() for word in (f"--{name}", str(value))]
        return shlex.join(["truedrift", "demo", *words])


def _demo(options: fig_illustration.Options, out: Path, epochs: int, command: str) -> str:
    """Compute, train and write the page; return the text to print."""
    # Compute the two studies and train.
    with ProgressDisplay() as progress:
        setting = StudyOptions(seed=options.seed, progress=progress)
        illustration = fig_illustration.run(options)
        curves = fig_bias_loglog.run(setting, trials=0)
        runs = _train_both(options.seed, epochs, out, progress) if epochs else []
    # Write the records, figures, tables and the page.
    records = [with_command(record, command) for record in (illustration, curves)]
    for record in records:
        append(out / RECORDS, record)
    texts = [*(render_record(record, out) for record in records), *(f"run: {run}" for run in runs)]
    texts.append(render_runs(runs, out))
    page = write_page(out / PAGE, title=TITLE, records=records, runs=runs)
    return "\n\n".join(filter(None, (*texts, f"records: {out / RECORDS}", f"page: {page}")))


def _train_both(seed: int, epochs: int, out: Path, progress: Progress) -> list[Path]:
    """Train with both estimators and return the run directories."""
    plan = demo.demo_plan(seed, epochs)
    again = "run the same command again to continue"
    try:
        unfinished = Pool(runs=out, device="cpu").run(plan, progress)
    except Interrupted as stopped:
        raise CommandExit(f"{stopped}: the runs saved their state; {again}", status=stopped.status) from None
    failed = [run for run in unfinished if not run.busy]
    if failed:
        raise CommandExit(
            f"{failed[0].task.name} failed: {failed[0].why}; its log is {failed[0].log}; {again}", status=1
        )
    if unfinished:
        problem = f"another command is working on {unfinished[0].task.name} in {out}"
        fix = "run this command again when it has finished, or pass another --out"
        raise CommandExit(f"{problem}; {fix}", status=EXIT_STATUS)
    return [run_path(task, out) for task in plan.tasks]
