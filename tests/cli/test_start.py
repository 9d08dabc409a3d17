"""Start of the command: no torch for help and typos, names of values in the help, suggestions, completion in bash."""

import contextlib
import io
import re
import subprocess
import sys
from importlib import import_module

import pytest

from truedrift import distributed
from truedrift.cli import main, parse
from truedrift.cli.options import models, studies
from truedrift.data import array_files
from truedrift.evaluation import probe
from truedrift.recipes import DESCRIPTIONS, RECIPES

completion = import_module("truedrift.cli.completion")
COMMANDS, command_class = (getattr(import_module("truedrift.cli.main"), name) for name in ("COMMANDS", "command_class"))

LOADED = """
import contextlib, io, sys
from truedrift.cli import main
for words in {calls!r}:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        status = main(words)
    print(status, "torch" in sys.modules)
"""


def statuses(*calls):
    """Return "status, whether torch was imported" after each call, all of them in one new process."""
    code = LOADED.format(calls=[list(words) for words in calls])
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return finished.stdout.splitlines()


def test_help_recipes_and_typos_do_not_import_torch():
    helps = [("--help",), ("--version",), ("recipes",), *((name, "--help") for name in COMMANDS)]
    typos = [("trian",), (), ("train", "digts"), ("recipes", "digts"), ("train", "digits", "--sedd", "1"), ("sample",)]
    work = ("recipes", "digits")  # negative control: it needs torch
    assert statuses(*helps, *typos, work) == [*["0 False"] * len(helps), *["2 False"] * len(typos), "0 True"]


def test_defaults_and_names_without_torch_are_those_of_the_work():
    assert models.Train.timeout == distributed.TIMEOUT_MINUTES
    assert models.EvaluateEncoder.neighbors == probe.NEIGHBORS
    assert studies.Bias.largest_gigabytes == studies.Diagnose.largest_gigabytes == array_files.LARGEST_GIGABYTES
    assert studies.Demo.epochs == import_module("truedrift.cli.demo").EPOCHS
    assert list(DESCRIPTIONS) == list(RECIPES)


def help_text(name):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit, match="0"):
        parse([name, "--help"])
    return re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue())


@pytest.mark.parametrize("name", COMMANDS)
def test_values_have_names_in_the_help(name):
    text = help_text(name)
    assert f"usage: truedrift {name}" in text
    assert not re.search(r"\bSTR\b|\{None", text)


def test_help_names_recipe_run_file_and_directory():
    usage = {name: help_text(name).splitlines()[0] for name in COMMANDS}
    for name, value in {"train": "RECIPE", "sample": "RUN", "diagnose": "FILE", "report": "DIR"}.items():
        assert re.search(rf" \[?{value}\b", usage[name])


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (["trian"], "train"),
        (["train", "digts"], "digits"),
        (["recipes", "Digits"], "digits"),
        (["train", "toy", "--data", "two-moon"], "two-moons"),
        (["train", "digits", "--set", "optimizer.learning_rat=1"], "learning_rate"),
        (["train", "digits", "--set", "objective.kernel=laplac"], "laplace"),
        (["reproduce", "fig:bias_loglg"], "fig:bias_loglog"),
        (["bias", "fourmodes"], "four-modes"),
        (["bias", "four-modes", "--estimator", "jacknife"], "jackknife"),
        (["data", "fetch", "cifr10"], "cifar10"),
        (["train-encoder", "cifr10"], "cifar10"),
        (["evaluate-encoder", "convnt"], "convnet"),
        (["sample", "pretrained:digts"], "pretrained:digits"),
        (["sample", "pretrained:fashion-mnist", "--classes", "sandel"], "sandal"),
        (["evaluate", "pretrained:digits", "--data", "dgits"], "digits"),
    ],
)
def test_error_suggests_the_most_similar_name(words, suggestion, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert capsys.readouterr().err.endswith(f"; did you mean {suggestion!r}?\n")


def test_nothing_is_suggested_for_a_name_unlike_all_others(capsys):
    assert main(["train", "xyz"]) == 2
    assert capsys.readouterr().err.endswith("; choose one of these\n")


BASH = """
source {script}
complete -p truedrift
COMP_LINE={line!r}; COMP_POINT=${{#COMP_LINE}}
COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_truedrift
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "truedrift.bash"
    path.write_text(completion.completion_script("bash"))
    return path


@pytest.mark.parametrize(
    ("line", "words", "completions"),
    [
        ("truedrift eval", "truedrift eval", ["evaluate", "evaluate-encoder"]),
        ("truedrift train fash", "truedrift train fash", ["fashion-mnist", "fashion-mnist-pixels"]),
        ("truedrift train digits --es", "truedrift train digits --es", ["--estimator"]),
        ("truedrift reproduce all --slurm.p", "truedrift reproduce all --slurm.p", ["--slurm.partition"]),
        # Bash splits words at colons, and replaces what follows the last one.
        ("truedrift reproduce fig:bi", "truedrift reproduce fig : bi", ["bias_loglog"]),
        ("truedrift sample pretrained:d", "truedrift sample pretrained : d", ["digits"]),
        ("truedrift train digits --out fash", "truedrift train digits --out fash", [""]),  # a path, not a recipe
        ("truedrift report di", "truedrift report di", [""]),
    ],
)
def test_bash_completes(script, line, words, completions):
    code = BASH.format(script=script, line=line, words=words)
    finished = subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True, timeout=20, check=False)
    assert (finished.stderr, finished.returncode) == ("", 0)
    registered, *found = finished.stdout.split("\n")[:-1]
    assert registered == "complete -o default -F _truedrift truedrift"
    assert found == completions


@pytest.mark.parametrize("name", COMMANDS)
def test_completion_lists_every_flag_of_the_help(name):
    flags = set(re.findall(r"^[│| ] (--\w[\w.-]*)", help_text(name), re.MULTILINE))
    longer = {"--n": "--positives", "--log": "--loggers"} if name == "train" else {}  # the help lists these first
    assert {longer.get(flag, flag) for flag in completion.option_names(command_class(name))} == flags


def test_the_script_for_zsh_loads_the_completion_of_bash(capsys):
    assert main(["completion", "zsh"]) == 0
    assert "bashcompinit\n_truedrift() {" in capsys.readouterr().out
