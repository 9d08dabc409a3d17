"""The command as a user runs it: what it prints, where, and with which exit status."""

import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest
from oracles.handmade_run import write_run
from PIL import Image

import truedrift
from truedrift.cli.main import main
from truedrift.paper import fig_bias_loglog
from truedrift.paper.fig_bias_loglog import BiasCurves
from truedrift.paper.fig_illustration import Illustration
from truedrift.records.store import read
from truedrift.training.run_directory import lock_run

main_module = import_module("truedrift.cli.main")

LIMIT_SECONDS = 240


@pytest.fixture
def small_toy(monkeypatch):
    """The exact study with few points and queries."""
    monkeypatch.setattr(fig_bias_loglog, "POOL_POINTS", 2000)
    monkeypatch.setattr(fig_bias_loglog, "QUERIES", 3)


def truedrift_command(*arguments, cwd=None):
    command = [sys.executable, "-m", "truedrift", *arguments]
    return subprocess.run(command, capture_output=True, cwd=cwd, text=True, timeout=LIMIT_SECONDS, check=False)


def only_line(text):
    (line,) = text.splitlines()
    return line


def test_demo_draws_both_figures_and_prints_their_numbers(tmp_path, capsys, monkeypatch, small_toy):
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--draws", "300", "--seed", "3", "--epochs", "0"]) == 0
    printed = capsys.readouterr().out
    out = tmp_path / "runs" / "demo"
    assert sorted(path.name for path in out.iterdir()) == [
        "fig_bias_loglog.csv",
        "fig_bias_loglog.md",
        "fig_bias_loglog.pdf",
        "fig_bias_loglog.png",
        "fig_bias_loglog.tex",
        "fig_illustration.pdf",
        "fig_illustration.png",
        "records.jsonl",
        "report.html",
    ]
    assert printed.splitlines()[-1] == f"page: {Path('runs/demo/report.html')}"
    (record,) = read(out / "records.jsonl", Illustration)
    assert (record.n, record.draws, record.provenance.seed) == (4, 300, 3)
    assert record.provenance.command == "truedrift demo --seed 3 --draws 300 --epochs 0"
    columns = re.sub(r" +", " ", printed)
    assert f"{record.distance_standard:.4f} {record.distance_abc:.4f}" in columns
    assert f"{record.bias_standard:.4f} {record.bias_abc:.4f}" in columns
    assert f"nearer to T* in {record.share_nearer:.2%} ±" in printed
    (curves,) = read(out / "records.jsonl", BiasCurves)
    assert (curves.pool_points, curves.queries, curves.trials) == (2_000, 3, 0)
    for curve in curves.curves:
        assert f"{curve.exact[-1]:.2e}" in printed
    green, red, blue = (0x01, 0x71, 0x00), (0xD6, 0x45, 0x41), (0x00, 0x77, 0xCC)
    for name, expected in (("fig_illustration", {green, red, blue}), ("fig_bias_loglog", {red, blue})):
        assert f"written: {Path('runs/demo') / name}.png" in printed
        with Image.open(out / f"{name}.png") as image:
            assert expected <= {color for _, color in image.convert("RGB").getcolors(maxcolors=1 << 20)}


def test_demo_ends_with_the_files_of_its_runs(tmp_path, capsys, monkeypatch, small_toy):
    runs = [write_run(tmp_path / name, estimator=name) for name in ("standard", "abc")]
    monkeypatch.setattr("truedrift.cli.demo._train_both", lambda *_: runs)
    out = tmp_path / "out"
    assert main(["demo", "--draws", "2", "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in ("curves.png", "curves.pdf", "gauge.png", "gauge.pdf", "runs.csv", "differences.tex"):
        assert f"written: {out / name}" in lines
        assert (out / name).is_file()
    assert lines[-1] == f"page: {out / 'report.html'}"


@pytest.mark.slow
def test_demo_trains_with_both_estimators_and_tells_it_on_a_page(tmp_path):
    done = truedrift_command("demo", "--draws", "300", "--epochs", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / done.stdout.splitlines()[-1].removeprefix("page: ")).read_text(encoding="utf-8")
    for name in ("digits-standard-seed0", "digits-abc-seed0"):
        run = tmp_path / "runs" / "demo" / name
        assert '"evaluation"' in (run / "metrics.jsonl").read_text()
        assert name in page
    assert "FD (digits)" in page
    assert "FD (digits)," in (tmp_path / "runs" / "demo" / "runs.csv").read_text(encoding="utf-8")
    (curves,) = read(tmp_path / "runs" / "demo" / "records.jsonl", BiasCurves)
    assert (curves.pool_points, curves.queries, curves.trials) == (1_000_000, 200, 0)
    again = truedrift_command("demo", "--draws", "300", "--epochs", "1", cwd=tmp_path)  # nothing is trained again
    assert again.returncode == 0, again.stderr
    history = (tmp_path / "runs" / "demo" / "digits-abc-seed0" / "history.jsonl").read_text()
    assert history.count('"started"') == 1


def test_a_demo_beside_another_says_so_and_is_no_failure(tmp_path, capsys, small_toy):
    runs = [tmp_path / "digits-standard-seed0", tmp_path / "digits-abc-seed0"]
    for run in runs:
        run.mkdir()
    with lock_run(runs[0]), lock_run(runs[1]):
        assert main(["demo", "--draws", "2", "--epochs", "1", "--out", str(tmp_path)]) == 75
    assert capsys.readouterr().err == (
        "truedrift: training the digits with Standard and ABC: another command is working on 2 of 2 runs: "
        "digits-standard-seed0 (standard), digits-abc-seed0 (abc); run the same command again when it has finished\n"
    )


def test_a_mistake_is_one_line_and_status_2():
    done = truedrift_command("demo", "--n", "0")
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r"truedrift: error: n is 0; .*10000; .*4.*", only_line(done.stderr))


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_an_interrupt_is_one_line_and_status_130(tmp_path):
    out = tmp_path / "out"
    # Started in the background of a shell, the tests inherit an ignored SIGINT and would hand it on.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from truedrift.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [
        sys.executable,
        "-c",
        code,
        "demo",
        "--n",
        "100",
        "--draws",
        "1000000",
        "--epochs",
        "0",
        "--out",
        str(out),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        deadline = time.monotonic() + LIMIT_SECONDS
        while not out.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)
        running.send_signal(signal.SIGINT)
        stdout, stderr = running.communicate(timeout=LIMIT_SECONDS)
    assert running.returncode == 130
    assert stdout == ""
    assert only_line(stderr) == "truedrift: interrupted"


def test_without_the_extra_the_command_says_what_to_install():
    code = "import sys; sys.modules['tyro'] = None\nfrom truedrift.cli import main\nsys.exit(main(['demo']))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 2
    assert re.fullmatch(
        r"truedrift: error: tyro not installed; .*; run pip install 'truedrift\[app\]'", only_line(done.stderr)
    )


def test_the_installed_script_is_this_command():
    script = os.path.join(os.path.dirname(sys.executable), "truedrift")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert (done.returncode, done.stdout) == (0, f"truedrift {truedrift.__version__}\n")


def test_a_terminal_without_greek_is_no_failure(tmp_path, monkeypatch, small_toy):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(["demo", "--draws", "2", "--epochs", "0", "--out", str(tmp_path)]) == 0
    terminal.flush()
    assert b"n = 4, ? = 1" in terminal.buffer.getvalue()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], r"no command was given; available: demo, .*; run truedrift --help"),
        (["demx"], r"'demx' is not a command; available: demo, .*; run truedrift --help"),
        (["demo", "--draws", "0"], r"draws is 0; .*1000000; .*"),
        (["demo", "--seed", "-1"], r"seed is -1; .*2147483647; .*"),
        (["demo", "--out", "FILE"], r"the directory '.*FILE' cannot be written \(is a file\); must be .*; .*"),
        (
            ["demo", "--out", "FILE/below"],
            r"the directory '.*' cannot be written \(Not a directory\); must be .*; .*",
        ),
    ],
)
def test_every_mistake_is_one_line_of_three_parts(arguments, message, capsys, tmp_path):
    (tmp_path / "FILE").touch()
    arguments = [str(tmp_path / each) if each.startswith("FILE") else each for each in arguments]
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(f"truedrift: error: {message}", only_line(said.err))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--n", "four"], "Error parsing --n"),
        (["--m", "4"], "Unrecognized options: --m, 4"),
        (["--n"], "Missing value for argument '--n'"),
    ],
)
def test_wrong_options_are_explained_by_tyro(options, message, capsys):
    assert main(["demo", *options]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert message in said.err
    assert "truedrift demo --help" in said.err


@dataclass(frozen=True)
class Broken:
    def prepare(self):
        return lambda: 1 / 0


@dataclass(frozen=True)
class BrokenChecks:
    def prepare(self):
        raise ValueError("not a user's error")


@pytest.mark.parametrize(
    ("broken", "problem"),
    [(Broken, "ZeroDivisionError: division by zero"), (BrokenChecks, "ValueError: not a user's error")],
)
def test_a_failure_of_ours_is_status_1_and_one_line_that_names_the_traceback(
    broken, problem, capsys, monkeypatch, tmp_path
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("truedrift.cli.demo.Demo", broken)
    assert main(["demo"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    (file,) = tmp_path.iterdir()
    assert only_line(said.err) == (
        f"truedrift: failure: {problem}; this is a bug in truedrift; please report it with the traceback in {file}"
    )
    text = file.read_text(encoding="utf-8")
    assert text.startswith("Traceback")
    assert text.endswith(f"{problem}\n")


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], *([name, "--help"] for name in main_module.COMMANDS)])
def test_help_gives_examples_that_run(arguments, capsys):
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    examples = [line.split()[1:] for line in lines if line.startswith("  truedrift ")]
    assert len(examples) >= 2
    for example in examples:
        assert isinstance(main_module.parse(example), main_module.command_class(example[0]))
    assert any("usage: truedrift" in line for line in lines)


@pytest.mark.parametrize("name", main_module.COMMANDS)
def test_the_line_of_a_command_is_the_first_of_its_help(name):
    first = main_module.command_class(name).__doc__.splitlines()[0]
    assert f"\n  {name:12}{first}\n" in main_module.HELP


@pytest.mark.parametrize(
    "arguments", [["train", "digits", "--out"], ["sample"], ["train", "cifar10", "--data"], ["convert"]]
)
def test_a_path_that_the_system_refuses_is_one_line(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, "x" * 5000]) == 2
    line = only_line(capsys.readouterr().err)
    assert line.startswith("truedrift: error: ")
    assert len(line) < 6000


def test_a_configuration_is_not_read_without_end(capsys):
    assert main(["train", "digits", "--config", "/dev/zero"]) == 2
    assert "cannot be read" in only_line(capsys.readouterr().err)
