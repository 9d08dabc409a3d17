"""Several processes: differing ones are refused with what differs, and a lost one is one line and a status."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from truedrift import distributed
from truedrift.training.ranks import describe_differences

SOURCE = Path(__file__).parents[2] / "src"
SETTINGS = (
    *("generator.width=16", "generator.depth=1", "batch.n=3", "cadence.epochs=4", "cadence.steps_per_epoch=5"),
    *("cadence.log_every=1", "cadence.checkpoint_every=5", "cadence.grid_every=none"),
)


def start_ranks(out, *extras, more=()):
    """Start one process per tuple of further arguments, as torchrun would."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "truedrift", "train", "toy", "--device", "cpu", "--out", str(out), *more]
    command += [part for setting in SETTINGS for part in ("--set", setting)]
    shared = {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [
        subprocess.Popen(
            [*command, *extra],
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(len(extras))},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, extra in enumerate(extras)
    ]


def finish(processes, seconds=120):
    """Return status and last line of stderr of every process."""
    ended = []
    for process in processes:
        _, errors = process.communicate(timeout=seconds)
        ended.append((process.returncode, errors.strip().splitlines()[-1] if errors.strip() else ""))
    return ended


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (("--set", "optimizer.learning_rate=0.5"), r"optimizer\.learning_rate is 0\.\d+ on rank 0 and 0\.5 on rank 1"),
        (("--seed", "7"), "seed is 0 on rank 0 and 7 on rank 1"),
        (("--data", "two-moons"), r'data\.name is "[\w-]+" on rank 0 and "two-moons" on rank 1'),
        (("--set", "cadence.epochs=5"), "cadence.epochs is 4 on rank 0 and 5 on rank 1"),
    ],
    ids=["learning rate", "seed", "data", "length"],
)
def test_ranks_that_differ_are_refused(tmp_path, extra, message):
    ended = finish(start_ranks(tmp_path / "run", (), extra))
    assert [status for status, _ in ended] == [2, 2]
    for rank, (_, line) in enumerate(ended):
        assert line.startswith(f"truedrift: rank {rank}: error: the processes of this run differ: ")
        assert re.search(message, line)
    assert not (tmp_path / "run" / "checkpoints").exists()


def wait_for(path, processes):
    deadline = time.monotonic() + 100
    while not path.exists():
        assert time.monotonic() < deadline
        assert all(process.poll() is None for process in processes)
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("number", "more", "message"),
    [
        (signal.SIGKILL, (), "rank 1 ended"),
        (signal.SIGSTOP, ("--timeout", "0.05"), "another process has not answered for 0.05 minutes"),
    ],
    ids=["killed", "silent"],
)
def test_a_lost_rank_is_one_line(tmp_path, number, more, message):
    out = tmp_path / "run"
    endless = ("--set", "cadence.epochs=100000", "--set", "optimizer.schedule=constant")
    processes = start_ranks(out, endless, endless, more=more)
    try:
        wait_for(out / "checkpoints" / "step-00000005" / "manifest.json", processes)
        processes[1].send_signal(number)
        _, errors = processes[0].communicate(timeout=60)
    finally:
        processes[1].kill()
        processes[1].communicate()
    assert processes[0].returncode == 1
    assert "Traceback" not in errors
    expected = f"truedrift: rank 0: {message}; checkpoints are intact; run the same command to resume"
    assert errors.strip().splitlines()[-1] == expected


def test_places_of_data_and_micro_batches_may_differ():
    trees = [
        {"config": {"data": {"root": root}, "engine": {"micro_batch": size}}} for root, size in (("a", 1), ("b", 2))
    ]
    assert describe_differences(trees) == []
    assert describe_differences([{"data": {"sha256": "a"}}, {"data": {"sha256": "b"}}]) == [
        'data.sha256 is "a" on rank 0 and "b" on rank 1'
    ]


def test_other_errors_are_not_taken_for_a_lost_process():
    assert distributed._connection_problem("mat1 and mat2 shapes cannot be multiplied", 10) is None
    closed = "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4711"
    assert distributed._connection_problem(closed, 10) == "ended"
    late = "[/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 600000ms for recv"
    assert distributed._connection_problem(late, 10) == "has not answered for 10 minutes"
