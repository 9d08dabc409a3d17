"""The runs of a plan: a failure, a run of another command or a signal ends the command with one line."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from truedrift.cli.main import CommandExit
from truedrift.grids.local import Interrupted
from truedrift.grids.plan import Plan
from truedrift.grids.run import UnfinishedRuns
from truedrift.training.signals import EXIT_STATUS

Result = TypeVar("Result")


def explain_stop(plan: Plan, runs: Path, work: Callable[[], Result]) -> Result:
    """Do the work; end the command with a message if runs of the plan failed, are busy or were interrupted."""
    try:
        return work()
    except Interrupted as stop:
        message, status = f"{stop}: the runs of {plan.item} saved their state", stop.status
    except UnfinishedRuns as stop:
        failed = [run for run in stop.runs if not run.busy]
        if not failed:
            names = ", ".join(f"{run.task.name} ({run.task.variant})" for run in stop.runs[:5])
            message = f"{plan.item}: another command is working on {len(stop.runs)} of {len(plan.tasks)} runs: {names}"
            message += "; run the same command again when it has finished"
            raise CommandExit(message, status=EXIT_STATUS) from None
        reasons = "; ".join(f"{run.task.name} ({run.task.variant}): {run.why}" for run in failed[:5])
        message = f"{plan.item}: {len(failed)} of {len(plan.tasks)} runs failed: {reasons}; their logs are in {runs}"
        status = 1
    raise CommandExit(f"{message}; run the same command again to continue", status=status)
