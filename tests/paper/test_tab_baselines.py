"""`tab:baselines`: a small study against exact values, and the table next to the paper's values."""

import math
from dataclasses import replace

import pytest

from truedrift.grids import StudyOptions
from truedrift.paper import tab_baselines
from truedrift.records import provenance


@pytest.fixture(scope="module")
def patch():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tab_baselines, "SMOKE_TRIALS", 1000)
        yield patch


@pytest.fixture(scope="module")
def table(patch):
    return tab_baselines.study(StudyOptions(scale="smoke"))


def test_finished_trials_are_not_computed_again(tmp_path, patch):
    here = StudyOptions(scale="smoke", directory=tmp_path)
    first = tab_baselines.study(here)
    (kept,) = tmp_path.iterdir()
    before = kept.read_bytes()
    again = tab_baselines.study(here)
    assert kept.read_bytes() == before
    assert [row.bias for row in again.rows] == [row.bias for row in first.rows]
    tab_baselines.study(StudyOptions(scale="smoke", seed=1, directory=tmp_path))
    assert len(list(tmp_path.iterdir())) == 2


def test_naive_norm_contains_the_noise_in_quadrature(table):
    """Where the bias is twice the noise or more, the naive norm is √(exact² + noise²) within a fifth, at 10 queries."""
    for row in table.rows:
        assert row.microseconds > 0
        assert row.references == (10 * (row.n - 1) + 1 if row.estimator == "br-snis" else row.n)
        if row.exact_bias is None:
            assert row.estimator == "bootstrap"
            continue
        if row.exact_bias > 2 * row.noise:
            assert row.bias == pytest.approx(math.hypot(row.exact_bias, row.noise), rel=0.2), (row.n, row.estimator)
        assert (row.exact_variance is None) == (row.estimator in ("jackknife", "br-snis"))
        if row.exact_variance is not None:
            assert row.variance == pytest.approx(row.exact_variance, rel=0.1)


def test_br_snis_is_the_least_biased_at_ten_times_the_references(table):
    for n in (8, 32):
        of_n = {row.estimator: row for row in table.rows if row.n == n}
        assert min(of_n.values(), key=lambda row: row.bias).estimator == "br-snis"


def test_table_and_findings_include_the_papers_values():
    row = tab_baselines.Baseline(
        n=128, estimator="abc", references=128, bias=1.1e-3, noise=6.5e-4, corrected=9e-4, variance=2e-3,
        exact_bias=9.2e-4, exact_variance=None, microseconds=12.34,
    )  # fmt: skip
    others = (replace(row, estimator="abc2"), replace(row, n=4), replace(row, estimator="bootstrap", exact_bias=None))
    here = provenance(seed=7, wall_seconds=1.0)
    record = tab_baselines.Baselines(
        pool_points=10, queries=2, trials=5, timed=3, tau=0.1, rows=(row, *others), provenance=here
    )  # fmt: skip
    lines = tab_baselines.table(record).markdown().splitlines()
    assert lines[4] == (
        "| 128 | ABC | 1.10e-03 | 6.50e-04 | 9.20e-04 | 1.03e-03 | 2.00e-03 | – | 2.10e-03 | 12.3 | 57.0 | 128 |"
    )
    assert "| 128 | ABC-2 | 1.10e-03 | 6.50e-04 | 9.20e-04 | – | 2.00e-03 | – | – | 12.3 | – | 128 |" in lines
    assert "1.03e-03" in tab_baselines.ITEM.summary(record)
    assert "bias" in tab_baselines.table(record).latex()
    assert tab_baselines.findings(record) == []
    standard = replace(row, estimator="standard", bias=2.2e-3, variance=1e-3, microseconds=6.17)
    assert tab_baselines.findings(replace(record, rows=(row, standard, replace(row, n=4), replace(standard, n=4)))) == [
        "n = 128: ratio of ABC to standard: |bias| 0.50 (paper 0.28), variance 2.00 (paper 1.06), "
        "time 2.00 (paper 2.68)",
        "n = 4: ratio of ABC to standard: |bias| 0.50, variance 2.00, time 2.00",
    ]


def test_printed_values_are_complete():
    assert len(tab_baselines.PAPER) == 15
    assert {n for n, _ in tab_baselines.PAPER} == {8, 32, 128}
    for n in (8, 32, 128):  # its claims: standard is the fastest, BR-SNIS the least biased
        of_n = {name: tab_baselines.PAPER[n, name] for _, name in tab_baselines.PAPER}
        assert min(of_n, key=lambda name: of_n[name][2]) == "standard"
        assert min(of_n, key=lambda name: of_n[name][0]) == "br-snis"
