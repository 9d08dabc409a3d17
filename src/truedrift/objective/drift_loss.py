"""loss = mean ‖f − sg(f + V)‖² with V = Σ_τ V_τ/√(mean V_τ² + ε): the training loss of a batch of features.

A group is a class at a feature scale. In each group, every generated feature is a query. The positives attract it; the
other generated features repel it (its own column is masked), and so do weighted unconditional negatives if there are
any. All groups and all temperatures are computed in one pass over leading dimensions.

The target is fixed (stop-gradient, sg), so only the scaling of `gen` is differentiated, and ∂loss/∂f = −2V/(nD). The
loss is mean V² of fields that each have unit RMS, so its value changes little during training.
Use the report to monitor training.

The arithmetic from features to gradient is in these files; the others only check arguments and set the precision:

    drift_loss.py → feature_scale.py (common scale) → gram.py (products and gradient; or `_general_loss` below)
      → field/batch.py (which columns are references) → field/affinity.py (log k → γ of both sides → C), or
      field/matching.py for windows → kernels/weights.py (softmax) → centroids/analytical.py (ABC)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch

from truedrift.axes import Float, Tensor
from truedrift.centroids.analytical import ABC, StratifiedABC
from truedrift.centroids.estimator import Estimator, Standard, weighted_mean
from truedrift.centroids.matching import Windows
from truedrift.centroids.resampling import BRSNIS
from truedrift.errors import (
    UserError,
    expands_to,
    require_choice,
    require_features,
    require_finite,
    require_positive,
    require_same_dimension,
    require_temperatures,
)
from truedrift.field.affinity import log_kernels, mean_square, sum_normalized
from truedrift.field.batch import batch_weights
from truedrift.field.checks import make_field_spec, require_sides
from truedrift.field.matching import Columns, log_columns, window_layout
from truedrift.field.spec import FieldSpec, Form, Normalization
from truedrift.kernels.kernel import LogKernel, log_kernel, sharp_log_ratio
from truedrift.kernels.precision import full_precision
from truedrift.objective.feature_scale import FEATURE_SCALES, Features, FeatureScale, ScaledFeatures, scale
from truedrift.objective.gram import gram_loss
from truedrift.objective.report import DriftReport
from truedrift.objective.terms import LossTerms

Path = Literal["auto", "general", "gram"]


@dataclass(frozen=True)
class DriftLoss:
    """The loss of every group and a report on the batch; the result of `drift_loss`."""

    loss: Tensor
    """[...] mean ‖f − sg(f + V)‖² of each group; average it and call backward."""
    report: DriftReport
    """Forces, effective sample sizes and other quantities that change during training."""


def drift_loss(
    gen: Float[Tensor, "*batch n D"],
    pos: Float[Tensor, "*batch m D"],
    neg: Float[Tensor, "*batch u D"] | None = None,
    *,
    temperatures: Sequence[float] = (0.02, 0.05, 0.2),
    normalization: Normalization = "bidirectional",
    form: Form = "product",
    estimator_pos: str | Estimator = "abc",
    estimator_neg: str | Estimator = "abc",
    feature_scale: FeatureScale = "standardize-l2",
    weight_neg: float | Tensor | None = None,
    scale_over_batch: bool = False,
    matched: bool = False,
    fresh_neg: Float[Tensor, "*batch r D"] | None = None,
    kernel: str | LogKernel = "laplace",
    path: Path = "auto",
    generator: torch.Generator | None = None,
    check_finite: bool = False,
) -> DriftLoss:
    """Compute the drift loss of every group.

    Args:
        gen: Generated features [..., n, D]. The loss is differentiated with respect to them.
        pos: Positive (real) features [..., m, D].
        neg: Unconditional negative features [..., u, D] for classifier-free guidance. The estimator "abc" of the
            negatives is then stratified.
        temperatures: Temperatures τ on the scale of the scaled features.
        normalization: "row", "bidirectional" or "bidirectional-loo", see `truedrift.field.affinity`; "symmetric" or
            "sinkhorn", see `truedrift.field.matching`.
        form: "separate", V = T⁺ − T⁻, "product", V = S⁺S⁻ (T⁺ − T⁻), or "potential", a field that is a gradient.
        estimator_pos: Estimator of the positives, a name (see `truedrift.estimator`) or an object.
        estimator_neg: Estimator of the negatives.
        feature_scale: "standardize-l2", "mean-distance" or "none", see `truedrift.objective.feature_scale`.
        weight_neg: Weight of `neg`, a number or a tensor that broadcasts to [..., u]; 1 by default.
        scale_over_batch: Whether "mean-distance" takes one mean over all groups, as the official code does.
        matched: Whether both centroids are means over windows of the same number of references, the smaller of the
            numbers of positives and negatives. The expected field is then exactly 0 where generated and real features
            have the same distribution.
        fresh_neg: A second batch of generated features [..., r, D], drawn anew in every step, without gradient. They
            are the only negatives. With r = m the expectation of the whole training signal is 0 at equal distributions.
        kernel: "laplace", "gaussian", or a function (x, y, tau) → log k of scaled features.
        path: "general" supports every option. "gram" supports "standardize-l2" with the Laplace kernel and computes the
            same loss and first gradient several times faster. "auto" chooses.
        generator: Random numbers for estimators that draw.
        check_finite: Whether to check the values of the tensors. This synchronizes the device.

    Returns:
        The loss [...] of each group, and a report.

    Raises:
        UserError: If an argument is invalid or if the arguments contradict each other.

    Example:
        >>> import torch
        >>> from truedrift import drift_loss
        >>> gen = torch.randn(8, 16, 32, requires_grad=True)  # 8 classes, 16 samples per class, 32 features
        >>> result = drift_loss(gen, torch.randn(8, 16, 32))
        >>> result.loss.shape
        torch.Size([8])
        >>> result.loss.mean().backward()
        >>> gen.grad.shape
        torch.Size([8, 16, 32])
    """
    # Check the options and the features.
    spec = make_field_spec(normalization, form, estimator_pos, estimator_neg, matched)
    _check_options(temperatures, spec, feature_scale, scale_over_batch, kernel, path)
    _check_features(gen, pos, neg, weight_neg, fresh_neg)
    m = gen.shape[-2] - 1 if fresh_neg is None else fresh_neg.shape[-2]
    require_sides(spec, pos.shape[-2], m, independent=fresh_neg is not None, unconditional=neg is not None)
    features = _join_features(gen, pos, neg, weight_neg, fresh_neg)
    if neg is not None:
        spec = _stratify(spec, gen, neg)
    if check_finite:
        require_finite(gen=gen, pos=pos, neg=neg, fresh_neg=fresh_neg, weight_neg=features.weight_neg)
        require_positive("weight_neg", features.weight_neg, or_zero=True)
    # Choose the path and compute.
    if path == "auto":
        fast = _gram_supports(spec, feature_scale, kernel) and not _inside_functorch(features)
        path = "gram" if fast else "general"
    with full_precision(gen):
        if path == "gram":
            terms = gram_loss(features, temperatures, spec, generator)
        else:
            terms = _general_loss(features, temperatures, spec, feature_scale, scale_over_batch, kernel, generator)
    return DriftLoss(terms.loss, DriftReport(terms, tuple(temperatures), spec))


def _general_loss(
    features: Features,
    temperatures: Sequence[float],
    spec: FieldSpec,
    feature_scale: FeatureScale,
    scale_over_batch: bool,
    kernel: str | LogKernel,
    generator: torch.Generator | None,
) -> LossTerms:
    """Compute the loss from its definition, step by step, for every option."""
    # Scale the features; the target is computed from fixed ones.
    scaled = scale(features, feature_scale, over_batch=scale_over_batch)
    columns, d = scaled.features, scaled.distances
    f = columns.gen
    fixed = f.detach()  # forward-mode differentiation goes through no_grad
    with torch.no_grad():
        # log k → weights of both sides.
        laplace = kernel == "laplace"
        log_k = log_kernels(d, temperatures) if laplace else _custom_log_kernels(kernel, scaled, temperatures)
        sums = _columns(kernel, scaled, temperatures, spec) if spec.normalization == "symmetric" else None
        ratio = _sharp_log_ratios(kernel, log_k, temperatures) if spec.form == "potential" else None
        weights = batch_weights(
            log_k,
            columns.negatives,
            columns.weight_neg,
            spec,
            fresh=columns.fresh,
            columns=sums,
            log_ratio=ratio,
            generator=generator,
        )
        # The field of every temperature, and their sum.
        y_neg = fixed if columns.neg is None else torch.cat((fixed, columns.neg), -2)
        V = _centroids(weights.gamma_pos, columns.pos) - _centroids(weights.gamma_neg, y_neg)
        if spec.form == "potential":
            V = V + weights.own() * fixed.unsqueeze(-3)
        V = weights.relative_mass() * V if spec.form == "product" else V
        total = sum_normalized(V)
    # f − sg(f + V), but V is not added to f first, which would round it to the digits of f.
    residual = f - fixed - total
    return LossTerms(
        loss=residual.square().mean((-2, -1)),
        negatives=columns.negatives,
        distances=d,
        weight_neg=columns.weight_neg,
        mean_square=mean_square(V)[..., 0, 0],
        largest_log_mass=weights.log_scale(spec.form),
        log_k=None if laplace else log_k,
        pos=columns.pos.clone() if feature_scale == "none" else columns.pos,  # the caller may change it in place
        unit=scaled.unit,
        fresh=columns.fresh,
        columns=sums,
        log_ratio=ratio,
    )


def _centroids(gamma: Float[Tensor, "*batch T n m"], y: Float[Tensor, "*batch m D"]) -> Float[Tensor, "*batch T n D"]:
    """Compute γ y of every temperature in one product, without copies of y."""
    return weighted_mean(gamma.flatten(-3, -2), y).unflatten(-2, gamma.shape[-3:-1])


def _custom_log_kernels(kernel: str | LogKernel, scaled: ScaledFeatures, temperatures: Sequence[float]) -> Tensor:
    """Return log k [..., T, n, columns] of features on the scale of the distances that the paper's kernel uses."""
    columns = scaled.features.map(lambda f: f.detach() / scaled.unit)
    y = columns.concatenate()
    function = log_kernel(kernel)
    return torch.stack([function(columns.gen, y, tau) for tau in temperatures], -3)


def _columns(
    kernel: str | LogKernel, scaled: ScaledFeatures, temperatures: Sequence[float], spec: FieldSpec
) -> Columns:
    """Return the column sums [..., T, 1, W, s] among the references of every window."""
    columns, function = scaled.features.map(lambda f: f.detach() / scaled.unit), log_kernel(kernel)
    fresh = columns.neg if columns.fresh else None
    m = columns.gen.shape[-2] if fresh is None else fresh.shape[-2]
    windows_neg, windows_pos = window_layout(m, columns.pos.shape[-2], spec, own=fresh is None)

    def sums(y: Tensor, windows: Windows) -> Tensor:
        return torch.stack([log_columns(function, y, tau, windows) for tau in temperatures], -4)

    return Columns(None if fresh is None else sums(fresh, windows_neg), sums(columns.pos, windows_pos))


def _sharp_log_ratios(kernel: str | LogKernel, log_k: Tensor, temperatures: Sequence[float]) -> Tensor:
    """Return log k#/k [..., T, n, columns]."""
    tau = torch.tensor(temperatures, dtype=log_k.dtype).view(-1, 1, 1).to(log_k.device, non_blocking=True)
    return sharp_log_ratio(kernel, log_k, tau)


def _inside_functorch(features: Features) -> bool:
    """Return whether torch.func or forward-mode AD is active: they cannot follow a loss with its own gradient."""
    if torch.compiler.is_compiling():
        return False
    if torch.autograd.forward_ad._current_level >= 0:
        return True
    tensors = (features.gen, features.pos, features.neg, features.weight_neg)
    return any(t is not None and torch._C._functorch.is_functorch_wrapped_tensor(t) for t in tensors)


def _join_features(
    gen: Tensor, pos: Tensor, neg: Tensor | None, weight_neg: float | Tensor | None, fresh_neg: Tensor | None
) -> Features:
    """Return all sides in at least float32, positives and negatives without gradient."""
    dtype = torch.promote_types(gen.dtype, torch.promote_types(pos.dtype, torch.float32))
    gen, pos = gen.to(dtype), pos.detach().to(dtype)
    if fresh_neg is not None:
        return Features(gen, pos, fresh_neg.detach().to(dtype), fresh=True)
    if neg is None:
        return Features(gen, pos)
    weight = torch.as_tensor(1.0 if weight_neg is None else weight_neg, dtype=dtype, device=gen.device)
    weight = weight.detach().clone()  # the report reads it later, when the caller may have changed it in place
    return Features(gen, pos, neg.detach().to(dtype), weight.expand(neg.shape[:-1]))


def _stratify(spec: FieldSpec, gen: Tensor, neg: Tensor) -> FieldSpec:
    """Return `spec` with ABC on the negative side stratified by pool: generated or unconditional."""
    estimator = spec.estimator_neg
    if isinstance(estimator, Standard | StratifiedABC):
        return spec
    if not isinstance(estimator, ABC):
        problem, fix = f"is {estimator.name!r} with unconditional negatives", "choose 'abc' (stratified) or 'standard'"
        raise UserError(problem, "its correction assumes one pool of references", fix, field="estimator_neg")
    n, u = gen.shape[-2], neg.shape[-2]
    strata = (torch.arange(n + u, device=gen.device) >= n).long()
    return replace(spec, estimator_neg=StratifiedABC(strata))


def _check_options(
    temperatures: Sequence[float],
    spec: FieldSpec,
    feature_scale: FeatureScale,
    scale_over_batch: bool,
    kernel: str | LogKernel,
    path: Path,
) -> None:
    """Check every option, and those that exclude each other."""
    require_temperatures(temperatures)
    require_choice("feature_scale", feature_scale, FEATURE_SCALES)
    require_choice("path", path, get_args(Path))
    log_kernel(kernel)
    if scale_over_batch and feature_scale != "mean-distance":
        problem = f"is True with feature_scale {feature_scale!r}"
        raise UserError(problem, "it requires 'mean-distance'", "omit it", field="scale_over_batch")
    if path == "gram" and not _gram_supports(spec, feature_scale, kernel):
        problem = f"is 'gram' with feature_scale {feature_scale!r} and kernel {kernel!r}"
        allowed = "it requires 'standardize-l2' and 'laplace'"
        if spec.form == "potential" or spec.normalization == "sinkhorn":
            problem = f"is 'gram' with normalization {spec.normalization!r} and form {spec.form!r}"
            allowed = "it supports neither 'sinkhorn' nor 'potential'"
        raise UserError(problem, allowed, "pass 'auto'", field="path")
    for side, estimator in (("pos", spec.estimator_pos), ("neg", spec.estimator_neg)):
        if isinstance(estimator, BRSNIS):
            allowed = f"the loss does not support it because it needs {estimator.iterations} times the references"
            raise UserError("is 'br-snis'", allowed, "choose 'abc'", field=f"estimator_{side}")


def _gram_supports(spec: FieldSpec, feature_scale: FeatureScale, kernel: str | LogKernel) -> bool:
    """Return whether the Gram path computes this loss."""
    plain = spec.form != "potential" and spec.normalization != "sinkhorn"
    return plain and feature_scale == "standardize-l2" and kernel == "laplace"


def _check_features(
    gen: Tensor, pos: Tensor, neg: Tensor | None, weight_neg: float | Tensor | None, fresh_neg: Tensor | None
) -> None:
    """Check the features, their leading dimensions, and the weights of the unconditional negatives."""
    require_features("gen", gen, "n, D")
    require_features("pos", pos, "m, D")
    sides = {"gen": gen, "pos": pos}
    if fresh_neg is not None:
        require_features("fresh_neg", fresh_neg, "r, D")
        sides["fresh_neg"] = fresh_neg
    if neg is not None:
        require_features("neg", neg, "u, D")
        sides["neg"] = neg
        _check_weight(weight_neg, neg)
    elif weight_neg is not None:
        fix = "pass the unconditional negatives as neg"
        raise UserError("is given without neg", "both or neither must be given", fix, field="weight_neg")
    require_same_dimension(**sides)
    for name, features in sides.items():
        if features.shape[:-2] != gen.shape[:-2]:
            problem = f"gen has leading dimensions {list(gen.shape[:-2])} and {name} {list(features.shape[:-2])}"
            allowed = "they must be equal, with one entry per group"
            raise UserError(problem, allowed, "expand the missing dimensions")


def _check_weight(weight_neg: float | Tensor | None, neg: Tensor) -> None:
    """Require a number ≥ 0 or a tensor that broadcasts to [..., u]."""
    shape = neg.shape[:-1]
    if isinstance(weight_neg, Tensor):
        fits, problem = expands_to(weight_neg.shape, shape), f"has shape {list(weight_neg.shape)}"
    else:
        fits = weight_neg is None or (isinstance(weight_neg, (int, float)) and 0 <= weight_neg < math.inf)
        problem = f"is {weight_neg!r}"
    if not fits:
        allowed = f"must be a number ≥ 0 or a tensor that broadcasts to {list(shape)}"
        raise UserError(problem, allowed, "pass one weight per unconditional negative", field="weight_neg")
