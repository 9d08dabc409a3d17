"""`reproduce` of an image experiment as a user runs it, up to its record."""

import re
from types import SimpleNamespace

import pytest
from oracles.little_grid import little_plan, little_task, pretended

from truedrift.cli import reproduce as command
from truedrift.cli.main import main
from truedrift.grids import local, slurm
from truedrift.grids import run as run_module
from truedrift.grids.results import ImageGrid
from truedrift.grids.slurm import Job, Submission
from truedrift.paper import catalog, tab_overhead
from truedrift.paper.catalog import ITEMS
from truedrift.records.store import read
from truedrift.training.run_directory import lock_run

TASKS = (little_task(0, "standard"), little_task(1, "abc"))


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "LOOK_SECONDS", 0.01)
    return tmp_path


@pytest.fixture
def little(monkeypatch):
    """Every grid is a little one, whose runs are pretended; its record is its plan's item."""
    monkeypatch.setattr(command, "plan_grid", lambda item, setting: little_plan(*TASKS))
    monkeypatch.setattr(local, "train_command", pretended())
    monkeypatch.setattr(run_module, "collect_results", lambda plan, runs, seed, started: f"the record of {plan.item}")
    monkeypatch.setattr(command, "append", lambda path, record: path.write_text(record))
    shown = SimpleNamespace(save=lambda record, out: [out / "little.md"], summary=lambda record: f"drawn: {record}")
    monkeypatch.setattr("truedrift.paper.catalog.find_item", lambda record: shown)
    return monkeypatch


def reproduce(capsys, *arguments):
    status = main(["reproduce", *arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_a_grid_is_run_gathered_and_drawn(little, capsys, here):
    status, out, err = reproduce(capsys, "tab:main_results", "--scale", "smoke", "--device", "cpu")
    assert (status, err) == (0, "")
    assert out == "drawn: the record of little\n\nwritten: runs/tab_main_results-smoke/little.md\n"
    assert (here / "runs" / "tab_main_results-smoke" / "records.jsonl").read_text() == "the record of little"
    assert {path.name for path in (here / "runs" / "grid").iterdir() if path.is_dir()} == {task.name for task in TASKS}


def test_a_failure_is_one_line_with_its_reason_and_status_1(little, capsys, here):
    little.setattr(local, "train_command", pretended(fails=lambda task: task == TASKS[0]))
    status, out, err = reproduce(capsys, "arithmetic", "--workers", "1", "--runs", "elsewhere", "--device", "cpu")
    assert (status, out) == (1, "")
    assert err == (
        f"truedrift: little: 1 of 2 runs failed: {TASKS[0].name} (standard): truedrift: error: no such luck; "
        "allowed is some; find it; their logs are in elsewhere; run the same command again to continue\n"
    )
    assert (here / "elsewhere" / TASKS[1].name / "metrics.jsonl").exists()
    little.setattr(local, "train_command", pretended())
    assert reproduce(capsys, "arithmetic", "--runs", "elsewhere", "--device", "cpu")[0] == 0


def test_runs_of_another_command_are_told_with_status_75(little, capsys, here):
    with lock_run(here / "runs" / "grid" / TASKS[1].name):
        status, out, err = reproduce(capsys, "arithmetic", "--workers", "1", "--device", "cpu")
    assert (status, out) == (75, "")
    assert err == (
        f"truedrift: little: another command is working on 1 of 2 runs: {TASKS[1].name} (abc); "
        "run the same command again when it has finished\n"
    )
    assert reproduce(capsys, "arithmetic", "--workers", "1", "--device", "cpu")[0] == 0


def test_slurm_says_what_it_submitted_and_what_comes_next(little, capsys, here):
    waits, new = (Job(task, str(number), "slurm", here) for number, task in enumerate(TASKS, start=41))
    given = []

    def submit(plan, runs, options, device):
        given.append((str(runs), options.partition, options.time_minutes))
        return Submission((waits,), (new,), ((new, "no such luck"),))

    little.setattr(run_module, "submit", submit)
    little.setattr(run_module, "require_slurm", lambda: None)
    options = ("--executor", "slurm", "--slurm.partition", "gpu", "--slurm.time-minutes", "90")
    status, out, _ = reproduce(capsys, "tab:main_results", *options)
    assert status == 0
    assert given == [("runs/grid", "gpu", 90)]
    assert out.splitlines() == [
        "tab:main_results: 1 jobs submitted, 1 already in the queue",
        f"  job 41: {TASKS[0].name} (standard)",
        f"  job 42: {TASKS[1].name} (abc)",
        "  job 42 ended early: no such luck",
        f"to forget a job that will never run, remove its file, for example {here / TASKS[0].name}.job",
        "run the same command again when they are done",
    ]
    assert not (here / "runs" / "tab_main_results-cpu" / "records.jsonl").exists()


def test_a_dry_run_prints_runs_and_cost_and_writes_nothing(capsys, here):
    status, out, err = reproduce(capsys, "tab:main_results", "--scale", "paper", "--dry-run", "--device", "cpu")
    assert (status, err) == (0, "")
    head, *lines = out.splitlines()
    assert head.split() == ["run", "variant", "n", "seed", "epochs", "steps", "state"]
    assert re.fullmatch(r"cifar10-[0-9a-f]{12} +standard +8 +42 +4000 +780000  to do", lines[0])
    assert re.fullmatch(r"cifar10-[0-9a-f]{12} +abc +64 +44 +500 +97500  to do", lines[23])
    assert lines[25] == "tab:main_results at scale paper on cifar10: 24 runs, 0 done"
    assert lines[26] == "evaluated by inception on 50000 samples"
    assert lines[27].startswith("trained on features of dinov2: its weights come from the Hugging Face hub, or ")
    assert lines[28] == "estimate: 700 h on one A100, from the paper's times"
    assert list(here.iterdir()) == []


def test_a_dry_run_of_a_study_says_that_it_has_no_runs(capsys):
    status, out, _ = reproduce(capsys, "tab:baselines", "--dry-run")
    assert (status, out) == (0, "tab:baselines: computed directly, no grid of runs\n")


def test_a_dry_run_of_the_overhead_tells_its_measurements(capsys, monkeypatch):
    monkeypatch.setattr(tab_overhead, "seconds_per_step", lambda config, samples, device: 0.5)
    status, out, _ = reproduce(capsys, "tab:overhead", "--dry-run", "--scale", "smoke", "--device", "cpu")
    lines = out.splitlines()
    assert status == 0
    assert [line.split() for line in lines[:4]] == [
        ["standard", "eager"],
        ["abc", "eager"],
        ["standard", "compiled"],
        ["abc", "compiled"],
    ]
    assert lines[5].startswith(
        "tab:overhead at scale smoke on digits, n = 8: 4 measurements, 3 epochs of 100 steps each"
    )
    assert lines[6] == "estimate: 10 min from 5 steps of the first; compiling comes on top"
    _, paper, _ = reproduce(capsys, "tab:overhead", "--dry-run", "--scale", "paper")
    assert "estimate: 29 min on one A100" in paper  # 11 epochs of 37.1 s and of 42.8 s, twice
    monkeypatch.setenv("TRUEDRIFT_CACHE", "empty")
    status, out, _ = reproduce(capsys, "tab:overhead", "--dry-run", "--dataset", "cifar10")
    assert status == 0
    assert re.fullmatch(r"no estimate: .*cifar10 is not in the cache .*", out.splitlines()[-1])


def test_every_item_can_be_drawn():
    assert set(catalog.REPRODUCIBLE) <= {item.label for item in ITEMS}


@pytest.mark.slow
def test_a_real_grid_from_its_plan_to_its_table(capsys, here):
    """Two n, two estimators, one seed; the second item finds every run."""
    options = ("--scale", "smoke", "--seeds", "1", "--device", "cpu")
    status, out, _ = reproduce(capsys, "tab:main_results", *options)
    assert status == 0
    assert "written: runs/tab_main_results-smoke/tab_main_results.md" in out
    (record,) = read(here / "runs" / "tab_main_results-smoke" / "records.jsonl", ImageGrid)
    assert [(run.variant, run.n) for run in record.runs] == [("standard", 8), ("abc", 8), ("standard", 16), ("abc", 16)]
    assert [[each.step for each in run.evaluations] for run in record.runs] == [[40, 80], [40, 80], [40], [40]]
    assert all(0 < each.metrics.fid < 500 for run in record.runs for each in run.evaluations)
    assert (record.protocol.extractor, record.protocol.samples) == ("digits", 100)
    assert record.protocol.reference_count == 200
    logs = {path: path.stat().st_mtime_ns for path in (here / "runs" / "grid").glob("*.log")}
    assert len(logs) == 4
    assert reproduce(capsys, "fig:convergence", *options)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in (here / "runs" / "grid").glob("*.log")} == logs


def test_all_leaves_out_what_has_no_data(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "empty"))
    done = []
    monkeypatch.setattr(command, "_reproduce_item", lambda item, *rest: done.append(item) or item)
    status, out, _ = reproduce(capsys, "all", "--scale", "smoke", "--device", "cpu")
    assert status == 0
    assert set(catalog.REPRODUCIBLE) - set(done) == {"tab:cifar100"}
    assert re.fullmatch(
        r"tab:cifar100 is skipped: .*; run truedrift data fetch inception efficientnet-lite0 cifar100",
        out.splitlines()[-1],
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tab:nothing"], r"item is 'tab:nothing'; must be one of .*'temperature-sweep', 'all'; choose one of these"),
        (
            ["tab:main_results", "--dataset", "cats"],
            r"dataset is 'cats' for tab:main_results at scale cpu; .*; .*",
        ),
        (["tab:overhead", "--dataset", "cifar100"], r"dataset is 'cifar100' for tab:overhead .*; .*; .*"),
        (["tab:overhead", "--dataset", "cifar10"], r".*cifar10 is not in the cache.*; .*; .*"),
        (["tab:hyperparams", "--dataset", "digits"], r"--dataset was given for tab:hyperparams, .*; .*; leave it out"),
        (["fig:bias_loglog", "--seeds", "3"], r"--seeds was given for fig:bias_loglog, .*; .*; leave it out"),
        (["digits", "--extractor", "digits"], r"--extractor was given for digits, .*; .*; leave it out"),
        (["guidance", "--executor", "slurm"], r"--executor was given for guidance, .*; .*; leave it out"),
        (["tab:overhead", "--seeds", "3"], r"--seeds was given for tab:overhead, .*; .*; leave it out"),
        (["tab:overhead", "--dataset", "cats", "--dry-run"], r"dataset is 'cats' for tab:overhead .*; .*; .*"),
        (["tab:main_results", "--workers", "0"], r"workers is 0; must be an integer ≥ 1; .*"),
        (["tab:main_results", "--seeds", "0"], r"seeds is 0; must be an integer ≥ 1; .*"),
        (["tab:main_results", "--device", "tpu"], r"device 'tpu' is unknown; .*; .*"),
        (["tab:main_results", "--executor", "slurm"], r"the command sbatch is not available; .*; .*"),
        (
            ["tab:cifar100", "--scale", "smoke"],
            r".*cifar100 is not in the cache .*; .*; run truedrift data fetch efficientnet-lite0 cifar100",
        ),
        (
            ["tab:main_results", "--dataset", "cifar10"],
            r"the network inception, which evaluates cifar10-cpu, is not in the cache.*; .*; run truedrift .*",
        ),
        (["tab:main_results", "--extractor", "fid"], r"extractor is 'fid'; must be one of 'inception', .*; .*"),
        (
            ["tab:main_results", "--scale", "paper", "--extractor", "abc-release"],
            r"the extractor abc-release needs torchvision, which is not installed and .*; .*; install the version .*",
        ),
    ],
)
def test_mistakes_are_one_line_and_status_2(arguments, message, capsys, monkeypatch, here):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(here / "empty"))
    monkeypatch.setattr(slurm.shutil, "which", lambda name: None)
    if arguments[0] == "tab:cifar100":
        monkeypatch.setattr("truedrift.grids.plan.extractor_is_available", lambda name: True)
    status, out, err = reproduce(capsys, *arguments)
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert re.fullmatch(f"truedrift: error: {message}", line)
    assert list(here.iterdir()) == []
