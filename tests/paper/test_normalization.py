"""`normalization`: the row normalization has its exact bias, and the item shows what was resolved."""

from dataclasses import replace

import pytest

from truedrift.grids import StudyOptions
from truedrift.paper import normalization
from truedrift.records import provenance


def test_the_row_normalization_has_its_exact_bias(monkeypatch):
    """18 mean squares are within four standard errors for 799 of 800 seeds."""
    monkeypatch.setattr(normalization, "POOL_POINTS", 500)
    record = normalization.study(StudyOptions(scale="smoke"))
    for each in record.biases:
        assert (each.exact is None) == (each.normalization != "row")
        if each.exact is not None:
            for square, error, exact in zip(each.square, each.square_error, each.exact, strict=True):
                assert abs(square - exact**2) < 4 * error


def test_unresolved_biases_are_shown_as_limits(tmp_path):
    def bias(kind, estimator, side):
        exact = (0.1, 0.05) if kind == "row" else None
        return normalization.FieldBias(
            normalization=kind,
            estimator=estimator,
            side=side,
            square=(0.01, -1e-4),
            square_error=(1e-3, 1e-4),
            exact=exact,
        )

    record = normalization.FieldBiases(
        pool_points=10,
        queries=2,
        trials=5,
        tau=0.2,
        n=(8, 16),
        biases=tuple(
            bias(kind, estimator, side)
            for kind in normalization.NORMALIZATION_NAMES
            for estimator in ("standard", "abc", "abc2")
            for side in ("T_pos", "T_neg", "V")
        ),
        provenance=provenance(seed=7, wall_seconds=1.0),
    )
    one = record.of("row", "abc", "V")
    assert one.root == (0.1, 0.0)
    assert one.resolved == (True, False)
    assert one.root_error == pytest.approx((5e-3, 2e-4**0.5))
    assert "| row | ABC | V | 1.00e-01 | – |" in normalization.table(record).markdown()
    assert "<1.4e-02" in normalization.ITEM.summary(record)
    assert all(path.exists() for path in normalization.ITEM.save(record, tmp_path))
    assert normalization.findings(record)[0] == "row: the noise is too large to resolve the bias of V at n = 16"
    clear = tuple(replace(b, square=(0.01, 0.04 if b.estimator == "standard" else 0.0025)) for b in record.biases)
    assert normalization.findings(replace(record, biases=clear))[1] == (
        "bidirectional: ABC leaves 25.0% of the standard bias of V at n = 16"
    )
