"""The digits trained with Standard and with ABC, everything else equal, judged on the way: what the demo shows.

Two runs of the pool, one a core; a demo that was interrupted goes on where it was.
"""

from __future__ import annotations

from truedrift.grids.plan import Plan, Task
from truedrift.recipes.overrides import recipe

ESTIMATORS = ("standard", "abc")
EPOCHS = 25


def demo_plan(seed: int, epochs: int) -> Plan:
    """The two runs."""
    return Plan(
        item="training the digits with Standard and ABC",
        scale="cpu",
        data="digits",
        command="truedrift demo",
        tasks=tuple(_demo_task(name, seed, epochs) for name in ESTIMATORS),
    )


def _demo_task(estimator: str, seed: int, epochs: int) -> Task:
    """Named so that a person finds it."""
    settings = (f"cadence.epochs={epochs}", "cadence.evaluate_every_epochs=1", "cadence.grid_every=500")
    config = recipe("digits", given={"estimator": estimator, "seed": seed}, settings=settings)
    return Task(variant=estimator, config=config, called=f"digits-{estimator}-seed{seed}")
