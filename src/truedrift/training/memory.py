"""What does not fit into memory is told in one sentence, with what makes a run smaller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from truedrift.validation import Mistake, mistake

SAID = ("can't allocate memory", "not enough memory", "out of memory", "Storage size calculation overflowed")
"""What torch says on a CPU, where it has no class of its own for it."""

SMALLER = "set engine.micro_batch, or a smaller batch.n, batch.generated or generator"


@contextmanager
def told_if_too_small(do: str = SMALLER) -> Iterator[None]:
    """A `Mistake` in place of an error of memory; any other error stays what it is."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError):
        raise _too_small(do) from None
    except RuntimeError as error:
        if any(said in str(error) for said in SAID):
            raise _too_small(do) from None
        raise


def _too_small(do: str) -> Mistake:
    return mistake("this does not fit into memory", "allowed is what this machine or its GPU can hold", do)
