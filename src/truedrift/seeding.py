"""Random numbers as a pure function of (seed, purpose, step, …), independent of global state and of the rank.

Seed, purpose and numbers are hashed to the seed of a new `torch.Generator`. Two purposes never share a stream, a step
can be drawn again without the steps before it, and every process of a run draws the same numbers.
"""

import hashlib

import torch

from truedrift.errors import UserError, read_integer, short_repr

LARGEST_SEED = 2**31 - 1


def require_seed(seed: object) -> int:
    """Require an integer from 0 to 2³¹ − 1, and return it as an int."""
    number = read_integer(seed)
    if number is None or not 0 <= number <= LARGEST_SEED:
        allowed = f"must be {'an integer ' if number is None else ''}from 0 to {LARGEST_SEED}"
        raise UserError(f"is {short_repr(seed)}", allowed, "pass for example 0", field="seed")
    return number


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
