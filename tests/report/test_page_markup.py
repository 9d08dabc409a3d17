"""Whatever text comes, the page's elements are those that the page makes."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truedrift.page.markup import COLORS, Markup, document, element, joined, json_block, policy, sheet


class Read(HTMLParser):
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


def test_elements_attributes_and_nesting():
    made = element("p", "a ", element("b", "c"), None, ["d", ["e"]], class_="x", aria_label="y", hidden=True, id=None)
    assert made == Markup('<p class="x" aria-label="y" hidden="">a <b>c</b>de</p>')
    assert element("meta", name="n") == Markup('<meta name="n">')


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cf"))))
def test_text_stays_text(text):
    read = Read(element("p", text, title=text).html)
    assert read.tags == [("p", {"title": text})]
    assert read.text == text


@pytest.mark.parametrize("text", ["\x00", "\x1b", "\ud800", "\u202e"])
def test_what_cannot_be_shown_is_replaced(text):
    assert joined(f"a{text}b").html.encode() == "a\N{REPLACEMENT CHARACTER}b".encode()


@pytest.mark.parametrize("name", ["onclick", "onerror", "style", "a b", "a>b", ""])
def test_attributes_that_run_or_that_the_policy_blocks_are_refused(name):
    with pytest.raises(ValueError, match="is no attribute of this page"):
        element("p", **{name: "x"})


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "https://example.org", "//x", "data:text/html,x", "data:image/svg+xml;base64,AA"]
)
def test_addresses_that_lead_out_are_refused(address):
    with pytest.raises(ValueError, match="leads out of the page"):
        element("a", href=address)
    assert element("a", href="#here").html == '<a href="#here"></a>'


def test_json_comes_back_and_holds_nothing_that_ends_its_block():
    data = {"</script><!--<script>": ["&amp;", "\u2028\u2029", "ü", 1.5, None]}
    html = json_block(data).html
    inside = re.fullmatch(r'<script type="application/json" id="data">(.*)</script>', html, re.DOTALL)[1]
    assert json.loads(inside) == data
    assert not set(inside) & set("<>&\u2028\u2029")
    assert inside.isascii()
    with pytest.raises(ValueError, match="JSON compliant"):
        json_block(float("nan"))


def test_the_policy_knows_the_style_that_the_page_has():
    html = document("a < b", element("p", "c"))
    read = Read(html)
    said = next(attributes["content"] for tag, attributes in read.tags if "http-equiv" in attributes)
    style = re.search(r"<style>(.*)</style>", html, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    directives = dict(part.strip().split(" ", 1) for part in said.split(";"))
    assert directives == {
        "default-src": "'none'",
        "img-src": "data:",
        "style-src": f"'sha256-{digest}'",
        "script-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert policy(style + " ") != said
    assert "a < b" in read.text


def test_the_style_has_each_color_for_light_and_for_dark_and_loads_nothing():
    text = sheet()
    for name, (light, dark) in COLORS.items():
        assert text.count(f"--{name}: {light};") == 1
        assert text.count(f"--{name}: {dark};") == 1
    assert "url(" not in text
    assert "@import" not in text
    assert "<" not in text
