"""The report's page in headless Chromium: it renders, it fits, it obeys its own policy, and hostile text stays text.

The control is a page without escaping: on it, the same checks must find the hostile elements.
"""

import base64
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from oracles.browser import open_page
from oracles.handmade_run import HISTORY, HOSTILE, METRICS, PROTOCOL, evaluation, telemetry, write_run
from oracles.image_grids import PROTOCOL as GRID_PROTOCOL
from oracles.image_grids import grid
from oracles.image_grids import run as image_run

from truedrift.page import page as page_module
from truedrift.page import read_runs, write_page
from truedrift.paper import equilibrium, fig_illustration
from truedrift.records import read

RESULTS = Path(__file__).parents[2] / "docs" / "results"
DESKTOP, PHONE = (1200, 900), (360, 740)


def hostile_page(directory):
    """Write a page of a record and two runs; one run is named HOSTILE and has HOSTILE wherever its files have text."""
    metrics = (
        *METRICS,
        telemetry(300, **{HOSTILE: 1}),
        evaluation(300, 9.0, protocol=PROTOCOL | {"prepared": HOSTILE}),
    )
    history = (*HISTORY, HISTORY[3] | {"host": HOSTILE, HOSTILE: HOSTILE})
    above, below = HOSTILE.split("/")
    options = {"metrics": metrics, "history": history, "classes": (HOSTILE, "b"), "recipe_name": HOSTILE}
    runs = [
        write_run(directory / above / below, estimator="abc", **options),
        write_run(directory / "other" / below, estimator="standard"),
    ]
    record = fig_illustration.run(fig_illustration.Options(n=4, draws=20, seed=0))
    return write_page(directory / "page.html", title=f"A {HOSTILE}", records=[record], runs=read_runs(runs))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    return hostile_page(tmp_path_factory.mktemp("hostile"))


@pytest.fixture
def page(browser, hostile):
    return open_page(browser, hostile)


def images_from_outside(shown):
    """Count the elements that exist only if something was not escaped."""
    return shown.value("document.querySelectorAll('img:not([src^=\"data:image/\"]), [onerror]').length")


def test_the_page_renders_without_messages_in_the_console(page):
    assert page.log == []
    assert page.value("document.title") == f"A {HOSTILE}"
    assert page.value("document.readyState") == "complete"


def test_findings_come_before_everything_else(page):
    first = page.value("document.querySelector('header').nextElementSibling.tagName")
    assert first == "MAIN"
    listed = page.value("[...document.querySelectorAll('header .findings li strong')].map(each => each.textContent)")
    assert listed[:2] == ["Comparison", HOSTILE]
    top, section = page.value(
        "['.findings', 'main h2'].map(name => document.querySelector(name).getBoundingClientRect().top)"
    )
    assert top < section


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_picture_is_decoded_and_every_chart_has_a_size(page, scheme):
    page.show(DESKTOP, scheme)
    page.wait("[...document.images].every(image => image.complete)")
    widths = page.value("[...document.images].map(image => image.naturalWidth)")
    assert len(widths) == 7 + 3  # three pictures per run, the figure of the item, and three figures of charts
    assert min(widths) > 0
    boxes = page.value("[...document.querySelectorAll('.chart img')].map(each => each.getBoundingClientRect().height)")
    assert len(boxes) == 3
    assert min(boxes) > 100


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_the_page_never_scrolls_sideways(page, size):
    page.show(size)
    assert page.value("document.documentElement.scrollWidth") <= size[0]
    page.save(f"page-{size[0]}")


def wide_tables(shown):
    """Count the tables that must be scrolled to be read."""
    return shown.value("[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).length")


def test_wide_tables_scroll_in_their_own_box_on_a_phone(page):
    page.show(PHONE)
    assert wide_tables(page) > 0


@pytest.fixture(scope="module")
def many_runs(tmp_path_factory):
    """Write a page of eight runs and of the table with the most columns."""
    directory = tmp_path_factory.mktemp("many")
    names = [f"digits-{k:012x}" for k in range(8)]
    runs = [write_run(directory / name, estimator=("abc", "standard")[k % 2], seed=k) for k, name in enumerate(names)]
    images = [
        image_run(estimator, n, seed, [9.25 + seed, 8.5, 7.125 - seed / 8])
        for estimator in ("standard", "abc")
        for n in (8, 64)
        for seed in range(3)
    ]
    record = grid("tab:main_results", images, protocol=replace(GRID_PROTOCOL, extractor="digits"))
    return write_page(directory / "page.html", title="Many", records=[record], runs=read_runs(runs))


def test_wide_tables_fit_on_a_desktop_and_scroll_on_a_phone(browser, many_runs):
    shown = open_page(browser, many_runs)
    shown.show(DESKTOP)
    shown.save("many-1200")
    assert shown.log == []
    assert shown.value("document.querySelectorAll('table.many').length") > 2
    assert wide_tables(shown) == 0
    shown.show(PHONE)
    assert wide_tables(shown) > 0
    assert shown.value("document.documentElement.scrollWidth") <= PHONE[0]


def test_a_wide_figure_scrolls_in_its_own_box_on_a_phone(browser, tmp_path):
    """The record of the study `equilibrium`, whose figure has four panels side by side."""
    (record,) = read(RESULTS / "equilibrium.jsonl", equilibrium.Equilibrium)
    shown = open_page(browser, write_page(tmp_path / "page.html", title="t", records=[record], runs=[]))
    widths = "[document.querySelector('.wide img').width, document.querySelector('.wide').clientWidth]"
    for size, fits in ((DESKTOP, True), (PHONE, False)):
        shown.show(size)
        image, box = shown.value(widths)
        assert image >= 800
        assert (image <= box) == fits
        assert shown.value("document.documentElement.scrollWidth") <= size[0]


def test_dark_is_dark_and_paper_is_light(page):
    seen = {}
    is_dark = "document.querySelector('.chart img').currentSrc === document.querySelector('.chart source').srcset"
    for name, scheme, media in (("light", "light", ""), ("dark", "dark", ""), ("paper", "dark", "print")):
        page.show(DESKTOP, scheme, media)
        page.wait(f"({is_dark}) === {'true' if name == 'dark' else 'false'}")  # a busy machine changes pictures late
        page.wait("[...document.images].every(image => image.complete)")
        body = page.value("(body => [body.backgroundColor, body.color])(getComputedStyle(document.body))")
        seen[name] = [*body, page.value("document.querySelector('.chart img').currentSrc")]
        page.save(f"page-{name}")
    assert seen["light"][:2] == ["rgb(255, 255, 255)", "rgb(29, 35, 43)"]
    assert all(a != b for a, b in zip(seen["light"], seen["dark"], strict=True))
    assert seen["paper"] == seen["light"]


def test_the_page_prints(page):
    page.show(DESKTOP)
    pdf = base64.b64decode(page.browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert pdf.startswith(b"%PDF-")
    assert len(pdf) > 20_000


def test_hostile_names_run_no_script_and_make_no_element(page):
    assert page.value("window.alerted") == []
    assert images_from_outside(page) == 0
    assert page.value("document.scripts.length") == 1
    assert page.value("JSON.parse(document.getElementById('data').textContent).items") == ["fig:illustration"]
    headings = page.value("[...document.querySelectorAll('h3')].map(each => each.textContent)")
    assert headings.count(HOSTILE) == 3  # its gauge, its samples, its provenance


def without_escaping(monkeypatch):
    environment = page_module.Environment
    monkeypatch.setattr(page_module, "Environment", lambda **options: environment(**options | {"autoescape": False}))


def test_control_without_escaping_the_checks_find_a_picture_and_the_policy_stops_it(browser, tmp_path, monkeypatch):
    without_escaping(monkeypatch)
    shown = open_page(browser, hostile_page(tmp_path))
    assert shown.value("window.alerted") == []
    assert images_from_outside(shown) > 0
    shown.wait_for_log("Content Security Policy")


def test_control_without_escaping_and_policy_the_script_runs(browser, tmp_path, monkeypatch):
    without_escaping(monkeypatch)
    monkeypatch.setattr(page_module, "content_policy", lambda style: "img-src *")
    assert set(open_page(browser, hostile_page(tmp_path)).value("window.alerted")) == {"1"}


def test_the_page_requests_nothing_from_a_network(browser, page, tmp_path):
    """The control is a page with one picture from outside: the same expression finds it."""
    requests = (
        "performance.getEntriesByType('resource').map(each => each.name).filter(name => !name.startsWith('data:'))"
    )
    assert page.value(requests) == []
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # it does not listen and refuses connections
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/x.png"
        (tmp_path / "control.html").write_text(f"<!doctype html><img src='{address}'>")
        assert open_page(browser, tmp_path / "control.html").value(requests) == [address]
