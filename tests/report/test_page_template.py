"""Whatever text comes, the elements of the page are those of its template."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truedrift.page.page import content_policy, read_resource, render_page, replace_unshowable


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


@pytest.mark.parametrize("text", ["\x00", "\x1b", "\ud800", "\u202e"])
def test_characters_that_cannot_be_shown_are_replaced(text):
    assert replace_unshowable(f"a{text}b") == "a\N{REPLACEMENT CHARACTER}b"
    page = render_page(f"a{text}b", [], []).encode()
    assert page.count("a\N{REPLACEMENT CHARACTER}b".encode()) == 2  # title and heading


def test_the_template_runs_no_script_and_leads_nowhere():
    template = read_resource("page.html.j2")
    assert re.findall(r"<script[^>]*>", template) == ['<script type="application/json" id="data">']
    assert re.findall(r"""\s(?:on\w+|style|action|formaction)\s*=""", template) == []
    assert re.findall(r"\|\s*safe|Markup|autoescape", template) == ["| safe"]  # the style sheet
    addresses = re.findall(r'\s(?:href|src|srcset)="([^"]*)"', template)
    assert all(re.match(r"#|data:,$|\{\{ shown\.(image\.dark_)?source \}\}$", address) for address in addresses)


def test_json_comes_back_and_nothing_in_it_ends_its_block(monkeypatch):
    data = {"</script><!--<script>": ["&amp;", "\u2028\u2029", "ü", 1.5, None], "b": 1, "a": 2}
    monkeypatch.setattr("truedrift.page.page.chart_data", lambda records, charts: data)
    html = render_page("t", [], [])
    block = re.search(r'<script type="application/json" id="data">(.*)</script>', html, re.DOTALL)[1]
    assert json.loads(block) == data
    assert list(json.loads(block)) == list(data)
    assert not set(block) & set("<>&\u2028\u2029")
    assert block.isascii()
    monkeypatch.setattr("truedrift.page.page.chart_data", lambda records, charts: float("nan"))
    with pytest.raises(ValueError, match="JSON compliant"):
        render_page("t", [], [])


def test_the_policy_knows_the_style_of_the_page():
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
    assert content_policy(style + " ") != policy
    assert "a < b" in page.text


def test_the_style_defines_every_color_for_light_and_for_dark_and_loads_nothing():
    style = read_resource("style.css")
    light, dark = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    names = [set(re.findall(r"(--[a-z-]+):", colors)) for colors in (light, dark)]
    assert names[0] == names[1]
    assert set(re.findall(r"var\((--[a-z-]+)\)", style)) <= names[0]
    assert "url(" not in style
    assert "@import" not in style
    assert "<" not in style
