"""The base of the options of all commands, and the names of their values in the help."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar

import tyro


class Command:
    """Options of a command: a frozen dataclass.

    Its work is in another module, which is imported when the command runs. That module has a function `prepare`.
    """

    work: ClassVar[str]
    """Name of the module."""

    def prepare(self) -> Callable[[], str]:
        """Check the options and the inputs (`UserError`), and return the work, which returns the text to print."""
        work: Callable[[], str] = import_module(self.work).prepare(self)
        return work


def named(value: str) -> Any:
    """Return the annotation that gives the value of an option a name in the help, as in `--out DIR`."""
    return tyro.conf.arg(metavar=value)
