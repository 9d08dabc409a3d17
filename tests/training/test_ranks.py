"""Several processes: what differs between them, and how a lost one is recognized. tests/chaos starts real ones."""

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


def test_other_errors_are_not_taken_for_a_lost_process():
    assert distributed._connection_problem("mat1 and mat2 shapes cannot be multiplied", 10) is None
    closed = "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4711"
    assert distributed._connection_problem(closed, 10) == "ended"
    late = "[/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 600000ms for recv"
    assert distributed._connection_problem(late, 10) == "has not answered for 10 minutes"
