"""Random numbers as a pure function of (seed, purpose, step, …), independent of global state and of the rank.

Seed, purpose and numbers are hashed to the seed of a new `torch.Generator`. Two purposes never share a stream, a step
can be drawn again without the steps before it, and every process of a run draws the same numbers.
"""

import hashlib

import torch

from truedrift.errors import UserError

LARGEST_SEED = 2**31 - 1


def require_seed(seed: int) -> None:
    """Require a seed from 0 to 2³¹ − 1."""
    if not 0 <= seed <= LARGEST_SEED:
        raise UserError(f"is {seed}", f"must be from 0 to {LARGEST_SEED}", "pass for example 0", field="seed")


def stream(seed: int, purpose: str, *numbers: int) -> torch.Generator:
    """Return a generator on the CPU for one purpose.

    Args:
        seed: The seed of the run.
        purpose: What the random numbers are for.
        numbers: Further coordinates, such as the step.

    Example:
        >>> a, b = (torch.rand(3, generator=stream(42, "noise", 7)) for _ in range(2))
        >>> torch.equal(a, b)
        True
    """
    name = "/".join((str(seed), purpose, *map(str, numbers)))
    digest = hashlib.sha256(name.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))
