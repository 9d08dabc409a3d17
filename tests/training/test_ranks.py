"""Several processes: what differs between them, and how a lost one is recognized. tests/chaos starts real ones."""

import os
import socket
import subprocess
import sys

from truedrift import distributed
from truedrift.training.ranks import describe_differences


def test_places_of_data_and_micro_batches_may_differ():
    trees = [
        {"config": {"data": {"root": root}, "engine": {"micro_batch": size}}} for root, size in (("a", 1), ("b", 2))
    ]
    assert describe_differences(trees) == []
    assert describe_differences([{"data": {"sha256": "a"}}, {"data": {"sha256": "b"}}]) == [
        'data.sha256 is "a" on rank 0 and "b" on rank 1'
    ]


def test_long_values_are_cut_with_a_mark():
    same, (first, second) = "x" * 80, describe_differences([{"a": "x" * 80}, {"a": "y"}])[0].split(" and ")
    assert first == f'a is "{same[:59]}… on rank 0'
    assert second == '"y" on rank 1'


def test_other_errors_are_not_taken_for_a_lost_process():
    assert distributed._connection_problem("mat1 and mat2 shapes cannot be multiplied", 10) is None
    closed = "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4711"
    assert distributed._connection_problem(closed, 10) == "ended"
    late = "[/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 600000ms for recv"
    assert distributed._connection_problem(late, 10) == "has not answered for 10 minutes"


def test_a_process_that_never_starts_is_one_line(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    done = subprocess.run(
        [sys.executable, "-m", "truedrift", "train", "toy", "--timeout", "0.02", "--out", str(tmp_path / "run")],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | ranks,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    line = done.stderr.strip().splitlines()[-1]
    assert (done.returncode, line) == (
        1,
        "truedrift: rank 0: only 1 of 2 processes started within 0.02 minutes; checkpoints are intact; run the same "
        "command to resume",
    )
