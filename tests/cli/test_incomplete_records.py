"""Records that lack runs, evaluations, costs or numbers are refused in one line."""

import json
from pathlib import Path

import pytest

from truedrift.cli import main

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def drop_evaluations(record):
    record["runs"][0]["evaluations"] = []


def keep_one_run(record):
    record["runs"] = record["runs"][:1]


def drop_runs(record):
    record["runs"] = []


def drop_last_cost(record):
    record["costs"] = record["costs"][:-1]


def drop_last_size(record):
    record["n"] = record["n"][:-1]


def drop_bias(record):
    record["biases"] = record["biases"][1:]


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("fig_bias_loglog", drop_last_size, "the record cannot be drawn (ValueError: x and y must"),
        ("normalization", drop_bias, "the record cannot be drawn (ValueError: "),
        ("tab_main_results", drop_evaluations, "the record of tab:main_results is incomplete (runs: 40)"),
        ("tab_main_results", keep_one_run, "the record of tab:main_results is incomplete (runs: 1)"),
        ("tab_main_results", drop_runs, "the record of tab:main_results is incomplete (runs: 0)"),
        ("tab_overhead", drop_last_cost, "the record of tab:overhead is incomplete (costs: 3)"),
    ],
)
def test_incomplete_record_is_refused_in_one_line(name, change, problem, tmp_path, capsys):
    record = json.loads((RESULTS / f"{name}.jsonl").read_text().splitlines()[-1])
    change(record)
    (tmp_path / "records.jsonl").write_text(json.dumps(record) + "\n")
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert problem in error
