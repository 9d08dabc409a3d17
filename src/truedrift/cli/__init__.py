"""The command `truedrift`: one module per command, which parses, calls and prints. Exit statuses: see `cli.main`."""

from truedrift.cli.main import main, parse

__all__ = ["main", "parse"]
