"""Two published drift losses in their original arithmetic, so that published numbers can be studied.

| name        | authors                  | arithmetic                                                                 |
|-------------|--------------------------|----------------------------------------------------------------------------|
| official    | drifting models          | A = √max(softmax_row · softmax_col, 1e-6); one scale and one RMS per batch |
| abc-release | the ABC paper            | K = exp(−d/τ) in float32; row·column sums and side sums clamped at 1e-12   |

`drift_loss` is the loss to train with. These two differ from it where the clamps are active. With unit features in 384
dimensions (distances near 1.4), the abc-release field is exactly 0 at τ = 0.02, and at τ = 0.05 the ε of its
normalization makes it negligible, so that two of the three temperatures do not train. In the official loss every
distant reference keeps a weight of at least 10⁻³ before normalization.
"""

from collections.abc import Sequence

import torch

from truedrift.axes import Float, Int, Tensor
from truedrift.centroids.analytical import ABC, ABC2
from truedrift.centroids.estimator import Standard, weighted_mean
from truedrift.errors import UserError
from truedrift.field.affinity import log_kernels
from truedrift.kernels.precision import full_precision
from truedrift.objective.feature_scale import Features, column_weights, mean_distance, standardize_l2
from truedrift.tensor_checks import require_features, require_same_dimension, require_temperatures

OFFICIAL_SELF_DISTANCE = 100.0
OFFICIAL_SMALLEST_AFFINITY = 1e-6
OFFICIAL_SMALLEST_MEAN_SQUARE = 1e-8
RELEASE_SELF_DISTANCE = 1e6
RELEASE_SMALLEST_SUM = 1e-12
RELEASE_EPSILON = 1e-8
RELEASE_ESTIMATORS = (Standard(), ABC(), ABC2())
"""The estimators, indexed by the order of their correction."""


def official_loss(
    gen: Float[Tensor, "labels n D"],
    pos: Float[Tensor, "labels m D"],
    neg: Float[Tensor, "labels u D"] | None = None,
    *,
    weight_neg: Float[Tensor, "labels u"] | None = None,
    temperatures: Sequence[float] = (0.02, 0.05, 0.2),
) -> Float[Tensor, " labels"]:
    """Compute the loss of the official drifting-models code.

    It is mean (x/c − sg(x/c + V))² per label with V = Σ_R V_R/√max(mean V_R², 1e-8) and A = √max(row · col, 1e-6).
    c is the mean distance divided by √D. It is taken over the whole batch, and so is each mean V_R².

    Args:
        gen: Generated features [labels, n, D].
        pos: Positive features [labels, m, D].
        neg: Unconditional negative features [labels, u, D].
        weight_neg: Weights [labels, u] that multiply the affinity of `neg`; 1 by default.
        temperatures: Temperatures R.

    Returns:
        The loss [labels].

    Example:
        >>> official_loss(torch.randn(3, 4, 8), torch.randn(3, 5, 8)).shape
        torch.Size([3])
    """
    # Check the input.
    require_temperatures(temperatures)
    _check_sides(gen=gen, pos=pos, **({} if neg is None else {"neg": neg}))
    if neg is not None and weight_neg is None:
        weight_neg = torch.ones_like(neg[..., 0])
    _check_batch(gen, pos, neg, weight_neg)
    # Scale, compute the target, and compare.
    with full_precision(gen):
        features = Features(gen, pos.detach(), None if neg is None else neg.detach(), weight_neg)
        scaled = mean_distance(features, over_batch=True)
        x = scaled.features.gen
        with torch.no_grad():
            V = _official_field(scaled.features, scaled.distances, temperatures)
            target = x + V
        return (x - target).square().mean((-2, -1))


def _official_field(features: Features, d: Tensor, temperatures: Sequence[float]) -> Tensor:
    """Compute V = Σ_R V_R/√max(mean V_R², 1e-8), V_R = Σ_j c_j y_j − (Σ_j c_j) x, c = A⁺·ΣA⁻ and −A⁻·ΣA⁺."""
    # Affinities, with the own column moved far away.
    n, negatives = features.gen.shape[-2], features.negatives
    d = d + OFFICIAL_SELF_DISTANCE * torch.eye(n, d.shape[-1], dtype=d.dtype, device=d.device)
    log_k = log_kernels(d, temperatures)
    A = (log_k.softmax(-1) * log_k.softmax(-2)).clamp_min(OFFICIAL_SMALLEST_AFFINITY).sqrt()
    A = A * column_weights(features, d).unsqueeze(-3)
    # Coefficients of both sides.
    neg, pos = A[..., :negatives], A[..., negatives:]
    C = torch.cat((-neg * pos.sum(-1, keepdim=True), pos * neg.sum(-1, keepdim=True)), -1)
    y = features.concatenate().unsqueeze(-3)
    # The field of every temperature, and their sum.
    V = weighted_mean(C, y) - C.sum(-1, keepdim=True) * features.gen.unsqueeze(-3)
    square = V.square().mean((-4, -2, -1), keepdim=True)
    return (V / square.clamp_min(OFFICIAL_SMALLEST_MEAN_SQUARE).sqrt()).sum(-3)


def abc_release_loss(
    features_gen: Sequence[Tensor] | Tensor,
    features_pos: Sequence[Tensor] | Tensor,
    labels_gen: Int[Tensor, " gen"],
    labels_pos: Int[Tensor, " pos"],
    *,
    temperatures: Sequence[float],
    abc: int,
    abc_neg: int | None = None,
) -> Float[Tensor, ""]:
    """Compute the loss of the code released with the ABC paper.

    It is the mean over class × scale of mean (f − sg(f + V))², from K̂ = K/√max(row · col, 1e-12) and K = exp(−d/τ) in
    float32. Each class is a separate group.

    Args:
        features_gen: Generated features, one tensor [samples, D] per scale.
        features_pos: Positive features, one tensor [samples, D] per scale.
        labels_gen: One label per generated sample.
        labels_pos: One label per positive sample.
        temperatures: Temperatures τ.
        abc: The order of the correction: 0 or False for none, 1 or True for ABC, 2 for ABC-2, which the published code
            does not have.
        abc_neg: The order for the negative side; by default, the same as for the positive side.

    Returns:
        The loss, a scalar.

    Example:
        >>> labels = torch.tensor([0, 0, 0, 1, 1, 1])
        >>> features = [torch.randn(6, 8)]
        >>> abc_release_loss(features, features, labels, labels, temperatures=(0.5,), abc=1).shape
        torch.Size([])
    """
    # Check the input.
    require_temperatures(temperatures)
    if len(features_gen) != len(features_pos) or len(features_gen) == 0:
        problem = f"features_gen has {len(features_gen)} scales and features_pos has {len(features_pos)}"
        allowed = "both must have the same number, at least one"
        raise UserError(problem, allowed, "pass one tensor [samples, D] per scale")
    for gen, pos in zip(features_gen, features_pos, strict=True):
        _check_sides(gen=gen, pos=pos)
        _check_labels(gen, labels_gen, "gen")
        _check_labels(pos, labels_pos, "pos")
    # The loss of every class at every scale.
    groups = _group_by_class(labels_gen, labels_pos)
    losses = []
    for gen, pos in zip(features_gen, features_pos, strict=True):
        losses += [
            abc_release_groups(gen[of_gen], pos[of_pos], temperatures=temperatures, abc=abc, abc_neg=abc_neg)
            for of_gen, of_pos in groups
        ]
    return torch.cat(losses).mean()


def _check_labels(features: Tensor, labels: Tensor, side: str) -> None:
    """Require one label per sample."""
    if features.shape[:-1] != labels.shape:
        problem = f"has shape {list(labels.shape)} for features of shape {list(features.shape)}"
        fix = "pass one label per sample, and one tensor [samples, D] per scale"
        raise UserError(problem, f"must have shape [{features.shape[0]}]", fix, field=f"labels_{side}")


def _group_by_class(labels_gen: Tensor, labels_pos: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return indices (generated [C, n], positive [C, m]): all classes at once if equally large, else one by one."""
    # Every generated class needs positives.
    labels = labels_gen.unique()
    counts = [(labels.unsqueeze(-1) == of).sum(-1) for of in (labels_gen, labels_pos)]
    if not bool((counts[1] > 0).all()):
        missing = labels[counts[1] == 0].tolist()
        allowed = "every generated class needs positives"
        raise UserError(f"labels {missing} have no positives", allowed, "add some of these classes")
    # Sort both sides by class; drop positives of other classes.
    chosen = torch.isin(labels_pos, labels).nonzero().squeeze(-1)
    of_gen = labels_gen.argsort(stable=True)
    of_pos = chosen[labels_pos[chosen].argsort(stable=True)]
    if all(bool((count == count[0]).all()) for count in counts):
        return [(of_gen.view(len(labels), -1), of_pos.view(len(labels), -1))]
    parts = (order.split(count.tolist()) for order, count in zip((of_gen, of_pos), counts, strict=True))
    return [(gen.unsqueeze(0), pos.unsqueeze(0)) for gen, pos in zip(*parts, strict=True)]


def abc_release_groups(
    gen: Float[Tensor, "*batch n D"],
    pos: Float[Tensor, "*batch m D"],
    *,
    temperatures: Sequence[float],
    abc: int,
    abc_neg: int | None = None,
) -> Float[Tensor, "*batch"]:
    """Compute the same loss [...] for groups in leading dimensions, without reading values."""
    with full_precision(gen):
        features = standardize_l2(Features(gen.float(), pos.detach().float()))
        f = features.gen
        with torch.no_grad():
            V = _release_fields(features, temperatures, abc, abc if abc_neg is None else abc_neg)
            rms = (V.square().mean((-2, -1), keepdim=True) + RELEASE_EPSILON).sqrt() + RELEASE_EPSILON
            target = f + (V / rms).sum(-3)
        return (f - target).square().mean((-2, -1))


def _release_fields(
    features: Features, temperatures: Sequence[float], abc_pos: int, abc_neg: int
) -> Float[Tensor, "*batch T n D"]:
    """Compute V_τ = S⁺S⁻(T⁺ − T⁻) of unit features in the arithmetic of the published code."""
    n = features.gen.shape[-2]
    d = features.distances()
    d = d.masked_fill(torch.eye(n, d.shape[-1], dtype=torch.bool, device=d.device), RELEASE_SELF_DISTANCE)
    K = log_kernels(d, temperatures).exp()
    K = K / (K.sum(-1, keepdim=True) * K.sum(-2, keepdim=True)).clamp_min(RELEASE_SMALLEST_SUM).sqrt()
    S_neg, T_neg = _release_side(K[..., :n], features.gen, abc_neg)
    S_pos, T_pos = _release_side(K[..., n:], features.pos, abc_pos)
    return S_pos * S_neg * (T_pos - T_neg)


def _release_side(K: Tensor, y: Tensor, abc: int) -> tuple[Tensor, Tensor]:
    """Compute (S, T) of one side. Where the clamp is active, Σα < 1 and T is pulled toward the origin."""
    S = K.sum(-1, keepdim=True)
    alpha = K / S.clamp_min(RELEASE_SMALLEST_SUM)
    gamma = RELEASE_ESTIMATORS[abc].gamma(alpha)
    return S, weighted_mean(gamma, y.unsqueeze(-3))


def _check_batch(gen: Tensor, pos: Tensor, neg: Tensor | None, weight_neg: Tensor | None) -> None:
    """Require [labels, rows, D] on every side, and one weight per unconditional negative."""
    for name, side in (("gen", gen), ("pos", pos), ("neg", neg)):
        if side is not None and (side.ndim != 3 or side.shape[0] != gen.shape[0]):
            allowed = f"must have shape [{gen.shape[0]}, rows, D], with one entry per label"
            raise UserError(f"has shape {list(side.shape)}", allowed, "stack the labels", field=name)
    if weight_neg is not None and (neg is None or weight_neg.shape != neg.shape[:-1]):
        allowed = "must be None without neg" if neg is None else f"must have shape {list(neg.shape[:-1])}"
        problem, fix = f"has shape {list(weight_neg.shape)}", "pass one weight per negative"
        raise UserError(problem, allowed, fix, field="weight_neg")


def _check_sides(**sides: Tensor) -> None:
    """Require features [..., samples, D] with the same D on every side."""
    for name, side in sides.items():
        require_features(name, side, "samples, D")
    require_same_dimension(**sides)
