"""Markdown, LaTeX and CSV tables contain their cells, and no content of a cell breaks them."""

import csv
import io
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truedrift.report import (
    Interval,
    MeanCell,
    Number,
    Scientific,
    Table,
    cell_text,
    escape,
    format_number,
    is_bold,
)

TABLE = Table(
    caption="Bias at τ = 0.1, 50 % & more",
    label="tab:x",
    header=("n", "method", "|bias|"),
    groups=[
        [("8", "A|B", Scientific(9.996e-4)), ("8", "C_1", Scientific(None))],
        [("16", "D", Scientific(-2e3, bold=True))],
    ],
)


def test_markdown_has_one_line_per_row():
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
    assert r"8 & A\textbar{}B & $1.00 \times 10^{-3}$ \\" in text
    assert r"8 & C\_1 & -- \\" in text
    assert r"16 & D & $\mathbf{-2.00 \times 10^{3}}$ \\" in text
    assert text.count(r"\midrule") == 2
    assert text.count(r"\begin{") == text.count(r"\end{") == 2


@pytest.mark.parametrize("value", [1.234e-5, 9.999e9, 1.0, 0.0, 5e-324, 123.0])
def test_latex_numbers_match_the_values(value):
    table = Table(caption="", label="x", header=("a", "b"), groups=[[("r", Scientific(value))]])
    mantissa, exponent = re.search(r"\$(.*?) \\times 10\^\{(.*?)\}\$", table.latex()).groups()
    assert float(f"{mantissa}e{exponent}") == pytest.approx(value, rel=5e-3, abs=1e-323)
    assert 1 <= abs(float(mantissa)) < 10 or value == 0


def test_all_three_forms_are_written(tmp_path):
    markdown, latex, comma_separated = TABLE.save(tmp_path, "t")
    assert [path.name for path in tmp_path.iterdir() if path not in (markdown, latex, comma_separated)] == []
    assert markdown.read_text(encoding="utf-8") == TABLE.markdown()
    assert latex.read_text(encoding="utf-8") == TABLE.latex()
    assert comma_separated.read_bytes() == TABLE.csv().encode()


NUMBERS = Table(
    caption="c",
    label="tab:y",
    header=("who", "how, much", "difference"),
    groups=[
        [
            ("a", MeanCell(7.3141592653589793, 0.25, 3, bold=True), Number(-1 / 3)),
            ("b", MeanCell(6.5, None, 1, note="(1/3)"), Number(None)),
            ("c", Interval(-0.91, -1.62, -0.2, 4), Number(0.5, ".0%")),
            ("d", Interval(-0.91, None, None, 1), Number(12345, ",d")),
        ]
    ],
    notes=("50 % of it", "and more"),
)


def parsed(table):
    return list(csv.reader(io.StringIO(table.csv(), newline="")))


def test_text_of_cells_with_several_numbers():
    rows = [[cell_text(cell) for cell in row] for row in NUMBERS.rows]
    assert rows == [
        ["a", "7.31 ± 0.25", "−0.33"],
        ["b", "6.50 (1/3)", "–"],
        ["c", "−0.91 [−1.62, −0.20]", "50%"],
        ["d", "−0.91", "12,345"],
    ]
    assert [is_bold(row[1]) for row in NUMBERS.rows] == [True, False, False, False]
    assert "| a | **7.31 ± 0.25** | −0.33 |" in NUMBERS.markdown()
    assert "\n- 50 % of it\n- and more\n" in NUMBERS.markdown()
    assert r"a & \textbf{7.31 $\pm$ 0.25} & $-$0.33 \\" in NUMBERS.latex()
    assert r"footnotesize 50 \% of it" in NUMBERS.latex()


def test_csv_has_every_digit_and_one_column_per_number():
    names, *rows = parsed(NUMBERS)
    assert names == [
        "who", "how, much", "how, much deviation", "how, much count", "how, much note", "how, much low",
        "how, much high", "how, much pairs", "difference",
    ]  # fmt: skip
    assert [float(cell) for cell in rows[0][1:4]] == [7.3141592653589793, 0.25, 3]
    assert float(rows[0][-1]) == -1 / 3
    assert rows[1] == ["b", "6.5", "", "1", "(1/3)", "", "", "", ""]
    assert [float(cell) for cell in (rows[2][1], *rows[2][5:])] == [-0.91, -1.62, -0.2, 4, 0.5]
    assert rows[3] == ["d", "-0.91", "", "", "", "", "", "1", "12345"]
    assert NUMBERS.csv().endswith("\r\n")


def test_repeated_csv_columns_are_numbered():
    table = Table(caption="", label="x", header=("exact", "paper", "paper"), groups=[[("a", "b", "c")]])
    assert parsed(table) == [["exact", "paper", "paper (2)"], ["a", "b", "c"]]


@given(st.lists(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0")), min_size=2, max_size=2))
def test_any_text_is_read_back_from_csv(words):
    table = Table(caption="", label="x", header=("a", "b"), groups=[[words]])
    assert parsed(table)[1] == words


def test_infinity_keeps_its_sign():
    assert [format_number(value, ".2f") for value in (-math.inf, math.inf, -0.0, -0.001)] == [
        "−inf",
        "inf",
        "0.00",
        "0.00",
    ]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_number_is_read_back_from_csv(value):
    table = Table(caption="", label="x", header=("a", "b"), groups=[[("r", Number(value))]])
    assert float(parsed(table)[1][1]) == value


def test_zero_has_no_sign():
    assert (format_number(-0.001, ".2f"), format_number(-0.006, ".2f"), format_number(None, ".2f")) == (
        "0.00",
        "−0.01",
        "–",
    )


def test_latex_commands_are_escaped():
    assert escape(r"\{}") == r"\textbackslash{}\{\}"
    assert escape("a~b^c|d<e>f_g#h$") == (
        r"a\textasciitilde{}b\textasciicircum{}c\textbar{}d$<$e$>$f\_g\#h\$"
    )  # fmt: skip
    assert escape("τ′ ± τ ≤ ½ ↓ – µ") == r"$\tau'$ $\pm$ $\tau$ $\leq$ \textonehalf{} $\downarrow$ -- \textmu{}"


@pytest.mark.parametrize("columns", [5, 6])
def test_wide_table_is_shrunk_to_the_line(columns):
    table = Table(caption="", label="x", header=("a",) * columns, groups=[[("b",) * columns]])
    text = table.latex()
    assert (r"\resizebox{" in text) == (columns > 5)
    assert text.count("{") == text.count("}")
