"""The command `truedrift`: parse, call, print.

Exit status 0 on success, 2 on a user's mistake (one line on stderr: what came; what is allowed; what to do), 1 on a
failure of ours (with its traceback, to be reported), 130 on an interrupt, 75 where a signal asked to save and stop.
"""

from truedrift.cli.main import main

__all__ = ["main"]
