"""The page: everything is shown and escaped, the policy is strict, and the elements are those of the template."""

import base64
import hashlib
import io
import json
import os
import re
import shutil
from dataclasses import dataclass, replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from oracles.handmade_run import (
    HISTORY,
    HOSTILE,
    METRICS,
    PROTOCOL,
    evaluation,
    neighbors_record,
    telemetry,
    write_evaluation,
    write_neighbors,
    write_run,
)
from PIL import Image

from truedrift.cli import main
from truedrift.page import Finding, Tone, read_run, read_runs, render_page, write_page
from truedrift.page import page as page_module
from truedrift.page.run_data import find_sweeps
from truedrift.paper import fig_illustration
from truedrift.recipes import build_evaluator, recipe
from truedrift.records import Provenance, with_command
from truedrift.report import Scientific, Table
from truedrift.report.sweeps import sweep_table
from truedrift.training import train

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
ESCAPED = "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;"


def page_of(runs, path, **options):
    """The text of the page of these run directories."""
    return write_page(path / "page.html", records=[], runs=read_runs(runs), **{"title": "t"} | options).read_text()


def json_of(page):
    return re.search(r'<script type="application/json" id="data">(.*)</script>', page, re.DOTALL)[1]


# Items


@dataclass(frozen=True)
class Record:
    provenance: Provenance


def use_item(monkeypatch, label="l", description="d", **content):
    """Make every record one of an item of this content; return a record."""
    content = {"summary": "s", "table": None, "figure": None, "findings": ()} | content
    functions = {name: lambda record, value=value: value for name, value in content.items()}
    item = SimpleNamespace(label=label, description=description, **functions)
    monkeypatch.setattr(page_module, "find_item", lambda record: item)
    return Record(provenance=replace(ORIGIN, command=HOSTILE))


def test_attributes_are_escaped(monkeypatch):
    hostile = f'"{HOSTILE} onclick="x'
    page = render_page("t", [use_item(monkeypatch, label=hostile, figure=Figure(figsize=(2, 1)))], [])
    (alt,) = re.findall(r'<img src="data:image/png;base64,[^"]*" alt="([^"]*)" width="220" height="110">', page)
    assert unescape(alt) == f"Figure {hostile}"


def test_all_the_content_of_an_item_is_shown(monkeypatch):
    table = Table(caption=HOSTILE, label="l", header=("n", HOSTILE), groups=[[("8", Scientific(1.5e-3, bold=True))]])
    record = use_item(
        monkeypatch,
        label=HOSTILE,
        description=HOSTILE,
        summary=HOSTILE,
        table=table,
        figure=Figure(figsize=(2, 1)),
        findings=[f"ABC is lower by 1. {HOSTILE}", "second"],
    )
    page = render_page("t", [record], [])
    assert page.count(ESCAPED) >= 8
    assert "<img src=x" not in page
    flat = re.sub(r"\s*\n\s*", "", page)
    assert f": ABC is lower by 1. {ESCAPED}</li></ul><details><summary>1 more finding</summary>" in flat
    assert flat.index("1 more finding") < flat.index(": second</li>")
    assert "<td><strong>1.50e-03</strong></td>" in page
    assert page.count("<img ") == 1
    assert 'width="220" height="110"' in page  # 2 × 1 inches
    assert "2026-02-03T04:05:06+00:00, truedrift 9.9, commit 0123456789ab-dirty, seed 11, 4,321 s." in page
    assert "<summary>As text</summary>" in page


def test_an_item_of_the_catalog_has_its_figure_text_and_origin(tmp_path):
    record = fig_illustration.run(fig_illustration.Options(n=4, draws=20, seed=3))
    page = write_page(tmp_path / "page.html", title="t", records=[record], runs=[]).read_text()
    assert '<strong><a href="#item-fig:illustration"><bdi>fig:illustration</bdi></a></strong>' in page
    assert '<h3 id="item-fig:illustration">fig:illustration</h3>\n<p>Figure 1 of the paper. ' in page
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


def test_findings_of_one_subject_share_a_card_in_the_tone_of_the_most_urgent(monkeypatch):
    found = [
        Finding(subject="a<b", sentence="one", tone=Tone.GOOD),
        Finding(subject="c", sentence="two", about="how"),
        Finding(subject="a<b", sentence="three", tone=Tone.NOTE),
    ]
    monkeypatch.setattr(page_module, "describe_runs", lambda runs: found)
    page = re.sub(r"\s*\n\s*", "", render_page("t", [], []))
    first, second = (
        '<li class="note"><strong><bdi>a&lt;b</bdi></strong><ul><li>one</li><li>three</li></ul></li>',
        '<li class="plain"><strong><bdi>c</bdi></strong>: two<span class="about">how</span></li>',
    )
    folded = f'<details><summary>1 more finding</summary><ul class="findings">{second}</ul></details>'
    assert f'<ul class="findings">{first}</ul>{folded}' in page


# Tables


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


# Runs


def test_the_page_of_two_runs_has_all_sections_in_order(tmp_path):
    runs = [write_run(tmp_path / name, estimator=name) for name in ("abc", "standard")]
    page = page_of(runs, tmp_path, title="My title")
    assert page.index(">My title<") < page.index(">Comparison<")
    titles = ("Samples", "Curves", "Telemetry", "Bias indicators during training")
    titles += ("Differences in configuration", "Provenance and history")
    headings = [page.index(f"<h2>{title}</h2>") for title in titles]
    assert headings == sorted(headings)
    assert page.index('class="findings"') < headings[0]
    assert '<span class="lamp low"></span>low' in page
    assert "History: resumed once." in page
    assert page.count("<img ") == 6 + 3  # samples, and three figures
    assert json.loads(json_of(page))["charts"][0]["title"] == "Energy distance to the data"
    alts = re.findall(r'<img [^>]* alt="([^"]*)"', page)
    assert alts[0] == "Samples of abc at step 300"
    assert "Energy distance to the data: abc " in alts[6]
    assert len(page) < 310_000  # 13,000 per panel
    charts = {chart["title"]: chart["series"] for chart in json.loads(json_of(page))["charts"]}
    points = [[800, 40.0], [1600, 12.5], [2400, 13.25]]
    assert charts["FID, smaller is better"] == {"abc": points, "standard": points}


def test_hostile_names_are_text_everywhere(tmp_path):
    history = [HISTORY[3] | {"event": HOSTILE, HOSTILE: HOSTILE, "host": HOSTILE}]
    metrics = (*METRICS, evaluation(300, 1.0, protocol=PROTOCOL | {"extractor": HOSTILE, "prepared": HOSTILE}))
    path = write_run(
        tmp_path / "<img src=x>", metrics=metrics, history=history, classes=(HOSTILE, "b"), recipe_name=HOSTILE
    )
    page = page_of([path], tmp_path, title=HOSTILE)
    assert "<img src=x" not in page
    assert page.count("</script>") == 1
    assert page.count(ESCAPED) > 8


def test_a_name_that_is_not_utf_8_is_shown_with_question_marks(tmp_path):
    assert "<bdi>a?b</bdi>" in page_of([write_run(tmp_path / os.fsdecode(b"a\xffb"))], tmp_path)


# Pictures


def test_pictures_are_scaled_down_and_damaged_ones_are_none(tmp_path):
    path = tmp_path / "step-1.png"
    Image.new("L", (3000, 30)).save(path)
    image = page_module.embed_picture(path, 100, "a")
    assert (image.width, image.height) == (3000, 30)
    with Image.open(io.BytesIO(base64.b64decode(image.source.removeprefix("data:image/png;base64,")))) as written:
        assert written.size == (100, 1)
    for content in (b"", b"GIF89a", b"\x89PNG\r\n\x1a\n", path.read_bytes()[:60]):
        path.write_bytes(content)
        assert page_module.embed_picture(path, 100, "a") is None


def test_a_damaged_picture_is_a_sentence(tmp_path):
    path = write_run(tmp_path / "mine")
    (path / "samples" / "step-00000300.png").write_bytes(b"<svg onload=alert(1)>")
    (path / "samples" / "other.png").write_bytes(b"")
    page = page_of([path], tmp_path)
    assert "This picture is damaged." in page
    assert page.count("<img ") == 2 + 3  # samples, and three figures


def test_earlier_pictures_are_chosen_evenly():
    pictures = [(step, Path(str(step))) for step in range(0, 900, 100)]
    assert [step for step, _ in page_module.choose_evenly(pictures)] == [0, 200, 400, 600]
    assert page_module.choose_evenly(pictures[:2]) == pictures[:2]
    assert page_module.choose_evenly([]) == []


# Averages, strengths and nearest training images


def test_a_run_that_was_only_trained_has_no_such_section(tmp_path):
    path = write_run(tmp_path / "mine")
    write_evaluation(path, 12.0)
    assert 'id="evaluation"' not in page_of([path], tmp_path)


@pytest.fixture(scope="module")
def run_with_averages(tmp_path_factory):
    """Twelve steps of the digits with three averages, which were evaluated on the way and at the end."""
    out = tmp_path_factory.mktemp("averages") / "run"
    settings = ("generator.width=16", "generator.depth=1", "batch.n=3", "optimizer.warmup_steps=1", "optimizer.ema=0.9")
    cadence = ("cadence.epochs=6", "cadence.steps_per_epoch=2", "cadence.grid_every=none", "evaluation.samples=60")
    config = recipe("digits", settings=(*settings, "optimizer.more_ema=0.99,0.5", *cadence))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRUEDRIFT_CACHE", str(out.parent / "cache"))
        evaluator = build_evaluator(config, device=torch.device("cpu"))
        assert list(train(config, out=out, device="cpu", evaluate=evaluator))[-1].complete
        yield out


def rows_of_averages(page):
    """The rows of the table of averages: decay, distance, KID, …."""
    section = page[page.index('<section id="evaluation">') : page.index('<section id="configuration">')]
    rows = re.findall(r'<tr>\s*<th scope="row">(.*?)</tr>', section, re.DOTALL)
    return [re.sub(r"\s*<[^>]*>\s*", " ", row).split() for row in rows]


def test_every_average_of_a_trained_run_is_shown(run_with_averages, tmp_path):
    page = page_of([run_with_averages], tmp_path)
    lines = [json.loads(line) for line in (run_with_averages / "metrics.jsonl").read_text().splitlines()]
    line = [line for line in lines if "evaluation" in line][-1]
    metrics = {"0.5": line["more_ema"]["0.5"], "0.9": line["evaluation"], "0.99": line["more_ema"]["0.99"]}
    expected = [[decay, f"{each['fid']:.4g}", f"{each['kid']:.3g}"] for decay, each in metrics.items()]
    assert [row[:3] for row in rows_of_averages(page)] == expected
    assert len({row[1] for row in expected}) == 3
    best = min(metrics, key=lambda decay: metrics[decay]["fid"])
    assert f"<td><strong>{metrics[best]['fid']:.4g}</strong></td>" in page
    assert f"is smallest ({metrics[best]['fid']:.4g}) at {best}" in page
    assert "Metrics by decay of the averaged weights at step 12." in page


def test_evaluations_of_the_command_are_added_to_the_averages(run_with_averages, tmp_path, capsys):
    """The weights of the step are decay 0. Another protocol is not compared, and the same average is not repeated."""
    copy = shutil.copytree(run_with_averages, tmp_path / "run")
    for arguments in (["--weights", "model"], ["--ema", "0.99"], ["--ema", "0.9", "--samples", "50"]):
        assert main(["evaluate", str(copy), *arguments]) == 0, capsys.readouterr().err
    before, after = (sweep_table(find_sweeps(read_run(path, "run"))[0]) for path in (run_with_averages, copy))
    assert [row[0] for row in after.rows] == ["0", "0.5", "0.9", "0.99"]
    assert [row[1].value for row in after.rows[1:]] == pytest.approx([row[1].value for row in before.rows], rel=1e-9)
    assert after.rows[0][1].value not in [row[1].value for row in before.rows]


def test_one_average_and_averages_of_earlier_steps_are_not_shown(tmp_path):
    lines = [evaluation(step, 2.0) | {"more_ema": {"0.5": evaluation(step, 1.0)["evaluation"]}} for step in (100, 200)]
    lines[-1]["more_ema"]["0.5"] |= {"fid": None}  # it diverged
    assert 'id="evaluation"' not in page_of([write_run(tmp_path / "mine", metrics=lines)], tmp_path)
    shown = page_of([write_run(tmp_path / "shown", metrics=lines[:1])], tmp_path)
    assert [row[:2] for row in rows_of_averages(shown)] == [["0.5", "1"], [f"{recipe('digits').optimizer.ema}", "2"]]


def test_strengths_are_shown_as_a_table_and_a_figure(tmp_path):
    path = write_run(tmp_path / "mine")
    for strength, fid in ((1.0, 14.0), (1.5, 9.0), (2.0, 11.0)):
        write_evaluation(path, fid, strength=strength)
    page = page_of([path], tmp_path)
    section = page[page.index('<section id="evaluation">') : page.index('<section id="configuration">')]
    assert "<td><strong>9</strong></td>" in section
    assert section.count("<tr>") == 4
    assert section.count("<img ") == 1
    assert '<a href="#evaluation">' in page


def test_steps_are_shown_as_a_table_and_a_figure(tmp_path):
    """The last step counts as the result, in whatever order the steps were evaluated."""
    path = write_run(tmp_path / "mine")
    for step, fid in ((300, 9.0), (100, 14.0), (200, 11.0)):
        write_evaluation(path, fid, step=step)
    page = page_of([path], tmp_path)
    section = page[page.index('<section id="evaluation">') : page.index('<section id="configuration">')]
    assert re.findall(r"<bdi>(\d+)</bdi></th>", section) == ["100", "200", "300"]
    assert "Metrics by training step." in section
    assert section.count("<img ") == 1
    assert "FID 9, precision" in page
    assert "FID 11, precision" not in page


def test_nearest_training_images_are_shown_with_their_distances(tmp_path):
    path = write_run(tmp_path / "<img src=x>")
    record = neighbors_record()
    write_neighbors(path, protocol=replace(record.protocol, extractor=HOSTILE, data=HOSTILE))
    page = page_of([path, write_run(tmp_path / "other")], tmp_path)
    section = page[page.index('<section id="evaluation">') : page.index('<section id="configuration">')]
    assert "No sign of copies: 2 of 200 samples (1.0%)" in section
    assert section.count("<img ") == 2
    assert "<img src=x" not in page
    assert "other" not in re.sub('"data:[^"]*"', "", section)


def test_a_missing_picture_of_nearest_training_images_is_a_sentence(tmp_path):
    path = write_run(tmp_path / "mine")
    write_neighbors(path)
    (path / "neighbors.png").unlink()
    page = page_of([path], tmp_path)
    section = page[page.index('<section id="evaluation">') : page.index('<section id="configuration">')]
    assert "This picture is damaged." in section
    assert section.count("<img ") == 1


# Many runs


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Eight runs: five seeds of abc, then three of standard; the sixth collapsed, the eighth not complete."""
    directory = tmp_path_factory.mktemp("many")
    paths = []
    for k in range(1, 9):
        estimator, seed = ("abc", k) if k <= 5 else ("standard", k - 5)
        metrics = (telemetry(100), telemetry(300, collapsed=k == 6), evaluation(200, 2.0), evaluation(300, 2.5 + k))
        history = HISTORY[:2] if k == 8 else HISTORY
        options = {"metrics": metrics, "history": history, "pictures": (300,)}
        paths.append(write_run(directory / f"run{k}", estimator=estimator, seed=seed, **options))
    return paths


@pytest.fixture(scope="module")
def many_page(many, tmp_path_factory):
    return page_of(many, tmp_path_factory.mktemp("page"))


def test_many_runs_have_one_row_each_and_their_protocol_is_shown_once(many_page):
    assert many_page.count("2048 features of inception") == 1
    card, table = many_page.index('class="findings"'), many_page.index('<section id="runs">')
    assert card < many_page.index("<nav>") < table < many_page.index('<section id="curves">')
    rows = many_page[table : many_page.index('<section id="curves">')].split("<tr>")[1:]
    assert len(rows) == 9
    assert "seed" in rows[0]
    assert "estimator_pos" in rows[0]
    assert "final FID" in rows[0]
    assert rows[6].count("<td>standard</td>") == 2
    assert all(f"<td>{value}</td>" in rows[6] for value in ("1", "8.5", "2", "complete", "yes"))
    assert "<td>stopped at step 120 of 300</td><td>no</td>" in rows[8]


def test_charts_and_samples_are_those_of_six_runs(many_page):
    assert many_page.count("6 of the 8 runs") == 5
    assert many_page.count("<img ") == 6 + 3  # samples, and three figures
    charts = {chart["title"]: chart["series"] for chart in json.loads(json_of(many_page))["charts"]}
    assert list(charts["FID, smaller is better"]) == [f"run{k}" for k in range(1, 7)]
    assert "The other 2 runs" in many_page
    assert max(row.count("</td>") + row.count("</th>") for row in many_page.split("<tr>")) == 8


def test_several_protocols_are_numbered_in_the_table(tmp_path):
    for k in range(7):
        protocol = PROTOCOL | {"samples": 100 if k == 6 else 5000}
        write_run(tmp_path / f"r{k}", metrics=(evaluation(300, 1.0 + k, protocol),))
    assert "<td>[2] FID</td><td>7</td>" in page_of([tmp_path / f"r{k}" for k in range(7)], tmp_path)


def test_six_runs_are_shown_one_by_one(many, tmp_path):
    page = page_of(many[:6], tmp_path)
    assert '<section id="runs">' not in page
    assert page.count("complete after 300 steps") == 6


# Template


class Parser(HTMLParser):
    """Tags with their attributes, and the text between them."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.tags, self.text = [], ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


PLAIN = [tag for tag, _ in Parser(render_page("title", [], [], problems=["problem"])).tags]


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cf"))))
def test_text_stays_text(text):
    page = Parser(render_page(text, [], [], problems=[f"a {text} b"]))
    assert [tag for tag, _ in page.tags] == PLAIN
    assert f"a {text} b" in page.text


def test_the_template_runs_no_script_and_has_no_address_outside_the_page():
    template = page_module.read_resource("page.html.j2")
    assert re.findall(r"<script[^>]*>", template) == ['<script type="application/json" id="data">']
    assert re.findall(r"""\s(?:on\w+|style|action|formaction)\s*=""", template) == []
    assert re.findall(r"\|\s*safe|Markup|autoescape", template) == ["| safe"]  # the style sheet
    addresses = re.findall(r'\s(?:href|src|srcset)="([^"]*)"', template)
    assert len(addresses) > 10
    assert all(re.match(r"#|data:,$|\{\{ shown\.(dark_)?source \}\}$", address) for address in addresses)


def test_json_is_unchanged_and_nothing_in_it_ends_its_block(monkeypatch):
    data = {"</script><!--<script>": ["&amp;", "\u2028\u2029", "ü", 1.5, None], "b": 1, "a": 2}
    monkeypatch.setattr(page_module, "chart_data", lambda labels, charts: data)
    block = json_of(render_page("t", [], []))
    assert json.loads(block) == data
    assert list(json.loads(block)) == list(data)
    assert not set(block) & set("<>&\u2028\u2029")
    assert block.isascii()
    monkeypatch.setattr(page_module, "chart_data", lambda labels, charts: float("nan"))
    with pytest.raises(ValueError, match="JSON compliant"):
        render_page("t", [], [])


def test_the_policy_allows_the_style_of_the_page_alone():
    html = render_page("a < b", [], [])
    page = Parser(html)
    policy = next(attributes["content"] for tag, attributes in page.tags if "http-equiv" in attributes)
    style = re.search(r"<style>(.*)</style>", html, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives == {
        "default-src": "'none'",
        "img-src": "data:",
        "style-src": f"'sha256-{digest}'",
        "script-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert page_module.content_policy(style + " ") != policy
    assert "a < b" in page.text


def test_the_style_defines_every_color_for_light_and_for_dark_and_loads_nothing():
    style = page_module.read_resource("style.css")
    light, dark = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    names = [set(re.findall(r"(--[a-z-]+):", colors)) for colors in (light, dark)]
    assert names[0] == names[1]
    assert set(re.findall(r"var\((--[a-z-]+)\)", style)) <= names[0]
    assert "url(" not in style
    assert "@import" not in style
    assert "<" not in style
