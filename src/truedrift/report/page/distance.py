"""How near a run's samples are to the data: where its training ended, its best, and what `truedrift evaluate` found."""

from __future__ import annotations

from dataclasses import dataclass

from truedrift.records import Protocol
from truedrift.report.page.run_files import Evaluation, Run


@dataclass(frozen=True, kw_only=True)
class End:
    """A last word on a run by one protocol, in its training or by `truedrift evaluate` after it."""

    distance: float
    distance_name: str
    step: int | None
    protocol: Protocol | None
    in_training: bool


def judging(run: Run) -> Evaluation | None:
    """The last evaluation in the training that has a distance."""
    return next((each for each in reversed(run.evaluations) if each.distance is not None), None)


def best(run: Run) -> Evaluation | None:
    """The smallest distance by the protocol that the training ended with; None if it is not known."""
    last = judging(run)
    if last is None or last.protocol is None:
        return None
    same = [each for each in run.evaluations if each.distance is not None and each.protocol == last.protocol]
    return min(same, key=lambda each: each.distance or 0.0)


def ends(run: Run) -> list[End]:
    """The training's, then the last of every protocol of `truedrift evaluate`."""
    last = judging(run)
    trained = [] if last is None or last.distance is None else [_of_training(last, last.distance)]
    after = {each.protocol: each for each in run.judged}
    return trained + [
        End(
            distance=each.metrics.fid,
            distance_name=protocol.distance_name,
            step=each.step,
            protocol=protocol,
            in_training=False,
        )
        for protocol, each in after.items()
    ]


def _of_training(of: Evaluation, distance: float) -> End:
    return End(distance=distance, distance_name=of.distance_name, step=of.step, protocol=of.protocol, in_training=True)
