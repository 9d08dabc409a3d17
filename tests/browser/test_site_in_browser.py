"""The documentation site: it is built strictly, its links lead somewhere, and it works from files without a server."""

import os
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("index.html", "reference/mathematics.html")
DESKTOP = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}


def build_site(config, folder):
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--config-file", str(config)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        [*command, "--site-dir", str(folder)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="no mkdocs: pip install 'truedrift[docs]'")
    folder = tmp_path_factory.mktemp("site")
    built = build_site(ROOT / "mkdocs.yml", folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


class Links(HTMLParser):
    """Collects the targets of links, images, scripts and frames, and the anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.anchors = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        self.targets |= {found[name] for name in ("href", "src") if found.get(name) and tag != "base"}


def broken_links(site):
    pages = {page: Links(page.read_text()) for page in site.rglob("*.html") if page.name != "404.html"}
    for page, links in pages.items():
        for target in links.targets:
            address, anchor = urldefrag(unquote(target))
            if re.match(r"[a-z]+:", address):
                continue
            file = (page.parent / address).resolve() if address else page
            if file.is_dir():
                file /= "index.html"
            known = pages.get(file)
            if not file.exists() or (anchor and known is not None and anchor not in known.anchors and anchor != "__"):
                yield f"{page.relative_to(site)}: {target}"


def test_links_and_anchors_exist(site):
    assert sorted(broken_links(site)) == []
    # The control: a link to a page, and one to an anchor, that do not exist.
    extra = site / "extra.html"
    extra.write_text('<a href="nowhere.html">a</a><a href="index.html#nowhere">b</a>')
    assert sorted(broken_links(site)) == ["extra.html: index.html#nowhere", "extra.html: nowhere.html"]
    extra.unlink()


def test_nothing_is_loaded_from_a_network(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|img|iframe|link)[^>]+(?:src|href)=\"?(https?:[^\" >]+)", page.read_text())
        assert [each for each in loaded if "canonical" not in each] == [], page


@pytest.mark.parametrize("page", PAGES)
def test_pages_fit_on_a_phone_without_errors(browser, site, page):
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    try:
        browser.get_log("browser")
        browser.get((site / page).as_uri())
        width = browser.execute_script("return document.documentElement.scrollWidth")
        size = browser.execute_script(
            "return parseFloat(getComputedStyle(document.querySelector('article p')).fontSize)"
        )
        errors = [each["message"] for each in browser.get_log("browser") if each["level"] == "SEVERE"]
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert width == PHONE["width"]
    assert size >= 14
    assert errors == []


FRAME = """
const page = document.documentElement;
const isShown = (selector) => document.querySelector(selector).getClientRects().length > 0;
return {
  drawing: document.getElementById("bias-plane").getBoundingClientRect().toJSON(),
  scrolled: [page.scrollHeight - page.clientHeight, page.scrollWidth - page.clientWidth],
  shown: ["h1", "footer", "#field-plane", "#bias-plane"].filter(isShown),
};
"""


@pytest.mark.parametrize("screen", [DESKTOP, PHONE])
def test_interactive_page_is_the_first_thing_on_the_site(browser, site, screen):
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    try:
        browser.get_log("browser")
        browser.get((site / "index.html").as_uri())
        frame = browser.find_element("css selector", "iframe.explore")
        deadline, found, last = time.monotonic() + 10, None, True
        while found != last and time.monotonic() < deadline:  # until the height stays the same
            time.sleep(0.5)
            browser.switch_to.frame(frame)
            last, found = found, browser.execute_script(FRAME)
            browser.switch_to.default_content()
        top, height = frame.location["y"], frame.size["height"]
        errors = browser.get_log("browser")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert found["shown"] == ["#bias-plane"]
    assert found["scrolled"] == [0, 0]
    assert top + found["drawing"]["bottom"] < screen["height"]
    assert height > found["drawing"]["bottom"] + 300
    assert errors == []


def test_search_works_without_a_server(browser, site):
    browser.set_window_size(1200, 900)
    browser.get((site / "index.html").as_uri())
    field = browser.find_element("css selector", "input.md-search__input")
    field.click()
    field.send_keys("jackknife")
    deadline = time.monotonic() + 20
    found = []
    while not found and time.monotonic() < deadline:
        time.sleep(0.1)
        found = browser.find_elements("css selector", ".md-search-result__item a")
    assert any("reference/mathematics.html" in each.get_attribute("href") for each in found)
