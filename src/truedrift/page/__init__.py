"""Records and runs as one HTML page, and runs as figures and tables.

| module     | content                                                                 |
|------------|-------------------------------------------------------------------------|
| `discover` | paths given to `truedrift report` → records and run directories         |
| `run_data` | run directory → `Run`, its status and distances                         |
| `run_log`  | metrics.jsonl → logged steps, thinned if there are many; evaluations    |
| `findings` | runs → sentences                                                        |
| `charts`   | runs → figures                                                          |
| `tables`   | runs → tables                                                           |
| `page`     | all of these → HTML by page.html.j2 and style.css, or files             |
| `explore`  | the interactive page: explore.html.j2, explore.css and explore_*.js     |

`explore` imports the studies that it shows, and is not imported here: reports need not wait for it.
"""

from truedrift.page.charts import (
    Chart,
    Series,
    energy_charts,
    evaluation_charts,
    figure_svgs,
    gauge_charts,
    plot_charts,
    training_charts,
)
from truedrift.page.discover import ReportInput, find_inputs
from truedrift.page.findings import (
    Finding,
    Tone,
    compare_runs,
    describe_many_runs,
    describe_runs,
    describe_training,
    group_by_subject,
)
from truedrift.page.page import render_page, render_runs, write_page
from truedrift.page.run_data import (
    best_evaluation,
    find_differences,
    is_overview,
    read_run,
    read_runs,
    runs_to_draw,
    sort_runs,
)
from truedrift.page.tables import differences_table, final_table, gauge_table

__all__ = [
    "Chart",
    "Finding",
    "ReportInput",
    "Series",
    "Tone",
    "best_evaluation",
    "compare_runs",
    "describe_many_runs",
    "describe_runs",
    "describe_training",
    "differences_table",
    "energy_charts",
    "evaluation_charts",
    "figure_svgs",
    "final_table",
    "find_differences",
    "find_inputs",
    "gauge_charts",
    "gauge_table",
    "group_by_subject",
    "is_overview",
    "plot_charts",
    "read_run",
    "read_runs",
    "render_page",
    "render_runs",
    "runs_to_draw",
    "sort_runs",
    "training_charts",
    "write_page",
]
