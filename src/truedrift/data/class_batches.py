"""Which images a step sees: n positives of every class, as a pure function of (seed, step).

Without replacement (the default). A pass has L = min_c N_c // n steps; pass p = step // L draws one permutation of
every class, and its step takes positions [n·j, n·j + n), j = step mod L. Within a pass nothing repeats, and of a class
of the smallest size every image is seen, up to the remainder of the division by n.

Queue (the paper's). The permutations of a class, pass after pass, are an endless stream; at step t the queue of class c
holds its positions [n·t, n·t + 256), and n are drawn from it with replacement.

A resumed run, another order of steps and another process see the same images: what is remembered between steps only
saves the permutation from being drawn again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch

from truedrift.axes import Tensor
from truedrift.errors import UserError, require_choice
from truedrift.seeding import stream

Sampling = Literal["without-replacement", "queue"]
SAMPLINGS = ("without-replacement", "queue")
PADDING = 2.0
"""The key of an entry that is none: behind every key of [0, 1)."""


class Batch(NamedTuple):
    """Positions in the data set, and which of them are to be mirrored left to right."""

    indices: Tensor
    """int64 [C, n], or [u]."""

    mirrored: Tensor
    """bool, of the same shape."""


def gather_samples(values: Tensor, batch: Batch) -> Tensor:
    """The samples of a batch [*batch, *sample_shape], mirrored where it says so."""
    picked = values.index_select(0, batch.indices.flatten())
    mirrored = batch.mirrored.flatten().nonzero()[:, 0]
    picked.index_copy_(0, mirrored, picked.index_select(0, mirrored).flip(-1))
    return picked.view(*batch.indices.shape, *values.shape[1:])


class ClassBatches:
    """n positives of each of the classes 0 … `classes` − 1 at every step; `names` are for what is said of mistakes."""

    def __init__(
        self,
        labels: Tensor,
        classes: int,
        *,
        n: int,
        seed: int,
        flips: bool,
        sampling: Sampling = "without-replacement",
        queue_size: int = 256,
        names: Sequence[str] | None = None,
    ) -> None:
        require_choice("sampling", sampling, SAMPLINGS)
        counts = torch.bincount(labels, minlength=classes)
        _require_sizes(counts, classes, n, sampling, names)
        if queue_size < 1:
            raise UserError(f"is {queue_size}", "must be 1 or more", "the paper's is 256", field="queue_size")
        self.n, self.seed, self.flips, self.sampling, self.queue_size = n, seed, flips, sampling, queue_size
        self.total = len(labels)
        self.counts = counts
        self.steps_per_pass = max(int(counts.min()) // n, 1)
        self._members, self._is_member = _padded(labels, counts)
        # Passes that fit into a queue of the smallest class, the begun one included.
        self._passes_in_queue = (queue_size - 2) // int(counts.min()) + 2
        self._remembered: tuple[int, Tensor] = (-1, self._members)
        # Pass p of a class is remembered at place p mod passes: those of one queue never share a place.
        self._held = torch.full((classes, self._passes_in_queue), -1)
        self._window = self._members[:, None].repeat(1, self._passes_in_queue if sampling == "queue" else 0, 1)

    def at(self, step: int) -> Batch:
        """The positives of that step: indices and mirrored [C, n]."""
        _require_step(step)
        indices = self._queued(step) if self.sampling == "queue" else self._slice(step)
        return Batch(indices, self._mirrored("flips", step, tuple(indices.shape)))

    def unconditional(self, step: int, u: int) -> Batch:
        """u images of all classes, uniformly and without replacement within the batch: indices and mirrored [u]."""
        _require_step(step)
        if not 0 <= u <= self.total:
            raise UserError(f"u is {u}", f"allowed is 0 to {self.total}, the number of images", "take fewer")
        indices = torch.randperm(self.total, generator=stream(self.seed, "unconditional", step))[:u]
        return Batch(indices, self._mirrored("unconditional-flips", step, (u,)))

    def _mirrored(self, purpose: str, step: int, shape: tuple[int, ...]) -> Tensor:
        if not self.flips:
            return torch.zeros(shape, dtype=torch.bool)
        return torch.rand(shape, generator=stream(self.seed, purpose, step)) < 0.5

    def _slice(self, step: int) -> Tensor:
        number, slot = divmod(step, self.steps_per_pass)
        if self._remembered[0] != number:
            self._remembered = (number, self._permutations(number, torch.arange(len(self.counts))))
        return self._remembered[1][:, slot * self.n : (slot + 1) * self.n].clone()

    def _permutations(self, number: int, classes: Tensor) -> Tensor:
        """π of those classes in pass `number` [k, max N_c of them], padding last."""
        longest = int(self.counts[classes].max())
        # In float64 no two keys of a class are equal, but for one pass in 10⁸ of classes of 10⁴.
        keys = torch.rand(self._members.shape, generator=stream(self.seed, "positives", number), dtype=torch.float64)
        keys, is_member = keys[classes, :longest], self._is_member[classes, :longest]
        order = keys.masked_fill_(~is_member, PADDING).argsort(dim=-1, stable=True)
        return self._members[classes, :longest].gather(-1, order)

    def _queued(self, step: int) -> Tensor:
        shape = (len(self.counts), self.n)
        drawn = torch.randint(self.queue_size, shape, generator=stream(self.seed, "queue", step))
        position = self.n * step + drawn
        number, offset = position // self.counts[:, None], position % self.counts[:, None]
        self._remember(number)
        return self._window[torch.arange(shape[0])[:, None], number % self._passes_in_queue, offset]

    def _remember(self, number: Tensor) -> None:
        """Draw the passes number [C, n] that are not held: of a class, only those that a sample is taken from."""
        missing = self._held.gather(-1, number % self._passes_in_queue) != number
        for each in number[missing].unique().tolist():
            classes = (missing & (number == each)).any(-1).nonzero()[:, 0]
            drawn, place = self._permutations(each, classes), each % self._passes_in_queue
            self._window[classes, place, : drawn.shape[-1]] = drawn
            self._held[classes, place] = each


def _padded(labels: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """The positions of each class in a row [C, max_c N_c], and which entries of it there are."""
    is_member = torch.arange(int(counts.max())) < counts[:, None]
    members = torch.zeros(is_member.shape, dtype=torch.int64)
    members[is_member] = labels.argsort(stable=True)
    return members, is_member


def _require_sizes(counts: Tensor, classes: int, n: int, sampling: Sampling, names: Sequence[str] | None) -> None:
    if len(counts) != classes or classes < 1:
        came = f"labels reach to {len(counts) - 1} and classes is {classes}"
        raise UserError(came, "allowed are labels below the number of classes", "count the classes again")
    if n < 1:
        raise UserError(f"is {n}", "must be 1 or more", "the paper takes 64", field="n")
    smallest = int(counts.argmin())
    size = int(counts[smallest])
    least = n if sampling == "without-replacement" else 1
    if size < least:
        name = repr(names[smallest]) if names else str(smallest)
        raise UserError(
            f"is {n} and class {name} has {size} images",
            f"allowed is n up to the smallest class, with {least} or more images in each",
            f"take n = {size} or less, or sampling queue, which draws with replacement"
            if size
            else "remove that class",
            field="n",
        )


def _require_step(step: int) -> None:
    if step < 0:
        raise UserError(f"step is {step}", "allowed is 0 or more", "count steps from 0")
