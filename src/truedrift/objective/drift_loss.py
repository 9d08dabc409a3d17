"""loss = mean ‖f − sg(f + V)‖² with V = Σ_τ V_τ/√(mean V_τ² + ε): the training loss of a batch of features.

A group is a class at a feature scale. In each group, every generated feature is a query. The positives attract it; the
other generated features repel it (its own column is masked), and so do weighted unconditional negatives if there are
any. All groups and all temperatures are computed in one pass over leading dimensions.

The target is fixed (stop-gradient, sg), so only the scaling of `gen` is differentiated, and ∂loss/∂f = −2V/(nD). The
loss is mean V² of fields that each have unit RMS, so its value changes little during training.
Use the report to monitor training.

The arithmetic from features to gradient is in these files; the others only check arguments and set the precision:

    drift_loss.py → feature_scale.py (common scale) → gram.py (products and gradient), or general.py
      → field/batch.py (which columns are references) → field/affinity.py (log k → γ of both sides → C), or
      field/matching.py for windows → kernels/weights.py (softmax) → centroids/analytical.py (ABC)
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch

from truedrift.axes import Float, Tensor
from truedrift.centroids.analytical import ABC, StratifiedABC
from truedrift.centroids.estimator import Estimator, Standard
from truedrift.centroids.resampling import BRSNIS
from truedrift.errors import UserError, read_number, require_choice, short_repr
from truedrift.field.checks import make_field_spec, require_sides
from truedrift.field.spec import FieldSpec, Form, Normalization
from truedrift.kernels.kernel import LogKernel, log_kernel
from truedrift.kernels.precision import full_precision, to_widest
from truedrift.objective.feature_scale import (
    FEATURE_SCALES,
    Features,
    FeatureScale,
    scale,
)
from truedrift.objective.general import general_loss
from truedrift.objective.gram import gram_loss
from truedrift.objective.report import DriftReport
from truedrift.summary import mean_value
from truedrift.tensor_checks import (
    expands_to,
    require_features,
    require_finite,
    require_positive,
    require_same_dimension,
    require_temperatures,
)

Path = Literal["auto", "general", "gram"]
FEWEST_DIMENSIONS = 8
"""Dimensions below which "standardize-l2" gives a warning."""
LENGTH_IS_LOST = (
    "drift_loss: feature_scale 'standardize-l2' with D = {} loses the length of features, so that their radius is not "
    "learned; pass feature_scale='mean-distance'"
)


@dataclass(frozen=True)
class DriftLoss:
    """The loss of every group and a report on the batch; the result of `drift_loss`."""

    loss: Tensor
    """[...] mean ‖f − sg(f + V)‖² of each group; average it and call backward."""
    report: DriftReport
    """Forces, effective sample sizes and other quantities that change during training."""

    def __repr__(self) -> str:
        return f"DriftLoss(loss={list(self.loss.shape)}, mean {mean_value(self.loss)})\n  report: {self.report!r}"


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
    share: Sequence[int] | None = None,
    matched: bool = False,
    fresh_neg: Float[Tensor, "*batch r D"] | None = None,
    kernel: str | LogKernel = "laplace",
    path: Path = "auto",
    generator: torch.Generator | None = None,
    check_finite: bool = False,
) -> DriftLoss:
    """Compute the drift loss of every group.

    The defaults are those of the official code: its normalization, form, feature scale and temperatures, with ABC. The
    theorems cover `normalization="row"` with `form="separate"`, the defaults of `drift`. With `matched=True` as well,
    the expected field is exactly 0 where generated and real features have the same distribution.

    Args:
        gen: Generated features [..., n, D]. The loss is differentiated with respect to them.
        pos: Positive (real) features [..., m, D].
        neg: Unconditional negative features [..., u, D] for classifier-free guidance. The estimator "abc" of the
            negatives is then stratified.
        temperatures: Temperatures τ on the scale of the scaled features.
        normalization: How the kernel matrix is normalized.
            "row": each row by itself, a softmax. The theorems on the bias and on ABC are about this one.
            "bidirectional": √(softmax over the row · softmax over the column), that of the official code. An O(1/n)
            bias remains with every estimator.
            "bidirectional-loo": the same without the query's own term in the column sums, which removes most of that
            bias from the positives.
            "symmetric": column sums over the references of the same side instead of the queries.
            "sinkhorn": rows and columns of both sides have equal sums, an optimal-transport plan.
        form: "separate": V = T⁺ − T⁻, that of the theorems. "product": V = S⁺S⁻ (T⁺ − T⁻) with the masses S±, that of
            the official code, small far from the data. "potential": a field that is a gradient, for "row" only.
        estimator_pos: Estimator of the positives: "standard" (plain weights, bias O(1/n)), "abc" (O(1/n²)), "abc2"
            (O(1/n³)), "jackknife" (O(1/n²), weights may be negative), "bootstrap" (O(1/n²), draws random numbers), or
            an object. The loss does not support "br-snis".
        estimator_neg: Estimator of the negatives, one of the same.
        feature_scale: How features are scaled before their distances are computed.
            "standardize-l2": standardized per dimension, then divided by their norm. For features of an encoder with
            many dimensions, whose lengths carry little. The length of a feature is lost, so that with few dimensions
            the radius and the contrast of samples are not learned; D < 8 gives a warning.
            "mean-distance": divided by the mean distance. For points, tables, pixels and features whose length counts.
            "none": not scaled. For features that are in the units of the temperatures already.
        weight_neg: Weight of `neg`, a number or a tensor that broadcasts to [..., u]; 1 by default.
        scale_over_batch: Whether "mean-distance" takes one mean over all groups.
        share: Sizes of consecutive parts of the first leading dimension. All groups of a part share the mean distance
            and the RMS of the field, as the locations of a feature map do in the official code. By default every group
            has its own.
        matched: Whether both centroids are means over windows of the same number of references, the smaller of the
            numbers of positives and negatives. The expected field is then exactly 0 where generated and real features
            have the same distribution.
        fresh_neg: A second batch of generated features [..., r, D], drawn anew in every step, without gradient. They
            are the only negatives. With r = m the expectation of the whole training signal is 0 at equal distributions.
        kernel: "laplace", exp(−d/τ), "gaussian", exp(−d²/2τ²), or a function (x, y, tau) → log k of scaled features.
        path: "general" supports every option. "gram" supports "standardize-l2" with the Laplace kernel and computes the
            same loss and first gradient several times faster. "auto" chooses.
        generator: Random numbers for estimators that draw.
        check_finite: Whether to check the values of the tensors. This synchronizes the device.

    Returns:
        The loss [...] of each group, and a report.

    Raises:
        UserError: If an argument is invalid or if the arguments contradict each other.

    Warns:
        UserWarning: If `feature_scale` is "standardize-l2" and D < 8; not in compiled functions.

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
    if feature_scale == "standardize-l2" and gen.shape[-1] < FEWEST_DIMENSIONS and not torch.compiler.is_compiling():
        warnings.warn(LENGTH_IS_LOST.format(gen.shape[-1]), stacklevel=2)
    _check_share(share, gen, scale_over_batch, path)
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
        fast = share is None and _gram_supports(spec, feature_scale, kernel) and not _inside_functorch(features)
        path = "gram" if fast else "general"
    with full_precision(gen):
        if path == "gram":
            terms = gram_loss(features, temperatures, spec, generator)
        else:
            scaled = scale(features, feature_scale, over_batch=scale_over_batch, share=share)
            terms = general_loss(scaled, temperatures, spec, kernel, share, generator)
            if feature_scale == "none":  # the report reads the positives later, when the caller may have changed them
                size = features.pos.abs().amax((-2, -1), keepdim=True).clamp_min(1)
                terms = replace(terms, pos=features.pos / size, unit=1 / to_widest(size).unsqueeze(-3))
    return DriftLoss(terms.loss, DriftReport(terms, tuple(temperatures), spec))


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
    if not isinstance(weight_neg, Tensor):
        weight_neg = 1.0 if weight_neg is None else min(weight_neg, torch.finfo(dtype).max)
    weight = torch.as_tensor(weight_neg, dtype=dtype, device=gen.device)
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


def _check_share(share: Sequence[int] | None, gen: Tensor, scale_over_batch: bool, path: Path) -> None:
    """Require parts of the first leading dimension, and options that allow them."""
    if share is None:
        return
    P = gen.shape[0] if gen.ndim > 2 else 0
    sizes = share if isinstance(share, (tuple, list)) else ()
    if not sizes or any(type(size) is not int or size < 1 for size in sizes) or sum(sizes) != P:
        problem, fix = f"is {short_repr(share)} with gen {list(gen.shape)}", f"pass for example ({max(1, P)},)"
        raise UserError(
            problem, "must be positive integers whose sum is the first leading dimension", fix, field="share"
        )
    if scale_over_batch or path == "gram":
        other = "scale_over_batch" if scale_over_batch else "path='gram'"
        raise UserError(f"is given with {other}", "these exclude each other", f"omit {other}", field="share")


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
        fits = weight_neg is None or 0 <= read_number(weight_neg) < math.inf
        problem = f"is {short_repr(weight_neg)}"
    if not fits:
        allowed = f"must be a number ≥ 0 or a tensor that broadcasts to {list(shape)}"
        raise UserError(problem, allowed, "pass one weight per unconditional negative", field="weight_neg")
