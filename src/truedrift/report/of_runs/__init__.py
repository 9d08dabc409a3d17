"""Runs as files: figures of their curves and of the gauge, tables of their final numbers and of what differs."""

from truedrift.report.of_runs.saved import rendered_runs, save_runs

__all__ = ["rendered_runs", "save_runs"]
