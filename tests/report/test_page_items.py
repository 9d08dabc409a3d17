"""Items on the page: all their content is shown, and all of it is escaped."""

import re
from dataclasses import dataclass, replace
from html import unescape
from types import SimpleNamespace

import pytest
from matplotlib.figure import Figure
from oracles.handmade_run import HOSTILE

from truedrift.page import findings
from truedrift.page import page as page_module
from truedrift.page.findings import Finding, Tone, group_findings
from truedrift.page.page import render_page, write_page
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


def use_item(monkeypatch, **changed):
    """Make every record one of an item of this content; return a record."""
    content = {
        "label": "l",
        "description": "d",
        "summary": "s",
        "table": None,
        "figure": None,
        "findings": (),
    } | changed
    functions = {
        name: lambda record, value=value: value
        for name, value in content.items()
        if name not in ("label", "description")
    }
    item = SimpleNamespace(**functions | {name: content[name] for name in ("label", "description")})
    for module in (page_module, findings):
        monkeypatch.setattr(module, "find_item", lambda record: item)
    return Record(provenance=replace(ORIGIN, command=HOSTILE))


@pytest.fixture
def offered(monkeypatch):
    """A record of an item that has everything, with hostile text everywhere."""
    table = Table(caption=HOSTILE, label="l", header=("n", HOSTILE), groups=[[("8", Scientific(1.5e-3, bold=True))]])
    found = [f"ABC is lower by 1. {HOSTILE}", "second"]
    figure = Figure(figsize=(2, 1))
    return use_item(
        monkeypatch, label=HOSTILE, description=HOSTILE, summary=HOSTILE, table=table, figure=figure, findings=found
    )


def test_attributes_are_escaped(monkeypatch):
    hostile = f'"{HOSTILE} onclick="x'
    page = render_page("t", [use_item(monkeypatch, label=hostile, figure=Figure(figsize=(2, 1)))], [])
    (alt,) = re.findall(r'<img src="data:image/png;base64,[^"]*" alt="([^"]*)" width="220" height="110">', page)
    assert unescape(alt) == f"Figure {hostile}"


def test_everything_that_an_item_offers_is_shown(offered):
    page = render_page("t", [offered], [])
    assert page.count("&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;") >= 5
    assert "<img src=x" not in page
    assert "<td><strong>1.50e-03</strong></td>" in page
    assert page.count("<img ") == 1
    assert 'width="220" height="110"' in page  # 2 × 1 inches
    assert "2026-02-03T04:05:06+00:00, truedrift 9.9, commit 0123456789ab-dirty, seed 11, 4,321 s." in page
    assert "<summary>As text</summary>" in page


def test_findings_of_items_are_a_sentence_each(offered):
    found = findings.findings_of_records([offered])
    assert [finding.sentence for finding in found] == [f"ABC is lower by 1. {HOSTILE}", "second"]
    assert {finding.subject for finding in found} == {HOSTILE}


def test_findings_of_one_subject_share_a_card_in_the_tone_of_the_most_urgent(monkeypatch):
    found = [
        Finding(subject="a<b", sentence="one", tone=Tone.GOOD),
        Finding(subject="c", sentence="two", about="how"),
        Finding(subject="a<b", sentence="three", tone=Tone.NOTE),
    ]
    assert [(card.subject, card.tone) for card in group_findings(found)] == [("a<b", Tone.NOTE), ("c", Tone.PLAIN)]
    monkeypatch.setattr(page_module, "findings_of_runs", lambda runs: found)
    page = re.sub(r"\s*\n\s*", "", render_page("t", [], []))
    first, second = (
        '<li class="note"><strong><bdi>a&lt;b</bdi></strong><ul><li>one</li><li>three</li></ul></li>',
        '<li class="plain"><strong><bdi>c</bdi></strong>: two<span class="about">how</span></li>',
    )
    assert f'<ul class="findings">{first}{second}</ul>' in page


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


def test_the_command_is_shown_and_guessed_only_if_the_record_does_not_state_it():
    record = fig_illustration.run(fig_illustration.Options(n=4, draws=20, seed=3))
    page = render_page("t", [with_command(record, "truedrift demo --seed 3")], [])
    assert "Made by <code>truedrift demo --seed 3</code>, " in page
    assert "or a similar command" not in page
    guessed = "Made by <code>truedrift reproduce fig:illustration</code> or a similar command, "
    assert guessed in render_page("t", [record], [])


@pytest.fixture
def table_html(monkeypatch):
    """Renders a table as the page does."""

    def render(header, *groups):
        table = Table(caption="c", label="l", header=header, groups=groups)
        page = render_page("t", [use_item(monkeypatch, table=table)], [])
        return page[page.index('<section id="items">') : page.index("</section>")]

    return render


def test_tables_of_many_columns_are_set_smaller(table_html):
    six, seven = (table_html(["h"] * columns, [["x"] * columns]) for columns in (6, 7))
    assert "<table>" in six
    assert '<table class="many">' in seven


def test_groups_are_bodies_and_none_is_a_dash(table_html):
    page = table_html(("a", "b"), [("1", Scientific(None))], [("2", "x"), ("3", "y")])
    assert page.count("<tbody>") == 2
    assert page.count("<tr>") == 4
    assert "<td>–</td>" in page
    assert '<p class="caption">c</p>' in page


def test_long_cells_may_be_broken_and_short_ones_not(table_html):
    page = table_html(("a", "b", "c"), [("r", "x" * 49, "x" * 48)])
    assert f'<td class="wrap">{"x" * 49}</td><td>{"x" * 48}</td>' in page
