"""All charts of some runs, made once: the page draws them, and so do the files beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from truedrift.report.page.chart import Chart
from truedrift.report.page.curves import evaluation_charts, training_charts
from truedrift.report.page.gauge import gauge_charts
from truedrift.report.page.run_files import Run
from truedrift.report.page.series import Look, looks


@dataclass(frozen=True, kw_only=True)
class Charts:
    """A look a run, and what evaluations, training and the gauge have to show."""

    runs: Sequence[Run]
    looks: Sequence[Look]
    judged: Sequence[Chart]
    trained: Sequence[Chart]
    gauged: Sequence[Chart]

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Charts:
        """Of these runs."""
        chosen = looks(runs)
        made = (evaluation_charts(runs, chosen), training_charts(runs, chosen), gauge_charts(runs, chosen))
        return cls(runs=runs, looks=chosen, judged=made[0], trained=made[1], gauged=made[2])
