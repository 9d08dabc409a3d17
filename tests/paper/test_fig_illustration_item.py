"""The figure `fig:illustration`: each centroid is drawn at its place in its color."""

from dataclasses import replace

import pytest
from PIL import Image

from truedrift.paper import fig_illustration

GREEN, RED, BLUE = (0x01, 0x71, 0x00), (0xD6, 0x45, 0x41), (0x00, 0x77, 0xCC)


@pytest.fixture(scope="module")
def record():
    """Centroids far apart, so that no marker hides another."""
    return replace(
        fig_illustration.run(fig_illustration.Options(draws=200)),
        T_star=(-0.4, 0.9),
        T_standard=(0.3, -0.6),
        T_abc=(-0.2, 0.3),
        mean_standard=(-0.1, 0.8),
        mean_abc=(-0.3, 0.95),
    )


def pixels_of(path):
    with Image.open(path) as image:
        image.verify()
    with Image.open(path) as image:
        assert image.format == "PNG"
        return image.convert("RGB")


def pixel_at(image, axes, point):
    """Return the color of the image at a point in the coordinates of the axes."""
    figure = axes.figure
    across, up = axes.transData.transform(point) / (figure.bbox.width, figure.bbox.height)
    return image.getpixel((round(across * image.width), round((1 - up) * image.height)))


def test_centroids_are_drawn_in_their_colors(record, tmp_path):
    image = pixels_of(fig_illustration.ITEM.save(record, tmp_path)[0])
    assert min(image.size) >= 900
    (axes,) = fig_illustration.draw(record).axes
    assert pixel_at(image, axes, record.T_star) == GREEN
    assert pixel_at(image, axes, record.T_standard) == RED
    assert pixel_at(image, axes, record.T_abc) == BLUE
    # The check can fail: just beside them there is none of these colors.
    assert pixel_at(image, axes, (record.T_star[0] - 0.3, record.T_star[1])) not in (GREEN, RED, BLUE)


def test_the_inset_shows_the_means(record, tmp_path):
    image = pixels_of(fig_illustration.ITEM.save(record, tmp_path)[0])
    figure = fig_illustration.draw(record)
    figure.canvas.draw()  # places the inset
    (inset,) = figure.axes[0].child_axes
    assert pixel_at(image, inset, record.T_star) == GREEN
    assert pixel_at(image, inset, record.mean_standard) == RED
    assert pixel_at(image, inset, record.mean_abc) == BLUE


def test_scales_are_equal_and_every_reference_is_inside(record):
    far = replace(record, references=((-4.0, 0.0), (0.0, 3.0)))
    axes = fig_illustration.draw(far).axes[0]
    for point in far.references:
        assert axes.viewLim.contains(*point)
    origin, right, up = axes.transData.transform([(0, 0), (1, 0), (0, 1)])
    assert right[0] - origin[0] == pytest.approx(up[1] - origin[1], rel=1e-3)


def test_legend_names_each_mark_once(record):
    (legend,) = fig_illustration.draw(record).legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert sorted(labels) == sorted(
        ["target $T^*$", "standard $T_n$", r"corrected $T_n^{\mathrm{ABC}}$", "references ($n=4$)", "query $x$"]
    )


def test_the_same_record_gives_the_same_files(record, tmp_path):
    (tmp_path / "again").mkdir()
    first, second = fig_illustration.ITEM.save(record, tmp_path), fig_illustration.ITEM.save(record, tmp_path / "again")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert first[1].read_bytes().startswith(b"%PDF")
    other = fig_illustration.ITEM.save(replace(record, T_abc=(-0.2, 0.25)), tmp_path / "again")
    assert first[0].read_bytes() != other[0].read_bytes()


@pytest.mark.parametrize("options", [fig_illustration.Options(n=1, draws=1), fig_illustration.Options(n=500, draws=20)])
def test_extremes_can_be_drawn(options, tmp_path, caplog):
    pixels_of(fig_illustration.ITEM.save(fig_illustration.run(options), tmp_path)[0])
    assert not caplog.records


def test_summary_shows_distances_and_share(record):
    known = replace(
        record,
        T_star=(0.0, 0.0),
        T_standard=(0.0, 0.5),
        T_abc=(0.25, 0.0),
        mean_standard=(0.2, 0.0),
        mean_abc=(0.0, 0.1),
    )
    rows = {
        line[:28].strip(): line[28:].split()
        for line in fig_illustration.ITEM.summary(replace(known, share_nearer=0.6)).splitlines()
    }
    assert rows["distance to T* in this draw"] == ["0.5000", "0.2500"]
    assert rows["bias: norm of the mean error"] == ["0.2000", "0.1000"]
    # √(0.6 · 0.4 / 200) = 3.46 %
    assert "ABC is nearer to T* in 60.00% ± 3.46% of the draws; in this draw it is." in fig_illustration.ITEM.summary(
        replace(known, share_nearer=0.6)
    )
    assert "in this draw it is not." in fig_illustration.ITEM.summary(replace(known, T_abc=(0.0, 0.6)))
    assert "fixed pool of 1,000,000 points" in fig_illustration.ITEM.summary(known)


def test_summary_of_a_single_draw_has_no_error():
    single = fig_illustration.ITEM.summary(fig_illustration.run(fig_illustration.Options(draws=1)))
    assert "±" not in single
    assert single.count("–") == 2
    assert "At n = 1 the correction changes nothing." in fig_illustration.ITEM.summary(
        fig_illustration.run(fig_illustration.Options(n=1, draws=3))
    )
