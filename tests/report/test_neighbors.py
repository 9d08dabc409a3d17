"""Nearest training images, as sentences and figures."""

import dataclasses

import pytest
import torch
from oracles.handmade_run import neighbors_record

from truedrift.evaluation import Neighbors
from truedrift.report.neighbors import (
    describe_neighbors,
    describe_neighbors_protocol,
    neighbor_distances_figure,
    neighbors_figure,
    neighbors_summary,
)


def test_the_conclusion_follows_from_the_numbers():
    assert describe_neighbors(neighbors_record(close=3, p_value=0.25)) == (
        "No sign of copies: 3 of 200 samples (1.5%) are as close to a training image as the closest 5 of 500 held-out "
        "images (1.0%), and chance gives at least so many with probability 0.25."
    )
    assert describe_neighbors(neighbors_record(close=20, p_value=2e-3)) == (
        "Samples may be copies: 20 of 200 samples (10.0%) are as close to a training image as the closest 5 of 500 "
        "held-out images (1.0%), and chance gives so many with probability 0.002."
    )
    assert describe_neighbors(neighbors_record(close=200, p_value=0.0)).endswith("with probability below 1e-6.")
    assert describe_neighbors(neighbors_record(p_value=0.01)).startswith("No sign of copies")
    assert describe_neighbors(neighbors_record(p_value=0.0099)).startswith("Samples may be copies")


def test_the_protocol_says_what_was_compared():
    record = neighbors_record()
    text = describe_neighbors_protocol(record.protocol)
    assert "2048 features of inception (0123456789ab), not among those that the run was trained on" in text
    assert "2,600 of 50,000 training images of cifar10; 500 held-out images from the test split" in text
    everything = {"compared": 50_000, "independent": False, "held_out_split": "train"}
    text = describe_neighbors_protocol(dataclasses.replace(record.protocol, **everything))
    assert "), among those that the run was trained on; all 50,000 training images" in text
    assert "held-out images from the training images, as there is no test split" in text
    assert "a random part, and the nearest in pixels of all of them" in neighbors_summary(record)


def test_the_distribution_of_distances_is_drawn():
    record = neighbors_record()
    held_out, samples, threshold = neighbor_distances_figure(record).axes[0].lines
    assert held_out.get_xdata().tolist() == list(record.held_out_quantiles)
    assert samples.get_xydata()[-1].tolist() == [record.quantiles[-1], 1.0]
    assert threshold.get_xdata() == [record.threshold, record.threshold]


@pytest.mark.parametrize(("channels", "count"), [(1, 2), (3, 40)])
def test_every_sample_is_beside_its_own_neighbors(channels, count):
    """The images are plain colors, so that each can be recognized in the picture."""
    generated = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, channels, 32, 32).contiguous()
    train = (100 + torch.arange(120, dtype=torch.uint8)).view(-1, 1, 1, 1).expand(-1, channels, 32, 32).contiguous()
    ids = torch.arange(3 * count).view(count, 3)
    distances = torch.arange(count, 0, -1).float()[:, None] + torch.arange(3)  # the last sample is the closest
    found = Neighbors(ids=ids, distances=distances, held_out=torch.ones(5), compared=120)
    first, closest = (axes.images[0].get_array() for axes in neighbors_figure(generated, train, found).axes)
    for picture, number in ((first, 0), (closest, count - 1), (first[:, 152:], 1)):
        centers = [int(picture[18, 18 + 36 * k, 0]) for k in range(4)]
        assert centers == [number, *(100 + ids[number]).tolist()]
