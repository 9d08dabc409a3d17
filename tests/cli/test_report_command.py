"""`truedrift report` on runs and records: where the page is written, and errors in one line."""

import json
import os
import re
import tempfile
from importlib import import_module

import pytest
from oracles.handmade_run import write_run

from truedrift._version import __version__
from truedrift.cli import main
from truedrift.errors import UserError
from truedrift.paper import fig_illustration
from truedrift.records import append

report_module = import_module("truedrift.cli.report")  # the name is also that of a package


@pytest.fixture
def record():
    return fig_illustration.run(fig_illustration.Options(n=4, draws=20, seed=0))


def printed(capsys):
    return capsys.readouterr().out.splitlines()


def test_the_page_of_one_run_is_written_to_its_directory(tmp_path, capsys):
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


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, capsys, monkeypatch):
    """The disk is full after three files."""
    run, write = write_run(tmp_path / "mine"), report_module.write_new
    before = sorted(run.rglob("*"))
    written = []

    def fill_disk(path, content):
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        written.append(path)
        write(path, content)

    monkeypatch.setattr(report_module, "write_new", fill_disk)
    assert main(["report", str(run)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    message = "error: No space left on device; the output needs more space; free some and run again"
    assert printed.err == f"truedrift: {message}\n"
    assert len(written) == 3
    assert sorted(run.rglob("*")) == before


def read_files(directory):
    return {path.name: path.read_bytes() if path.is_file() else None for path in directory.iterdir()}


@pytest.fixture
def reported(tmp_path, capsys):
    """A run, and a directory with a report of it under an older title."""
    run, out = write_run(tmp_path / "mine"), tmp_path / "out"
    assert main(["report", str(run), "--out", str(out), "--title", "old"]) == 0
    for path in out.iterdir():
        path.write_bytes(b"old")
    capsys.readouterr()
    return run, out


def test_a_directory_in_the_place_of_a_file_leaves_all_old_files(reported, capsys):
    run, out = reported
    (out / "report.html").unlink()
    (out / "report.html").mkdir()
    before = read_files(out)
    assert main(["report", str(run), "--out", str(out)]) == 2
    assert f"'{out / 'report.html'}' is a directory; must be a file" in capsys.readouterr().err
    assert read_files(out) == before


@pytest.mark.parametrize("error", [PermissionError(1, "Operation not permitted"), KeyboardInterrupt()])
def test_a_report_that_cannot_be_finished_leaves_all_old_files(reported, capsys, monkeypatch, error):
    """The last file cannot be written: the message names it, and not its hidden copy."""
    run, out = reported
    before, write = read_files(out), report_module.write_new

    def fail_at_last(path, content):
        write(path, content)
        if path.name == ".runs.tex.writing":
            raise error

    monkeypatch.setattr(report_module, "write_new", fail_at_last)
    assert main(["report", str(run), "--out", str(out)]) == (2 if isinstance(error, OSError) else 130)
    printed = capsys.readouterr().err
    assert ".writing" not in printed
    assert not isinstance(error, OSError) or str(out / "runs.tex") in printed
    assert read_files(out) == before


def test_what_a_killed_report_left_is_removed(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    left = tmp_path / "temporary" / "truedrift-report-killed"
    left.mkdir(parents=True)
    os.utime(left, (0, 0))
    run = write_run(tmp_path / "mine")
    (run / ".report.html.writing").write_bytes(b"torn")
    assert main(["report", str(run)]) == 0
    assert not any((tmp_path / "temporary").iterdir())
    assert not list(run.glob(".*"))


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


def test_records_and_runs_of_a_directory_are_on_one_page(record, tmp_path, capsys):
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


def test_the_page_of_a_file_is_written_to_its_directory(record, tmp_path, capsys):
    path = tmp_path / "records.jsonl"
    append(path, record)
    assert main(["report", str(path)]) == 0
    assert printed(capsys)[-1] == f"page: {tmp_path / 'report.html'}"


def test_unreadable_runs_and_lines_in_a_directory_are_skipped_with_a_message(record, tmp_path, capsys):
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


def test_a_record_that_cannot_be_drawn_is_skipped_unless_it_is_alone(record, tmp_path, capsys, monkeypatch):
    append(tmp_path / "records.jsonl", record)

    def fails(record, directory):
        raise UserError("nothing to draw", "must be complete", "run it to its end")

    monkeypatch.setattr("truedrift.cli.report.render_record", fails)
    assert main(["report", str(tmp_path)]) == 2
    error = "truedrift: error: nothing to draw; must be complete; run it to its end\n"
    assert capsys.readouterr().err == error
    assert not (tmp_path / "report.html").exists()
    write_run(tmp_path / "one")
    assert main(["report", str(tmp_path)]) == 0
    message = "fig:illustration is skipped: nothing to draw; must be complete; run it to its end."
    assert message in printed(capsys)
    assert message in (tmp_path / "report.html").read_text()


def test_a_title_names_three_inputs(tmp_path):
    names = "abcde"
    for name in names:
        write_run(tmp_path / name)
    assert main(["report", *(str(tmp_path / name) for name in names), "--out", str(tmp_path / "out")]) == 0
    assert "<title>truedrift: a, b, c and 2 more</title>" in (tmp_path / "out" / "report.html").read_text()


WRITTEN = (
    "must be a directory written by truedrift train, reproduce or demo, or a directory of such directories; pass "
    "another path, or run truedrift demo first"
)
SCHEMA = f"this version ({__version__}) reads schema 1; use truedrift 0.1.0"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing", f"'missing' does not exist; {WRITTEN}"),
        ("empty", f"'empty' contains no records.jsonl and no run; {WRITTEN}"),
        ("newer", f"'newer/config.json' has schema 2; {SCHEMA}"),
        (
            "torn",
            "'torn/config.json' is not the configuration of a run (JSONDecodeError); must be the file that `truedrift "
            "train` wrote; restore it, or choose another run",
        ),
        (
            "notes.txt",
            "notes.txt, line 1 is not a record (JSONDecodeError: Expecting value: line 1 column 1 (char 0)); must be "
            "one JSON object per line, as truedrift writes it; name a file of records, or remove that line",
        ),
        (
            "weights",
            "'weights' contains only weights, not a run; must be a run, a directory with records.jsonl, or a directory "
            "of such directories; pass the run that the weights are from, or evaluate them: truedrift evaluate weights "
            "--data NAME",
        ),
        ("parent", f"'parent/newer/config.json' has schema 2; {SCHEMA}"),
    ],
)
def test_user_errors_are_one_line_and_status_2(path, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    write_run(tmp_path / "newer", schema=2)
    write_run(tmp_path / "parent" / "newer", schema=2)
    (write_run(tmp_path / "torn") / "config.json").write_text("{")
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "config.json").write_text('{"dim": 8}')
    (tmp_path / "weights" / "model.safetensors").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("Dear diary\n")
    assert main(["report", path]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", f"truedrift: error: {message}\n")
    assert not list(tmp_path.rglob("report.html"))


def test_no_directory_is_an_error(capsys):
    assert main(["report"]) == 2
    error = "truedrift: error: no directory was given; must be one or more; pass for example runs/demo\n"
    assert capsys.readouterr().err == error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "NOWHERE"], r"'.*NOWHERE' does not exist; .*; .*"),
        (["report", "EMPTY"], r"'.*EMPTY' .*records\.jsonl.*; .*; .*"),
        (["report", "OTHER"], r"'.*' has no record of a figure or table; .*; .*"),
        (["report", "BAD"], r".*line 1 is not a record .*; .*; .*"),
    ],
)
def test_files_without_a_record_are_one_line_and_status_2(arguments, message, tmp_path, capsys):
    (tmp_path / "EMPTY").mkdir()
    for name, text in (("OTHER", json.dumps({"record": "Other"})), ("BAD", "no record")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "records.jsonl").write_text(text + "\n")
    arguments = [str(tmp_path / each) if each[:4].isupper() else each for each in arguments]
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert re.fullmatch(f"truedrift: error: {message}", line)
