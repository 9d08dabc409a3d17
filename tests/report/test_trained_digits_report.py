"""The digits as trained: mean and spread of what is recognized."""

from truedrift.paper.digits import DigitsRun, TrainedDigits, verdicts
from truedrift.records.provenance import provenance


def test_verdicts_tell_mean_and_largest_deviation_of_each_estimator():
    shares = {"standard": (0.9, 0.92, 0.97), "abc": (0.95, 0.96)}
    runs = tuple(
        DigitsRun(estimator=name, seed=seed, recognized=share, distance_ratio=0.7, seconds=1.0)
        for name, values in shares.items()
        for seed, share in enumerate(values)
    )
    here = provenance(seed=0, wall_seconds=1.0)
    record = TrainedDigits(n=8, steps=2, samples=10, accuracy=0.98, threads=1, runs=runs, provenance=here)
    assert verdicts(record) == [
        "standard: 93.0% ± 4.0% of the samples are recognized",
        "abc: 95.5% ± 0.5% of the samples are recognized",
    ]
