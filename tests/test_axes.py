"""Shape types are checked in tests, and are plain tensors if jaxtyping is not installed."""

import importlib.util
import sys

import jaxtyping
import pytest
import torch

import truedrift.axes
from truedrift.centroids import centroid
from truedrift.kernels import normalize, pairwise_distance


def test_shapes_are_checked_while_testing():
    """A wrong shape raises before any arithmetic."""
    with pytest.raises(jaxtyping.TypeCheckError, match=r"truedrift\.kernels\.distance\.pairwise_distance"):
        pairwise_distance(torch.zeros(4, 3), torch.zeros(5, 2))
    with pytest.raises(jaxtyping.TypeCheckError, match=r"truedrift\.kernels\.weights\.normalize"):
        normalize(torch.zeros(3, dtype=torch.long))


@pytest.mark.usefixtures("unchecked_shapes")
def test_shapes_are_not_checked_for_users():
    with pytest.raises(ValueError, match="x has D = 3 and y has D = 2"):
        centroid(torch.zeros(4, 3), torch.zeros(5, 2), tau=1.0)


def test_without_jaxtyping_shapes_are_plain_tensors(monkeypatch):
    monkeypatch.setitem(sys.modules, "jaxtyping", None)  # importing it fails
    spec = importlib.util.spec_from_file_location("axes_alone", truedrift.axes.__file__)
    axes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(axes)
    for alias in (axes.Float, axes.Bool, axes.Int):
        assert alias[torch.Tensor, "*batch n"] is torch.Tensor
