"""Several processes give the loss and the gradients of one on the joined batch, for any number of processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from oracles.processes import CASES
from safetensors.torch import load_file

TESTS = Path(__file__).parents[1]
WORK = """
import sys
sys.path.insert(0, sys.argv[1])
from oracles.processes import fewer_rows_than_processes, together
from pathlib import Path
fewer_rows_than_processes()(0)  # what is imported late
for size in (1, 2, 3):
    together(size, Path(sys.argv[2]))
together(2, Path(sys.argv[2]), mutant=True)
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return tmp_path_factory.mktemp("distributed")


@pytest.fixture
def computed(start, places):
    """size → the results of each process; all are computed at the first question."""
    if not (places / "mutant-1.safetensors").exists():
        running = start(WORK, TESTS, places)
        assert running.wait() == 0, running.errors
    return lambda size, *mutant: [
        load_file(places / f"{mutant[0] if mutant else size}-{rank}.safetensors") for rank in range(size)
    ]


def relative(a, b):
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("size", [2, 3])
def test_loss_and_gradients_are_those_of_one_process(computed, size):
    """Every normalization, scale, guidance and source of positives; 15 and 4 rows do not divide by 2 and 3."""
    (one,) = computed(1)
    names = [name for name in one if name.endswith((" loss", " gradient"))]
    assert len(names) == 2 * len(CASES) + 4 == 2 * 3 * 3 * 2 * 2 + 4
    for rank, ours in enumerate(computed(size)):
        for name in names:
            assert relative(ours[name], one[name]) <= 1e-12, (rank, name)


def test_cases_differ_from_each_other(computed):
    """The control: no two of them could stand in for one another."""
    (one,) = computed(1)
    gradients = [one["/".join(map(str, case)) + " gradient"] for case in CASES if case[3] == "live"]
    close = [relative(a, b) < 1e-6 for i, a in enumerate(gradients) for b in gradients[:i]]
    assert not any(close)
    pairs = [tuple(one["/".join(map(str, (*case[:3], s))) + " gradient"] for s in ("live", "kept")) for case in CASES]
    assert max(relative(a, b) for a, b in pairs) < 1e-4  # the same positives, rounded to float32 in the file


def test_statistics_of_one_processs_own_rows_would_be_noticed(computed):
    (one,) = computed(1)
    for ours in computed(2, "mutant"):
        assert relative(ours["gradient"], one["bidirectional/standardize-l2/0/live gradient"]) > 1e-2


@pytest.mark.parametrize("size", [2, 3])
def test_steps_lead_to_the_same_weights_everywhere(computed, size):
    (one,), all_ranks = computed(1), computed(size)
    names = [name for name in one if name.startswith("weights ")]
    assert any(name.startswith("weights ema") for name in names)
    for name in names:
        assert all(torch.equal(ours[name], all_ranks[0][name]) for ours in all_ranks)  # bit for bit among themselves
        assert relative(all_ranks[0][name], one[name]) <= 1e-9 or one[name].norm() < 1e-9, name


@pytest.mark.parametrize("size", [2, 3])
def test_the_stream_of_samples_is_dealt_out_and_not_changed(computed, size):
    (one,), all_ranks = computed(1), computed(size)
    for name in [name for name in one if name.startswith("own ")]:
        assert torch.equal(torch.cat([ours[name] for ours in all_ranks]), one[name]), name
    assert [len(ours["own z"]) for ours in all_ranks] == ([7, 8] if size == 2 else [5, 5, 5])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_collectives(computed, size):
    for ours in computed(size):
        assert torch.equal(ours["op gathered"], torch.arange(14.0).view(7, 2))
        assert ours["op summed 0"].tolist() == [sum(range(size))] * 2
        assert ours["op summed 1"].tolist() == [size] * 3
        assert ours["op summed 2"].tolist() == [[size] * 2] * 2
        assert ours["op copied"].tolist() == [5.0] * 2
        assert ours["op any"].tolist() == [False, True, True]


# ---- torchrun ------------------------------------------------------------------------------------------------------


def command(processes, out, *more):
    settings = {
        "generator.width": 32,
        "generator.depth": 1,
        "cadence.epochs": 4,
        "cadence.steps_per_epoch": 5,
        "cadence.log_every": 1,
        "cadence.checkpoint_every": 5,
        "cadence.grid_every": "none",
    }
    launched = ["-m", "truedrift", "train", "digits", "--set", "batch.n=3", "--device", "cpu", "--out", str(out)]
    launched += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return [sys.executable, *(torchrun if processes > 1 else []), *launched, *more]


def environment():
    source = str(TESTS.parent / "src")
    return os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1", "TORCHELASTIC_ERROR_FILE": ""}


def metrics(out):
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "timing"} for line in lines]


def run(*arguments):
    options = {"env": environment(), "capture_output": True, "text": True, "timeout": 300}
    return subprocess.run(command(*arguments), check=False, **options)


@pytest.mark.slow
def test_torchrun_trains_and_one_process_goes_on(tmp_path):
    """Two processes are stopped by SIGTERM, one process takes over, and the numbers are those of one process."""
    whole = tmp_path / "whole"
    assert run(1, whole).returncode == 0
    out = tmp_path / "stopped"
    with subprocess.Popen(command(2, out), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as both:
        deadline = time.monotonic() + 200
        while not (out / "checkpoints" / "step-00000005" / "manifest.json").exists():
            assert time.monotonic() < deadline
            assert both.poll() is None, both.stderr.read().decode()
            time.sleep(0.05)
        both.send_signal(signal.SIGTERM)
        both.communicate(timeout=120)
    before = metrics(out)
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert history[0]["processes"] == 2
    assert sum(line["event"] == "started" for line in history) == 1  # only one process writes
    assert [line["step"] for line in before] == list(range(1, len(before) + 1))
    done = run(1, out)
    assert done.returncode == 0, done.stderr
    ours, expected = metrics(out), metrics(whole)
    assert [line["step"] for line in ours] == [line["step"] for line in expected] == [*range(1, 21), 20]
    judged = ours.pop()["evaluation"]["fid"], expected.pop()["evaluation"]["fid"]  # at the end
    assert judged[0] == pytest.approx(judged[1], rel=1e-3)
    for a, b in zip(ours, expected, strict=True):
        for name in ("loss", "gradient_norm", "spread"):
            assert a[name] == pytest.approx(b[name], rel=1e-5 if a["step"] == 1 else 1e-3), (a["step"], name)


@pytest.mark.slow
def test_a_mistake_under_torchrun_is_told_in_one_line(tmp_path):
    done = run(2, tmp_path / "run", "--set", "batch.n=500")
    assert done.returncode != 0
    assert "images and batch.n is 500; allowed is n up to the smallest class" in done.stderr
