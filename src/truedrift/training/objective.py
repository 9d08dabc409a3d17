"""The loss of a batch: features of every sample as one vector [F] → loss and gradient.

The vector of a sample holds the feature groups of its encoders one after the other. `FeatureLayout` describes it and
forms tensors [S, C, rows, D] that `drift_loss` takes, C classes with S drift problems each:

    one vector per group     one tensor of all groups, padded to the same D; the loss is their mean
    feature maps             one tensor per group, S = the locations of a map; the loss is the sum over groups and
                             statistics of the mean over their locations

With `objective.locations` a step computes only that many locations of every part, drawn at random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import torch

from truedrift.axes import Float, Tensor
from truedrift.centroids.estimator import Estimator
from truedrift.encoders.base import gradient_weights, stack_padded
from truedrift.encoders.pooling import GroupShape
from truedrift.kernels.kernel import LogKernel
from truedrift.kernels.precision import full_precision
from truedrift.objective.drift_loss import DriftLoss, drift_loss
from truedrift.objective.feature_scale import Features, standardize_l2
from truedrift.objective.published import abc_release_groups, official_loss
from truedrift.objective.report import DriftReport, distances_in_blocks, energy_distance
from truedrift.seeding import stream
from truedrift.training.batch import to_device
from truedrift.training.config import ObjectiveOptions

RELEASE_ORDERS = {"standard": 0, "abc": 1, "abc2": 2}
"""Estimators of the published arithmetic → the order of their correction."""


@dataclass(frozen=True)
class FeatureLoss:
    """The loss of a batch and its gradient with respect to the features."""

    loss: Tensor
    """Scalar: the mean over classes and scales, or for feature maps the sum over parts of their means."""
    gradient: Tensor
    """Gradient [S, C, g, D] with respect to the generated features."""
    report: Callable[[], DriftReport]
    """Computes the diagnostics of the batch on demand, always in the stable arithmetic."""
    energy: Callable[[], Tensor]
    """Computes the energy distance [S] on demand, mean over classes; NaN if a side has one sample."""


@dataclass(frozen=True)
class Objective:
    """The loss that the options describe; a kernel and estimators of the user replace the named ones."""

    options: ObjectiveOptions
    weights: Sequence[float]
    """[S] factors of the gradients of the scales: they undo the padding to one dimension, or sum over parts."""
    share: Sequence[int] | None = None
    """Sizes of the parts of the scales that share normalization, see `drift_loss`."""
    weigh_loss: bool = False
    """Whether the loss that is reported has these factors too."""
    estimator_pos: Estimator | None = None
    estimator_neg: Estimator | None = None
    kernel: LogKernel | None = None

    def __call__(
        self,
        gen: Float[Tensor, "S C g D"],
        pos: Float[Tensor, "S C n D"],
        neg: Float[Tensor, "S C u D"] | None = None,
        weight_neg: Float[Tensor, "C u"] | None = None,
        generator: torch.Generator | None = None,
        fresh_neg: Float[Tensor, "S C r D"] | None = None,
    ) -> FeatureLoss:
        """Compute loss and gradient of all classes and scales."""
        report: Callable[[], DriftReport]
        energy: Callable[[], Tensor]
        with torch.enable_grad():
            leaf = gen.detach().requires_grad_()
            if self.options.arithmetic == "abc-release":
                losses = self._release_losses(leaf, pos)
                report = partial(self._report, gen.detach(), pos)
                energy = partial(_release_energy, gen.detach(), pos)
            elif self.options.arithmetic == "official":
                losses = self._official_losses(leaf, pos, neg, weight_neg)
                report = partial(self._report, gen.detach(), pos, neg, weight_neg)
                energy = partial(_plain_energy, gen.detach(), pos)
            else:
                out = self._stable_loss(leaf, pos, neg, weight_neg, generator, fresh_neg)
                losses, report = out.loss, partial(getattr, out, "report")
                energy = partial(getattr, out.report, "energy")
            # The loss is the mean over all groups, and each scale has its weight.
            coefficients = torch.tensor(self.weights, dtype=losses.dtype).div_(losses.numel()).view(-1, 1)
            coefficients = to_device(coefficients, losses.device).expand_as(losses)
            (gradient,) = torch.autograd.grad(losses, leaf, coefficients)
        losses = losses.detach()
        loss = (losses * coefficients).sum() if self.weigh_loss else losses.mean()
        sides = min(gen.shape[-2], pos.shape[-2])
        return FeatureLoss(loss, gradient, report, partial(_mean_over_classes, energy, sides))

    def _report(
        self, gen: Tensor, pos: Tensor, neg: Tensor | None = None, weight_neg: Tensor | None = None
    ) -> DriftReport:
        return self._stable_loss(gen, pos, neg, weight_neg, None).report

    def _stable_loss(
        self,
        gen: Tensor,
        pos: Tensor,
        neg: Tensor | None,
        weight_neg: Tensor | None,
        generator: torch.Generator | None,
        fresh_neg: Tensor | None = None,
    ) -> DriftLoss:
        options = self.options
        return drift_loss(
            gen,
            pos,
            neg,
            temperatures=options.temperatures,
            normalization=options.normalization,
            form=options.form,
            estimator_pos=self.estimator_pos or options.estimator_pos,
            estimator_neg=self.estimator_neg or options.estimator_neg,
            feature_scale=options.feature_scale,
            weight_neg=weight_neg,
            share=self.share,
            matched=options.matched,
            fresh_neg=fresh_neg,
            kernel=self.kernel or options.kernel,
            generator=generator,
        )

    def _official_losses(
        self, gen: Tensor, pos: Tensor, neg: Tensor | None, weight_neg: Tensor | None
    ) -> Float[Tensor, "S C"]:
        """Compute the losses in the official arithmetic: the classes and locations of a part are one batch."""
        assert self.share is not None  # checked with the configuration
        sizes, losses = list(self.share), []
        negatives = [None] * len(sizes) if neg is None else neg.split(sizes)
        for gen_part, pos_part, neg_part in zip(gen.split(sizes), pos.split(sizes), negatives, strict=True):
            labels = gen_part.shape[:2]
            weight = None if weight_neg is None else weight_neg.expand(*labels, -1).flatten(0, 1)
            loss = official_loss(
                gen_part.flatten(0, 1),
                pos_part.flatten(0, 1),
                None if neg_part is None else neg_part.flatten(0, 1),
                weight_neg=weight,
                temperatures=self.options.temperatures,
            )
            losses.append(loss.unflatten(0, labels))
        return torch.cat(losses)

    def _release_losses(self, gen: Tensor, pos: Tensor) -> Tensor:
        """Compute the losses in the published arithmetic."""
        options = self.options
        return abc_release_groups(
            gen,
            pos,
            temperatures=options.temperatures,
            abc=RELEASE_ORDERS[options.estimator_pos],
            abc_neg=RELEASE_ORDERS[options.estimator_neg],
        )


def _release_energy(gen: Tensor, pos: Tensor) -> Tensor:
    """Return the energy distance [S, C] of unit features, the scale of the published arithmetic."""
    with full_precision(gen):
        features = standardize_l2(Features(gen.float(), pos.float()))
        g = features.negatives
        return energy_distance(features.distances(), g, distances_in_blocks(features.pos, g))


def _plain_energy(gen: Tensor, pos: Tensor) -> Tensor:
    """Return the energy distance [S, C] of features as they are: a common factor does not change it."""
    with full_precision(gen):
        features = Features(gen, pos)
        return energy_distance(features.distances(), features.negatives, distances_in_blocks(pos, gen.shape[-2]))


def _mean_over_classes(energy: Callable[[], Tensor], smaller_side: int) -> Tensor:
    """Return the mean [S] over classes of an energy distance [S, C], NaN if a side has no pair of samples."""
    values = energy().mean(-1)
    return values if smaller_side > 1 else values * torch.nan


# ---- All groups of a batch ----


@dataclass(frozen=True)
class FeatureLayout:
    """Where the groups are in the feature vector of a sample.

    Example:
        >>> layout = FeatureLayout((GroupShape(2), GroupShape(3)))
        >>> layout.size, [tuple(stack.shape) for stack in layout.stacks(torch.zeros(4, 7, 5))]
        (5, [(2, 4, 7, 3)])
        >>> maps = FeatureLayout((GroupShape(2, (9, 1)), GroupShape(3)))
        >>> [tuple(stack.shape) for stack in maps.stacks(torch.zeros(4, 7, 23))]
        [(10, 4, 7, 2), (1, 4, 7, 3)]
    """

    groups: tuple[GroupShape, ...]
    together: bool = True
    """Whether groups of one problem each are computed as one tensor."""

    @property
    def size(self) -> int:
        """F, the number of features of a sample."""
        return sum(group.size for group in self.groups)

    @property
    def padded(self) -> bool:
        """Whether all groups form one padded tensor."""
        return self.together and all(group.problems == 1 for group in self.groups)

    @property
    def parts(self) -> list[tuple[int, ...]]:
        """The parts of every tensor."""
        return [(1,) * len(self.groups)] if self.padded else [group.parts for group in self.groups]

    def stacks(
        self, features: Float[Tensor, "C rows F"], places: Sequence[Tensor | None] | None = None
    ) -> list[Float[Tensor, "S C rows D"]]:
        """Return the tensors of the groups; of the problems `places` of each group, if given."""
        split = features.split([group.size for group in self.groups], -1)
        if self.padded:
            flat = stack_padded([group.flatten(0, 1) for group in split])
            return [flat.unflatten(1, features.shape[:2])]
        stacks = []
        for k, (group, values) in enumerate(zip(self.groups, split, strict=True)):
            problems = values.unflatten(-1, (group.problems, group.dimension))
            chosen = None if places is None else places[k]
            problems = problems if chosen is None else problems.index_select(2, chosen)
            stacks.append(problems.permute(2, 0, 1, 3).contiguous())
        return stacks

    def join(
        self, stacks: Sequence[Float[Tensor, "S C rows D"]], places: Sequence[Tensor | None] | None = None
    ) -> Float[Tensor, "C rows F"]:
        """Return features from the tensors of the groups, the inverse of `stacks`; 0 where no problem was chosen."""
        if self.padded:
            (stack,) = stacks
            groups = zip(stack, self.groups, strict=True)
            return torch.cat([values[..., : group.dimension] for values, group in groups], -1)
        joined = []
        for k, (group, stack) in enumerate(zip(self.groups, stacks, strict=True)):
            problems, chosen = stack.permute(1, 2, 0, 3), None if places is None else places[k]
            if chosen is not None:
                whole = problems.new_zeros(*problems.shape[:2], group.problems, group.dimension)
                problems = whole.index_copy_(2, chosen, problems)
            joined.append(problems.flatten(2))
        return torch.cat(joined, -1)

    def draw_places(self, limit: int | None, seed: int, step: int, device: torch.device) -> list[Tensor | None] | None:
        """Draw at most `limit` problems of every part, a pure function of (seed, step); None for all problems."""
        if limit is None or self.padded:
            return None
        generator = stream(seed, "locations", step)
        return [_draw_places(group.parts, limit, generator, device) for group in self.groups]


def _draw_places(parts: Sequence[int], limit: int, generator: torch.Generator, device: torch.device) -> Tensor | None:
    """Draw at most `limit` problems of every part of a group, in ascending order; None for all problems."""
    if max(parts) <= limit:
        return None
    starts = accumulate(parts, initial=0)
    chosen = [
        start + torch.randperm(size, generator=generator)[:limit].sort().values
        for start, size in zip(starts, parts, strict=False)
    ]
    return to_device(torch.cat(chosen), device)


PER_TEMPERATURE = ("n_eff_pos", "n_eff_neg", "dominated_pos", "dominated_neg", "correction_pos", "correction_neg")


@dataclass(frozen=True)
class BatchLoss:
    """The loss of a batch and its gradient with respect to the feature vectors."""

    loss: Tensor
    """Scalar: the mean over groups, or the sum over maps and statistics."""
    gradient: Tensor
    """Gradient [C, g, F] with respect to the generated features."""
    stacks: Sequence[FeatureLoss]
    parts: Sequence[Sequence[int]]
    """The parts of every stack."""

    def energy(self) -> Tensor:
        """Compute the energy distance [K] of every part, mean over classes and locations."""
        return torch.cat(
            [_part_means(stack.energy(), parts) for stack, parts in zip(self.stacks, self.parts, strict=True)]
        )

    def report_means(self) -> dict[str, Tensor]:
        """Compute means of the diagnostics: "force" [K, T] of every part, the others over all parts."""
        rows: dict[str, list[Tensor]] = {name: [] for name in ("force", "spread", *PER_TEMPERATURE)}
        for stack, parts in zip(self.stacks, self.parts, strict=True):
            report = stack.report()
            for name, values in rows.items():
                value = getattr(report, name)
                values.append(_part_means(value.mean(1), parts))
        joined: Mapping[str, Tensor] = {name: torch.cat(values) for name, values in rows.items()}
        return {name: value if name == "force" else value.mean(0) for name, value in joined.items()}


def _part_means(values: Float[Tensor, "S ..."], parts: Sequence[int]) -> Float[Tensor, "K ..."]:
    """Return the mean of every part of the first dimension."""
    return torch.stack([part.mean(0) for part in values.split(list(parts))])


@dataclass(frozen=True)
class BatchObjective:
    """Loss and gradient of a batch of feature vectors; a kernel and estimators of the user replace the named ones."""

    layout: FeatureLayout
    options: ObjectiveOptions
    seed: int = 0
    """The seed of the run, for the choice of locations."""
    estimator_pos: Estimator | None = None
    estimator_neg: Estimator | None = None
    kernel: LogKernel | None = None

    @property
    def scales(self) -> int:
        """K, the number of parts with an energy distance."""
        return sum(len(parts) for parts in self.layout.parts)

    def __call__(
        self,
        gen: Float[Tensor, "C g F"],
        pos: Float[Tensor, "C n F"],
        neg: Float[Tensor, "u F"] | None = None,
        weight_neg: Float[Tensor, "C u"] | None = None,
        generator: torch.Generator | None = None,
        fresh_neg: Float[Tensor, "C r F"] | None = None,
        *,
        step: int = 0,
    ) -> BatchLoss:
        """Compute loss and gradient; `step` chooses the locations."""
        # Split the vectors into the tensors of the groups.
        layout, limit = self.layout, self.options.locations
        places = layout.draw_places(limit, self.seed, step, gen.device)
        parts = layout.parts if limit is None else [[min(size, limit) for size in each] for each in layout.parts]
        if neg is not None:
            neg = neg.expand(len(gen), -1, -1)
        empty = [None] * len(parts)
        sides = [layout.stacks(side, places) if side is not None else empty for side in (gen, pos, neg, fresh_neg)]
        # The loss of every tensor.
        stacks = [
            self._objective(part)(gen_k, pos_k, neg_k, weight_neg, generator, fresh_k)  # type: ignore[arg-type]
            for part, gen_k, pos_k, neg_k, fresh_k in zip(parts, *sides, strict=True)
        ]
        loss = stacks[0].loss if len(stacks) == 1 else torch.stack([each.loss for each in stacks]).sum()
        return BatchLoss(loss, layout.join([each.gradient for each in stacks], places), stacks, parts)

    def _objective(self, parts: Sequence[int]) -> Objective:
        """Return the objective of one tensor with these parts."""
        options, user = self.options, (self.estimator_pos, self.estimator_neg, self.kernel)
        if self.layout.padded:
            weights = gradient_weights([group.dimension for group in self.layout.groups], options.feature_scale)
            return Objective(options, weights, None, False, *user)
        # The mean over the problems of a part, and the sum over parts.
        weights = [sum(parts) / size for size in parts for _ in range(size)]
        return Objective(options, weights, parts if options.share_normalization == "map" else None, True, *user)
