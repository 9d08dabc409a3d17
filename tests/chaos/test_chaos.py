"""The short version: a few tries of each attack, and its negative control. `make test-chaos` is the long one."""

import os
from pathlib import Path

import pytest
from chaos.catalog import all_attacks
from chaos.runs import Bench
from chaos.table import Attack, Row, format_table, run_attack

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs the signals of POSIX")
NAMES = [attack.name for attack in all_attacks(Bench(Path()))]


@pytest.fixture(scope="module")
def attacks(tmp_path_factory):
    return {attack.name: attack for attack in all_attacks(Bench(tmp_path_factory.mktemp("chaos"), is_quick=True))}


@pytest.mark.parametrize("name", NAMES)
def test_attack_is_survived_and_its_control_is_not(attacks, name):
    row = run_attack(attacks[name], seed=0, tries=attacks[name].quick_tries)
    print(format_table([row]))
    assert row.failures == []
    assert row.red is not None


def make_attack(attempt):
    return Attack("an attack", lambda rng, number: number, attempt, control="nothing", broken=lambda: None)


def test_a_lost_try_and_a_green_control_fail():
    """The harness itself can fail."""
    survives = run_attack(make_attack(lambda case, before: "lost" if before else None), seed=0, tries=3)
    assert (survives.tries, survives.survived, survives.passed) == (3, 3, True)
    loses = run_attack(make_attack(lambda case, before: "lost" if before or case == 1 else None), seed=0, tries=3)
    assert (loses.survived, loses.passed) == (2, False)
    assert loses.failures == ["an attack, seed 0, case 1: 1: lost"]
    green = run_attack(make_attack(lambda case, before: None), seed=0, tries=3)
    assert (green.survived, green.control_tries, green.passed) == (3, 6, False)
    broken = run_attack(make_attack(lambda case, before: 1 / case if not before else "lost"), seed=0, tries=1)
    assert "ZeroDivisionError" in broken.failures[0]


def test_table():
    rows = [Row("kill", "no hash", tries=5, red="lost"), Row("flip", "no check", tries=4, failures=["lost"])]
    assert format_table(rows).splitlines()[2:] == [
        "| kill | 5 | 5 | no hash | red |",
        "| flip | 4 | 3 | no check | NOT RED |",
        "| all | 9 | 8 |  |  |",
    ]
