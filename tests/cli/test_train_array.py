"""`truedrift train array`: the run of `fit` from a file, samples in the user's units, clear errors."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_wine

import truedrift
from truedrift.cli import main
from truedrift.errors import UserError
from truedrift.recipes.overrides import recipe

WINE = load_wine()
TRAIN = ["train", "array", "--device", "cpu", "--set", "cadence.steps_per_epoch=200"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("array")
    np.savez(folder / "wine.npz", X=WINE.data, y=WINE.target)
    assert main([*TRAIN, "--data", str(folder / "wine.npz"), "--out", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def fitted():
    return truedrift.fit(WINE.data, WINE.target, steps=200, device="cpu", progress=False)


def test_run_equals_fit_bit_for_bit(run, fitted):
    loaded = truedrift.load(run)
    assert loaded.classes == fitted.classes == ("0", "1", "2")
    assert loaded.shares == fitted.shares == pytest.approx([59 / 178, 71 / 178, 48 / 178])
    for one, other in zip(loaded.generator.parameters(), fitted.generator.parameters(), strict=True):
        np.testing.assert_array_equal(one.detach(), other.detach())
    np.testing.assert_array_equal(loaded.sample(99, seed=3), fitted.sample(99, seed=3))


@pytest.mark.parametrize("steps", [50, 130])
def test_run_of_another_length_equals_fit_bit_for_bit(run, tmp_path, steps):
    """Warm-up and intervals follow from the number of steps."""
    command = ["train", "array", "--device", "cpu", "--set", f"cadence.steps_per_epoch={steps}"]
    assert main([*command, "--data", str(run.parent / "wine.npz"), "--out", str(tmp_path / "run")]) == 0
    arguments = {"steps": steps, "device": "cpu", "progress": False}
    fitted = truedrift.fit(WINE.data, WINE.target, out=tmp_path / "fit", **arguments)
    np.testing.assert_array_equal(truedrift.load(tmp_path / "run").sample(99), fitted.sample(99))
    configs = [json.loads((tmp_path / name / "config.json").read_text())["config"] for name in ("run", "fit")]
    assert configs[0] | {"data": None} == configs[1] | {"data": None}


def test_options_of_the_user_stay():
    settings = ["cadence.steps_per_epoch=20", "optimizer.warmup_steps=3"]
    tree = {"cadence": {"steps_per_epoch": 10, "log_every": 7}}
    config = recipe("array", tree=tree, settings=settings)
    assert (config.cadence.steps, config.cadence.log_every, config.optimizer.warmup_steps) == (20, 7, 3)
    assert recipe("array", tree=tree).optimizer.warmup_steps == 2
    with pytest.raises(UserError, match=r"cadence.steps_per_epoch is 0"):
        recipe("array", settings=["cadence.steps_per_epoch=0"])


def test_samples_are_in_the_units_and_classes_of_the_data(run, fitted, tmp_path):
    assert main(["sample", str(run), "--form", "npz", "--count", "500", "--out", str(tmp_path / "s.npz")]) == 0
    arrays = np.load(tmp_path / "s.npz")
    assert set(arrays) == {"X", "y"}
    expected, labels = fitted.sample(500, return_labels=True)
    np.testing.assert_array_equal(arrays["X"], expected)
    np.testing.assert_array_equal(arrays["y"], labels.astype(int))
    np.testing.assert_allclose(arrays["X"].mean(0), WINE.data.mean(0), atol=0.5 * WINE.data.std(0).max())
    # A sample file is itself data.
    command = ["--data", str(tmp_path / "s.npz"), "--out", str(tmp_path / "again")]
    assert main(["train", "array", "--device", "cpu", "--set", "cadence.steps_per_epoch=60", *command]) == 0
    # Chosen classes are equally frequent.
    chosen = ["--classes", "0", "2", "--count", "10", "--out", str(tmp_path / "c.npz")]
    assert main(["sample", str(run), "--form", "npz", *chosen]) == 0
    assert np.load(tmp_path / "c.npz")["y"].tolist() == [0] * 5 + [2] * 5


def test_evaluate_prints_the_energy_distance_of_the_model(run, tmp_path, capsys):
    """Other data have other means and deviations: both are compared in the units of the run."""
    np.savez(tmp_path / "other.npz", X=WINE.data[::2] * 1.1, y=WINE.target[::2])
    command = ["evaluate", str(run), "--device", "cpu", "--samples", "100", "--seed", "2", "--out", str(tmp_path)]
    for arguments, X in (([], WINE.data), (["--root", str(tmp_path / "other.npz")], WINE.data[::2] * 1.1)):
        assert main([*command, *arguments]) == 0
        expected = truedrift.load(run).evaluate(X, seed=2)
        (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("energy distance")]
        assert float(line.split()[2]) == pytest.approx(expected.value, rel=1e-3)
        assert line.endswith(f"2000 samples, with classes as in training, and {len(X)} of the data")


def test_evaluate_compares_other_data_in_the_units_of_the_run(run, tmp_path, capsys):
    """The same wines, ten times as large, are far from the samples; standardized by themselves they would not be."""
    distances = []
    for factor in (1, 10):
        np.savez(tmp_path / "other.npz", X=WINE.data * factor, y=WINE.target)
        command = ["--root", str(tmp_path / "other.npz"), "--samples", "100", "--out", str(tmp_path)]
        assert main(["evaluate", str(run), "--device", "cpu", *command]) == 0
        lines = (tmp_path / "evaluations.jsonl").read_text().splitlines()
        distances.append(json.loads(lines[-1])["metrics"]["fid"])
    assert distances[1] > 100 * distances[0]
    np.savez(tmp_path / "other.npz", X=WINE.data[:, :5], y=WINE.target)
    capsys.readouterr()
    assert main(["evaluate", str(run), "--root", str(tmp_path / "other.npz"), "--out", str(tmp_path)]) == 2
    assert "have shape (13,); must be (5,), the shape of" in capsys.readouterr().err


def test_complete_run_is_resumed_and_other_data_are_refused(run, capsys):
    before = (run / "metrics.jsonl").read_bytes()
    data = run.parent / "wine.npz"
    assert main([*TRAIN, "--data", str(data), "--out", str(run)]) == 0
    assert f"next:     truedrift sample {run} --form npz" in capsys.readouterr().out
    assert (run / "metrics.jsonl").read_bytes() == before
    np.savez(run.parent / "other.npz", X=WINE.data + 1, y=WINE.target)
    assert main([*TRAIN, "--data", str(run.parent / "other.npz"), "--out", str(run)]) == 2
    assert "holds another run" in capsys.readouterr().err


def test_one_column_and_images_from_the_shell(tmp_path):
    rng = np.random.default_rng(0)
    short = ["train", "array", "--device", "cpu", "--set", "cadence.steps_per_epoch=60"]
    for name, X in (("column", rng.normal(size=80)), ("images", rng.integers(0, 256, (40, 4, 4, 3)).astype(np.uint8))):
        np.save(tmp_path / f"{name}.npy", X)
        run = str(tmp_path / name)
        assert main([*short, "--data", f"{run}.npy", "--out", run]) == 0
        assert main(["sample", run, "--out", f"{run}.png"]) == 0
        assert main(["sample", run, "--form", "npz", "--count", "7", "--out", f"{run}.npz"]) == 0
        arrays = np.load(f"{run}.npz")
        assert set(arrays) == {"X"}
        assert arrays["X"].shape == ((7,) if name == "column" else (7, 4, 4, 3))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"X": np.zeros((4, 2)), "weights": np.zeros(4)},
            "holds X, weights; must hold X and, for classes, y; save it with",
        ),
        ({"Y": np.zeros((4, 2))}, "holds Y; must hold X"),
        ({"X": np.array([[1.0], [np.nan]])}, "nan"),
        ({"X": np.array([["a"], ["b"]])}, "must hold real numbers"),
    ],
)
def test_mistakes_in_files_are_one_line(arrays, message, tmp_path, capsys):
    np.savez(tmp_path / "X.npz", **arrays)
    assert main(["train", "array", "--data", str(tmp_path / "X.npz"), "--out", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message.lower() in line.lower()
    assert not (tmp_path / "run").exists()


def test_missing_file_is_one_line(tmp_path, capsys):
    assert main(["train", "array", "--out", str(tmp_path / "run")]) == 2
    assert "no file was given; the data set array needs one; add --data X.npz" in capsys.readouterr().err
    assert main(["train", "array", "--data", str(tmp_path / "none.npz")]) == 2
    assert "does not exist" in capsys.readouterr().err
