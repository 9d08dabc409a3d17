"""Records and runs as one HTML page, and runs as figures and tables.

| module     | content                                                                 |
|------------|-------------------------------------------------------------------------|
| `discover` | paths given to `truedrift report` → records and run directories         |
| `run_data` | run directory → `Run`, its status and distances                         |
| `findings` | runs → sentences                                                        |
| `charts`   | runs → figures                                                          |
| `tables`   | runs → tables                                                           |
| `page`     | all of these → HTML by page.html.j2 and style.css, or files             |
"""

from truedrift.page.discover import ReportInput, find_inputs
from truedrift.page.page import render_page, render_runs, write_page

__all__ = ["ReportInput", "find_inputs", "render_page", "render_runs", "write_page"]
