"""Padded groups have, once weighted, the loss gradient of each group; without the weights they do not."""

import pytest
import torch

from truedrift.encoders import gradient_weights, stack_padded
from truedrift.objective.drift_loss import drift_loss

DIMENSIONS = (3, 11, 6)
SETTINGS = {"temperatures": (0.2, 0.7), "estimator_pos": "abc", "normalization": "bidirectional"}


def groups(rows, seed):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(rows, D, generator=generator, dtype=torch.float64) * (1 + D) + D for D in DIMENSIONS
    ]  # every group on a scale of its own


def gradients(loss, leaves):
    return torch.autograd.grad(loss, leaves)


@pytest.mark.parametrize("path", ["general", "auto"])
@pytest.mark.parametrize("feature_scale", ["standardize-l2", "mean-distance", "none"])
def test_weighted_and_padded_groups_have_the_gradient_of_each_group(feature_scale, path):
    settings = {**SETTINGS, "feature_scale": feature_scale, "path": path}
    if feature_scale == "none":
        settings["temperatures"] = (5.0, 20.0)
    gen, pos = [g.requires_grad_() for g in groups(7, 1)], groups(9, 2)
    alone = [gradients(drift_loss(g, p, **settings).loss, [g])[0] for g, p in zip(gen, pos, strict=True)]
    loss = drift_loss(stack_padded(gen), stack_padded(pos), **settings).loss
    weights = torch.tensor(gradient_weights(DIMENSIONS, feature_scale), dtype=torch.float64)
    together = gradients((weights * loss).sum(), gen)
    for a, b in zip(alone, together, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6 * a.abs().max().item())


@pytest.mark.parametrize("feature_scale", ["standardize-l2", "none"])
def test_without_weights_narrow_groups_have_smaller_gradients(feature_scale):
    settings = {**SETTINGS, "feature_scale": feature_scale, "temperatures": (5.0, 20.0)}
    gen, pos = [g.requires_grad_() for g in groups(7, 1)], groups(9, 2)
    (alone,) = gradients(drift_loss(gen[0], pos[0], **settings).loss, [gen[0]])
    (padded, *_) = gradients(drift_loss(stack_padded(gen), stack_padded(pos), **settings).loss.sum(), gen)
    assert (padded.norm() / alone.norm()).item() == pytest.approx((3 / 11) ** 0.5, rel=1e-6)


def test_stack_pads_with_zeros_after():
    stacked = stack_padded([torch.ones(2, 1), torch.full((2, 3), 2.0)])
    assert stacked.tolist() == [[[1, 0, 0], [1, 0, 0]], [[2, 2, 2], [2, 2, 2]]]


def test_weights_are_the_roots():
    assert gradient_weights((4, 16), "none") == [2.0, 1.0]
    assert gradient_weights((4, 16), "mean-distance") == [1.0, 1.0]


def test_wrong_arguments_are_refused():
    with pytest.raises(
        ValueError, match="feature_scale is 'l2'; must be one of 'standardize-l2', 'none', 'mean-distance'"
    ):
        gradient_weights((4,), "l2")
    with pytest.raises(ValueError, match="features is empty; must hold one or more groups"):
        stack_padded([])
