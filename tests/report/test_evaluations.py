"""Sweeps over strengths and nearest training images, as sentences, tables and figures."""

import dataclasses

import pytest
import torch
from oracles.handmade_run import PROTOCOL, evaluation, neighbors_record

from truedrift.evaluation import Metrics, Neighbors, Protocol
from truedrift.report.evaluations import (
    averages_table,
    describe_best_strength,
    describe_neighbors,
    describe_neighbors_protocol,
    neighbor_distances_figure,
    neighbors_figure,
    neighbors_summary,
    strengths_figure,
    strengths_table,
    write_figure,
)


def sweep(*pairs, **changed):
    """Evaluations with these strengths and distances."""
    return [
        (Metrics(**evaluation(1, fid, **changed)["evaluation"]), Protocol(**PROTOCOL | {"strength": strength}))
        for strength, fid in pairs
    ]


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        (((1.0, 5.0), (2.0, 4.0), (3.0, 6.0)), "Of the strengths 1, 2 and 3, FID is smallest (4) at 2."),
        (((2.0, 4.0), (1.0, 3.0)), "Of the strengths 1 and 2, FID is smallest (3) at 1."),
        (
            ((1.0, 5.0), (2.0, 4.0)),
            "Of the strengths 1 and 2, FID is smallest (4) at 2, the largest one, so larger ones may be better.",
        ),
        (((1.0, 5.0), (1.5, 5.0)), "FID is 5 at all strengths: 1 and 1.5."),
    ],
)
def test_the_best_strength_is_stated(pairs, sentence):
    assert describe_best_strength(sweep(*pairs)) == sentence


def test_the_table_has_one_row_per_strength_and_the_smallest_distance_in_bold():
    table = strengths_table(sweep((3.0, 6.0), (1.0, 5.0), (2.0, 4.0)))
    assert table.header == ("strength", "FID", "KID", "precision", "recall")
    assert [row[0] for row in table.rows] == ["1", "2", "3"]
    assert [row[1].bold for row in table.rows] == [False, True, False]
    assert "| 2 | **4** | 0.0125 ± 0.0005 | 0.625 | 0.375 |" in table.markdown()
    scored = strengths_table(sweep((1.0, 5.0), (2.0, 4.0), inception_score=9.0, inception_score_deviation=0.5))
    assert scored.header[-1] == "Inception Score"


def test_the_plot_has_the_distances_in_the_order_of_the_strengths(tmp_path):
    figure = strengths_figure(sweep((3.0, 6.0), (1.0, 5.0), (2.0, 4.0)))
    line, best = figure.axes[0].lines
    assert line.get_xydata().tolist() == [[1, 5], [2, 4], [3, 6]]
    assert best.get_xydata().tolist() == [[2, 4]]
    assert [each.get_label() for each in figure.axes[1].lines] == ["precision", "recall"]
    assert len(strengths_figure(sweep((1.0, 5.0), (2.0, 4.0), precision=None, recall=None)).axes) == 1
    assert write_figure(figure, tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_averages_are_ordered_by_their_decay():
    evaluated = sweep((1.5, 6.0), (1.5, 5.0), (1.5, 4.0))
    table = averages_table(dict(zip((0.9999999, 0.0, 0.5), evaluated, strict=True)), 1200)
    assert [[row[0], row[1].value, row[1].bold] for row in table.rows] == [
        ["0", 5.0, False],
        ["0.5", 4.0, True],
        ["0.9999999", 6.0, False],
    ]
    assert "at step 1,200." in table.caption
    assert table.notes[0] == "Of the decays 0, 0.5 and 0.9999999, FID is smallest (4) at 0.5."
    assert table.notes[1] == "Decay 0: the weights of the step, without an average."
    assert table.notes[2].startswith("5,000 samples with strength 1.5 and seed 7, against 1,797 of digits (test)")
    two = averages_table(dict(zip((0.9, 0.5), evaluated, strict=False)), None)
    assert two.notes[0].startswith("Of the decays 0.5 and 0.9, FID is smallest (5) at 0.5.")
    assert len(two.notes) == 2


# Nearest training images


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
