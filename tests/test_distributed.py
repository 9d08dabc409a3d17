"""In one process every operation is the identity; rows are divided without gap or overlap."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truedrift import distributed


def test_operations_of_one_process_are_the_identity():
    rows = torch.arange(6.0).view(3, 2).requires_grad_()
    assert (distributed.rank(), distributed.size(), distributed.row_range(7)) == (0, 1, (0, 7))
    gathered = distributed.gather_rows(rows, 3)
    assert torch.equal(gathered, rows)
    assert not gathered.requires_grad
    tensors = [torch.ones(2), torch.zeros(3, dtype=torch.int64)]
    before = [tensor.clone() for tensor in tensors]
    distributed.all_reduce_sum(tensors)
    distributed.broadcast_tensors(tensors)
    assert all(torch.equal(a, b) for a, b in zip(tensors, before, strict=True))
    assert (distributed.any_process(False), distributed.any_process(True)) == (False, True)


@given(total=st.integers(0, 500), size=st.integers(1, 40))
def test_rows_are_divided_completely_and_evenly(total, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distributed, "size", lambda: size)
        ranges = [distributed.row_range(total, r) for r in range(size)]
    assert [row for start, end in ranges for row in range(start, end)] == list(range(total))
    counts = [end - start for start, end in ranges]
    assert max(counts) - min(counts) <= 1


def test_process_group_does_nothing_without_torchrun(monkeypatch):
    for value in (None, "1"):
        monkeypatch.delenv("WORLD_SIZE", raising=False) if value is None else monkeypatch.setenv("WORLD_SIZE", value)
        with distributed.process_group(torch.device("cpu")):
            assert not torch.distributed.is_initialized()


def test_all_reduce_sum_sends_dtypes_in_order_of_appearance(monkeypatch):
    """Every process must send its messages in the same order, so dtypes keep the order in which they appear."""
    sent = []
    monkeypatch.setattr(distributed, "size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda joined: sent.append((joined.dtype, joined.numel())))
    dtypes = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
    tensors = [torch.ones(k + 1, dtype=dtype) for k, dtype in enumerate(dtypes)]
    distributed.all_reduce_sum([*tensors, torch.ones(2, 3)])
    assert sent == [(torch.float64, 1), (torch.float32, 2 + 6), (torch.bfloat16, 3), (torch.float16, 4)]
