"""Batches per class: n positives of the classes of a step, as a pure function of (seed, step).

Classes. A step has all C classes, or C' = `labels` of them. These are drawn without replacement: a round has
R = C // C' steps, round r = step // R draws one permutation of the classes, and its step takes C' of them. A class is
therefore drawn at most once per round. With all classes a round is one step.

Without replacement (the default). A pass has L = min_c N_c // n rounds; pass p = r // L draws one permutation of every
class, and its round takes positions [n·j, n·j + n), j = r mod L. Within a pass nothing repeats. With all classes a pass
covers the smallest class completely, up to the remainder of the division by n.

Queue (as in the paper). The permutations of a class, pass after pass, form an endless stream; in round r the queue of
class c holds its positions [n·r, n·r + 256), and n are drawn from it with replacement.

With replacement. All n are independent draws from all samples of the class, for classes of very different sizes: n may
exceed the smallest class, and the work of a step does not grow with the number of samples.

A resumed run, another order of steps and another process get the same images: the state between steps is only a cache
of permutations. With all classes a pass of all images is cached. With `labels`, every class has random streams of its
own and nothing is cached, so that the work of a step does not grow with the number of classes.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import torch

from truedrift.axes import Tensor
from truedrift.errors import UserError, require_choice, require_integer
from truedrift.seeding import stream

Sampling = Literal["without-replacement", "queue", "with-replacement"]
SAMPLINGS: tuple[Sampling, ...] = get_args(Sampling)
PADDING = 2.0
"""Sorting key of padding, above every key in [0, 1)."""
KEYS_AT_ONCE = 1 << 20
"""Sorting keys drawn at a time. Classes of very different sizes have more padding than images."""


class Batch(NamedTuple):
    """Positions in the data set, and which of them to mirror left to right."""

    indices: Tensor
    """Positions, int64 [C', n] or [u]."""

    mirrored: Tensor
    """Which images to mirror, bool of the same shape."""


class ClassDraw(NamedTuple):
    """The classes of a step."""

    classes: Tensor
    """Numbers of the classes, int64 [C'], ascending."""

    round: int
    """How often a class was due before this step. With all classes it is the step."""


def draw_classes(classes: int, labels: int | None, seed: int, step: int) -> ClassDraw:
    """Draw the classes of a step, a pure function of (seed, step).

    Args:
        classes: The number C of all classes.
        labels: How many of them a step has, 1 … C; None: all.
        seed: The seed of the run.
        step: The number of the step, counted from 0.

    Returns:
        The classes, and the number of the round. Within a round no class is drawn twice.

    Example:
        >>> first, second = (draw_classes(6, 3, seed=0, step=step) for step in range(2))
        >>> sorted([*first.classes.tolist(), *second.classes.tolist()]), second.round
        ([0, 1, 2, 3, 4, 5], 0)
    """
    if labels is None or labels == classes:
        return ClassDraw(torch.arange(classes), step)
    number, slot = divmod(step, classes // labels)
    order = torch.randperm(classes, generator=stream(seed, "classes", number))
    return ClassDraw(order[slot * labels : (slot + 1) * labels].sort().values, number)


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
    """n positives of each class of a step.

    Args:
        labels: int64 [N], the class of every sample.
        classes: Number of classes.
        n: Positives per class and step.
        seed: Seed of classes, permutations and mirroring.
        flips: Mirror every image with probability ½.
        sampling: "without-replacement", "queue" or "with-replacement".
        queue_size: Length of the queue of each class.
        names: Names of the classes, for messages.
        classes_per_step: How many classes a step draws; None: all.

    Example:
        >>> batches = ClassBatches(torch.tensor([0, 0, 1, 1, 1]), 2, n=2, seed=0, flips=False)
        >>> batches.at(0).indices.shape, batches.rounds_per_pass
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
        classes_per_step: int | None = None,
    ) -> None:
        require_choice("sampling", sampling, SAMPLINGS)
        counts = torch.bincount(labels, minlength=classes)
        _require_sizes(counts, classes, n, sampling, names)
        queue_size = require_integer("queue_size", queue_size, 1, 256)
        _require_classes_per_step(classes_per_step, classes)
        self.n, self.seed, self.flips, self.sampling, self.queue_size = n, seed, flips, sampling, queue_size
        self.classes_per_step = None if classes_per_step == classes else classes_per_step
        self.total = len(labels)
        self.counts = counts
        self.rounds_per_pass = max(int(counts.min()) // n, 1)
        # The positions of all classes, one class after the other, and where each class starts.
        self._members = labels.argsort(stable=True)
        self._starts = counts.cumsum(0) - counts
        # Cache without replacement: the permutations of one pass.
        self._cached_pass: tuple[int, Tensor] = (-1, self._members)
        # Cache of the queue: pass p of a class is at slot p mod K_c, and the passes in one queue never share a slot.
        # K_c includes the passes that the queue holds in part. Slot k of class c starts at window_starts[c] + k·N_c.
        self._slots = torch.div(queue_size - 2, counts, rounding_mode="floor") + 2
        if sampling == "queue" and self.classes_per_step is None:
            sizes = self._slots * counts
            self._window_starts = sizes.cumsum(0) - sizes
            self._window = torch.zeros(int(sizes.sum()), dtype=torch.int64)
            self._pass_in_slot = torch.full((classes, int(self._slots.max())), -1)

    def classes_at(self, step: int) -> ClassDraw:
        """Return the classes of a step."""
        return draw_classes(len(self.counts), self.classes_per_step, self.seed, step)

    def at(self, step: int) -> Batch:
        """Return the positives of a step: indices and mirrored [C', n], in the order of `classes_at`."""
        step = require_integer("step", step, 0, 0)
        drawn = self.classes_at(step)
        if self.sampling == "queue":
            indices = self._draw_from_queue(step, drawn)
        elif self.sampling == "with-replacement":
            indices = self._draw_independently(step, drawn)
        elif self.classes_per_step is None:
            indices = self._slice_pass(step)
        else:
            indices = self._slice_classes(drawn)
        return Batch(indices, self._draw_mirrored("flips", step, tuple(indices.shape)))

    def unconditional(self, step: int, u: int) -> Batch:
        """Draw u images of all classes uniformly, without replacement within the batch: indices and mirrored [u]."""
        step = require_integer("step", step, 0, 0)
        if not 0 <= u <= self.total:
            raise UserError(f"is {u}", f"must be 0 to {self.total}, the number of images", "use fewer", field="u")
        indices = torch.randperm(self.total, generator=stream(self.seed, "unconditional", step))[:u]
        return Batch(indices, self._draw_mirrored("unconditional-flips", step, (u,)))

    def _draw_mirrored(self, purpose: str, step: int, shape: tuple[int, ...]) -> Tensor:
        if not self.flips:
            return torch.zeros(shape, dtype=torch.bool)
        return torch.rand(shape, generator=stream(self.seed, purpose, step)) < 0.5

    def _slice_pass(self, step: int) -> Tensor:
        number, slot = divmod(step, self.rounds_per_pass)
        if self._cached_pass[0] != number:
            self._cached_pass = (number, self._draw_permutations(number, torch.arange(len(self.counts))))
        return self._cached_pass[1][self._starts[:, None] + slot * self.n + torch.arange(self.n)]

    def _slice_classes(self, drawn: ClassDraw) -> Tensor:
        """Return the positives [C', n] of these classes."""
        number, slot = divmod(drawn.round, self.rounds_per_pass)
        orders = [self._draw_order(number, c) for c in drawn.classes.tolist()]
        within = torch.stack([order[slot * self.n : (slot + 1) * self.n] for order in orders])
        return self._members[self._starts[drawn.classes, None] + within]

    def _draw_independently(self, step: int, drawn: ClassDraw) -> Tensor:
        """Draw n positives [C', n] of each class uniformly, with replacement."""
        counts, starts = self.counts[drawn.classes, None], self._starts[drawn.classes, None]
        # In float64, ⌊uN⌋ is uniform up to 2⁻⁵³ N.
        uniform = torch.rand(
            len(drawn.classes), self.n, generator=stream(self.seed, "independent", step), dtype=torch.float64
        )
        return self._members[starts + (uniform * counts).long()]

    def _draw_order(self, number: int, c: int) -> Tensor:
        """Draw the order [N_c] of the images of one class in pass `number` from a random stream of its own."""
        return torch.randperm(int(self.counts[c]), generator=stream(self.seed, "positives of class", number, c))

    def _draw_permutations(self, number: int, classes: Tensor) -> Tensor:
        """Draw the permutations of these classes in pass `number`, one after the other, from one random stream."""
        wanted = torch.zeros(len(self.counts), dtype=torch.bool).index_fill_(0, classes, True)
        generator, longest = stream(self.seed, "positives", number), int(self.counts.max())
        permutations = []
        # The keys of a block of classes follow those of the block before. Unwanted classes use up their keys.
        for block in torch.arange(len(self.counts)).split(max(1, KEYS_AT_ONCE // longest)):
            # In float64, two keys of a class of 10⁴ are equal only in about one pass in 10⁸.
            keys = torch.rand(len(block), longest, generator=generator, dtype=torch.float64)
            rows = block[wanted[block]]
            if len(rows):
                is_member = torch.arange(longest) < self.counts[rows, None]
                order = keys[wanted[block]].masked_fill_(~is_member, PADDING).argsort(dim=-1, stable=True)
                permutations.append(self._members[(self._starts[rows, None] + order)[is_member]])
        return torch.cat(permutations)

    def _draw_from_queue(self, step: int, drawn: ClassDraw) -> Tensor:
        shape, counts = (len(drawn.classes), self.n), self.counts[drawn.classes, None]
        # Draw positions in the endless stream of each class, then split them into pass and offset.
        place = torch.randint(self.queue_size, shape, generator=stream(self.seed, "queue", step))
        position = self.n * drawn.round + place
        number, offset = position // counts, position % counts
        if self.classes_per_step is not None:
            rows = zip(drawn.classes.tolist(), number, offset, strict=True)
            within = torch.stack([self._look_up(c, passes, offsets) for c, passes, offsets in rows])
            return self._members[self._starts[drawn.classes, None] + within]
        self._cache_passes(number)
        slot = number % self._slots[:, None]
        return self._window[self._window_starts[:, None] + slot * counts + offset]

    def _look_up(self, c: int, number: Tensor, offset: Tensor) -> Tensor:
        """Return the images [n] of a class, counted within the class, at these offsets of these passes."""
        passes, which = number.unique(return_inverse=True)
        return torch.stack([self._draw_order(each, c) for each in passes.tolist()])[which, offset]

    def _cache_passes(self, number: Tensor) -> None:
        """Draw those of the passes number [C, n] that are not in the cache, only for the classes that need them."""
        missing = self._pass_in_slot.gather(-1, number % self._slots[:, None]) != number
        for each in number[missing].unique().tolist():
            classes = (missing & (number == each)).any(-1).nonzero()[:, 0]
            counts, slot = self.counts[classes], each % self._slots[classes]
            # Where the permutations go: one range of N_c entries per class.
            starts = self._window_starts[classes] + slot * counts
            within = torch.arange(int(counts.sum())) - (counts.cumsum(0) - counts).repeat_interleave(counts)
            self._window[starts.repeat_interleave(counts) + within] = self._draw_permutations(each, classes)
            self._pass_in_slot[classes, slot] = each


def _require_classes_per_step(classes_per_step: int | None, classes: int) -> None:
    if classes_per_step is not None and not 1 <= classes_per_step <= classes:
        problem, allowed = f"is {classes_per_step}", f"must be 1 to {classes}, the number of classes"
        raise UserError(problem, allowed, "set a smaller number, or none for all", field="labels")


def _require_sizes(counts: Tensor, classes: int, n: int, sampling: Sampling, names: Sequence[str] | None) -> None:
    if len(counts) != classes or classes < 1:
        problem = f"the largest label is {len(counts) - 1} and classes is {classes}"
        raise UserError(problem, "labels must be below the number of classes", "count the classes again")
    n = require_integer("n", n, 1, 64)
    smallest = int(counts.argmin())
    size = int(counts[smallest])
    least = n if sampling == "without-replacement" else 1
    if size < least:
        problem = f"is {n} and class {repr(names[smallest]) if names else smallest} has {size} images"
        fewer = f"use n = {size} or less, or sampling queue, which draws with replacement"
        allowed = f"every class must have at least {least} images"
        raise UserError(problem, allowed, fewer if size else "remove that class", field="n")
