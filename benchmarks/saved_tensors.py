"""Peak memory of the tensors that autograd saves for the backward pass, which micro-batches reduce."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


class SavedTensor:
    """A saved tensor, counted until autograd releases it."""

    def __init__(self, tensor: Tensor, counter: StorageCounter) -> None:
        self.tensor, self.counter = tensor, counter
        counter.add(tensor)

    def __del__(self) -> None:
        self.counter.remove(self.tensor)


class StorageCounter:
    """The bytes of all saved storages. Each storage counts once; storages of weights do not count."""

    def __init__(self, weights: Iterable[Tensor]) -> None:
        self.weights = {weight.untyped_storage().data_ptr() for weight in weights}
        self.uses: Counter[int] = Counter()
        self.live = self.peak = 0

    def add(self, tensor: Tensor) -> None:
        """Count the storage of a tensor."""
        block = tensor.untyped_storage()
        if block.data_ptr() in self.weights:
            return
        self.uses[block.data_ptr()] += 1
        if self.uses[block.data_ptr()] == 1:
            self.live += block.nbytes()
            self.peak = max(self.peak, self.live)

    def remove(self, tensor: Tensor) -> None:
        """Stop counting the storage of a tensor."""
        block = tensor.untyped_storage()
        if block.data_ptr() in self.weights:
            return
        self.uses[block.data_ptr()] -= 1
        if self.uses[block.data_ptr()] == 0:
            self.live -= block.nbytes()


def peak_saved_bytes(run: Callable[[], object], weights: Iterable[Tensor]) -> int:
    """Return the largest number of saved bytes during `run`."""
    counter = StorageCounter(weights)
    with saved_tensors_hooks(lambda tensor: SavedTensor(tensor, counter), lambda saved: saved.tensor):
        run()
    return counter.peak
