"""Markdown and LaTeX tables hold what they were given, and nothing in a cell breaks them."""

import re

import pytest

from truedrift.report.table import Scientific, Table

TABLE = Table(
    caption="Bias at τ = 0.1, 50 % & more",
    label="tab:x",
    header=("n", "method", "|bias|"),
    groups=[
        [("8", "A|B", Scientific(9.996e-4)), ("8", "C_1", Scientific(None))],
        [("16", "D", Scientific(-2e3, bold=True))],
    ],
)


def test_markdown_has_one_line_a_row_and_as_many_cells():
    caption, empty, *rows = TABLE.markdown().splitlines()
    assert (caption, empty) == (TABLE.caption, "")
    assert all(len(re.split(r"(?<!\\)\|", row)) == 5 for row in rows)
    assert rows[0] == "| n | method | \\|bias\\| |"
    assert rows[2] == "| 8 | A\\|B | 1.00e-03 |"
    assert rows[3] == "| 8 | C_1 | – |"
    assert rows[4] == "| 16 | D | **-2.00e+03** |"


def test_latex_escapes_and_writes_powers_of_ten():
    text = TABLE.latex()
    assert r"\caption{Bias at $\tau$ = 0.1, 50 \% \& more}" in text
    assert r"8 & A|B & $1.00 \times 10^{-3}$ \\" in text
    assert r"8 & C\_1 & -- \\" in text
    assert r"16 & D & $\mathbf{-2.00 \times 10^{3}}$ \\" in text
    assert text.count(r"\midrule") == 2
    assert text.count(r"\begin{") == text.count(r"\end{") == 2


@pytest.mark.parametrize("value", [1.234e-5, 9.999e9, 1.0, 0.0, 5e-324, 123.0])
def test_latex_numbers_are_the_numbers(value):
    table = Table(caption="", label="x", header=("a", "b"), groups=[[("r", Scientific(value))]])
    mantissa, exponent = re.search(r"\$(.*?) \\times 10\^\{(.*?)\}\$", table.latex()).groups()
    assert float(f"{mantissa}e{exponent}") == pytest.approx(value, rel=5e-3, abs=1e-323)
    assert 1 <= abs(float(mantissa)) < 10 or value == 0


def test_both_forms_are_written(tmp_path):
    markdown, latex = TABLE.save(tmp_path, "t")
    assert markdown.read_text(encoding="utf-8") == TABLE.markdown()
    assert latex.read_text(encoding="utf-8") == TABLE.latex()
