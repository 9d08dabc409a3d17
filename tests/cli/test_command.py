"""The command as a user runs it: what it prints to which stream, and its exit status."""

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
from truedrift.cli import main
from truedrift.generators import pretrained_names
from truedrift.paper import equilibrium, fig_bias_loglog, fig_illustration
from truedrift.progress_display import ProgressDisplay
from truedrift.records import read
from truedrift.training import lock_run

main_module = import_module("truedrift.cli.main")

LIMIT_SECONDS = 240
MISSING = Path(truedrift.__file__).parent / "page" / "missing.css"
"""A file of the package that does not exist."""


@pytest.fixture
def small_toy(monkeypatch):
    """The exact study with few points and queries, and few steps of few particles at one temperature."""
    monkeypatch.setattr(fig_bias_loglog, "POOL_POINTS", 2000)
    monkeypatch.setattr(fig_bias_loglog, "QUERIES", 3)
    monkeypatch.setattr(equilibrium, "TEMPERATURES", (0.2,))
    for name, value in (("COUNT", 64), ("STEP_SIZES", ((0.1, 12),)), ("SNAPSHOT_STEPS", 2)):
        monkeypatch.setattr(equilibrium, name, {"smoke": value})


def truedrift_command(*arguments, cwd=None):
    command = [sys.executable, "-m", "truedrift", *arguments]
    return subprocess.run(command, capture_output=True, cwd=cwd, text=True, timeout=LIMIT_SECONDS, check=False)


def only_line(text):
    (line,) = text.splitlines()
    return line


def test_demo_draws_all_figures_and_prints_their_numbers(tmp_path, capsys, monkeypatch, small_toy):
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--draws", "300", "--seed", "3", "--epochs", "0"]) == 0
    printed = capsys.readouterr().out
    out = tmp_path / "runs" / "demo"
    assert sorted(path.name for path in out.iterdir()) == [
        "equilibrium.csv",
        "equilibrium.md",
        "equilibrium.pdf",
        "equilibrium.png",
        "equilibrium.tex",
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
    assert printed.splitlines()[-1] == f"Open the page: {Path('runs/demo/report.html')}"
    (record,) = read(out / "records.jsonl", fig_illustration.Illustration)
    assert (record.n, record.draws, record.provenance.seed) == (4, 300, 3)
    assert record.provenance.command == "truedrift demo --seed 3 --draws 300 --epochs 0"
    assert f"distance to T* in this draw     {record.distance_standard:.4f}  {record.distance_abc:.4f}\n" in printed
    assert f"bias: norm of the mean error    {record.bias_standard:.4f}  {record.bias_abc:.4f}\n" in printed
    assert f"nearer to T* in {record.share_nearer:.2%} ±" in printed
    (curves,) = read(out / "records.jsonl", fig_bias_loglog.BiasCurves)
    assert (curves.pool_points, curves.queries, curves.trials) == (2_000, 3, 0)
    for curve in curves.curves:
        assert f"{curve.exact[-1]:.2e}" in printed
    (push,) = read(out / "records.jsonl", equilibrium.Equilibrium)
    assert (push.provenance.seed, push.provenance.command) == (3, record.provenance.command)
    assert f"energy distance of {push.find_particles('standard', False).mean:.1e}, with ABC" in printed
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Figure equilibrium" in page
    for name in pretrained_names():
        assert f'alt="Samples of {name}"' in page
    green, red, blue, teal = (0x01, 0x71, 0x00), (0xD6, 0x45, 0x41), (0x00, 0x77, 0xCC), (0x1B, 0x8A, 0x7A)
    for name, expected in (
        ("fig_illustration", {green, red, blue}),
        ("fig_bias_loglog", {red, blue}),
        ("equilibrium", {red, blue, teal}),
    ):
        assert f"written: {Path('runs/demo') / name}.png" in printed
        with Image.open(out / f"{name}.png") as image:
            assert expected <= {color for _, color in image.convert("RGB").getcolors(maxcolors=1 << 20)}


def test_demo_ends_with_its_files_and_names_runs_by_their_options(tmp_path, capsys, monkeypatch, small_toy):
    """The finding says that one run each may be chance."""
    names = ("standard", "matched", "abc")
    runs = [write_run(tmp_path / f"digits-{name}-seed0", estimator="abc") for name in names]
    monkeypatch.setattr("truedrift.cli.demo._train_all", lambda *_: runs)
    out = tmp_path / "out"
    assert main(["demo", "--draws", "2", "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in ("curves.png", "curves.pdf", "gauge.png", "gauge.pdf", "runs.csv"):
        assert f"written: {out / name}" in lines
        assert (out / name).is_file()
    finding, distances, page = lines[-3:]
    assert page == f"Open the page: {out / 'report.html'}"
    assert re.match(r"Finding: digits · (standard|matched|abc) · seed 0 ends nearest", finding)
    assert finding.endswith("With one run each, differences may be due to chance; compare several seeds.")
    assert all(re.search(rf"[\d.]+ for digits · {name} · seed 0(,|$)", distances) for name in names)
    for file in ("report.html", "runs.csv"):
        text = (out / file).read_text(encoding="utf-8")
        assert "digits · matched · seed 0" in text
        assert "digits-matched-seed0" not in text


@pytest.mark.slow
def test_demo_trains_three_runs_and_shows_them_on_a_page(tmp_path):
    done = truedrift_command("demo", "--draws", "300", "--epochs", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / done.stdout.splitlines()[-1].removeprefix("Open the page: ")).read_text(encoding="utf-8")
    assert "Figure equilibrium" in page
    for name in ("digits-standard-seed0", "digits-abc-seed0", "digits-matched-seed0"):
        run = tmp_path / "runs" / "demo" / name
        assert '"evaluation"' in (run / "metrics.jsonl").read_text()
        assert name.replace("-", " · ").replace("seed", "seed ") in page
    assert "FD (digits)" in page
    assert "FD (digits)," in (tmp_path / "runs" / "demo" / "runs.csv").read_text(encoding="utf-8")
    (curves,) = read(tmp_path / "runs" / "demo" / "records.jsonl", fig_bias_loglog.BiasCurves)
    assert (curves.pool_points, curves.queries, curves.trials) == (1_000_000, 200, 0)
    again = truedrift_command("demo", "--draws", "300", "--epochs", "1", cwd=tmp_path)  # nothing is trained again
    assert again.returncode == 0, again.stderr
    history = (tmp_path / "runs" / "demo" / "digits-abc-seed0" / "history.jsonl").read_text()
    assert history.count('"started"') == 1


def test_a_demo_whose_runs_are_in_use_ends_with_status_75(tmp_path, capsys, small_toy):
    runs = [tmp_path / f"digits-{name}-seed0" for name in ("standard", "abc", "matched")]
    for run in runs:
        run.mkdir()
    with lock_run(runs[0]), lock_run(runs[1]), lock_run(runs[2]):
        assert main(["demo", "--draws", "2", "--epochs", "1", "--out", str(tmp_path)]) == 75
    assert capsys.readouterr().err == (
        "truedrift: training the digits with Standard, ABC and matched ABC: another command is working on 3 of 3 runs: "
        "digits-standard-seed0 (standard), digits-abc-seed0 (abc), digits-matched-seed0 (matched); "
        "run the same command again when it has finished\n"
    )


def test_a_user_error_is_one_line_and_status_2():
    done = truedrift_command("demo", "--n", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "truedrift: error: n is 0; must be from 1 to 10000; pass for example 4\n"


def test_an_error_is_one_write(monkeypatch):
    """Lines of several processes would run into each other if their ends were written by themselves."""
    writes = []

    class Recorder(io.StringIO):
        def write(self, text):
            writes.append(text)
            return len(text)

    monkeypatch.setattr(sys, "stderr", Recorder())
    assert main(["nonsense"]) == 2
    ProgressDisplay().print_message("resuming")
    assert [text.count("\n") for text in writes if text] == [1, 1]


@pytest.mark.skipif(os.name != "posix", reason="needs SIGINT of POSIX")
def test_an_interrupt_is_one_line_and_status_130(tmp_path):
    out = tmp_path / "out"
    # A shell starts background jobs with SIGINT ignored, which child processes inherit.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from truedrift.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    options = ["--n", "100", "--draws", "1000000", "--epochs", "0", "--out", str(out)]
    command = [sys.executable, "-c", code, "demo", *options]
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
    assert done.stderr == (
        "truedrift: error: tyro not installed; the command needs the app extra; run pip install 'truedrift[app]'\n"
    )


def test_the_installed_script_is_this_command():
    script = os.path.join(os.path.dirname(sys.executable), "truedrift")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert (done.returncode, done.stdout) == (0, f"truedrift {truedrift.__version__}\n")


def test_a_terminal_without_greek_shows_question_marks(tmp_path, monkeypatch, small_toy):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(["demo", "--draws", "2", "--epochs", "0", "--out", str(tmp_path)]) == 0
    terminal.flush()
    assert b"n = 4, ? = 1" in terminal.buffer.getvalue()


COMMANDS = f"available: {', '.join(main_module.COMMANDS)}; run truedrift --help"
NOT_WRITABLE = "must be a directory that exists or can be made; name another one"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], f"no command was given; {COMMANDS}"),
        (["demx"], f"'demx' is not a command; {COMMANDS.replace('run truedrift --help', 'did you mean')} 'demo'?"),
        (["demo", "--n", "10001"], "n is 10001; must be from 1 to 10000; pass for example 4"),
        (["demo", "--draws", "0"], "draws is 0; must be from 1 to 1000000; pass for example 10000"),
        (["demo", "--seed", "-1"], "seed is -1; must be from 0 to 2147483647; pass for example 0"),
        (["demo", "--epochs", "-1"], "epochs is -1; must be an integer ≥ 0; pass for example 25"),
        (["demo", "--out", "FILE"], f"the directory 'FILE' cannot be written (is a file); {NOT_WRITABLE}"),
        (["demo", "--out", "FILE/x"], f"the directory 'FILE/x' cannot be written (Not a directory); {NOT_WRITABLE}"),
    ],
)
def test_every_user_error_is_one_line_with_problem_allowed_and_fix(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("FILE").touch()
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", f"truedrift: error: {message}\n")
    assert message.count(";") == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--n", "four"], "Error parsing --n: invalid literal for int() with base 10: 'four'"),
        (["--m", "4"], "Unrecognized options: --m, 4"),
        (["--n"], "Missing value for argument '--n'. Expected 1 values."),
    ],
)
def test_options_that_cannot_be_parsed_are_explained_by_tyro(options, message, capsys):
    assert main(["demo", *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = [line.strip("│| ") for line in printed.err.splitlines()]  # without the frame of tyro's box
    assert message in lines
    assert [line for line in lines if re.fullmatch(r"For full helptext, (see|run) truedrift demo --help", line)]
    assert "Traceback" not in printed.err


@dataclass(frozen=True)
class Broken:
    def prepare(self):
        return lambda: 1 / 0


@dataclass(frozen=True)
class BrokenChecks:
    def prepare(self):
        raise ValueError("not a user's error")


@dataclass(frozen=True)
class BrokenInstallation:
    def prepare(self):
        return MISSING.read_text


@dataclass(frozen=True)
class BrokenWorker:
    def prepare(self):
        raise BrokenPipeError(32, "Broken pipe")


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (Broken, "ZeroDivisionError: division by zero"),
        (BrokenChecks, "ValueError: not a user's error"),
        (BrokenInstallation, f"FileNotFoundError: [Errno 2] No such file or directory: {str(MISSING)!r}"),
        (BrokenWorker, "BrokenPipeError: [Errno 32] Broken pipe"),
    ],
)
def test_a_bug_is_status_1_and_one_line_that_names_the_traceback(broken, problem, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("truedrift.cli.options.studies.Demo", broken)
    assert main(["demo"]) == 1
    printed = capsys.readouterr()
    (file,) = tmp_path.iterdir()
    message = f"{problem}; this is a bug in truedrift; please report it with the traceback in {file}"
    assert (printed.out, printed.err) == ("", f"truedrift: failure: {message}\n")
    text = file.read_text(encoding="utf-8")
    assert text.startswith("Traceback")
    assert text.endswith(f"{problem}\n")


def test_a_closed_pipe_is_not_an_error():
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "truedrift", "recipes", "digits"]
    done = subprocess.run(
        command, stdout=write_end, stderr=subprocess.PIPE, text=True, timeout=LIMIT_SECONDS, check=False
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], *([name, "--help"] for name in main_module.COMMANDS)])
def test_help_gives_examples_that_run(arguments, capsys):
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    examples = [re.split(" >>? ", line)[0].split()[1:] for line in lines if line.startswith("  truedrift ")]
    assert len(examples) >= (1 if arguments[0] == "doctor" else 2)  # doctor has no options
    for example in examples:
        assert isinstance(main_module.parse(example), main_module.command_class(example[0]))
    assert any("usage: truedrift" in line for line in lines)


@pytest.mark.parametrize("name", main_module.COMMANDS)
def test_the_help_lists_each_command_with_the_first_line_of_its_own_help(name):
    first = main_module.command_class(name).__doc__.splitlines()[0]
    assert f"\n  {name:17}{first}\n" in main_module.HELP


@pytest.mark.parametrize(
    "arguments", [["train", "digits", "--out"], ["sample"], ["train", "cifar10", "--data"], ["convert"]]
)
def test_a_path_that_the_system_rejects_is_one_line(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, "x" * 5000]) == 2
    line = only_line(capsys.readouterr().err)
    assert re.fullmatch(r"truedrift: error: .*File name too long.*; must be .*; .*", line)
    assert len(line) < 6000


def test_an_endless_configuration_is_an_error(capsys):
    assert main(["train", "digits", "--config", "/dev/zero"]) == 2
    message = r"configuration '/dev/zero' cannot be read \(.*\); must be a JSON file; write one with --print-config"
    assert re.fullmatch(f"truedrift: error: {message}", only_line(capsys.readouterr().err))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a device of Linux")
def test_a_full_disk_is_one_line_and_not_a_bug():
    command = [sys.executable, "-m", "truedrift", "recipes", "digits"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT_SECONDS, check=False
        )
    message = "truedrift: error: No space left on device; the output needs more space; free some and run again\n"
    assert (done.returncode, done.stderr) == (2, message)


def test_control_characters_are_escaped(capsys, tmp_path, monkeypatch):
    """Names of files must not move the cursor, color the text or change its direction."""
    monkeypatch.chdir(tmp_path)
    evil = "\x1b[2Jgone\x07\u202etxt.npy"
    (tmp_path / evil).write_bytes(b"no array")
    assert main(["bias", evil]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert not set("\x1b\x07\u202e") & set(error)
    assert "\\x1b[2Jgone\\x07\\u202etxt.npy" in error


@pytest.mark.parametrize("path", ["a\0b", "x" * 4000, "/".join(["y" * 200] * 30)])
def test_impossible_paths_are_one_line(capsys, tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    for arguments in (["train", "digits", "--out", path], ["bias", "four-modes", "--out", path], ["sample", path]):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert (error.count("\n"), error.count("; ") >= 2) == (1, True), arguments
