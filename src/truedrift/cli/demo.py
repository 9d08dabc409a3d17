"""`truedrift demo`: the bias, exactly; the digits trained with and without its correction; all on one page."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

from truedrift.cli.main import CommandExit
from truedrift.cli.progress import ProgressDisplay
from truedrift.cli.report import PAGE
from truedrift.errors import require_integer
from truedrift.grids.local import Interrupted, Pool
from truedrift.grids.options import StudyOptions
from truedrift.grids.plan import run_path
from truedrift.page.page import write_page
from truedrift.page.saved import render_runs
from truedrift.paper import demo, fig_bias_loglog, fig_illustration
from truedrift.paper.catalog import render_record
from truedrift.progress import Progress
from truedrift.records.provenance import with_command
from truedrift.records.store import RECORDS, append, writable_directory
from truedrift.training.signals import EXIT_STATUS

TITLE = "truedrift: the bias of a minibatch centroid, and digits trained with and without its correction"


@dataclass(frozen=True, kw_only=True)
class Demo:
    """The exact bias study, the digits trained with Standard and ABC and judged, all on one page.

    First three Gaussian clusters, a query near the left one, n references: the plain centroid, the corrected one (ABC)
    and the target. The picture shows draw 0 of the seed, whichever way it falls; the numbers tell what happens over
    all draws. Then fig:bias_loglog at the paper's full scale, computed without Monte Carlo. Then two runs of the recipe
    digits. The page is one file without any network; it can be opened, printed and sent.

    Try it:
      truedrift demo
      truedrift demo --seed 1 --out runs/another-draw
      truedrift demo --epochs 5
    """

    out: Path = Path("runs/demo")
    """Directory for the page, the figures, the tables, the records and the two runs."""

    seed: int = 0
    """Seed of everything that is drawn."""

    draws: int = 10_000
    """Minibatches drawn."""

    n: int = 4
    """References in a minibatch of the first picture."""

    epochs: int = demo.EPOCHS
    """Of training on the digits, a hundred steps each; 0 leaves training out."""

    def prepare(self) -> Callable[[], str]:
        """Check the options and the directory."""
        options = fig_illustration.Options(n=self.n, draws=self.draws, seed=self.seed)
        require_integer("epochs", self.epochs, 0, demo.EPOCHS)
        return partial(_demo, options, writable_directory(self.out), self.epochs, self.command())

    def command(self) -> str:
        """What a user writes to have the same."""
        own = {each.name: getattr(self, each.name) for each in fields(self) if getattr(self, each.name) != each.default}
        return shlex.join(["truedrift", "demo", *(word for name in own for word in (f"--{name}", str(own[name])))])


def _demo(options: fig_illustration.Options, out: Path, epochs: int, command: str) -> str:
    with ProgressDisplay() as progress:
        setting = StudyOptions(seed=options.seed, progress=progress)
        drawn = fig_illustration.run(options)
        curves = fig_bias_loglog.run(setting, trials=0)
        runs = _train_both(options.seed, epochs, out, progress) if epochs else []
    records = [with_command(record, command) for record in (drawn, curves)]
    for record in records:
        append(out / RECORDS, record)
    said = [*(render_record(record, out) for record in records), *(f"run: {run}" for run in runs)]
    of_runs = render_runs(runs, out)
    page = write_page(out / PAGE, title=TITLE, records=records, runs=runs)
    return "\n\n".join(filter(None, (*said, of_runs, f"records: {out / RECORDS}", f"page: {page}")))


def _train_both(seed: int, epochs: int, out: Path, progress: Progress) -> list[Path]:
    """The run directories of both estimators."""
    plan = demo.demo_plan(seed, epochs)
    again = "run the same command again to go on"
    try:
        left = Pool(runs=out, device="cpu").run(plan, progress)
    except Interrupted as stopped:
        raise CommandExit(f"{stopped}: the runs saved where they were; {again}", status=stopped.status) from None
    failed = [each for each in left if not each.busy]
    if failed:
        raise CommandExit(
            f"{failed[0].task.name} failed: {failed[0].why}; its log is {failed[0].log}; {again}", status=1
        )
    if left:
        busy = f"another command is at {left[0].task.name} in {out}"
        raise CommandExit(f"{busy}; run this again when it has finished, or name another --out", status=EXIT_STATUS)
    return [run_path(task, out) for task in plan.tasks]
