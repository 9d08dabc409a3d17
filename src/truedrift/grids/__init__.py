"""Grids of runs: planned as configurations with content-hash ids, run here or by Slurm, gathered into one record.

    item, setting → plan → what is missing is run → run directories → record

Runs live in a directory that items share, so that an item finds what another one has made.
"""
