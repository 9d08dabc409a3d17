"""Numbers of a run, compared with literal computations."""

import pytest
from oracles.image_grids import run

from truedrift.paper import grid_tables


def test_last_average_uses_five_evaluations_and_best_all():
    of = run("abc", 8, 0, [1.0, 90.0, 7.0, 8.0, 6.5, 4.5, 5.0])
    assert grid_tables.last_average(of) == pytest.approx((7.0 + 8.0 + 6.5 + 4.5 + 5.0) / 5)
    assert grid_tables.best(of) == 1.0


def test_last_average_of_fewer_than_five_evaluations():
    assert grid_tables.last_average(run("abc", 8, 0, [9.0, 6.0])) == 7.5


def test_first_hit_includes_equality():
    of = run("abc", 8, 0, [9.0, 7.0, 8.0, 6.0])
    assert grid_tables.first_hit(of, 7.0) == 2 * 50 * 8
    assert grid_tables.first_hit(of, 6.99) == 4 * 50 * 8
    assert grid_tables.first_hit(of, 5.99) is None
