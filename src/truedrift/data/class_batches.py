"""Batches per class: n positives of every class at every step, as a pure function of (seed, step).

Without replacement (the default). A pass has L = min_c N_c // n steps; pass p = step // L draws one permutation of
every class, and its step takes positions [n·j, n·j + n), j = step mod L. Within a pass nothing repeats. A pass covers
the smallest class completely, up to the remainder of the division by n.

Queue (as in the paper). The permutations of a class, pass after pass, form an endless stream; at step t the queue of
class c holds its positions [n·t, n·t + 256), and n are drawn from it with replacement.

A resumed run, another order of steps and another process get the same images: the state between steps is only a cache
of permutations.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import torch

from truedrift.axes import Tensor
from truedrift.errors import UserError, require_choice, require_integer
from truedrift.seeding import stream

Sampling = Literal["without-replacement", "queue"]
SAMPLINGS: tuple[Sampling, ...] = get_args(Sampling)
PADDING = 2.0
"""Sorting key of padding, above every key in [0, 1)."""


class Batch(NamedTuple):
    """Positions in the data set, and which of them to mirror left to right."""

    indices: Tensor
    """Positions, int64 [C, n] or [u]."""

    mirrored: Tensor
    """Which images to mirror, bool of the same shape."""


def gather_samples(values: Tensor, batch: Batch) -> Tensor:
    """Gather the samples of a batch, mirrored as the batch specifies.

    Args:
        values: All samples [N, *sample_shape].
        batch: Positions and mirroring of any shape.

    Returns:
        Samples [*batch shape, *sample_shape].

    Example:
        >>> batch = Batch(torch.tensor([1, 0]), torch.tensor([True, False]))
        >>> gather_samples(torch.tensor([[1, 2], [3, 4]]), batch)
        tensor([[4, 3],
                [1, 2]])
    """
    samples = values.index_select(0, batch.indices.flatten())
    mirrored = batch.mirrored.flatten().nonzero()[:, 0]
    samples.index_copy_(0, mirrored, samples.index_select(0, mirrored).flip(-1))
    return samples.view(*batch.indices.shape, *values.shape[1:])


class ClassBatches:
    """n positives of each of the classes 0 … `classes` − 1 at every step.

    Args:
        labels: int64 [N], the class of every sample.
        classes: Number of classes.
        n: Positives per class and step.
        seed: Seed of permutations and mirroring.
        flips: Mirror every image with probability ½.
        sampling: "without-replacement" or "queue".
        queue_size: Length of the queue of each class.
        names: Names of the classes, for messages.

    Example:
        >>> batches = ClassBatches(torch.tensor([0, 0, 1, 1, 1]), 2, n=2, seed=0, flips=False)
        >>> batches.at(0).indices.shape, batches.steps_per_pass
        (torch.Size([2, 2]), 1)
    """

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
        require_integer("queue_size", queue_size, 1, 256)
        self.n, self.seed, self.flips, self.sampling, self.queue_size = n, seed, flips, sampling, queue_size
        self.total = len(labels)
        self.counts = counts
        self.steps_per_pass = max(int(counts.min()) // n, 1)
        # The positions of each class in one row [C, max_c N_c], and which entries are not padding.
        self._is_member = torch.arange(int(counts.max())) < counts[:, None]
        self._members = torch.zeros(self._is_member.shape, dtype=torch.int64)
        self._members[self._is_member] = labels.argsort(stable=True)
        # Cache without replacement: the permutations of one pass.
        self._cached_pass: tuple[int, Tensor] = (-1, self._members)
        # Cache of the queue: pass p of a class is at slot p mod passes, so the passes in one queue never share a slot.
        # The number of passes is for the smallest class and includes those that the queue holds in part.
        self._passes_in_queue = (queue_size - 2) // int(counts.min()) + 2
        self._pass_in_slot = torch.full((classes, self._passes_in_queue), -1)
        self._window = self._members[:, None].repeat(1, self._passes_in_queue if sampling == "queue" else 0, 1)

    def at(self, step: int) -> Batch:
        """Return the positives of a step: indices and mirrored [C, n]."""
        require_integer("step", step, 0, 0)
        indices = self._draw_from_queue(step) if self.sampling == "queue" else self._slice_pass(step)
        return Batch(indices, self._draw_mirrored("flips", step, tuple(indices.shape)))

    def unconditional(self, step: int, u: int) -> Batch:
        """Draw u images of all classes uniformly, without replacement within the batch: indices and mirrored [u]."""
        require_integer("step", step, 0, 0)
        if not 0 <= u <= self.total:
            raise UserError(f"is {u}", f"must be 0 to {self.total}, the number of images", "use fewer", field="u")
        indices = torch.randperm(self.total, generator=stream(self.seed, "unconditional", step))[:u]
        return Batch(indices, self._draw_mirrored("unconditional-flips", step, (u,)))

    def _draw_mirrored(self, purpose: str, step: int, shape: tuple[int, ...]) -> Tensor:
        if not self.flips:
            return torch.zeros(shape, dtype=torch.bool)
        return torch.rand(shape, generator=stream(self.seed, purpose, step)) < 0.5

    def _slice_pass(self, step: int) -> Tensor:
        number, slot = divmod(step, self.steps_per_pass)
        if self._cached_pass[0] != number:
            self._cached_pass = (number, self._draw_permutations(number, torch.arange(len(self.counts))))
        return self._cached_pass[1][:, slot * self.n : (slot + 1) * self.n].clone()

    def _draw_permutations(self, number: int, classes: Tensor) -> Tensor:
        """Draw the permutations of these k classes in pass `number` [k, max N_c of them], padding last."""
        longest = int(self.counts[classes].max())
        # In float64, two keys of a class of 10⁴ are equal only in about one pass in 10⁸.
        keys = torch.rand(self._members.shape, generator=stream(self.seed, "positives", number), dtype=torch.float64)
        keys, is_member = keys[classes, :longest], self._is_member[classes, :longest]
        order = keys.masked_fill_(~is_member, PADDING).argsort(dim=-1, stable=True)
        return self._members[classes, :longest].gather(-1, order)

    def _draw_from_queue(self, step: int) -> Tensor:
        shape = (len(self.counts), self.n)
        # Draw positions in the endless stream of each class, then split them into pass and offset.
        place = torch.randint(self.queue_size, shape, generator=stream(self.seed, "queue", step))
        position = self.n * step + place
        number, offset = position // self.counts[:, None], position % self.counts[:, None]
        self._cache_passes(number)
        return self._window[torch.arange(shape[0])[:, None], number % self._passes_in_queue, offset]

    def _cache_passes(self, number: Tensor) -> None:
        """Draw those of the passes number [C, n] that are not in the cache, only for the classes that need them."""
        missing = self._pass_in_slot.gather(-1, number % self._passes_in_queue) != number
        for each in number[missing].unique().tolist():
            classes = (missing & (number == each)).any(-1).nonzero()[:, 0]
            permutations, slot = self._draw_permutations(each, classes), each % self._passes_in_queue
            self._window[classes, slot, : permutations.shape[-1]] = permutations
            self._pass_in_slot[classes, slot] = each


def _require_sizes(counts: Tensor, classes: int, n: int, sampling: Sampling, names: Sequence[str] | None) -> None:
    if len(counts) != classes or classes < 1:
        problem = f"the largest label is {len(counts) - 1} and classes is {classes}"
        raise UserError(problem, "labels must be below the number of classes", "count the classes again")
    require_integer("n", n, 1, 64)
    smallest = int(counts.argmin())
    size = int(counts[smallest])
    least = n if sampling == "without-replacement" else 1
    if size < least:
        problem = f"is {n} and class {repr(names[smallest]) if names else smallest} has {size} images"
        fewer = f"use n = {size} or less, or sampling queue, which draws with replacement"
        allowed = f"every class must have at least {least} images"
        raise UserError(problem, allowed, fewer if size else "remove that class", field="n")
