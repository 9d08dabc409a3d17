"""The study `app:temperature`, compared with the exact engine and with closed forms."""

import pytest
import torch

from truedrift.bias import compensation, exact_moments, pool_moments
from truedrift.data import FOUR_MODES
from truedrift.grids import StudyOptions
from truedrift.paper import app_temperature


@pytest.fixture(scope="module")
def calls():
    """Calls of the progress function."""
    return []


@pytest.fixture(scope="module")
def record(calls):
    return app_temperature.study(StudyOptions(scale="smoke", seed=3, progress=lambda *what: calls.append(what)))


@pytest.fixture(scope="module")
def toy(record):
    generator = torch.Generator().manual_seed(3)
    counts = (record.pool_points, record.queries)
    pool, x = (FOUR_MODES.sample(count, generator, dtype=torch.float64) for count in counts)
    return x, pool


def test_a_polynomial_is_interpolated_exactly():
    r = app_temperature.nodes()
    assert 0.3 < r.min() < 0.31
    assert 1.09 < r.max() < 1.1
    at = torch.tensor([0.3, 0.77, 1.0, float(r[3])], dtype=torch.float64)
    u, v = r.log(), at.log()
    torch.testing.assert_close(
        app_temperature.interpolate(torch.stack((u**10 - 3 * u, u**2), -1), at), torch.stack((v**10 - 3 * v, v**2), -1)
    )
    assert not torch.allclose(app_temperature.interpolate(u**11, at), v**11, rtol=1e-6, atol=1e-6)


def test_shifts_and_angles_match_the_theory(record, toy):
    for at in record.at:
        found = compensation(*toy, tau=at.tau)
        assert at.shifts == pytest.approx(found.shift.tolist())
        assert torch.tensor(at.angles_degrees).deg2rad().cos().tolist() == pytest.approx(
            found.cosine.tolist(), abs=1e-6
        )


@pytest.mark.parametrize("k", [0, 1])
def test_remaining_bias_matches_the_exact_engine(record, toy, k):
    """At a ratio that is not a node, compared with T* of τ from sums over the pool."""
    x, pool = toy
    at, place = record.at[k], 121
    ratio = record.ratios[place]
    assert min(abs(app_temperature.nodes() - ratio)) > 0.02
    T_star = pool_moments(x, pool, tau=at.tau).T_star
    moments = exact_moments(x, pool, tau=ratio * at.tau, n=app_temperature.SIZES, estimator="standard")
    expected = (moments.T_star.unsqueeze(-2) + moments.bias - T_star.unsqueeze(-2)).norm(dim=-1).mean(0)
    assert [each.remaining[place] for each in at.sizes] == pytest.approx(expected.tolist(), rel=1e-4)
    # The check can fail: against the T* of τ′ it is another number.
    assert [each.remaining[place] for each in at.sizes] != pytest.approx(
        moments.bias.norm(dim=-1).mean(0).tolist(), rel=0.1
    )


def test_biases_at_the_intended_temperature(record, toy):
    one = record.ratios.index(1.0)
    for at in record.at:
        assert at.interpolation_error < 1e-4
        for name in ("standard", "abc"):
            bias = exact_moments(*toy, tau=at.tau, n=app_temperature.SIZES, estimator=name).bias.norm(dim=-1).mean(0)
            assert [getattr(each, name) for each in at.sizes] == pytest.approx(bias.tolist(), rel=1e-6)
        assert [each.remaining[one] for each in at.sizes] == pytest.approx(
            [each.standard for each in at.sizes], rel=1e-4
        )


def test_best_ratios_give_the_smallest_bias(record):
    for at in record.at:
        for each in at.sizes:
            assert each.own_best < each.best <= min(each.remaining)
            assert 0.3 < each.best_ratio < 1


def test_no_temperature_removes_the_first_order(record):
    """The best τ′, for all queries or per query, leaves a bias of O(1/n); ABC leaves O(1/n²)."""
    for at in record.at:
        standard, best, own_best, abc = at.slopes
        assert standard == pytest.approx(-1, abs=0.1)
        assert best == pytest.approx(-1, abs=0.1)
        assert own_best == pytest.approx(-1, abs=0.1)
        assert abc == pytest.approx(-2, abs=0.15)
        assert at.sizes[-1].abc < 0.5 * at.sizes[-1].best
        assert max(at.shifts) - min(at.shifts) > 0.3 * abs(sum(at.shifts) / len(at.shifts))


def test_n_eff_grows_with_the_temperature_at_every_query(record, toy):
    assert record.falls == 0
    for k in (0, 8, 16):
        share = pool_moments(*toy, tau=record.taus[k]).n_eff(1)
        assert record.share_median[k] == pytest.approx(float(share.quantile(0.5)))
        assert record.share_low[k] == pytest.approx(float(share.quantile(0.05)))
        assert record.share_high[k] == pytest.approx(float(share.quantile(0.95)))


def test_progress_is_reported(record, calls):
    assert calls[0] == ("app:temperature at τ = 0.1", 0, 11)
    assert len(calls) == 22
