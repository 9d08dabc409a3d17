"""Sweeps over strengths, steps and averages, as sentences, tables and figures."""

import pytest
from oracles.handmade_run import PROTOCOL, evaluation

from truedrift.evaluation import Metrics, Protocol
from truedrift.report.figure import write_figure
from truedrift.report.sweeps import Sweep, describe_best, sweep_figure, sweep_table


def sweep(*pairs, quantity="strength", step=None, **changed):
    """Evaluations with these values of the quantity and these distances."""
    evaluated = {}
    for value, fid in pairs:
        protocol = PROTOCOL | ({"strength": value} if quantity == "strength" else {})
        evaluated[value] = Metrics(**evaluation(1, fid, **changed)["evaluation"]), Protocol(**protocol)
    return Sweep(quantity, evaluated, step)


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
    assert describe_best(sweep(*pairs)) == sentence


def test_the_table_has_one_row_per_strength_and_the_smallest_distance_in_bold():
    table = sweep_table(sweep((3.0, 6.0), (1.0, 5.0), (2.0, 4.0)))
    assert table.header == ("strength", "FID", "KID", "precision", "recall")
    assert [row[0] for row in table.rows] == ["1", "2", "3"]
    assert [row[1].bold for row in table.rows] == [False, True, False]
    assert "| 2 | **4** | 0.0125 ± 0.0005 | 0.625 | 0.375 |" in table.markdown()
    scored = sweep_table(sweep((1.0, 5.0), (2.0, 4.0), inception_score=9.0, inception_score_deviation=0.5))
    assert scored.header[-1] == "Inception Score"


def test_the_plot_has_the_distances_in_the_order_of_the_strengths(tmp_path):
    figure = sweep_figure(sweep((3.0, 6.0), (1.0, 5.0), (2.0, 4.0)))
    line, best = figure.axes[0].lines
    assert line.get_xydata().tolist() == [[1, 5], [2, 4], [3, 6]]
    assert best.get_xydata().tolist() == [[2, 4]]
    assert [each.get_label() for each in figure.axes[1].lines] == ["precision", "recall"]
    assert len(sweep_figure(sweep((1.0, 5.0), (2.0, 4.0), precision=None, recall=None)).axes) == 1
    assert write_figure(figure, tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_averages_are_ordered_by_their_decay():
    table = sweep_table(sweep((0.9999999, 6.0), (0.0, 5.0), (0.5, 4.0), quantity="decay", step=1200))
    assert [[row[0], row[1].value, row[1].bold] for row in table.rows] == [
        ["0", 5.0, False],
        ["0.5", 4.0, True],
        ["0.9999999", 6.0, False],
    ]
    assert "at step 1,200." in table.caption
    assert table.notes[0] == "Of the decays 0, 0.5 and 0.9999999, FID is smallest (4) at 0.5."
    assert table.notes[1] == "Decay 0: the weights of the step, without an average."
    assert table.notes[2].startswith("5,000 samples with strength 1.5 and seed 7, against 1,797 of digits (test)")
    two = sweep_table(sweep((0.9, 6.0), (0.5, 5.0), quantity="decay"))
    assert two.notes[0].startswith("Of the decays 0.5 and 0.9, FID is smallest (5) at 0.5.")
    assert len(two.notes) == 2


def test_steps_are_a_curve_over_the_training():
    steps = sweep((12_000, 4.0), (3_000, 6.0), (6_000, 5.0), quantity="step")
    table = sweep_table(steps)
    assert [row[0] for row in table.rows] == ["3,000", "6,000", "12,000"]
    assert [row[1].bold for row in table.rows] == [False, False, True]
    assert table.notes[1].startswith("5,000 samples with ema weights, strength 1.5 and seed 7, against 1,797 of")
    figure = sweep_figure(steps)
    assert figure.axes[0].lines[0].get_xydata().tolist() == [[3_000, 6], [6_000, 5], [12_000, 4]]
    assert figure.axes[0].get_xlabel() == "training step"
