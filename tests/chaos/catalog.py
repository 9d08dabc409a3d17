"""All attacks, in the order of the table."""

from __future__ import annotations

from . import (
    caches,
    disk,
    flips,
    hostile_arrays,
    hostile_checkpoints,
    hostile_data_sets,
    hostile_images,
    hostile_text,
    kills,
    other_commands,
    places,
    ranks,
)
from .runs import Bench
from .table import Attack

MODULES = (
    *(kills, disk, other_commands, flips, caches, places),
    *(hostile_arrays, hostile_checkpoints, hostile_images, hostile_data_sets, hostile_text, ranks),
)


def all_attacks(bench: Bench) -> list[Attack]:
    """Return every attack; nothing is run yet."""
    return [attack for module in MODULES for attack in module.attacks(bench)]
