"""The catalog finds the item of a record by its kind and its label."""

import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from oracles.image_grids import grid, run

from truedrift.cli.reproduce import Reproduce
from truedrift.grids import ImageGrid
from truedrift.paper import catalog
from truedrift.records import RECORDS, append
from truedrift.report import Table
from truedrift.report import item as item_module

RUNS = [run("standard", 8, 0, [3.0]), run("abc", 8, 0, [2.0])]


def test_every_image_experiment_has_an_item():
    assert set(catalog.GRIDS) == {item.label for item in catalog.load_items() if item.record is ImageGrid}
    assert sorted(catalog.GRIDS) == [
        "arithmetic",
        "fig:ablation_trajectory",
        "fig:convergence",
        "images",
        "matching",
        "tab:cifar100",
        "tab:main_results",
        "tab:samples_to_fid",
        "temperature-sweep",
    ]


def test_items_have_the_labels_of_the_catalog_and_studies_their_function():
    assert [item.label for item in catalog.load_items()] == list(catalog.ITEMS)
    for label in catalog.STUDIES:
        assert callable(import_module(f"truedrift.paper.{catalog.ITEMS[label]}").study)
    for name in catalog.GRIDS.values():
        assert callable(import_module(f"truedrift.paper.{name}").tasks)


@pytest.mark.parametrize("label", catalog.GRIDS)
def test_find_item_uses_the_label_of_a_grid(label):
    assert catalog.find_item(grid(label, RUNS)).label == label


def test_unknown_item_is_an_error():
    with pytest.raises(
        ValueError, match=r"a record ImageGrid has the unknown item 'tab:next'; known items: fig:illustration, .*"
    ):
        catalog.find_item(grid("tab:next", RUNS))


def test_latest_returns_the_last_record_of_each_item(tmp_path):
    first, other = grid("tab:main_results", RUNS), grid("tab:cifar100", RUNS)
    last = replace(first, scale="paper")
    for record in (first, other, last, grid("tab:next", RUNS)):
        append(tmp_path / RECORDS, record)
    assert catalog.latest(tmp_path) == [last, other]


def test_file_with_only_unknown_items_is_an_error(tmp_path):
    append(tmp_path / RECORDS, grid("tab:next", RUNS))
    with pytest.raises(ValueError, match=r"has no record of a figure or table; known items: .*"):
        catalog.latest(tmp_path)


def test_figure_items_have_a_figure_and_table_items_have_none():
    record = grid("fig:convergence", RUNS)
    item = catalog.find_item(record)
    assert isinstance(item.table(record), Table)
    assert item.figure(record).axes
    assert item.findings(record)
    assert catalog.find_item(grid("tab:main_results", RUNS)).figure(grid("tab:main_results", RUNS)) is None


def test_item_without_functions_is_empty(tmp_path):
    bare = item_module.Item(label="x", record=int, description="Nothing.")
    assert (bare.table(1), bare.figure(1), bare.findings(1)) == (None, None, ())
    assert bare.save(1, tmp_path) == []
    assert bare.summary(1).strip() == "x"


def test_every_description_is_one_line():
    for item in catalog.load_items():
        assert item.description.endswith(".")
        assert "\n" not in item.description
        assert "`" not in item.description


def test_files_are_named_by_label_or_filename(tmp_path):
    table = Table(caption="c", label="l", header=("a", "b"), groups=[[("1", "2")]], notes=("n",))
    item = item_module.Item(
        label="tab:some-thing", record=int, description="x.", table=lambda _: table, findings=lambda _: ["found"]
    )
    assert [path.name for path in item.save(1, tmp_path)] == [f"tab_some_thing.{kind}" for kind in ("md", "tex", "csv")]
    assert replace(item, filename="other").save(1, tmp_path)[0].name == "other.md"
    assert item.summary(1) == "tab:some-thing: c\n\na  b\n1  2\n\nfound\n\nn"


def test_the_printed_numbers_are_in_the_help_and_in_the_table_of_results():
    """Figures and tables of the paper, counted in its source: four figures and seven tables, one of them notation."""
    assert sorted(catalog.PRINTED.values()) == [
        "Appendix D",
        *(f"Figure {number}" for number in (1, 2, 3, 4)),
        *(f"Table {number}" for number in (1, 2, 3, 5, 6, 7)),
    ]
    assert set(catalog.PRINTED) == {label for label in catalog.REPRODUCIBLE if ":" in label}
    listed = re.findall(r"((?:Figure|Table|Appendix) \w)  ([a-z0-9_:]+)", Reproduce.__doc__)
    assert {label: number for number, label in listed} == catalog.PRINTED
    assert len(listed) == len(catalog.PRINTED)
    studies = re.findall(r"[\w-]+", re.search(r"Additional studies:\n((?: .*\n)+)", Reproduce.__doc__)[1])
    assert set(studies) == set(catalog.REPRODUCIBLE) - set(catalog.PRINTED)
    page = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\w ]+), `([\w:]+)` \|", page, re.MULTILINE)
    assert {label: number for number, label in rows} == catalog.PRINTED
