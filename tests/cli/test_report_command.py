"""`truedrift report` on runs and records: where the page goes, and what is refused in one line."""

import re

import pytest
from oracles.handmade_run import write_run

from truedrift.cli.main import main
from truedrift.errors import UserError
from truedrift.paper import fig_illustration
from truedrift.records.store import append


@pytest.fixture
def record():
    return fig_illustration.run(fig_illustration.Options(n=4, draws=20, seed=0))


def printed(capsys):
    return capsys.readouterr().out.splitlines()


def test_one_run_gets_its_page_beside_it(tmp_path, capsys):
    run = write_run(tmp_path / "mine")
    assert main(["report", str(run)]) == 0
    files = [f"{name}.{kind}" for name in ("curves", "gauge") for kind in ("png", "pdf")]
    files += [f"runs.{kind}" for kind in ("md", "tex", "csv")]
    assert printed(capsys) == [*(f"written: {run / file}" for file in files), "", f"page: {run / 'report.html'}"]
    assert all((run / file).is_file() for file in files)
    page = (run / "report.html").read_text()
    assert "<title>truedrift: mine</title>" in page
    assert "The whole configuration" in page
    assert main(["report", str(run)]) == 0  # again, over itself


def test_two_runs_are_compared_in_a_directory_of_their_own(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("abc", "standard"):
        write_run(tmp_path / name, estimator=name)
    assert main(["report", "abc", "standard", "--title", "Both <of> them"]) == 0
    lines = printed(capsys)
    assert lines[-1] == "page: runs/report/report.html"
    assert "written: runs/report/differences.csv" in lines
    differ = (tmp_path / "runs/report/differences.csv").read_text().splitlines()
    assert differ == [
        "option,abc,standard",
        "objective.estimator_pos,abc,standard",
        "objective.estimator_neg,abc,standard",
    ]
    page = (tmp_path / "runs/report/report.html").read_text()
    assert "<h1>Both &lt;of&gt; them</h1>" in page
    assert "<h2>Differences in configuration</h2>" in page
    assert "objective.estimator_pos" in page


def test_a_directory_with_records_and_runs_is_told_on_one_page(record, tmp_path, capsys):
    append(tmp_path / "records.jsonl", record)
    write_run(tmp_path / "one")
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    lines = printed(capsys)
    assert lines[0].startswith("fig:illustration")
    assert lines[-1] == f"page: {tmp_path / 'out' / 'report.html'}"
    page = (tmp_path / "out" / "report.html").read_text()
    assert "1 item, 1 run;" in page
    assert page.index("fig:illustration") < page.index("<h2>Curves</h2>")
    assert page.count("data:image/png;base64,") == 4  # the figure and three sample grids
    assert record.provenance.time in page
    assert {"fig_illustration.png", "fig_illustration.pdf"} <= {path.name for path in (tmp_path / "out").iterdir()}


def test_a_file_of_records_gets_its_page_beside_it(record, tmp_path, capsys):
    path = tmp_path / "records.jsonl"
    append(path, record)
    assert main(["report", str(path)]) == 0
    assert printed(capsys)[-1] == f"page: {tmp_path / 'report.html'}"


def test_what_cannot_be_read_below_a_directory_is_told_and_passed_over(record, tmp_path, capsys):
    write_run(tmp_path / "runs" / "good")
    (write_run(tmp_path / "runs" / "torn") / "config.json").write_text("{")
    (tmp_path / "runs" / "records.jsonl").write_text("{}\n")
    append(tmp_path / "runs" / "records.jsonl", record)
    assert main(["report", str(tmp_path / "runs")]) == 0
    lines = printed(capsys)
    assert "1 line of runs/records.jsonl cannot be read." in lines
    (torn,) = (line for line in lines if line.startswith("torn is skipped: "))
    file = tmp_path / "runs" / "torn" / "config.json"
    assert torn == (
        f"torn is skipped: '{file}' is not the configuration of a run (JSONDecodeError); must be the file that "
        "`truedrift train` wrote; restore it, or choose another run."
    )
    page = (tmp_path / "runs" / "report.html").read_text()
    assert "torn is skipped" in page
    assert "1 item, 1 run;" in page


def test_a_record_that_cannot_be_drawn_is_told_and_passed_over_unless_it_is_alone(
    record, tmp_path, capsys, monkeypatch
):
    append(tmp_path / "records.jsonl", record)

    def fails(record, directory):
        raise UserError("nothing to draw", "allowed is something", "run it to its end")

    monkeypatch.setattr("truedrift.cli.report.render_record", fails)
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("truedrift: error: nothing to draw;")
    assert not (tmp_path / "report.html").exists()
    write_run(tmp_path / "one")
    assert main(["report", str(tmp_path)]) == 0
    said = "fig:illustration is skipped: nothing to draw; allowed is something; run it to its end."
    assert said in printed(capsys)
    assert said in (tmp_path / "report.html").read_text()


def test_a_title_names_three_places(tmp_path):
    names = "abcde"
    for name in names:
        write_run(tmp_path / name)
    assert main(["report", *(str(tmp_path / name) for name in names), "--out", str(tmp_path / "out")]) == 0
    assert "<title>truedrift: a, b, c and 2 more</title>" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere", r"'.*nowhere' does not exist; must be a directory .*; .* run truedrift demo first"),
        ("empty", r"'.*empty' contains no records.jsonl and no run; must be .*; .* run truedrift demo first"),
        ("newer", r"'.*config.json' has schema 2; this version \(\S+\) reads schema 1; use truedrift 0.1.0"),
        ("torn", r"'.*config.json' is not the configuration of a run \(JSONDecodeError\); .*; .*"),
        ("notes.txt", r".*notes.txt, line 1 is not a record .*; must be .*; name a file of .*"),
        ("weights", r"'.*weights' contains only weights, not a run; must be a run, .*; .* evaluate them: .*"),
        ("holder", r"'.*config.json' has schema 2; .*"),
    ],
)
def test_mistakes_are_one_line_and_status_2(place, message, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    write_run(tmp_path / "newer", schema=2)
    write_run(tmp_path / "holder" / "newer", schema=2)
    (write_run(tmp_path / "torn") / "config.json").write_text("{")
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "config.json").write_text('{"dim": 8}')
    (tmp_path / "weights" / "model.safetensors").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("Dear diary\n")
    assert main(["report", str(tmp_path / place)]) == 2
    error = capsys.readouterr().err
    assert re.fullmatch(rf"truedrift: error: {message}\n", error), error
    assert not list(tmp_path.rglob("report.html"))


def test_no_directory_is_a_mistake(capsys):
    assert main(["report"]) == 2
    error = "truedrift: error: no directory was given; pass one or more; for example runs/demo\n"
    assert capsys.readouterr().err == error
