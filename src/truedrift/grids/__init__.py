"""Grids of runs: planned as configurations with content-hash ids, run here or by Slurm, collected into one record.

    item, options → plan → missing runs are run → run directories → record

Runs live in one directory that all items share, so that an item finds the runs of another.
"""
