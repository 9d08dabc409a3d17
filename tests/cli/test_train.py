"""`truedrift train` as a user runs it: output, order of options, errors, and work that is done only once."""

import json
import re
import sys
from importlib import import_module

import numpy as np
import pytest
from PIL import Image

from truedrift.cli import main
from truedrift.data import load
from truedrift.options import from_dict
from truedrift.recipes import recipe
from truedrift.training import RunConfig, read_metrics

main_module = import_module("truedrift.cli.main")
train_module = import_module("truedrift.cli.train")  # whose imports `record_calls` replaces
progress_module = import_module("truedrift.progress_display")

SMALL = (
    "generator.width=16",
    "generator.depth=1",
    "batch.n=3",
    "cadence.epochs=1",
    "cadence.steps_per_epoch=4",
    "cadence.log_every=2",
    "cadence.checkpoint_every=2",
    "cadence.grid_every=none",
    "evaluation.extractor=none",
)


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "cache"))
    return tmp_path


def set_flags(*settings):
    return [flag for setting in settings for flag in ("--set", setting)]


def user_files(directory):
    """Return all files but those of the cache."""
    return sorted(path for path in directory.rglob("*") if "cache" not in path.relative_to(directory).parts)


def train(capsys, *arguments):
    status = main(["train", *map(str, arguments)])
    output = capsys.readouterr()
    return status, output.out, output.err


def read_config(capsys, *arguments):
    status, out, err = train(capsys, *arguments, "--print-config")
    assert (status, err) == (0, "")
    return json.loads(out)


def test_output_names_the_run_and_the_next_command(capsys, directory):
    status, out, err = train(capsys, "digits", *set_flags(*SMALL), "--device", "cpu")
    assert status == 0
    (run,) = (directory / "runs").iterdir()
    assert re.fullmatch(r"digits-abc-n3-seed0-[0-9a-f]{6}", run.name)
    assert err == f"truedrift: digits: 4 steps in runs/{run.name}\n"
    first, effective, advice, energy, next_command = out.splitlines()
    assert first == "complete: 4 steps, 12 positives per class seen"
    assert re.fullmatch(
        r"effective positives of 3: [\d.]+, [\d.]+, [\d.]+ \(τ = 0.02, 0.05, 0.2\);  distance ratio [\d.]+", effective
    )
    assert re.fullmatch(
        r"advice:   n_eff of the positives is below 2 at τ = .* or more positives \(batch\.n\)\.", advice
    )
    assert re.fullmatch(
        r"energy distance [\d.]+ ± [\d.e-]+ \(0 where generated and real features have the same distribution\)", energy
    )
    assert next_command == f"next:     truedrift sample runs/{run.name}"
    status, repeated, err = train(capsys, "digits", *set_flags(*SMALL), "--device", "cpu")
    assert (status, repeated) == (0, out)
    assert err == f"truedrift: all 4 steps are already done in runs/{run.name}\n"
    assert len(list((directory / "runs").iterdir())) == 1
    train(capsys, "digits", *set_flags(*SMALL), "--seed", 1, "--device", "cpu")
    assert len(list((directory / "runs").iterdir())) == 2


def test_classes_are_given_by_name(capsys, directory):
    flag, setting = ("--classes", "3", "8"), ("--set", "data.classes=3,8")
    assert read_config(capsys, "digits", *flag) == read_config(capsys, "digits", *setting)
    assert read_config(capsys, "digits", *flag)["data"]["classes"] == ["3", "8"]
    assert read_config(capsys, "digits", *flag, "--set", "data.classes=1")["data"]["classes"] == ["1"]
    assert read_config(capsys, "digits", *flag, "--set", "data.classes=")["data"]["classes"] == []
    names = '["upper right", "left"]'
    assert read_config(capsys, "toy", "--set", f"data.classes={names}")["data"]["classes"] == ["upper right", "left"]
    # The run has these classes.
    status, _, _ = train(capsys, "digits", *flag, *set_flags(*SMALL), "--device", "cpu", "--out", "run")
    assert status == 0
    data = json.loads((directory / "run" / "config.json").read_text())["data"]
    assert data["classes"] == ["3", "8"]
    status, _, err = train(capsys, "digits", "--classes", "three", *set_flags(*SMALL), "--device", "cpu")
    assert (status, err.splitlines()) == (
        2,
        [
            "truedrift: error: data.classes contains 'three'; must be among 0, 1, 2, 3, 4, 5, 6, 7, 8, 9; "
            "use these names"
        ],
    )


@pytest.mark.parametrize("name", ["fashion-mnist", "cifar10-cpu", "cifar10-own", "folder"])
def test_guidance_follows_the_classes_however_they_are_given(capsys, directory, name):
    for classes, guided in ((["a"], False), (["a", "b"], True)):
        (directory / "config.json").write_text(json.dumps({"data": {"classes": classes}}))
        sources = (
            ("--classes", *classes),
            ("--set", f"data.classes={','.join(classes)}"),
            ("--config", directory / "config.json"),
            ("--classes", "c", "d", "e", "--set", f"data.classes={','.join(classes)}"),
        )
        configs = [read_config(capsys, name, *source) for source in sources]
        assert all(config == configs[0] for config in configs)
        assert (configs[0]["batch"]["unconditional"] > 0) == guided


def test_length_follows_the_folder_however_it_is_given(capsys, directory):
    for name in ("car", "ship"):
        (directory / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(directory / "photos" / name / "1.png")
    photos = directory / "photos"
    flag, setting = ("--data", photos), ("--set", f"data.root={photos}")
    assert read_config(capsys, "folder", *flag) == read_config(capsys, "folder", *setting)
    assert read_config(capsys, "folder", *flag)["cadence"]["epochs"] == 45


def test_too_few_images_and_missing_weights_are_one_message(capsys, directory):
    (directory / "photos").mkdir()
    for number in range(4):
        Image.new("RGB", (20, 12), (number, 0, 0)).save(directory / "photos" / f"{number}.png")
    status, _, err = train(capsys, "folder", "--data", "photos", "--n", "8", "--device", "cpu", "--out", "run")
    assert status == 2
    assert err.splitlines()[-1] == (
        "truedrift: error: batch.n is 8 and class 'all' has 4 images; every class must have at least 8 images; "
        "use n = 4 or less, or sampling queue, which draws with replacement; and run truedrift data fetch "
        "efficientnet-lite0, because the weights of the encoder are missing"
    )


def test_a_folder_is_described_before_the_run_and_its_evaluation_after_it(capsys, directory):
    (directory / "photos").mkdir()
    for number in range(4):
        Image.new("RGB", (20, 12), (number, 0, 0)).save(directory / "photos" / f"{number}.png")
    generator = 'generator={"kind": "mlp", "width": 16, "depth": 1}'
    settings = (*SMALL[2:], 'encoder={"kind": "pixels"}', "data.image_size=8", generator, "optimizer.schedule=constant")
    command = ("folder", "--data", "photos", *set_flags(*settings), "--device", "cpu", "--out", "run")
    status, out, err = train(capsys, *command)
    assert (status, err.splitlines()[0]) == (
        0,
        f"truedrift: {directory / 'photos'} has one class of 4 images; images are resized to 8×8",
    )
    sample, fetch, evaluate = out.splitlines()[-3:]
    assert sample == "next:     truedrift sample run"
    assert re.fullmatch(r" +truedrift data fetch inception    # \d+ MB, which evaluate needs", fetch)
    assert evaluate.strip() == "truedrift evaluate run"


def test_loggers_are_chosen_and_switched_off(capsys, directory):
    for words, folders in ((["--log"], []), (["--log", "none"], []), (["--log", "tensorboard"], ["tensorboard"])):
        out = directory / "-".join(words).strip("-")
        assert train(capsys, "digits", *set_flags(*SMALL), "--device", "cpu", "--out", out, *words)[0] == 0
        assert [name for name in ("tensorboard", "wandb", "mlflow") if (out / name).exists()] == folders
    status, _, err = train(capsys, "digits", "--log", "comet")
    allowed = "must be one of 'tensorboard', 'wandb', 'mlflow', 'none'"
    assert (status, err) == (2, f"truedrift: error: log is 'comet'; {allowed}; choose one of these\n")


def test_summary_has_the_distance_of_every_average(capsys):
    settings = (*SMALL[:-1], "evaluation.samples=20", "optimizer.more_ema=0.5,0.9")
    status, out, _ = train(capsys, "digits", *set_flags(*settings), "--device", "cpu", "--out", "run")
    assert status == 0
    (line,) = [line for line in out.splitlines() if line.startswith("distance: ")]
    number = r"\d+\.\d\d"
    assert re.fullmatch(
        rf"distance: {number} by digits \(20 samples against 1437 of digits\), best so far {number}, "
        rf"{number} with ema 0\.5, {number} with ema 0\.9",
        line,
    )


def test_energy_distance_as_text():
    logged = {"energy": [0.0512, 0.0712], "energy_error": [0.002, 0.004]}
    assert train_module.describe_energy(logged) == "energy distance 0.0612 ± 0.003"
    assert train_module.describe_energy({"energy": [-0.001], "energy_error": [None]}) == "energy distance -0.001"
    assert train_module.describe_energy({"energy": [None]}) == train_module.describe_energy({}) == ""


def test_progress_line_shows_the_energy_distance(capsys, monkeypatch):
    """Lines are printed after every step; the first log is after two."""
    monkeypatch.setattr(progress_module, "HEARTBEAT_SECONDS", 0.0)
    _, _, err = train(capsys, "digits", *set_flags(*SMALL, "cadence.epochs=2"), "--device", "cpu")
    lines = [line for line in err.splitlines() if "training: " in line]
    assert [line.split("%")[0] for line in lines] == [f"truedrift: training: {k}" for k in (25, 38, 50, 62, 75, 88)]
    assert "energy" not in lines[0]
    assert all(re.search(r" left; energy distance [\d.]+ ± [\d.e-]+$", line) for line in lines[1:])


def test_printed_config_can_be_read_again(capsys, directory):
    tree = read_config(capsys, "digits", *set_flags("optimizer.clip=none", "objective.temperatures=0.1,0.5"))
    assert tree["optimizer"]["clip"] is None
    assert tree["objective"]["temperatures"] == [0.1, 0.5]
    assert list(directory.iterdir()) == []
    (directory / "options.json").write_text(json.dumps(tree))
    assert read_config(capsys, "digits", "--config", "options.json") == tree
    assert read_config(capsys, "toy", "--config", "options.json") == tree  # the file has every option
    assert tree != read_config(capsys, "digits")


def test_order_is_recipe_then_file_then_flags_then_settings(capsys, directory):
    (directory / "options.json").write_text(json.dumps({"batch": {"n": 11}, "seed": 3, "optimizer": {"ema": 0.5}}))
    (directory / "kind.json").write_text(json.dumps({"generator": {"kind": "drift-dit", "width": 24}}))

    def values(*arguments):
        tree = read_config(capsys, "digits", *arguments)
        return tree["batch"]["n"], tree["seed"], tree["optimizer"]["ema"], tree["objective"]["estimator_neg"]

    file = ("--config", "options.json")
    assert values() == (120, 0, 0.998, "abc")
    assert values(*file) == (11, 3, 0.5, "abc")
    assert values(*file, "--n", 120) == (120, 3, 0.5, "abc")  # even if it is the value of the recipe
    assert values(*file, "--seed", 5, "--estimator", "standard") == (11, 5, 0.5, "standard")
    assert values(*file, "--n", 12, *set_flags("batch.n=13", "optimizer.ema=0.25")) == (13, 3, 0.25, "abc")
    assert values(*set_flags("batch.n=13", "batch.n=14")) == (14, 0, 0.998, "abc")
    other = read_config(capsys, "digits", "--config", "kind.json")["generator"]
    assert (other["kind"], other["width"], other["depth"]) == ("drift-dit", 24, 8)
    assert "embedding" not in other


def test_data_flag_overrides_the_file(capsys, directory):
    (directory / "toy.json").write_text(json.dumps({"data": {"name": "checkerboard"}}))
    assert read_config(capsys, "toy", "--config", "toy.json")["data"]["name"] == "checkerboard"
    assert read_config(capsys, "toy", "--config", "toy.json", "--data", "two-moons")["data"]["name"] == "two-moons"


def test_config_of_a_run_can_be_read(capsys, directory):
    train(capsys, "digits", *set_flags(*SMALL), "--device", "cpu", "--out", "run")
    assert read_config(capsys, "digits", "--config", "run/config.json") == read_config(
        capsys, "digits", *set_flags(*SMALL)
    )
    status, _, err = train(capsys, "digits", "--config", "run/config.json", "--device", "cpu", "--out", "run")
    assert status == 0
    assert err.startswith("truedrift: all 4 steps are already done")


OUT_OF_RANGE = r"must be at least {} and at most {}; set {} to an allowed value"
ERRORS = [
    (["cats"], r"the recipe is 'cats'; must be one of 'array', 'toy', 'digits', .*, 'cifar100'; choose one of these"),
    (
        ["cifar10"],
        r"data\.name cifar10: cifar10 is not in the cache \('.*'\); must be fetched first, or be your own copy; "
        r"run truedrift data fetch cifar10, or add --data DIR .*",
    ),
    (["folder"], r"data\.name folder: no directory was given; the data set folder needs one; add --data DIR .*"),
    (
        ["folder", "--data", "none"],
        r"data\.name folder: '.*/none' does not exist; must be a directory or an archive; check the name",
    ),
    (
        ["toy", "--data", "three-moons"],
        r"data is 'three-moons'; must be one of 'three-clusters', .*, 'two-moons'; did you mean 'two-moons'\?",
    ),
    (
        ["digits", "--data", "here"],
        r"data is not an argument of the recipe digits; arguments: n, seed, estimator; leave it out",
    ),
    (["toy", "--n", "0"], r"batch\.n is 0; " + OUT_OF_RANGE.format(1, 65536, r"batch\.n")),
    (["digits", "--n", "0"], r"batch\.n is 0; " + OUT_OF_RANGE.format(1, 65536, r"batch\.n")),
    (
        ["digits", "--n", "9999"],
        r"batch\.n is 9999 and class '\d' has (\d+) images; every class must have at least 9999 images; "
        r"use n = \1 or less, or sampling queue, .*",
    ),
    (["digits", "--seed", "-1"], rf"seed is -1; {OUT_OF_RANGE.format(0, 2**31 - 1, 'seed')}"),
    (["digits", "--device", "tpu"], r"device 'tpu' is unknown; known: auto, cpu, cuda, mps; pass one of these"),
    (
        ["digits", "--config", "none.json"],
        r"configuration 'none\.json' cannot be read \(.*No such file.*\); must be a JSON file; "
        r"write one with --print-config",
    ),
    (
        ["digits", "--config", "."],
        r"configuration '\.' cannot be read \(.*\); must be a JSON file; write one with --print-config",
    ),
    (
        ["digits", "--config", "list.json"],
        r"configuration 'list\.json' does not contain options; must be one JSON object; write one with --print-config",
    ),
    (
        ["digits", "--config", "text.json"],
        r"configuration 'text\.json' cannot be read \(.*\); must be a JSON file; write one with --print-config",
    ),
    (
        ["digits", "--config", "run.json"],
        r"configuration 'run\.json' does not contain options; must be one JSON object; write one with --print-config",
    ),
    (
        ["digits", "--config", "odd.json"],
        r"batch\.m is unknown; known: n, generated, labels, sampling, queue_size, unconditional, fresh_negatives; "
        r"use one of these",
    ),
    (
        ["digits", "--set", "batch.n"],
        r"the setting is 'batch\.n'; must be section\.option=value; write for example optimizer\.clip=1\.0",
    ),
    (
        ["digits", "--out", "text.json", *set_flags(*SMALL)],
        r"the run directory 'text\.json' cannot be created .*\(it is a file\); "
        r"must be a directory in a writable place.*; choose another directory with --out",
    ),
    (
        ["digits", "--out", "full", *set_flags(*SMALL)],
        r"the directory 'full' holds 'file' and no config\.json; must be a run or an empty directory; "
        r"choose another directory with --out",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), ERRORS, ids=[" ".join(arguments[:3]) for arguments, _ in ERRORS])
def test_error_is_one_line_with_status_2(capsys, directory, arguments, message):
    """The line has the problem, what is allowed and a fix. No file is written."""
    (directory / "full").mkdir()
    (directory / "full" / "file").touch()
    texts = {"list": "[1]", "text": "{", "run": '{"schema": 1, "config": 3}', "odd": '{"batch": {"m": 1}}'}
    for name, text in texts.items():
        (directory / f"{name}.json").write_text(text)
    before = user_files(directory)
    status, out, err = train(capsys, *arguments)
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert re.fullmatch(f"truedrift: error: {message}", line)
    assert user_files(directory) == before


ESTIMATORS = r"(?=.*'standard')(?=.*'abc')(?=.*'abc2')(?=.*'jackknife')(?=.*'bootstrap')"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], r"Missing from truedrift train: RECIPE Name of the recipe; `truedrift recipes` lists them\. \(required\)"),
        (["digits", "--n", "three"], r"Error parsing --positives/--n: .*invalid literal for int\(\) .*: 'three'"),
        (
            ["digits", "--estimator", "best"],
            rf"invalid choice 'best' for argument '--estimator'\. Expected one of {ESTIMATORS}",
        ),
        (["digits", "--nn", "3"], r"Unrecognized options: --nn, 3"),
    ],
)
def test_parsing_error_names_the_flag_with_status_2(capsys, directory, arguments, message):
    """Errors of the parser have several lines: the problem, the allowed values and the command for help."""
    status, out, err = train(capsys, *arguments)
    assert (status, out) == (2, "")
    text = " ".join(err.split())
    assert re.search(message, text)
    assert "truedrift train --help" in text
    assert user_files(directory) == []


def record_calls(monkeypatch, function):
    """Return a list of the first argument of every call, by any module that imports the function by its name."""
    calls = []

    def recording(*arguments, **options):
        calls.append(arguments[0])
        return function(*arguments, **options)

    for name, module in list(sys.modules.items()):
        if name.startswith("truedrift.") and vars(module).get(function.__name__) is function:
            monkeypatch.setattr(module, function.__name__, recording)
    return calls


def test_configuration_is_read_once_and_data_are_loaded_once(capsys, directory, monkeypatch):
    """A start and a second start, both with an evaluation, validate the configuration and load the data once each."""
    read, loaded = record_calls(monkeypatch, from_dict), record_calls(monkeypatch, load)
    evaluation = ("evaluation.extractor=encoder:pixels", "evaluation.samples=60")
    for epochs, steps in ((1, [4]), (2, [4, 8])):
        flags = set_flags(*SMALL, *evaluation, f"cadence.epochs={epochs}")
        status, _, err = train(capsys, "digits", *flags, "--device", "cpu", "--out", "run")
        assert status == 0, err
        assert [kind for kind in read if kind is RunConfig] == [RunConfig]
        assert loaded == ["digits"]
        metrics = read_metrics(directory / "run" / "metrics.jsonl")
        assert [entry["step"] for entry in metrics if "evaluation" in entry] == steps
        read.clear()
        loaded.clear()


def test_examples_of_the_help_have_valid_configurations(capsys, directory):
    np.savez("table.npz", X=np.arange(300.0).reshape(100, 3))
    assert main(["train", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    examples = [line.split()[1:] for line in lines if line.startswith("  truedrift train ")]
    assert len(examples) >= 4
    for example in examples:
        command = main_module.parse(example)
        arguments = {"n": command.n, "seed": command.seed, "estimator": command.estimator, "data": command.data}
        assert recipe(command.recipe, given=arguments, settings=command.set).recipe == command.recipe
