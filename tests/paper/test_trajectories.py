"""`fig:convergence` and `fig:ablation_trajectory`: lines and bands compared with literal rolling means."""

import pytest
from matplotlib.collections import PolyCollection
from oracles.image_grids import grid, run
from PIL import Image

from truedrift.paper import fig_ablation_trajectory, fig_convergence, grid_tables
from truedrift.report import cell_text
from truedrift.report import figure as style

DISTANCES = {
    "standard": {
        3: [40.0, 30.0, 22.0, 9.0, 8.0, 7.5, 9.5, 8.5, 7.0],
        4: [44.0, 28.0, 20.0, 12.0, 9.0, 9.5, 8.0, 9.0, 8.0],
    },
    "abc": {
        3: [39.0, 25.0, 18.0, 9.5, 6.0, 7.0, 5.5, 6.5, 5.0],
        4: [48.0, 22.0, 15.0, 11.0, 7.5, 6.0, 6.5, 5.0, 4.5],
    },
}
SIZES = (8, 16, 32, 64, 24)
RECORD = grid(
    "fig:convergence",
    [
        run(variant, n, seed, [each * 8 / n for each in of])
        for n in SIZES
        for variant, seeds in DISTANCES.items()
        for seed, of in seeds.items()
    ],
    classes=3,
)


def smooth(values, window):
    """Return the centered mean by a literal loop, cut at the ends."""
    half = window // 2
    return [
        sum(values[j] for j in range(len(values)) if abs(j - k) <= half)
        / sum(1 for j in range(len(values)) if abs(j - k) <= half)
        for k in range(len(values))
    ]


def expected(variant, n, window):
    curves = [smooth([each * 8 / n for each in of], window) for of in DISTANCES[variant].values()]
    means = [(a + b) / 2 for a, b in zip(*curves, strict=True)]
    return means, [abs(a - b) / 2 for a, b in zip(*curves, strict=True)]


@pytest.mark.parametrize(("n", "window"), [(8, 7), (16, 5), (32, 3), (64, 3), (24, 3)])
def test_a_curve_is_the_mean_over_seeds_of_their_rolling_means(n, window):
    assert grid_tables.smoothing_window(n) == window
    for variant in DISTANCES:
        found = grid_tables.trajectory(RECORD, variant, n)
        means, deviations = expected(variant, n, window)
        assert found.mean == pytest.approx(means)
        assert found.deviation == pytest.approx(deviations)
        assert found.positives == tuple(3 * 50 * n * k for k in range(1, 10))
        assert found.seeds == 2


def test_panels_show_the_curves_in_the_paper_s_colors():
    figure = fig_convergence.draw(RECORD)
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in panels] == [f"$n = {n}$" for n in sorted(SIZES)]
    for axes, n in zip(panels, sorted(SIZES), strict=True):
        standard, abc = axes.get_lines()
        assert (standard.get_color(), standard.get_marker(), standard.get_label()) == (style.STANDARD, "o", "standard")
        assert (abc.get_color(), abc.get_marker(), abc.get_label()) == (style.ABC, "s", "ABC")
        for line, variant in ((standard, "standard"), (abc, "abc")):
            assert list(line.get_ydata()) == pytest.approx(expected(variant, n, grid_tables.smoothing_window(n))[0])
            assert list(line.get_xdata()) == pytest.approx([3 * 50 * n * k / 1e3 for k in range(1, 10)])
        assert axes.get_yscale() == "log"
        assert axes.get_xlabel() == "positives seen, thousands"
    assert panels[0].get_ylabel() == "FID"


def test_bands_are_mean_plus_and_minus_the_largest_deviation():
    axes = fig_convergence.draw(RECORD).axes[0]
    band = [each for each in axes.collections if isinstance(each, PolyCollection)][1]
    corners = {(round(x, 9), round(y, 9)) for x, y in band.get_paths()[0].vertices}
    means, deviations = expected("abc", 8, 7)
    for k, (mean, deviation) in enumerate(zip(means, deviations, strict=True), start=1):
        across = 3 * 50 * 8 * k / 1e3
        assert {
            (round(across, 9), round(mean - deviation, 9)),
            (round(across, 9), round(mean + deviation, 9)),
        } <= corners


def test_axis_in_millions():
    large = grid("fig:convergence", [run(name, 8, 0, [3.0, 2.0], steps=100_000) for name in ("standard", "abc")])
    axes = fig_convergence.draw(large).axes[0]
    assert axes.get_xlabel() == "positives seen, millions"
    assert [list(line.get_xdata()) for line in axes.get_lines()] == [[8.0, 16.0]] * 2
    assert not [each for each in axes.collections if isinstance(each, PolyCollection)]  # one seed: no band


def test_only_evaluations_that_all_seeds_have_are_drawn():
    runs = [run("standard", 64, 0, [9.0]), run("abc", 64, 0, [4.0, 3.0, 2.0]), run("abc", 64, 1, [6.0, 5.0])]
    short = grid("fig:convergence", runs)
    found = grid_tables.trajectory(short, "abc", 64)
    assert found.positives == (10 * 50 * 64, 10 * 100 * 64)
    assert found.mean == pytest.approx(((3.5 + 5.5) / 2, (3.0 + 5.5) / 2))


def test_the_table_counts_where_abc_is_below():
    table = fig_convergence.table(RECORD)
    at_8 = [[cell_text(cell) for cell in row] for row in table.rows[:2]]
    standard, abc = (expected(variant, 8, 7)[0] for variant in ("standard", "abc"))
    below = sum(a < s for s, a in zip(standard, abc, strict=True))
    assert below > 0
    assert at_8[1][-1] == f"{below / 9:.0%}"
    assert at_8[0][:5] == ["8", "standard", "7", "9", "2"]
    for place, k in ((5, 2), (6, 4), (7, 6), (8, 8)):  # the first of 9 at or after a quarter, a half …
        assert at_8[1][place].startswith(f"{abc[k]:.2f} ± ")
    assert fig_convergence.findings(RECORD)[0] == (
        f"n = 8: the smoothed curve of ABC is below that of standard at {below} of 9 evaluations"
    )
    other = grid("fig:convergence", [run("standard", 64, 0, [2.0, 3.0]), run("abc", 64, 0, [2.0, 2.9])])
    assert fig_convergence.findings(other)[0].endswith("at 2 of 2 evaluations")


LEVELS = {"none": 9.0, "positive": 8.0, "negative": 7.0, "both": 5.0}
ABLATION = grid(
    "fig:ablation_trajectory",
    [run(v, 8, s, [20 + s, 11.0 + k, k + 0.1 * s, k + 0.5]) for v, k in LEVELS.items() for s in (0, 1, 2)],
)


def test_ablation_has_four_lines_and_differences_to_none():
    (axes,) = fig_ablation_trajectory.draw(ABLATION).axes
    looks = [(line.get_label(), line.get_color(), line.get_marker()) for line in axes.get_lines()]
    assert looks == [
        ("none (standard)", style.STANDARD, "o"),
        ("positive only", style.POSITIVE, "v"),
        ("negative only", style.NEGATIVE, "D"),
        ("both (ABC)", style.ABC, "s"),
    ]
    for line, variant in zip(axes.get_lines(), LEVELS, strict=True):
        k = LEVELS[variant]
        of_seeds = [smooth([20 + s, 11.0 + k, k + 0.1 * s, k + 0.5], 7) for s in (0, 1, 2)]
        assert list(line.get_ydata()) == pytest.approx([sum(each) / 3 for each in zip(*of_seeds, strict=True)])
    rows = [[cell_text(cell) for cell in row] for row in fig_ablation_trajectory.table(ABLATION).rows]
    averages = [(20 + s + 20 + 9 + 0.1 * s + 9.5) / 4 for s in (0, 1, 2)]
    assert rows[0][2] == f"{averages[1]:.2f} ± {averages[2] - averages[1]:.2f}"
    assert rows[0][3:] == ["", "9.10 ± 0.10", ""]
    assert rows[3][:2] == ["both (ABC)", "3"]
    assert rows[3][3] == "−3.00 [−3.00, −3.00]"
    bold = [row[2].bold for row in fig_ablation_trajectory.table(ABLATION).rows]
    assert bold == [False, False, False, True]
    assert "comparisons: 6," in " ".join(fig_ablation_trajectory.table(ABLATION).notes)
    sentences = fig_ablation_trajectory.findings(ABLATION)
    assert [each.partition(":")[0] for each in sentences] == [
        f"n = 8, {name} against none" for name in ("positive only", "negative only", "both (ABC)")
    ]
    assert "negative only lower by 1.50 (95 % interval 1.50 to 1.50, 3 pairs)" in sentences[1]


@pytest.mark.parametrize(("module", "record"), [(fig_convergence, RECORD), (fig_ablation_trajectory, ABLATION)])
def test_files_are_written(module, record, tmp_path):
    paths, name = module.ITEM.save(record, tmp_path), module.__name__.rpartition(".")[2]
    assert [path.name for path in paths] == [f"{name}.{kind}" for kind in ("png", "pdf", "md", "tex", "csv")]
    with Image.open(paths[0]) as image:
        assert min(image.size) >= 700
        colors = {color for _, color in image.convert("RGB").getcolors(maxcolors=1 << 20)}
    assert {(0xD6, 0x45, 0x41), (0x00, 0x77, 0xCC)} <= colors
    assert paths[3].read_text(encoding="utf-8").isascii()
    assert all(finding in module.ITEM.summary(record) for finding in module.findings(record))
