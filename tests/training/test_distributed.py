"""Several processes compute the loss and the gradients that one process computes on the joined batch."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from oracles.processes import CASES, REFERENCES
from safetensors.torch import load_file

TESTS = Path(__file__).parents[1]
RUN_PROCESSES = """
import sys
sys.path.insert(0, sys.argv[1])
from oracles.processes import build_step_with_few_rows, run_processes
from pathlib import Path
build_step_with_few_rows()(0)  # import what is imported late
for size in (1, 2, 3):
    run_processes(size, Path(sys.argv[2]))
run_processes(2, Path(sys.argv[2]), mutant=True)
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("distributed")


@pytest.fixture
def results(start, directory):
    """results(size) → the results of each process. All of them are computed at the first request."""
    if not (directory / "mutant-1.safetensors").exists():
        process = start(RUN_PROCESSES, TESTS, directory)
        assert process.wait() == 0, process.errors
    return lambda size, *mutant: [
        load_file(directory / f"{mutant[0] if mutant else size}-{rank}.safetensors") for rank in range(size)
    ]


def relative_error(a, b):
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("size", [2, 3])
def test_loss_and_gradients_equal_those_of_one_process(results, size):
    """Every normalization, feature scale, guidance and source; 15 and 4 rows are not multiples of both 2 and 3."""
    (one,) = results(1)
    names = [name for name in one if name.endswith((" loss", " gradient"))]
    assert len(names) == 2 * (len(CASES) + len(REFERENCES)) + 4 == 2 * (3 * 3 * 2 * 2 + 4) + 4
    for rank, actual in enumerate(results(size)):
        for name in names:
            assert relative_error(actual[name], one[name]) <= 1e-12, (rank, name)


def test_gradients_of_the_cases_differ(results):
    """Negative control: no case gives the gradient of another one."""
    (one,) = results(1)
    gradients = [one["/".join(map(str, case)) + " gradient"] for case in CASES if case[3] == "encoded"]
    close = [relative_error(a, b) < 1e-6 for i, a in enumerate(gradients) for b in gradients[:i]]
    assert not any(close)
    pairs = [
        tuple(one["/".join(map(str, (*case[:3], s))) + " gradient"] for s in ("encoded", "cached")) for case in CASES
    ]
    assert max(relative_error(a, b) for a, b in pairs) < 1e-4  # the same positives, rounded to float32 in the cache


def test_missing_gather_changes_gradients(results):
    """Negative control: processes that use only their own rows."""
    (one,) = results(1)
    for actual in results(2, "mutant"):
        assert relative_error(actual["gradient"], one["bidirectional/standardize-l2/0/encoded gradient"]) > 1e-2


def test_fresh_negatives_that_are_not_gathered_change_gradients(results):
    """Negative control: processes whose fresh negatives are copies of their own."""
    (one,) = results(1)
    for actual in results(2, "mutant"):
        assert relative_error(actual["fresh gradient"], one["fresh gradient"]) > 1e-2


@pytest.mark.parametrize("size", [2, 3])
def test_all_processes_have_the_same_weights_after_steps(results, size):
    (one,), all_ranks = results(1), results(size)
    names = [name for name in one if name.startswith("weights ")]
    assert any(name.startswith("weights ema") for name in names)
    for name in names:
        # Bit for bit between processes, and up to rounding with one process.
        assert all(torch.equal(actual[name], all_ranks[0][name]) for actual in all_ranks)
        assert relative_error(all_ranks[0][name], one[name]) <= 1e-9 or one[name].norm() < 1e-9, name


@pytest.mark.parametrize("size", [2, 3])
def test_random_draws_are_divided_among_processes_unchanged(results, size):
    (one,), all_ranks = results(1), results(size)
    for name in [name for name in one if name.startswith("own ")]:
        assert torch.equal(torch.cat([actual[name] for actual in all_ranks]), one[name]), name
    assert [len(actual["own z"]) for actual in all_ranks] == ([7, 8] if size == 2 else [5, 5, 5])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_collectives(results, size):
    for actual in results(size):
        assert torch.equal(actual["op gathered"], torch.arange(14.0).view(7, 2))
        assert actual["op summed 0"].tolist() == [sum(range(size))] * 2
        assert actual["op summed 1"].tolist() == [size] * 3
        assert actual["op summed 2"].tolist() == [[size] * 2] * 2
        assert actual["op copied"].tolist() == [5.0] * 2
        assert actual["op any"].tolist() == [False, True, True]


# ---- torchrun ----


def build_command(processes, out, *more):
    settings = {
        "generator.width": 32,
        "generator.depth": 1,
        "cadence.epochs": 4,
        "cadence.steps_per_epoch": 5,
        "cadence.log_every": 1,
        "cadence.checkpoint_every": 5,
        "cadence.grid_every": "none",
    }
    arguments = ["-m", "truedrift", "train", "digits", "--set", "batch.n=3", "--device", "cpu", "--out", str(out)]
    arguments += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return [sys.executable, *(torchrun if processes > 1 else []), *arguments, *more]


def environment():
    source = str(TESTS.parent / "src")
    return os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1", "TORCHELASTIC_ERROR_FILE": ""}


def read_metrics(out):
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "timing"} for line in lines]


def run_command(*arguments):
    options = {"env": environment(), "capture_output": True, "text": True, "timeout": 300}
    return subprocess.run(build_command(*arguments), check=False, **options)


@pytest.mark.slow
def test_one_process_resumes_a_run_of_two(tmp_path):
    """Two processes are stopped by SIGTERM and one process resumes: the metrics are those of one process."""
    uninterrupted = tmp_path / "uninterrupted"
    assert run_command(1, uninterrupted).returncode == 0
    out = tmp_path / "stopped"
    with subprocess.Popen(
        build_command(2, out), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as both:
        deadline = time.monotonic() + 200
        while not (out / "checkpoints" / "step-00000005" / "manifest.json").exists():
            assert time.monotonic() < deadline
            assert both.poll() is None, both.stderr.read().decode()
            time.sleep(0.05)
        both.send_signal(signal.SIGTERM)
        both.communicate(timeout=120)
    before = read_metrics(out)
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert history[0]["processes"] == 2
    assert sum(line["event"] == "started" for line in history) == 1  # only rank 0 writes
    assert [line["step"] for line in before] == list(range(1, len(before) + 1))
    resumed = run_command(1, out)
    assert resumed.returncode == 0, resumed.stderr
    actual, expected = read_metrics(out), read_metrics(uninterrupted)
    assert [line["step"] for line in actual] == [line["step"] for line in expected] == [*range(1, 21), 20]
    fids = actual.pop()["evaluation"]["fid"], expected.pop()["evaluation"]["fid"]  # at the end
    assert fids[0] == pytest.approx(fids[1], rel=1e-3)
    for a, b in zip(actual, expected, strict=True):
        for name in ("loss", "gradient_norm", "spread"):
            assert a[name] == pytest.approx(b[name], rel=1e-5 if a["step"] == 1 else 1e-3), (a["step"], name)


@pytest.mark.slow
def test_error_under_torchrun_is_one_line(tmp_path):
    finished = run_command(2, tmp_path / "run", "--set", "batch.n=500")
    assert finished.returncode != 0
    assert re.search(
        r"^truedrift: error: batch\.n is 500 and class '.' has \d+ images; .*; .*$", finished.stderr, re.MULTILINE
    )
