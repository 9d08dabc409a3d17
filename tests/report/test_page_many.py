"""A page of many runs: one card, one table, a few charts; runs 2 and 10 in that order."""

import json

import pytest
from oracles.handmade_run import HISTORY, PROTOCOL, evaluation, telemetry, write_run

from truedrift.page.discover import find_inputs
from truedrift.page.findings import Tone, findings_of_many
from truedrift.page.page import write_page
from truedrift.page.run_data import is_overview, natural_key, pluralize, read_runs, runs_to_draw, sort_runs


def many(directory):
    """Eight runs: five seeds of abc, then three of standard; the sixth collapsed, the eighth not complete."""
    for k in range(1, 9):
        estimator, seed = ("abc", k) if k <= 5 else ("standard", k - 5)
        metrics = (telemetry(100), telemetry(300, collapsed=k == 6), evaluation(200, 2.0), evaluation(300, 2.5 + k))
        history = HISTORY[:2] if k == 8 else HISTORY
        name = f"run{k if k < 8 else 10}"
        write_run(directory / name, estimator=estimator, seed=seed, metrics=metrics, history=history, pictures=(300,))
    return directory


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return many(tmp_path_factory.mktemp("many"))


@pytest.fixture(scope="module")
def runs(directory):
    return read_runs(find_inputs([directory]).runs)


@pytest.fixture(scope="module")
def page(directory, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    return write_page(path, title="t", records=[], runs=find_inputs([directory]).runs).read_text()


def test_names_are_in_natural_order(runs):
    assert [run.name for run in runs] == [f"run{k}" for k in (1, 2, 3, 4, 5, 6, 7, 10)]
    assert sorted(["b", "a10", "a9b", "a", "a9"], key=natural_key) == ["a", "a9", "a9b", "a10", "b"]
    assert [pluralize(k, "run") for k in (0, 1, 1200)] == ["0 runs", "1 run", "1,200 runs"]


def test_many_are_in_the_order_of_what_differs_and_then_of_their_seeds(runs):
    shuffled = [runs[k] for k in (7, 3, 0, 6, 4, 2, 5, 1)]
    assert [run.name for run in sort_runs(shuffled)] == [run.name for run in runs]
    assert sort_runs(shuffled[:6]) == shuffled[:6]


def test_numbers_are_ordered_by_size(tmp_path):
    """n of 8 to 512, and below that temperatures, whose texts have another order."""
    expected = [(n, taus) for n in (8, 16, 128, 512) for taus in ((0.02, 0.05), (0.5, 1.0), (1e-5, 1e3))]
    for k, (n, taus) in enumerate(expected):
        document = json.loads((write_run(tmp_path / f"r{k}") / "config.json").read_text())
        document["config"]["batch"]["n"] = n
        document["config"]["objective"]["temperatures"] = list(taus)
        (tmp_path / f"r{k}" / "config.json").write_text(json.dumps(document))
    found = sort_runs(read_runs([tmp_path / f"r{k}" for k in range(12)]))
    assert [(run.config.batch.n, run.config.objective.temperatures) for run in found] == sorted(expected)


def test_few_are_drawn_of_every_configuration(runs):
    assert [run.name for run in runs_to_draw(runs)] == ["run1", "run2", "run3", "run4", "run5", "run6"]
    mixed = [*runs[:4], *runs[4:5], *runs[:3], runs[7]]  # the only standard is last
    assert runs_to_draw(mixed)[-1] is runs[7]
    assert len(runs_to_draw(mixed)) == 6
    assert not is_overview(runs[:6])
    assert runs_to_draw(runs[:6]) == list(runs[:6])


def test_one_card_tells_all_runs(runs):
    state, distance = findings_of_many(runs)
    assert state.subject == "8 runs"
    assert state.sentence == "7 of 8 complete; 1 (run6) collapsed."
    assert state.tone is Tone.BAD
    assert distance.sentence == "final FID from 3.5 (run1) to 10.5 (run10), 8 runs."
    assert distance.about.startswith("FID in 2048 features of inception")


def test_the_page_has_a_row_a_run_and_says_its_protocol_once(page):
    assert page.count("2048 features of inception") == 1
    card, table = page.index('class="findings"'), page.index('<section id="runs">')
    assert card < page.index("<nav>") < table < page.index('<section id="curves">')
    rows = page[table : page.index('<section id="curves">')].split("<tr>")[1:]
    assert len(rows) == 9
    assert "seed" in rows[0]
    assert "estimator_pos" in rows[0]
    assert "final FID" in rows[0]
    assert rows[6].count("<td>standard</td>") == 2
    assert all(f"<td>{value}</td>" in rows[6] for value in ("1", "8.5", "2", "complete", "yes"))
    assert "<td>stopped at step 120 of 300</td><td>no</td>" in rows[8]


def test_charts_and_samples_are_of_six_runs_and_say_so(page):
    assert page.count("6 of the 8 runs") == 5
    assert page.count("<img ") == 6 + 3  # samples, and three figures
    block = page.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    charts = {chart["title"]: chart["series"] for chart in json.loads(block)["charts"]}
    assert list(charts["FID, smaller is better"]) == [f"run{k}" for k in range(1, 7)]
    assert "The other 2 runs" in page
    assert max(row.count("</td>") + row.count("</th>") for row in page.split("<tr>")) == 8


def test_several_protocols_are_numbered_and_problems_are_few(tmp_path):
    for k in range(7):
        protocol = PROTOCOL | {"samples": 100 if k == 6 else 5000}
        path = write_run(tmp_path / f"r{k}", metrics=() if k == 5 else (evaluation(300, 1.0 + k, protocol),))
        if k:
            (path / "history.jsonl").unlink()
    runs = read_runs([tmp_path / f"r{k}" for k in range(7)])
    sentences = [finding.sentence for finding in findings_of_many(runs)]
    assert sentences[1] == "[1] final FID from 1 (r0) to 5 (r4), 5 runs."
    assert sentences[2] == "[2] final FID from 7 (r6) to 7 (r6), 1 run."
    assert sentences[3] == "1 of 7 not evaluated."
    assert sentences[4] == "r1: history.jsonl cannot be read (No such file or directory)."
    assert sentences[-1] == "1 more problem like these."
    page = write_page(tmp_path / "p.html", title="t", records=[], runs=[tmp_path / f"r{k}" for k in range(7)])
    assert "<td>[2] FID</td><td>7</td>" in page.read_text()


def test_six_runs_are_still_shown_one_by_one(directory, tmp_path):
    few = find_inputs([directory]).runs[:6]
    page = write_page(tmp_path / "page.html", title="t", records=[], runs=few).read_text()
    assert '<section id="runs">' not in page
    assert page.count("complete after 300 steps") == 6
