"""`truedrift demo`: the exact bias, the field at q = p, and digits trained with three fields, on one HTML page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from truedrift.cli.options.studies import Demo
from truedrift.cli.runs import explain_stop
from truedrift.errors import require_integer
from truedrift.generators.pretrained import find_pretrained, pretrained_names
from truedrift.grids.local import Pool
from truedrift.grids.options import StudyOptions
from truedrift.grids.plan import Plan, Task, run_path
from truedrift.grids.run import UnfinishedRuns
from truedrift.page.findings import ONE_RUN_EACH, final_evaluation
from truedrift.page.page import PAGE, render_runs, write_page
from truedrift.page.run_data import Run, read_runs
from truedrift.paper import equilibrium, fig_bias_loglog, fig_illustration
from truedrift.paper.catalog import render_record
from truedrift.progress import Progress
from truedrift.progress_display import ProgressDisplay
from truedrift.recipes.overrides import recipe
from truedrift.recipes.recipes import PAPER_FIELD
from truedrift.records.provenance import with_command
from truedrift.records.store import RECORDS, append, writable_directory

EPOCHS = 25
TITLE = "truedrift: the bias of a minibatch centroid, and digits trained with matched references"
RUNS: Mapping[str, tuple[Mapping[str, object], Mapping[str, object]]] = {
    "standard": ({"n": 8, "estimator": "standard"}, PAPER_FIELD),
    "abc": ({"n": 8, "estimator": "abc"}, PAPER_FIELD),
    "matched": ({"n": 126, "estimator": "abc"}, {"batch": {"generated": 8}}),
}
"""Name of a run → its arguments and options: the paper's field with both estimators, and the matched field of the
recipe. All have 8 generated samples per class and step; 126 positives are 18 windows of 7, the number of other
generated samples."""


def prepare(command: Demo) -> Callable[[], str]:
    """Check the options and the directory."""
    options = fig_illustration.Options(n=command.n, draws=command.draws, seed=command.seed)
    require_integer("epochs", command.epochs, 0, EPOCHS)
    return partial(_demo, options, writable_directory(command.out), command.epochs, command.command())


def _demo(options: fig_illustration.Options, out: Path, epochs: int, command: str) -> str:
    """Compute, train and write the page; return the text to print."""
    # Compute the studies and train.
    with ProgressDisplay() as progress:
        setting = StudyOptions(seed=options.seed, progress=progress)
        illustration = fig_illustration.run(options)
        curves = fig_bias_loglog.run(setting, trials=0)
        push = equilibrium.study(replace(setting, scale="smoke"))
        paths = _train_all(options.seed, epochs, out, progress) if epochs else []
    # Write the records, figures, tables and the page.
    records = [with_command(record, command) for record in (illustration, curves, push)]
    for record in records:
        append(out / RECORDS, record)
    texts = [*(render_record(record, out) for record in records), *(f"run: {path}" for path in paths)]
    runs = _label_runs(read_runs(paths))
    texts.append(render_runs(runs, out))
    models = [find_pretrained(name) for name in pretrained_names()]
    page = write_page(out / PAGE, title=TITLE, records=records, runs=runs, models=models)
    closing = "\n".join((*_conclusion(runs), f"Open the page: {page}"))
    return "\n\n".join(filter(None, (*texts, f"records: {out / RECORDS}", closing)))


def _label_runs(runs: Sequence[Run]) -> list[Run]:
    """Name runs by recipe, field and seed, such as "digits · matched · seed 0", instead of by their directories."""
    labels = {_directory_name(name, run.config.seed): name for run in runs for name in RUNS}
    return [
        replace(run, name=f"digits · {labels[run.name]} · seed {run.config.seed}") if run.name in labels else run
        for run in runs
    ]


def _directory_name(name: str, seed: int) -> str:
    return f"digits-{name}-seed{seed}"


def _conclusion(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the finding and the distances of the runs, the last lines that the demo prints; nothing without runs."""
    final = {run.name: each for run in runs if (each := final_evaluation(run)) is not None}
    if len(final) < 2:
        return ()
    least, following = sorted(each.metrics.fid for each in final.values())[:2]
    best = next(name for name, each in final.items() if each.metrics.fid == least)
    protocol = final[best].protocol
    against = f"{protocol.samples:,} samples against {protocol.reference_count:,} of {protocol.reference}"
    distances = ", ".join(f"{each.metrics.fid:.3g} for {name}" for name, each in final.items())
    nearer = f"{1 - least / following:.0%} nearer than the next run"
    return (
        f"Finding: {best} ends nearest to the data, {nearer}. {ONE_RUN_EACH}",
        f"{protocol.distance_name} ({against}): {distances}",
    )


def _train_all(seed: int, epochs: int, out: Path, progress: Progress) -> list[Path]:
    """Train the digits with Standard, ABC and matched ABC from the same seed; return the run directories."""
    # Plan the runs, in directories with readable names.
    settings = (f"cadence.epochs={epochs}", "cadence.evaluate_every_epochs=1", "cadence.grid_every=500")
    tasks = []
    for name, (given, options) in RUNS.items():
        config = recipe("digits", given={**given, "seed": seed}, tree=options, settings=settings)
        tasks.append(Task(variant=name, config=config, called=_directory_name(name, seed)))
    title = "training the digits with Standard, ABC and matched ABC"
    plan = Plan(item=title, scale="cpu", data="digits", command="truedrift demo", tasks=tuple(tasks))

    # Run them at the same time; an interrupted demo resumes.
    def work() -> None:
        unfinished = Pool(runs=out, device="cpu").run(plan, progress)
        if unfinished:
            raise UnfinishedRuns(unfinished)

    explain_stop(plan, out, work)
    return [run_path(task, out) for task in plan.tasks]
