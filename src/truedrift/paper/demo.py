"""The runs of `truedrift demo`: the digits trained with Standard and with ABC, everything else equal.

The pool runs both at the same time; an interrupted demo resumes.
"""

from truedrift.grids.plan import Plan, Task
from truedrift.recipes.overrides import recipe

ESTIMATORS = ("standard", "abc")
EPOCHS = 25


def demo_plan(seed: int, epochs: int) -> Plan:
    """Return the plan of both runs."""
    return Plan(
        item="training the digits with Standard and ABC",
        scale="cpu",
        data="digits",
        command="truedrift demo",
        tasks=tuple(_demo_task(name, seed, epochs) for name in ESTIMATORS),
    )


def _demo_task(estimator: str, seed: int, epochs: int) -> Task:
    """Return one run, in a directory with a readable name."""
    settings = (f"cadence.epochs={epochs}", "cadence.evaluate_every_epochs=1", "cadence.grid_every=500")
    config = recipe("digits", given={"estimator": estimator, "seed": seed}, settings=settings)
    return Task(variant=estimator, config=config, called=f"digits-{estimator}-seed{seed}")
