"""Handmade grids: the distances are given, everything else is fixed."""

from truedrift.evaluation import Metrics, Protocol
from truedrift.grids import EvaluatedStep, ImageGrid, ImageRun
from truedrift.records import provenance

PROTOCOL = Protocol(
    extractor="inception",
    extractor_sha256="0123456789abcdef" * 4,
    prepared="uint8",
    dimensions=2048,
    samples=1234,
    labels="balanced",
    seed=0,
    strength=1.0,
    weights="ema",
    reference="shapes",
    split="train",
    reference_count=4321,
    reference_sha256="fedcba9876543210" * 4,
    neighbors=3,
    compared=1000,
)


def evaluation(k, fid, n, steps=50):
    """The k-th one from 1, after k·steps steps of n positives per class."""
    metrics = Metrics(
        fid=fid,
        kid=0.5,
        kid_deviation=0.1,
        precision=0.6,
        recall=0.7,
        inception_score=None,
        inception_score_deviation=None,
    )
    return EvaluatedStep(step=k * steps, positives_seen=k * steps * n, metrics=metrics)


def run(variant, n, seed, distances, steps=50):
    """A run whose evaluations have these distances, one every `steps` steps."""
    return ImageRun(
        id=f"{variant}-{n}-{seed}",
        variant=variant,
        n=n,
        seed=seed,
        estimator_pos="abc",
        estimator_neg="abc",
        arithmetic="drift",
        normalization="row",
        temperatures=(0.1,),
        epochs=10 * max(1, len(distances)),
        steps_per_epoch=5,
        parameters=777,
        seconds=3.0,
        evaluations=tuple(evaluation(k, fid, n, steps) for k, fid in enumerate(distances, start=1)),
    )


def grid(item, runs, *, protocol=PROTOCOL, classes=10):
    """A record of the item."""
    return ImageGrid(
        item=item,
        scale="smoke",
        data="shapes",
        classes=classes,
        recipe="toy",
        evaluate_every_epochs=10,
        protocol=protocol,
        runs=tuple(runs),
        provenance=provenance(seed=0, wall_seconds=1.0, command=f"truedrift reproduce {item}"),
    )
