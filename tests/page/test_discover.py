"""Paths of a report: records and runs are found; those in a directory that cannot be read are skipped."""

import pytest
from oracles.handmade_run import write_run

from truedrift.errors import UserError
from truedrift.page import find_inputs, read_runs, write_page
from truedrift.paper import fig_illustration
from truedrift.records import append


def test_runs_are_found_directly_and_one_level_below(tmp_path):
    for name in ("run10", "run2"):
        write_run(tmp_path / "runs" / name)
    write_run(tmp_path / "runs" / "deeper" / "c")
    (tmp_path / "runs" / "exported").mkdir()
    (tmp_path / "runs" / "exported" / "config.json").write_text("{}")
    found = find_inputs([tmp_path / "runs", tmp_path / "runs" / "run2"])
    assert [path.name for path in found.runs] == ["run2", "run10"]
    assert found.records == []


def test_an_unreadable_run_is_skipped_in_a_directory_and_an_error_if_it_is_given(tmp_path):
    write_run(tmp_path / "runs" / "good")
    (write_run(tmp_path / "runs" / "torn") / "config.json").write_text("{")
    write_run(tmp_path / "runs" / "newer", schema=2)
    found = find_inputs([tmp_path / "runs"])
    assert [path.name for path in found.runs] == ["good"]
    newer, torn = found.problems
    assert newer.startswith(f"newer is skipped: '{tmp_path}/runs/newer/config.json' has schema 2; ")
    assert torn.startswith(f"torn is skipped: '{tmp_path}/runs/torn/config.json' is not the configuration of a run (JS")
    with pytest.raises(UserError, match=r"torn/config.json' is not the configuration of a run"):
        find_inputs([tmp_path / "runs", tmp_path / "runs" / "torn"])
    runs = read_runs(found.runs)
    page = write_page(tmp_path / "p.html", title="t", records=[], runs=runs, problems=found.problems).read_text()
    assert "<bdi>Not readable</bdi>" in page
    assert "has schema 2" in page


def test_a_bad_line_of_records_is_skipped_unless_the_file_is_given(tmp_path):
    record = fig_illustration.run(fig_illustration.Options(n=4, draws=20, seed=0))
    below = tmp_path / "item"
    below.mkdir()
    (below / "records.jsonl").write_text('{"record": "Illus\n')
    append(below / "records.jsonl", record)
    found = find_inputs([tmp_path])
    assert found.records == [record]
    assert found.problems == ["1 line of item/records.jsonl cannot be read."]
    assert find_inputs([below]).records == [record]
    with pytest.raises(UserError, match=r"records.jsonl, line 1 is not a record"):
        find_inputs([below / "records.jsonl"])
    (below / "records.jsonl").write_text('{"record": "Illus\n')
    with pytest.raises(UserError, match=r"records.jsonl, line 1 is not a record"):
        find_inputs([tmp_path])


def test_a_folder_of_weights_is_not_a_run(tmp_path):
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported" / "config.json").write_text('{"dim": 8}')
    (tmp_path / "exported" / "model.safetensors").write_bytes(b"")
    with pytest.raises(
        UserError, match=r"exported' contains only weights, not a run; must be a run, .*; pass the run "
    ):
        find_inputs([tmp_path / "exported"])
