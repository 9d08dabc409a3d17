"""Items on the page: what they offer is shown, what they do not offer is made up for, and all of it is text."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
from matplotlib.figure import Figure
from oracles.handmade_run import HOSTILE

from truedrift.page import findings
from truedrift.page import page as page_module
from truedrift.page.markup import of_report, table
from truedrift.page.page import write_page
from truedrift.paper import fig_illustration
from truedrift.records.provenance import Provenance, with_command
from truedrift.report.table import Scientific, Table

ORIGIN = Provenance(
    version="9.9",
    commit="0123456789abcdef-dirty",
    python="3",
    torch="2",
    platform="p",
    seed=11,
    wall_seconds=4321.0,
    time="2026-02-03T04:05:06+00:00",
)


@dataclass(frozen=True)
class Record:
    provenance: Provenance


def html(content):
    from truedrift.page.markup import joined

    return joined(content).html


@pytest.fixture
def offered(monkeypatch):
    """An item that offers everything, every text of it hostile."""
    shown = Table(caption=HOSTILE, label="l", header=("n", HOSTILE), groups=[[("8", Scientific(1.5e-3, bold=True))]])
    item = SimpleNamespace(
        label=HOSTILE,
        description=HOSTILE,
        summary=lambda record: HOSTILE,
        save=lambda record, directory: pytest.fail("it has a figure, and nothing is to be written"),
        table=lambda record: shown,
        figure=lambda record: Figure(figsize=(2, 1)),
        findings=lambda record: [f"ABC is lower by 1. {HOSTILE}", "second"],
    )
    for module in (page_module, findings):
        monkeypatch.setattr(module, "find_item", lambda record: item)
    return Record(provenance=replace(ORIGIN, command=HOSTILE))


def test_everything_that_an_item_offers_is_shown(offered):
    page = html(page_module.items_section(offered))
    assert page.count("&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;") >= 5
    assert "<img src=x" not in page
    assert "<td><strong>1.50e-03</strong></td>" in page
    assert page.count("<img ") == 1
    assert 'width="220" height="110"' in page  # 2 × 1 inches
    assert "2026-02-03T04:05:06+00:00, truedrift 9.9, commit 0123456789ab-dirty, seed 11, 4,321 s." in page
    assert "<summary>As text</summary>" in page


def test_verdicts_of_items_are_a_sentence_each(offered):
    said = findings.findings_of_records([offered])
    assert [verdict.sentence for verdict in said] == [f"ABC is lower by 1. {HOSTILE}", "second"]
    assert {verdict.subject for verdict in said} == {HOSTILE}


def test_verdicts_of_one_subject_share_a_card_in_the_color_of_the_worst():
    said = [
        findings.Finding(subject="a<b", sentence="one", tone="good"),
        findings.Finding(subject="c", sentence="two", about="how"),
        findings.Finding(subject="a<b", sentence="three", tone="note"),
    ]
    first, second = (
        '<li class="note"><strong><bdi>a&lt;b</bdi></strong><ul><li>one</li><li>three</li></ul></li>',
        '<li class="plain"><strong><bdi>c</bdi></strong>: two<span class="about">how</span></li>',
    )
    assert html(findings.findings_list(said)) == f'<ul class="verdicts">{first}{second}</ul>'


def test_an_item_of_the_catalog_has_its_figure_text_and_origin(tmp_path):
    record = fig_illustration.run(fig_illustration.Options(n=4, draws=20, seed=3))
    page = write_page(tmp_path / "page.html", title="t", records=[record], runs=[]).read_text()
    assert '<strong><a href="#item-fig-illustration"><bdi>fig:illustration</bdi></a></strong>' in page
    assert '<h3 id="item-fig-illustration">fig:illustration</h3>' in page
    assert page.count('src="data:image/png;base64,') == 1
    assert "draw 0 of 20 with seed 3" in page
    assert record.provenance.time in page
    assert "1 item;" in page
    assert "Curves" not in page


def test_the_command_is_told_and_guessed_only_where_the_record_does_not_say_it():
    record = fig_illustration.run(fig_illustration.Options(n=4, draws=20, seed=3))
    told = html(page_module.items_section(with_command(record, "truedrift demo --seed 3")))
    assert "Made by <code>truedrift demo --seed 3</code>, " in told
    assert "or the like" not in told
    assert "Made by <code>truedrift reproduce fig:illustration</code> or the like, " in html(
        page_module.items_section(record)
    )


def test_tables_of_many_columns_are_set_smaller():
    six, seven = (html(table(["h"] * columns, [["x"] * columns])) for columns in (6, 7))
    assert "<table>" in six
    assert '<table class="many">' in seven


def test_groups_are_bodies_and_none_is_a_dash():
    shown = Table(
        caption="c", label="l", header=("a", "b"), groups=[[("1", Scientific(None))], [("2", "x"), ("3", "y")]]
    )
    page = html(of_report(shown))
    assert page.count("<tbody>") == 2
    assert page.count("<tr>") == 4
    assert "<td>–</td>" in page
    assert '<p class="caption">c</p>' in page


def test_long_cells_may_be_broken_and_short_ones_not():
    page = html(table(("a", "b", "c"), [("r", "x" * 49, "x" * 48)]))
    assert f'<td class="wrap">{"x" * 49}</td><td>{"x" * 48}</td>' in page
