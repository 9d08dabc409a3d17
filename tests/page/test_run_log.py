"""metrics.jsonl is read line by line: long files are thinned, and the page has the numbers of the whole file."""

import json
import tracemalloc
from collections import Counter
from random import Random

import pytest
from oracles.handmade_run import evaluation, telemetry, write_run

from truedrift.page import (
    describe_runs,
    energy_charts,
    evaluation_charts,
    final_table,
    gauge_charts,
    gauge_table,
    read_run,
    run_log,
    tables,
    training_charts,
)


def random_lines(count):
    """Logged steps with random bias indicators, some of them missing, and an evaluation after every tenth."""
    random = Random(0)

    def three(largest):
        return [random.choice((None, largest * random.random(), largest * random.random())) for _ in range(3)]

    for step in range(1, count + 1):
        sides = {f"n_eff_{side}": three(6.0) for side in ("pos", "neg")}
        sides |= {f"dominated_{side}": three(1.0) for side in ("pos", "neg")}
        yield telemetry(step, spread=random.random(), gradient_norm=random.random(), **sides)
        if step % 10 == 0:
            yield evaluation(step, 1.0 + random.random())


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def charts_of(run):
    return [*energy_charts([run]), *evaluation_charts([run]), *training_charts([run]), *gauge_charts([run])]


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 16, 17, 31, 64, 65, 100, 129])
def test_every_second_fourth_or_eighth_step_is_kept_and_the_first_and_the_last(count, tmp_path, monkeypatch):
    monkeypatch.setattr(run_log, "MOST_STEPS", 8)
    log = run_log.read_log(write_lines(tmp_path / "metrics.jsonl", map(telemetry, range(1, count + 1))), 3)
    stride = next(2**k for k in range(20) if len(range(0, count, 2**k)) <= 8)
    kept = sorted({*range(0, count, stride), *range(count)[-1:]})
    assert [line["step"] for line in log.telemetry] == [k + 1 for k in kept]
    assert (log.logged_steps, log.lines) == (count, count)


@pytest.mark.parametrize("most", [16, 1 << 30])
def test_all_logged_steps_are_counted_by_confidence(most, tmp_path, monkeypatch):
    """The counts are those of a loop over all lines."""
    monkeypatch.setattr(run_log, "MOST_STEPS", most)
    lines = list(random_lines(150))
    run = read_run(write_run(tmp_path / "run", metrics=lines), "run")
    for side in ("positive", "negative"):
        for index in range(3):
            expected = Counter()
            for line in (each for each in lines if "n_eff_pos" in each):
                n_eff, dominated = line[f"n_eff_{side[:3]}"][index], line[f"dominated_{side[:3]}"][index]
                known = n_eff is not None and dominated is not None
                expected[
                    "unknown" if not known else "low" if dominated > 0.5 else "medium" if n_eff < 3 else "high"
                ] += 1
            assert run.confidence[side, index] == expected
            assert len(expected) == 4
    assert tables.describe_progress(run) == "150 logged steps, from 8 to 1,200 positives seen per class."


def test_the_page_of_a_thinned_run_has_the_numbers_of_the_whole(tmp_path, monkeypatch):
    path = write_run(tmp_path / "run", metrics=list(random_lines(700)))
    runs = {}
    for most in (64, 1 << 30):
        monkeypatch.setattr(run_log, "MOST_STEPS", most)
        runs[most] = read_run(path, "run")
    thinned, whole = runs.values()
    assert (len(thinned.telemetry), len(whole.telemetry)) == (45, 700)  # every 16th and the last
    # Numbers, sentences and evaluations are the same.
    assert thinned.evaluations == whole.evaluations
    assert len(whole.evaluations) == 70
    for table in (gauge_table, tables.provenance_table):
        assert table(thinned) == table(whole)
    assert final_table([thinned]) == final_table([whole])
    assert describe_runs([thinned]) == describe_runs([whole])
    # Curves have the same ends, and no other points.
    monkeypatch.setattr("truedrift.page.charts.MOST_POINTS", 1 << 30)
    drawn, expected = charts_of(thinned), charts_of(whole)
    assert [chart.title for chart in drawn] == [chart.title for chart in expected]
    for chart, other in zip(drawn, expected, strict=True):
        assert (chart.level, chart.about) == (other.level, other.about)
        for series, longer in zip(chart.series, other.series, strict=True):
            assert (series.points[0], series.points[-1]) == (longer.points[0], longer.points[-1])
            assert set(series.points) <= set(longer.points)


def test_a_run_of_usual_length_is_read_as_a_whole(tmp_path):
    """Nothing is thinned: the steps are those that json reads from the file."""
    lines = list(random_lines(run_log.MOST_STEPS))
    run = read_run(write_run(tmp_path / "run", metrics=lines), "run")
    assert run.telemetry == [line for line in lines if "positives_seen" in line]


@pytest.mark.parametrize(("most", "least", "largest"), [(16, 0, 1.5), (1 << 30, 4, 20)])
def test_memory_does_not_grow_with_the_number_of_lines(most, least, largest, tmp_path, monkeypatch):
    """Ten times the lines need the same memory, unless all of them are kept."""
    monkeypatch.setattr(run_log, "MOST_STEPS", most)
    peaks = []
    for count in (100, 1000):
        path = write_lines(tmp_path / "metrics.jsonl", map(telemetry, range(1, count + 1)))
        tracemalloc.start()
        log = run_log.read_log(path, 3)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert log.logged_steps == count
    assert least < peaks[1] / peaks[0] < largest


def test_evaluations_of_one_protocol_share_it(tmp_path):
    run = read_run(write_run(tmp_path / "run", metrics=[evaluation(step, 1.0) for step in (1, 2, 3)]), "run")
    assert len({id(each.protocol) for each in run.evaluations}) == 1


def test_many_evaluations_are_thinned_in_charts_only(tmp_path, monkeypatch):
    monkeypatch.setattr("truedrift.page.charts.MOST_POINTS", 10)
    run = read_run(
        write_run(tmp_path / "run", metrics=[evaluation(step, 100.0 - step) for step in range(1, 56)]), "run"
    )
    assert len(run.evaluations) == 55
    points = evaluation_charts([run])[0].series[0].points
    assert [value for _, value in points] == [*(99.0 - k for k in range(0, 54, 6)), 45.0]
