"""The number of operators of loss and gradient: on a GPU their launches cost more than their arithmetic.

The profiler counts every operator that the package or autograd calls, including views, but not operators that are
called inside others. On a CPU the Gram path works in blocks that fit into the cache. These tests use one block, as on a
GPU.
"""

import itertools

import pytest
import torch
from oracles.feature_groups import feature_groups
from torch.profiler import ProfilerActivity, profile

from truedrift.field import JOINT_NORMALIZATIONS
from truedrift.objective import gram
from truedrift.training import Objective, ObjectiveOptions

pytestmark = pytest.mark.usefixtures("unchecked_shapes", "one_block")
SIZES = ((1, 1), (10, 1), (10, 4), (100, 4))
"""Classes and scales."""


@pytest.fixture
def one_block(monkeypatch):
    monkeypatch.setattr(gram, "BLOCK_ELEMENTS", 1 << 60)


def operators(classes, scales, estimators=("abc", "abc"), n=8, m=8, u=0, **options):
    """Count the operators of one loss and its gradient."""
    generator = torch.Generator().manual_seed(0)
    gen, pos, neg = (torch.randn(scales, classes, rows, 16, generator=generator) for rows in (n, m, u))
    weight = torch.rand(classes, u, generator=generator) + 0.1
    chosen = ObjectiveOptions(estimator_pos=estimators[0], estimator_neg=estimators[1], **options)
    objective = Objective(chosen, [1.0] * scales)
    sides = (gen, pos + 1, neg, weight) if u else (gen, pos + 1)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        objective(*sides)
    return sum(_is_called_directly(event) for event in seen.events())


def _is_called_directly(event):
    above = event.cpu_parent
    while above is not None and not above.name.startswith("aten::"):
        above = above.cpu_parent
    return event.name.startswith("aten::") and above is None


@pytest.mark.parametrize("feature_scale", ["standardize-l2", "mean-distance"])
@pytest.mark.parametrize("normalization", JOINT_NORMALIZATIONS)
def test_count_does_not_depend_on_classes_and_scales(normalization, feature_scale):
    for u in (0, 5):
        options = {"normalization": normalization, "feature_scale": feature_scale, "u": u, "m": 12}
        counts = {size: operators(*size, **options) for size in SIZES}
        assert len(set(counts.values())) == 1, counts


@pytest.mark.parametrize("feature_scale", ["standardize-l2", "mean-distance"])
@pytest.mark.parametrize(("n", "m"), [(8, 8), (8, 12)], ids=["sides alike", "sides unlike"])
def test_abc_adds_at_most_eight(n, m, feature_scale):
    for normalization in JOINT_NORMALIZATIONS:
        options = {"n": n, "m": m, "feature_scale": feature_scale, "normalization": normalization}
        plain = operators(10, 4, ("standard", "standard"), **options)
        corrected = operators(10, 4, ("abc", "abc"), **options)
        assert 0 < corrected - plain <= 8, (plain, corrected)


def test_count_with_unconditional_negatives():
    """ABC adds four operators for positives, and more for stratified negatives: a softmax in float64 and the strata."""
    plain, pos, both = (
        operators(10, 4, (pos, neg), u=5)
        for pos, neg in (("standard", "standard"), ("abc", "standard"), ("abc", "abc"))
    )
    assert pos - plain == 4
    assert both - plain <= 46


def test_count_detects_a_loop():
    """Negative control: more temperatures need no more operators, but a loop over groups does."""
    assert operators(10, 4, temperatures=(0.1,)) == operators(10, 4, temperatures=(0.1, 0.2, 0.3, 0.4))
    gen, pos, _, _ = feature_groups(4, 4)
    objective = Objective(ObjectiveOptions(), [1.0])

    def looped():
        for s, c in itertools.product(range(2), range(2)):
            objective(gen[s, c][None, None], pos[s, c][None, None])

    with profile(activities=[ProfilerActivity.CPU]) as seen:
        looped()
    assert sum(_is_called_directly(event) for event in seen.events()) > 3 * operators(2, 2, n=4, m=4)
