"""`truedrift explore`: write one page on which the bias of a centroid can be explored."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from truedrift.cli.options.studies import Explore
from truedrift.page.explore import write_explore
from truedrift.records.store import writable_directory
from truedrift.training.pictures import require_writable_file


def prepare(command: Explore) -> Callable[[], str]:
    """Check the file and its directory."""
    require_writable_file(command.out)
    writable_directory(command.out.parent)
    return partial(_explore, command.out)


def _explore(out: Path) -> str:
    return f"page: {write_explore(out)}"
