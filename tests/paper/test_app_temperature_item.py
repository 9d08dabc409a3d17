"""`app:temperature` rendered from a record alone."""

import pytest
from PIL import Image

from truedrift.paper import app_temperature
from truedrift.records import append, provenance, read

RED, BLUE = (0xD6, 0x45, 0x41), (0x00, 0x77, 0xCC)
RATIOS = tuple(0.5 + 0.05 * k for k in range(13))


def compensated(n, tau):
    return app_temperature.CompensationRow(
        n=n,
        standard=0.3 / n,
        abc=2 / n**2,
        remaining=tuple(0.1 / n + abs(ratio - 0.9) for ratio in RATIOS),
        best_ratio=0.9,
        best=0.1 / n,
        own_best=0.05 * tau / n,
    )


def at(tau):
    return app_temperature.TemperatureRow(
        tau=tau,
        shifts=(-2.5 * tau, -5 * tau, -4 * tau),
        angles_degrees=(3.0, 12.25, 40 * tau),
        sizes=tuple(compensated(n, tau) for n in (16, 64, 256)),
        interpolation_error=1e-6,
    )


@pytest.fixture(scope="module")
def record():
    return app_temperature.Temperature(
        pool_points=1234,
        queries=3,
        ratios=RATIOS,
        at=(at(0.1), at(0.2)),
        taus=(0.02, 0.2, 1.0),
        share_low=(0.01, 0.1, 0.7),
        share_median=(0.02, 0.2, 0.8),
        share_high=(0.04, 0.3, 0.9),
        falls=1,
        provenance=provenance(seed=7, wall_seconds=1.5),
    )


@pytest.fixture(scope="module")
def saved(record, tmp_path_factory):
    """The files of the record."""
    return app_temperature.ITEM.save(record, tmp_path_factory.mktemp("saved"))


def test_files_are_reproducible(record, saved, tmp_path):
    first, second = saved, app_temperature.ITEM.save(record, tmp_path)
    assert [path.name for path in first] == [f"app_temperature.{kind}" for kind in ("png", "pdf", "md", "tex", "csv")]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    with Image.open(first[0]) as image:
        assert min(image.size) >= 1200
        colors = {color for _, color in image.convert("RGB").getcolors(maxcolors=1 << 20)}
    assert {RED, BLUE} <= colors


def test_record_is_read_back_unchanged(record, tmp_path):
    append(tmp_path / "records.jsonl", record)
    (again,) = read(tmp_path / "records.jsonl", app_temperature.Temperature)
    assert again == record


def test_panels_show_the_numbers_of_the_record(record):
    panels = app_temperature.draw(record).axes
    assert [axes.get_title("left") for axes in panels] == [f"({letter})" for letter in "abcdef"]
    points = panels[0].collections[0].get_offsets()
    assert points.tolist() == [list(pair) for pair in zip(record.at[0].shifts, (3.0, 12.25, 4.0), strict=True)]
    for axes, here in zip(panels[1:3], record.at, strict=True):
        curve, *lines, best = axes.get_lines()
        assert curve.get_ydata()[0] == here.sizes[1].remaining[6]  # from τ′/τ = 0.8 on, n = 64
        assert [line.get_ydata()[0] for line in lines] == [0.3 / 64, 2 / 64**2, 0.05 * here.tau / 64]
        assert (best.get_xdata()[0], best.get_ydata()[0]) == (0.9, 0.1 / 64)
    for axes, here in zip(panels[4:], record.at, strict=True):
        drawn = [line.get_ydata().tolist() for line in axes.get_lines()]
        assert drawn == [[getattr(n, name) for n in here.sizes] for name in ("standard", "abc", "best", "own_best")]
    (median,) = panels[3].get_lines()
    assert median.get_ydata().tolist() == list(record.share_median)


def test_summary_shows_the_numbers_of_the_record(record):
    text = app_temperature.ITEM.summary(record)
    assert "N = 1,234, 3 queries." in text
    assert "Seed 7." in text
    assert "τ = 0.1: n·Δ from -0.500 to -0.250, median -0.400 (must be constant); angle up to 12.2°, " in text
    assert "median: 0.020 at τ = 0.02, 0.800 at τ = 1; it does not increase with τ in 1 of 6 cases" in text
    assert "τ′ from 0.5 τ to 1.1 τ; E[T_n(τ′)] is interpolated in τ′. The largest interpolation error" in text
    assert "at τ′ = τ is 1e-06 of the bias." in text
    rows = [line.split() for line in text.splitlines()]
    assert ["0.1", "64", "4.69e-03", "1.56e-03", "0.900", "7.81e-05", "4.88e-04"] in rows
    assert ["0.2", "slope", "−1.00", "−1.00", "−1.00", "−2.00"] in rows


def test_the_tables_have_the_same_cells(saved):
    markdown, latex = (path.read_text(encoding="utf-8") for path in saved[2:4])
    assert "| τ | n | standard | best τ′ | best τ′/τ | best τ′ per query | ABC |" in markdown
    assert "| 0.1 | 64 | 4.69e-03 | 1.56e-03 | 0.900 | 7.81e-05 | 4.88e-04 |" in markdown
    assert r"$\tau$ & n & standard & best $\tau'$ & best $\tau'$/$\tau$" in latex
    assert r"0.1 & 64 & $4.69 \times 10^{-3}$ & $1.56 \times 10^{-3}$ & 0.900" in latex
    assert r"0.2 & slope & $-$1.00" in latex
    assert latex.isascii()


def test_findings_are_of_the_largest_n(record):
    # 0.1/0.3 for all queries, 0.05 τ/0.3 of each, and (2/256²)/(0.3/256).
    assert app_temperature.findings(record) == [
        "τ = 0.1, n = 256: the remaining share of the standard bias is 33.3% with the best τ′, "
        "1.7% with the best τ′ per query, and 2.6% with ABC",
        "τ = 0.2, n = 256: the remaining share of the standard bias is 33.3% with the best τ′, "
        "3.3% with the best τ′ per query, and 2.6% with ABC",
    ]
