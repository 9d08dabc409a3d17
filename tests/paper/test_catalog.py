"""Records find their items by kind and by the label that they name."""

from dataclasses import replace
from importlib import import_module

import pytest
from oracles.image_grids import grid, run

from truedrift.grids import ImageGrid
from truedrift.paper.catalog import GRIDS, ITEMS, STUDIES, find_item, latest, load_items
from truedrift.records import RECORDS, append
from truedrift.report import Table
from truedrift.report.item import Item

RUNS = [run("standard", 8, 0, [3.0]), run("abc", 8, 0, [2.0])]


def test_every_image_experiment_has_an_item():
    assert set(GRIDS) == {item.label for item in load_items() if item.record is ImageGrid}
    assert sorted(GRIDS) == [
        "arithmetic",
        "fig:ablation_trajectory",
        "fig:convergence",
        "tab:cifar100",
        "tab:main_results",
        "tab:samples_to_fid",
        "temperature-sweep",
    ]


def test_items_have_the_labels_of_the_catalog_and_studies_their_function():
    assert [item.label for item in load_items()] == list(ITEMS)
    for label in STUDIES:
        assert callable(import_module(f"truedrift.paper.{ITEMS[label]}").study)
    for name in GRIDS.values():
        assert callable(import_module(f"truedrift.paper.{name}").tasks)


@pytest.mark.parametrize("label", GRIDS)
def test_a_grid_is_drawn_by_the_item_that_it_names(label):
    assert find_item(grid(label, RUNS)).label == label


def test_an_item_that_is_not_known_is_a_mistake():
    with pytest.raises(
        ValueError, match=r"a record ImageGrid has the unknown item 'tab:next'; known items: fig:illustration, .*"
    ):
        find_item(grid("tab:next", RUNS))


def test_the_last_record_of_each_item_counts(tmp_path):
    first, other = grid("tab:main_results", RUNS), grid("tab:cifar100", RUNS)
    last = replace(first, scale="paper")
    for record in (first, other, last, grid("tab:next", RUNS)):
        append(tmp_path / RECORDS, record)
    assert latest(tmp_path) == [last, other]


def test_a_file_of_unknown_items_alone_is_a_mistake(tmp_path):
    append(tmp_path / RECORDS, grid("tab:next", RUNS))
    with pytest.raises(ValueError, match=r"has no record of a figure or table; known items: .*"):
        latest(tmp_path)


def test_items_have_tables_figures_and_findings_as_their_labels_say():
    record = grid("fig:convergence", RUNS)
    item = find_item(record)
    assert isinstance(item.table(record), Table)
    assert item.figure(record).axes
    assert item.findings(record)
    assert find_item(grid("tab:main_results", RUNS)).figure(grid("tab:main_results", RUNS)) is None


def test_an_item_without_functions_has_no_table_figure_or_finding(tmp_path):
    bare = Item(label="x", record=int, description="Nothing.")
    assert (bare.table(1), bare.figure(1), bare.findings(1)) == (None, None, ())
    assert bare.save(1, tmp_path) == []
    assert bare.summary(1).strip() == "x"


def test_every_item_has_a_description_of_one_line():
    for item in load_items():
        assert item.description.endswith(".")
        assert "\n" not in item.description
        assert "`" not in item.description


def test_files_are_named_by_the_label_or_by_a_name_of_their_own(tmp_path):
    table = Table(caption="c", label="l", header=("a", "b"), groups=[[("1", "2")]], notes=("n",))
    item = Item(
        label="tab:some-thing", record=int, description="x.", table=lambda _: table, findings=lambda _: ["found"]
    )
    assert [path.name for path in item.save(1, tmp_path)] == [f"tab_some_thing.{kind}" for kind in ("md", "tex", "csv")]
    assert replace(item, filename="other").save(1, tmp_path)[0].name == "other.md"
    assert item.summary(1) == "tab:some-thing: c\n\na  b\n1  2\n\nfound\n\nn"
