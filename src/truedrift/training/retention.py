"""Which checkpoints stay: the newest k, every m-th step, the best one; and always the newest that is valid.

A checkpoint is removed manifest first. Without one it is no checkpoint, so that a crash in the middle leaves nothing
that could be taken for a damaged one; the rest of it goes at the next call.
"""

from __future__ import annotations

from pathlib import Path

from truedrift.files import discard
from truedrift.training.checkpoint import newest_valid_step, step_directories, steps
from truedrift.training.manifest import MANIFEST
from truedrift.training.verification import directory_name
from truedrift.validation import mistake


def prune(directory: Path, *, keep_last: int, keep_every: int | None, best: int | None) -> tuple[int, ...]:
    """Remove the checkpoints that need not stay, and return their steps, ascending.

    Stay: the newest `keep_last`, steps that are multiples of `keep_every`, the step `best`, and the newest valid one
    even where `keep_last` newer ones are damaged.
    """
    _require_counts(keep_last, keep_every)
    complete = steps(directory)
    wanted = {best, *complete[-keep_last:], *(step for step in complete if keep_every and step % keep_every == 0)}
    superfluous = [step for step in complete if step not in wanted]
    if superfluous:  # only then is it worth reading files
        valid = newest_valid_step(directory)
        superfluous = [step for step in superfluous if step != valid]
    for step in (*superfluous, *_unfinished(directory, complete)):
        _remove(directory / directory_name(step))
    return tuple(superfluous)


def _require_counts(keep_last: int, keep_every: int | None) -> None:
    if keep_last < 1:
        raise mistake(f"keep_last is {keep_last}", "allowed is a whole number of at least 1", "keep at least one")
    if keep_every is not None and keep_every < 1:
        came = f"keep_every is {keep_every}"
        raise mistake(came, "allowed is None or a whole number of at least 1", "count it in optimizer steps")


def _unfinished(directory: Path, complete: tuple[int, ...]) -> list[int]:
    """What a crash left without a manifest; not after the newest checkpoint, where one may just be written."""
    return [step for step in step_directories(directory) if step not in complete and complete and step < complete[-1]]


def _remove(path: Path) -> None:
    try:
        discard(path, first=MANIFEST)
    except OSError as error:
        came = f"the checkpoint {str(path)!r} cannot be removed ({error.strerror})"
        allowed = "allowed is a directory that can be written"
        raise mistake(came, allowed, "make it writable and run the same command again") from None
