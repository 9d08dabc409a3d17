"""The most that autograd held at a time, in bytes of saved tensors: what micro-batches are there to bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


class Held:
    """A saved tensor, counted until autograd lets it go."""

    def __init__(self, tensor: Tensor, ledger: Ledger) -> None:
        self.tensor, self.ledger = tensor, ledger
        ledger.take(tensor)

    def __del__(self) -> None:
        self.ledger.release(self.tensor)


class Ledger:
    """Bytes of memory blocks that are held, each counted once, those of weights not at all."""

    def __init__(self, weights: Iterable[Tensor]) -> None:
        self.weights = {weight.untyped_storage().data_ptr() for weight in weights}
        self.holders: Counter[int] = Counter()
        self.live = self.peak = 0

    def take(self, tensor: Tensor) -> None:
        """One more holder of its memory."""
        block = tensor.untyped_storage()
        if block.data_ptr() in self.weights:
            return
        self.holders[block.data_ptr()] += 1
        if self.holders[block.data_ptr()] == 1:
            self.live += block.nbytes()
            self.peak = max(self.peak, self.live)

    def release(self, tensor: Tensor) -> None:
        """One holder less."""
        block = tensor.untyped_storage()
        if block.data_ptr() in self.weights:
            return
        self.holders[block.data_ptr()] -= 1
        if self.holders[block.data_ptr()] == 0:
            self.live -= block.nbytes()


def peak_saved_bytes(run: Callable[[], object], weights: Iterable[Tensor]) -> int:
    """The largest sum of saved bytes during `run`."""
    ledger = Ledger(weights)
    with saved_tensors_hooks(lambda tensor: Held(tensor, ledger), lambda held: held.tensor):
        run()
    return ledger.peak
