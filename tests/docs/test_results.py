"""Numbers in the documents are those of the records in docs/results."""

import re
from pathlib import Path

import pytest

from truedrift.records import Baselines, BiasCurves, FieldBiases, Guidance, Temperature, TrainedDigits, read
from truedrift.report import app_temperature, fig_bias_loglog, guidance, normalization, tab_baselines, trained_digits

DOCS = Path(__file__).parents[2] / "docs"
STUDIES = (DOCS / "studies.md").read_text(encoding="utf-8")


def rows_below(header):
    """The rows of the table with that header."""
    lines = iter(STUDIES.splitlines())
    assert any(line == header for line in lines)
    next(lines)
    for line in lines:
        if not line.startswith("|"):
            return
        yield line


@pytest.mark.parametrize(
    ("name", "kind", "table"),
    [
        ("fig_bias_loglog", BiasCurves, fig_bias_loglog.table),
        ("tab_baselines", Baselines, tab_baselines.table),
        ("app_temperature", Temperature, app_temperature.table),
        ("normalization", FieldBiases, normalization.table),
        ("guidance", Guidance, guidance.table),
    ],
)
def test_the_tables_are_those_of_the_records(name, kind, table):
    (record,) = read(DOCS / "results" / f"{name}.jsonl", kind)
    _, _, header, _, *rows = table(record).markdown().splitlines()
    shown = list(rows_below(header))
    assert len(shown) >= 6
    assert set(shown) <= set(rows)
    assert record.provenance.commit
    assert not record.provenance.commit.endswith("-dirty")


def test_the_digits_of_the_readme_are_those_of_the_record():
    (record,) = read(DOCS / "results" / "trained_digits.jsonl", TrainedDigits)
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    _, _, header, rule, *rows = trained_digits.table(record).markdown().rstrip().splitlines()
    assert "\n".join((header, rule, *rows)) in readme
    assert f"n = {record.n}, {record.steps} steps" in readme
    assert f"gets {record.accuracy:.1%} of held-out digits right" in readme
    # What the project claims of them.
    assert all(run.recognized >= 0.9 and run.distance_ratio >= 0.65 and run.seconds <= 180 for run in record.runs)
    assert record.provenance.commit
    assert not record.provenance.commit.endswith("-dirty")


def test_the_kills_of_the_training_page_are_those_of_the_record():
    record = (DOCS / "results" / "kills.txt").read_text(encoding="utf-8")
    kills, inside = re.search(r"^(\d+) kills, (\d+) of them inside of a save$", record, re.MULTILINE).groups()
    page = " ".join((DOCS / "training.md").read_text(encoding="utf-8").split())
    assert f"killed {kills} times with signal 9, {inside} times inside a save" in page
    assert int(kills) >= 20
    assert int(inside) >= 5
    assert "the same as without kills" in record
    assert "average not restored: another state" in record
