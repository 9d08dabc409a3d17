"""Pictures of samples: grids of images, scatter plots of points, and PNG files."""

import os

import numpy as np
import pytest
import torch
from PIL import Image
from short_runs import run, short_config

from truedrift.data import Samples, to_model_range
from truedrift.training import image_grid, scatter_image, write_png
from truedrift.training import pictures as pictures_module
from truedrift.training.pictures import write_real_picture


def test_grid_shows_unchanged_images_row_by_row():
    bytes_ = torch.randint(256, (7, 3, 40, 36), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    grid = image_grid(to_model_range(bytes_), 3)
    assert grid.shape == (3 * 42 + 2, 3 * 38 + 2, 3)
    for number, image in enumerate(bytes_):
        top, left = 2 + number // 3 * 42, 2 + number % 3 * 38
        assert torch.equal(grid[top : top + 40, left : left + 36].permute(2, 0, 1), image)
    assert (grid[:2] == 255).all()
    assert (grid[2 + 2 * 42 :, 2 + 38 :] == 255).all()  # positions 7 and 8 are empty


def test_small_gray_images_are_enlarged_by_an_integer_factor():
    byte = torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8)
    grid = image_grid(to_model_range(byte), 1)
    assert grid.shape == (36, 36, 3)
    inside = grid[2:34, 2:34]
    assert torch.equal(inside[::4, ::4, 0], byte[0, 0])
    assert torch.equal(inside, byte[0, 0].repeat_interleave(4, 0).repeat_interleave(4, 1)[..., None].expand(-1, -1, 3))


@pytest.mark.parametrize(
    ("count", "rows", "columns"),
    [(100, 10, 10), (40, 10, 4), (3, 10, 1), (100, 1, 10), (5, 1, 3), (1, 1, 1), (2, 1, 2), (400, 1, 10), (60, 2, 10)],
)
def test_grid_columns(count, rows, columns):
    assert pictures_module.grid_columns(count, rows) == columns


def test_rows_of_a_class_wrap_at_ten_images():
    """Two classes of 12 images: a row of ten and a row of two each; the rest of the row is white."""
    images = torch.full((24, 1, 32, 32), -1.0)
    cells = pictures_module.class_grid(images, 2)[2:, 2:, 0].unfold(0, 32, 34).unfold(1, 32, 34).amax((-1, -2))
    assert [[int(cell) for cell in row] for row in cells] == [[0] * 10, [0, 0, *[255] * 8]] * 2


def test_folders_are_named_by_their_classes():
    assert pictures_module.class_folders(["cat", "45°"]) == ["cat", "45_"]
    assert pictures_module.class_folders(["..", "/etc"]) == ["000-", "001-_etc"]
    assert pictures_module.class_folders(["a", "A"]) == ["000-a", "001-A"]


def test_scatter_image_draws_points_at_their_positions():
    data = torch.tensor([[-1.0, -1.0], [1.0, 1.0]])
    points = torch.tensor([[-1.0, 1.0], [1.0, -1.0], [50.0, 0.0], [torch.nan, 0.0]])
    picture = scatter_image(points, torch.tensor([0, 1, 2, 3]), data)
    side = len(picture)
    low, high = round(0.15 * 2 / 2.6 * side), round(2.3 / 2.6 * side)

    def color_at(x, y):
        return tuple(picture[side - 1 - y, x].tolist())

    assert color_at(low, high) == pictures_module.COLORS[0]
    assert color_at(high, low) == pictures_module.COLORS[1]
    assert color_at(low, low) == color_at(high, high) == pictures_module.DATA_COLOR
    colors = {tuple(color) for color in picture.reshape(-1, 3).unique(dim=0).tolist()}
    # Far and undefined points are left out.
    assert colors == {(255, 255, 255), pictures_module.DATA_COLOR, *pictures_module.COLORS[:2]}


def test_scatter_image_of_a_single_position():
    zeros = torch.zeros(3, 2)
    assert scatter_image(zeros, torch.zeros(3, dtype=torch.long), zeros).shape == (480, 480, 3)


def test_png_is_complete_or_missing(tmp_path, monkeypatch):
    picture = torch.randint(256, (20, 30, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    path = write_png(picture, tmp_path / "deep" / "a.png")
    with Image.open(path) as image:
        assert np.array_equal(np.asarray(image), picture.numpy())
    assert [file.name for file in path.parent.iterdir()] == ["a.png"]

    def fail_halfway(self, file, **_):
        file.write(b"half")
        raise OSError("no space")

    monkeypatch.setattr(Image.Image, "save", fail_halfway)
    with pytest.raises(OSError, match="no space"):
        write_png(picture, tmp_path / "b.png")
    assert not (tmp_path / "b.png").exists()


def test_only_regular_files_are_replaced(tmp_path):
    picture = torch.zeros(4, 4, 3, dtype=torch.uint8)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "link"):
        with pytest.raises(ValueError, match=rf"{name}' is not a regular file; must be a new file .*; choose another"):
            write_png(picture, tmp_path / name)
    with pytest.raises(ValueError, match="is a directory; "):
        write_png(picture, tmp_path)
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]
    write_png(picture, tmp_path / "file.png")
    write_png(picture + 9, tmp_path / "file.png")
    with Image.open(tmp_path / "file.png") as image:
        assert np.asarray(image).max() == 9


def test_real_images_stand_in_rows_by_class(tmp_path):
    """Class a has 12 gray images, of which 10 are shown; class b has one, followed by white."""
    values = torch.full((13, 1, 32, 32), 100, dtype=torch.uint8)
    values[-1] = 7
    samples = Samples(values, torch.tensor([0] * 12 + [1]), ("a", "b"), "made", flips=False)
    with Image.open(write_real_picture(samples, tmp_path / "real.png")) as picture:
        found = np.asarray(picture.convert("L"))
    centers = found[2 + 16 :: 34, 2 + 16 :: 34]
    assert centers.tolist() == [[100] * 10, [7] + [255] * 9]


@pytest.mark.parametrize(("name", "size"), [("digits", (342, 342)), ("toy", (480, 480))])
def test_run_writes_pictures_at_its_cadence(tmp_path, name, size):
    run(short_config(name, "cadence.grid_every=3"), tmp_path)
    paths = sorted((tmp_path / "samples").iterdir())
    if name == "digits":  # points have no such picture
        assert paths.pop(0).name == "real.png"
    assert [path.name for path in paths] == ["step-00000003.png", "step-00000006.png", "step-00000008.png"]
    pictures = []
    for path in paths:
        with Image.open(path) as image:
            assert image.size == size
            pictures.append(np.asarray(image.convert("RGB")))
    assert pictures[0].std() > 10
    assert not np.array_equal(pictures[0], pictures[2])  # the weights have changed; the noise is the same
