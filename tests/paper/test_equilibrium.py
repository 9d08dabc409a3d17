"""The study `equilibrium`, compared with its definitions, and rendered from a record alone."""

from dataclasses import replace

import pytest
import torch
from PIL import Image

from truedrift.bias import exact_field, measure_trained_field
from truedrift.data import FOUR_MODES
from truedrift.grids import StudyOptions
from truedrift.paper import equilibrium, equilibrium_approach, equilibrium_signals, equilibrium_sinkhorn
from truedrift.records import append, provenance, read

SEED = 5
RED, BLUE, GREEN = (0xD6, 0x45, 0x41), (0x00, 0x77, 0xCC), (0x1B, 0x8A, 0x7A)


@pytest.fixture(scope="module")
def record():
    return equilibrium.study(StudyOptions(scale="smoke", seed=SEED))


@pytest.fixture(scope="module")
def toy(record):
    generator = torch.Generator().manual_seed(SEED)
    pool = FOUR_MODES.sample(record.pool_points, generator, dtype=torch.float64)
    return FOUR_MODES.sample(record.queries, generator, dtype=torch.float64), pool


def test_pushes_are_the_exact_fields(record, toy):
    x, pool = toy
    assert [(each.tau, each.estimator) for each in record.pushes] == [
        (tau, estimator) for tau in (0.1, 0.2, 0.5) for estimator in ("standard", "abc", "abc2")
    ]
    assert record.sizes == ((8, 7), (16, 15), (64, 63), (128, 63), (64, 7), (126, 7))
    for each in record.pushes:
        assert each.matched == (0.0,) * 6
        for (n, m), value in zip(record.sizes, each.unmatched, strict=True):
            V = exact_field(x, pool, pool, tau=each.tau, n=n, m=m, estimator=each.estimator).V
            assert value == pytest.approx(float(V.norm(dim=-1).mean()), rel=1e-4)


def test_few_negatives_push_much_more_than_equal_sizes(record):
    for each in record.pushes:
        few, _, equal, more, unequal, most = each.unmatched
        assert equal < more < few < unequal
        assert most == pytest.approx(unequal, rel=0.1)


def test_signals_are_those_of_the_settings(record, toy):
    x, pool = toy
    assert len(record.signals) == 10 * len(equilibrium_signals.STAGES) + len(equilibrium_signals.SHIFTED)
    for each in record.signals[1::7]:
        move = torch.tensor((each.shift, 0.0), dtype=torch.float64)
        found = measure_trained_field(
            x[: record.signal_queries] + move, pool, pool + move, tau=0.2, n=each.n, g=8, fresh=each.fresh,
            trials=record.signal_batches, normalization=each.normalization, form=each.form, matched=each.matched,
            divide_by_rms=each.stage != "V", feature_scale="mean-distance" if each.stage == "scaled" else "none",
            seed=SEED,
        )  # fmt: skip
        assert each.square == pytest.approx(float(found.squared.mean()), rel=1e-9)
        assert each.square_error == pytest.approx(float(found.squared_error.norm()) / record.signal_queries, rel=1e-9)


def test_particles_of_every_field_and_seed(record):
    assert [(each.estimator, each.matched) for each in record.particles] == [
        (estimator, matched) for matched in (False, True) for estimator in ("standard", "abc", "abc2")
    ]
    for each in record.particles:
        assert len(each.energy) == len(each.final) == len(each.deviation_ratio) == 1
        assert [len(snapshots) for snapshots in each.energy] == [18]
        assert each.mean == pytest.approx(sum(each.energy[0][-6:]) / 6)
        assert len(each.points) == 1024
    for estimator in ("standard", "abc", "abc2"):
        assert record.find_particles(estimator, True).mean < 0.3 * record.find_particles(estimator, False).mean


def test_arrows_point_outward(record, toy):
    _, pool = toy
    assert len(record.arrows) == 36
    assert all(x[0] * V[0] + x[1] * V[1] > 0 for x, V in record.arrows)
    x, V = record.arrows[7]
    expected = exact_field(torch.tensor([x], dtype=torch.float64), pool, pool, tau=0.2, n=63, m=7, estimator="standard")
    torch.testing.assert_close(torch.tensor([V], dtype=torch.float64), expected.V[:, 0])


def test_record_is_read_back_unchanged(record, tmp_path):
    append(tmp_path / "records.jsonl", record)
    assert read(tmp_path / "records.jsonl", equilibrium.Equilibrium) == [record]


def test_files_are_reproducible(record, tmp_path):
    (tmp_path / "again").mkdir()
    first, second = (equilibrium.ITEM.save(record, directory) for directory in (tmp_path, tmp_path / "again"))
    assert [path.name for path in first] == [f"equilibrium.{kind}" for kind in ("png", "pdf", "md", "tex", "csv")]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    with Image.open(first[0]) as image:
        assert min(image.size) >= 900
        colors = {color for _, color in image.convert("RGB").getcolors(maxcolors=1 << 20)}
    assert {RED, BLUE, GREEN} <= colors


def test_panels_show_the_numbers_of_the_record(record):
    pushed, unmatched, matched, bars = equilibrium.draw(record).axes
    assert [len(axes.patches) for axes in (pushed, unmatched, matched)] == [12, 12, 12]
    for axes, on in ((unmatched, False), (matched, True)):
        points = record.find_particles("standard", on).points
        samples, data = axes.collections
        assert samples.get_offsets().tolist() == [list(point) for point in points]
        assert data.get_zorder() > samples.get_zorder()  # the samples do not cover the data
        assert max(abs(value) for point in points for value in point) < axes.get_xlim()[1] == axes.get_ylim()[1]
        assert f"{record.find_particles('standard', on).mean:.4f}" in axes.texts[0].get_text()
        assert f"beyond 3σ: {equilibrium.measure_modes(points)[1]:.0%} (data 1%)" in axes.texts[0].get_text()
    heights = [bar.get_height() for container in bars.containers for bar in container]
    assert heights == [*record.push(0.2, "standard").unmatched, *record.push(0.2, "abc").unmatched]
    assert bars.get_lines()[0].get_ydata().tolist() == [0.0] * 6


def test_width_around_the_modes_matches_the_literal_mean():
    """Points 0.1 and 0.4 from two of the centers: one and four standard deviations."""
    ratio, outside = equilibrium.measure_modes([(0.6, 0.5), (-0.5, -0.9)])
    assert ratio == pytest.approx(((1 + 16) / 4) ** 0.5)  # four coordinates
    assert outside == 0.5
    data = FOUR_MODES.sample(100_000, torch.Generator().manual_seed(3)).tolist()
    assert equilibrium.measure_modes(data) == (pytest.approx(1, abs=0.01), pytest.approx(0.0111, abs=0.0015))


def signal(square, error, **changed):
    row = {
        "normalization": "row",
        "form": "separate",
        "n": 8,
        "fresh": 0,
        "matched": True,
        "stage": "V/RMS",
        "shift": 0.0,
    }
    return equilibrium.Signal(square=square, square_error=error, **(row | changed))


def test_signals_below_the_noise_are_shown_as_limits():
    assert signal(0.04, 0.001).text() == "2.0e-01"
    assert signal(-1e-4, 5e-5).text() == "<1.0e-02"
    assert signal(4e-4, 3e-4).root == pytest.approx(0.02)
    assert signal(4e-4, 3e-4).text() == "<3.2e-02"


def test_summary_shows_the_numbers_of_the_record(record):
    shown = (signal(0.04, 0.001), signal(0.25, 0.001, shift=0.1), signal(0.01, 1e-4, n=64, fresh=8, matched=False))
    energy = ((9.0, 0.1, 0.3, 0.0, 0.0), (9.0, 0.5, 0.3, 0.1, 0.3))
    particles = tuple(replace(each, energy=energy) for each in record.particles)
    here = replace(record, signals=shown, particles=particles, energy_noise=2e-3)
    text = equilibrium.ITEM.summary(replace(here, provenance=provenance(seed=7, wall_seconds=1.0)))
    assert "row, separate, 8 positives, 7 other negatives, matched: 2.0e-01 (5.0e-01)" in text
    assert "row, separate, 64 positives, 8 fresh negatives: 1.0e-01" in text
    assert "matched ABC: 2.0e-01, 1.0e-01 – 3.0e-01, ratio" in text
    assert "change -2e-01 ± 9e-02 (still moving)" in text
    assert "independent draws: 2e-03" in text
    assert text.endswith("Seed 7.")
    row = record.push(0.2, "abc").unmatched
    assert ["0.2", "ABC", *(f"{value:.2e}" for value in row)] in [line.split() for line in text.splitlines()]
    assert ["any", "matched,", "any", *"000000"] in [line.split() for line in text.splitlines()]


def test_findings_state_the_push_the_zero_and_the_particles(record):
    ratio, zero, rest, *others = equilibrium.findings(record)
    standard = record.push(0.2, "standard").unmatched
    assert f"push {standard[5] / standard[0]:.1f} times as hard as 8 and 7" in ratio
    assert "exactly 0 for every size, estimator and τ" in zero
    for estimator, matched in (("standard", False), ("standard", True), ("abc", False)):
        assert f"{record.find_particles(estimator, matched).mean:.1e}" in rest
    assert others == []  # four queries show nothing
    many = replace(record, approach=replace(record.approach, queries=50))
    assert equilibrium.findings(many)[3:] == [
        *equilibrium_approach.approach_findings(record.approach),
        *equilibrium_sinkhorn.sinkhorn_findings(record.sinkhorn),
    ]
    for energy, sentence in (
        ((1.0, 2.0, 2.0, 1.0), "particles come to rest at"),
        ((4.0, 3.0, 2.0, 1.0), "particles are at"),
    ):
        moved = tuple(replace(each, energy=(energy,)) for each in record.particles)
        assert sentence in equilibrium.findings(replace(record, particles=moved))[2]
    broken = replace(record, pushes=(replace(record.pushes[0], matched=(1e-9,) * 6), *record.pushes[1:]))
    assert "contradicts the theorem" in equilibrium.findings(broken)[1]
    assert "1.00e-09" in equilibrium.table(broken).markdown()
