"""`guidance` rendered from a record alone."""

from dataclasses import replace

import pytest
from PIL import Image

from truedrift.paper import guidance
from truedrift.records import append, provenance, read

SIZES = ((4, 2), (8, 4), (16, 8))
RED, BLUE, AMBER = (0xD6, 0x45, 0x41), (0x00, 0x77, 0xCC), (0xD9, 0x82, 0x00)


def at(strength, scale):
    return guidance.GuidanceRow(
        strength=strength,
        w_u=2 * (strength - 1),
        standard=tuple(scale / sum(n) for n in SIZES),
        abc=(scale / 10, scale / 40, scale / 80),
        stratified=tuple(2 * scale / sum(n) ** 2 for n in SIZES),
        share_nearer=(0.0, 0.5, 1.0),
        relative_error=3e-7,
    )


@pytest.fixture(scope="module")
def record():
    return guidance.Guidance(
        tau=0.2,
        pool_points=500,
        queries=9,
        generated_means=((0.6, 0.4),),
        generated_std=0.2,
        sizes=SIZES,
        at=(at(1.5, 1.0), at(3.0, 0.5)),
        provenance=provenance(seed=0, wall_seconds=2.0),
    )


@pytest.fixture(scope="module")
def saved(record, tmp_path_factory):
    """The files of the record."""
    return guidance.ITEM.save(record, tmp_path_factory.mktemp("saved"))


def test_files_are_reproducible(record, saved, tmp_path):
    first, second = saved, guidance.ITEM.save(record, tmp_path)
    assert [path.name for path in first] == [f"guidance.{kind}" for kind in ("png", "pdf", "md", "tex", "csv")]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    with Image.open(first[0]) as image:
        assert min(image.size) >= 900
        colors = {color for _, color in image.convert("RGB").getcolors(maxcolors=1 << 20)}
    assert {RED, BLUE, AMBER} <= colors
    other = guidance.ITEM.save(replace(record, at=(at(1.5, 1.1), record.at[1])), tmp_path)
    assert first[0].read_bytes() != other[0].read_bytes()


def test_record_is_read_back_unchanged(record, tmp_path):
    append(tmp_path / "records.jsonl", record)
    assert read(tmp_path / "records.jsonl", guidance.Guidance) == [record]


def test_panels_show_the_numbers_of_the_record(record):
    for axes, here in zip(guidance.draw(record).axes, record.at, strict=True):
        assert [tuple(line.get_ydata()) for line in axes.get_lines()] == [here.standard, here.abc, here.stratified]
        assert [tuple(line.get_xdata()) for line in axes.get_lines()] == [(6, 12, 24)] * 3
        assert f"a = {here.strength:g}" in axes.get_title()
        assert {text.get_text() for text in axes.texts} == {"$-1.00$", "$-2.00$", "slope"}


def test_summary_and_tables_show_the_numbers_of_the_record(record, saved):
    text = guidance.ITEM.summary(record)
    assert "mean over 9 queries" in text
    assert "exact to a relative error of 3e-07 for draws from two pools of 500 points." in text
    rows = [line.split() for line in text.splitlines()]
    assert ["1.5", "8", "4", "8.33e-02", "2.50e-02", "1.39e-02", "50%"] in rows
    assert ["3", "slope", "−1.00", "−1.00", "−2.00"] in rows
    markdown, latex = (path.read_text(encoding="utf-8") for path in saved[2:4])
    assert "| 3 | 16 | 8 | 2.08e-02 | 6.25e-03 | 1.74e-03 | 100% |" in markdown
    assert r"3 & 16 & 8 & $2.08 \times 10^{-2}$ & $6.25 \times 10^{-3}$ & $1.74 \times 10^{-3}$ & 100\% \\" in latex
    assert latex.isascii()


def test_findings_are_the_slopes_of_every_strength(record):
    assert guidance.findings(record) == [
        f"strength {strength}: slopes of the bias −1.00 (standard), −1.00 (plain ABC), −2.00 (stratified ABC)"
        for strength in ("1.5", "3")
    ]
