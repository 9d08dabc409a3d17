"""Pixels as one more feature group: the gradients of the formulas, the same by any way to positives, and refusals."""

import dataclasses

import pytest
import torch
from oracles.little_run import CPU, convnet, gradients_of, little_config, little_samples, little_step
from oracles.training_step import LiteralRun

from truedrift.encoders.base import PixelsOptions
from truedrift.encoders.catalog import build
from truedrift.errors import UserError
from truedrift.progress import no_progress
from truedrift.training.setup import Parts, build_setup

BESIDE = {"pixels": True, "feature_scale": "mean-distance"}


@pytest.mark.parametrize("u", [0, 3], ids=["unguided", "guided"])
def test_gradients_are_those_of_the_formulas_with_the_values_as_a_scale(u):
    config = little_config(objective=BESIDE | {"estimator_neg": "standard"}, batch={"unconditional": u})
    config = dataclasses.replace(config, encoder=convnet(3, 5))
    step, samples = little_step(config), little_samples()
    encoder = build(config.encoder, sample_shape=samples.sample_shape).double()

    def encode(values):
        return (*encoder(values), values.flatten(1))

    run = LiteralRun(config, step.state.generator, encode, samples)
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(run.loss(1), run.theta)])
    assert float((gradients_of(step, 1) - expected).norm() / expected.norm()) < 1e-8
    run.encode = encoder  # the negative control
    without = torch.cat([g.flatten() for g in torch.autograd.grad(run.loss(1), run.theta)])
    assert float((without - expected).norm() / expected.norm()) > 0.05


def test_kept_features_and_live_ones_have_the_same_pixels_beside_them(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    features = []
    for cached in (True, False):
        config = little_config(objective=BESIDE, engine={"precision": "float32", "cached_positives": cached})
        features.append(build_setup(config, Parts(), little_samples(), CPU, no_progress).step.positives.at(0))
    kept, live = features
    assert len(list((tmp_path / "features").glob("*.npy"))) == 1
    assert kept.shape == live.shape
    assert torch.allclose(kept, live, atol=1e-5)
    assert torch.equal(kept[-1], live[-1])


def test_pixels_beside_pixels_are_refused():
    config = dataclasses.replace(little_config(objective=BESIDE), encoder=PixelsOptions())
    with pytest.raises(UserError, match=r"objective.pixels is true with encoder.kind pixels; .*; leave it out"):
        little_step(config)
