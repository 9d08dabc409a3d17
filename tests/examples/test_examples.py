"""The examples as a user runs them: the generator improves, and the change is two lines."""

import json
import math
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("plain_pytorch", "accelerate_loop", "lightning_loop")
JAX = "jax_loop"
STEPS = 60
LIMIT_SECONDS = 60
MARKED = re.compile(r"^ *(?P<code>.*?)  # truedrift: line (?P<number>[12]) of 2\n", re.MULTILINE)
# One thread and one kind of device, so that the three loops do the same arithmetic.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true"}


def source_of(name):
    return (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")


def run(script, cwd, *arguments):
    """Run the script, check that it succeeds, prints nothing to stderr and writes no file, and return its output."""
    command = [sys.executable, str(script), "--steps", str(STEPS), *arguments]
    environment = os.environ | ENVIRONMENT
    done = subprocess.run(
        command, capture_output=True, cwd=cwd, env=environment, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    # Accelerate warns about old kernels of the operating system, which does not concern the example.
    assert [line for line in done.stderr.splitlines() if "kernel version" not in line] == []
    assert list(cwd.iterdir()) == []
    return done.stdout


def distances(printed):
    """Return the sliced Wasserstein distance at every step that was printed."""
    shown = re.findall(r"^step +(\d+)   distance (\S+)$", printed, re.MULTILINE)
    assert [int(step) for step, _ in shown] == [0, 15, 30, 45, 60]
    return [float(distance) for _, distance in shown]


def require_improvement(values):
    """Require a lower distance; 60 steps bring it from 1.37 to about 0.8."""
    assert all(math.isfinite(value) for value in values)
    assert values[-1] < 0.8 * values[0]


@pytest.fixture(scope="module")
def shown_by(tmp_path_factory):
    """Return the output of an unchanged example, which is run once."""
    return cache(lambda name, *arguments: run(EXAMPLES / f"{name}.py", tmp_path_factory.mktemp(name), *arguments))


@pytest.mark.parametrize("name", [*NAMES, JAX])
def test_the_change_is_the_two_marked_lines(name):
    assert [(line["number"], line["code"]) for line in MARKED.finditer(source_of(name))] == [
        ("1", "from truedrift import abc_weights"),
        ("2", "alpha = abc_weights(alpha)"),
    ]


@pytest.mark.parametrize("name", [*NAMES, JAX])
def test_the_generator_improves(name, shown_by):
    require_improvement(distances(shown_by(name)))


@pytest.mark.parametrize("name", [NAMES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:])])
def test_without_the_two_lines_the_loop_gives_other_numbers(name, shown_by, tmp_path):
    before, count = MARKED.subn("", source_of(name))
    assert count == 2
    script, cwd = tmp_path / f"{name}.py", tmp_path / "cwd"
    script.write_text(before, encoding="utf-8")
    cwd.mkdir()
    without, corrected = distances(run(script, cwd)), distances(shown_by(name))
    require_improvement(without)
    assert without[0] == corrected[0]
    assert without[1:] != corrected[1:]


@pytest.mark.parametrize("name", NAMES[1:])
def test_the_three_loops_print_the_same(name, shown_by):
    assert shown_by(name) == shown_by("plain_pytorch")


def test_another_seed_gives_other_numbers(shown_by):
    assert shown_by("plain_pytorch", "--seed", "1") != shown_by("plain_pytorch")


def test_the_whole_loss_prints_its_report(shown_by):
    printed = shown_by("plain_pytorch", "--whole-loss")
    require_improvement(distances(printed))
    assert distances(printed) != distances(shown_by("plain_pytorch"))
    assert "loss 1.0000, constant by construction" in printed
    report = {
        name: (float(first), float(last)) for name, first, last in re.findall(r"^  (\w+) +(\S+) +(\S+)$", printed, re.M)
    }
    assert set(report) >= {"force", "n_eff_pos", "n_eff_neg", "correction_pos", "correction_neg", "spread"}
    assert all(1 <= n_eff <= 16 for n_eff in report["n_eff_pos"])
    first, last = report["spread"]
    assert first < 0.2 < last  # from one point in the middle to the ring


def test_the_readme_lists_every_example():
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"`python examples/(\w+)\.py", page)
    assert set(named) == {*NAMES, JAX, "own_parts"} == {path.stem for path in EXAMPLES.glob("*.py")}
    assert [line["code"] for line in MARKED.finditer(page)] == [
        line["code"] for line in MARKED.finditer(source_of("plain_pytorch"))
    ]


def test_own_parts_are_trained_and_a_second_run_finds_the_first_complete(tmp_path):
    command = [sys.executable, "-W", "error", str(EXAMPLES / "own_parts.py"), "--steps", "100"]
    printed = [
        subprocess.run(
            command, capture_output=True, cwd=tmp_path, env=os.environ | ENVIRONMENT, text=True, timeout=60, check=True
        ).stdout
        for _ in range(2)
    ]
    assert re.match(
        r"step 100 of 100: force \S+, \S+, \S+, distance ratio \S+\npictures in runs/own-parts/samples\n", printed[0]
    )
    assert printed[0] == printed[1]
    parts = json.loads((tmp_path / "runs" / "own-parts" / "config.json").read_text())["parts"]
    assert set(parts) == {"generator", "encoder", "kernel", "estimator_pos"}
