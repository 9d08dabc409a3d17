"""`truedrift reproduce` as a user runs it: studies and grids up to their records, and mistakes."""

import re
from types import SimpleNamespace

import pytest
from oracles.small_grid import fake_train_command, small_plan, small_task

from truedrift.cli import main
from truedrift.cli import reproduce as command
from truedrift.grids import ImageGrid, Job, Submission, local, slurm
from truedrift.grids import run as run_module
from truedrift.paper import catalog, fig_bias_loglog, normalization, tab_baselines, tab_overhead
from truedrift.records import read
from truedrift.training import lock_run

TASKS = (small_task(0, "standard"), small_task(1, "abc"))


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "LOOK_SECONDS", 0.01)
    return tmp_path


@pytest.fixture
def small_grid(monkeypatch):
    """Replace every grid by a small one with fake runs; its record is a text."""
    monkeypatch.setattr(command, "plan_grid", lambda item, setting: small_plan(*TASKS))
    monkeypatch.setattr(local, "train_command", fake_train_command())
    monkeypatch.setattr(run_module, "collect_results", lambda plan, runs, seed, started: f"the record of {plan.item}")
    monkeypatch.setattr(command, "append", lambda path, record: path.write_text(record))
    shown = SimpleNamespace(save=lambda record, out: [out / "small.md"], summary=lambda record: f"drawn: {record}")
    monkeypatch.setattr("truedrift.paper.catalog.find_item", lambda record: shown)
    return monkeypatch


def reproduce(capsys, *arguments):
    status = main(["reproduce", *arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


@pytest.fixture
def small(monkeypatch):
    """The studies of this file with few points."""
    monkeypatch.setattr(fig_bias_loglog, "POOL_POINTS", 2000)
    monkeypatch.setattr(fig_bias_loglog, "QUERIES", 4)
    monkeypatch.setattr(tab_baselines, "SMOKE_POINTS", 600)
    monkeypatch.setattr(tab_baselines, "SMOKE_QUERIES", 2)
    monkeypatch.setattr(normalization, "POOL_POINTS", 300)


def files(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix != ".jsonl"}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("fig:illustration", {"fig_illustration.png", "fig_illustration.pdf"}),
        ("fig:bias_loglog", {f"fig_bias_loglog.{kind}" for kind in ("png", "pdf", "md", "tex", "csv")}),
        ("tab:baselines", {f"tab_baselines.{kind}" for kind in ("md", "tex", "csv")}),
        ("normalization", {f"normalization.{kind}" for kind in ("png", "pdf", "md", "tex", "csv")}),
    ],
)
def test_a_study_is_reported_from_its_record_alone(item, expected, small, tmp_path, capsys):
    out, again = tmp_path / "out", tmp_path / "again"
    assert main(["reproduce", item, "--scale", "smoke", "--out", str(out)]) == 0
    first = capsys.readouterr().out
    assert expected <= files(out).keys()
    assert main(["report", str(out), "--out", str(again)]) == 0
    assert capsys.readouterr().out == first.replace(str(out), str(again)) + f"\npage: {again / 'report.html'}\n"
    drawn = files(again)
    page = drawn.pop("report.html")
    assert b"</html>" in page
    assert f"Made by <code>truedrift reproduce {item} --scale smoke</code>".encode() in page
    assert {name: files(out)[name] for name in expected} == drawn


def test_a_grid_is_run_collected_and_drawn(small_grid, capsys, here):
    status, out, err = reproduce(capsys, "tab:main_results", "--scale", "smoke", "--device", "cpu")
    assert (status, err) == (0, "")
    assert out == "drawn: the record of small\n\nwritten: runs/tab_main_results-smoke/small.md\n"
    assert (here / "runs" / "tab_main_results-smoke" / "records.jsonl").read_text() == "the record of small"
    assert {path.name for path in (here / "runs" / "grid").iterdir() if path.is_dir()} == {task.name for task in TASKS}


def test_a_failure_is_one_line_with_its_reason_and_status_1(small_grid, capsys, here):
    small_grid.setattr(local, "train_command", fake_train_command(fails=lambda task: task == TASKS[0]))
    status, out, err = reproduce(capsys, "arithmetic", "--workers", "1", "--runs", "elsewhere", "--device", "cpu")
    assert (status, out) == (1, "")
    assert err == (
        f"truedrift: small: 1 of 2 runs failed: {TASKS[0].name} (standard): truedrift: error: no such luck; "
        "allowed is some; find it; their logs are in elsewhere; run the same command again to continue\n"
    )
    assert (here / "elsewhere" / TASKS[1].name / "metrics.jsonl").exists()
    small_grid.setattr(local, "train_command", fake_train_command())
    assert reproduce(capsys, "arithmetic", "--runs", "elsewhere", "--device", "cpu")[0] == 0


def test_runs_of_another_command_give_status_75(small_grid, capsys, here):
    with lock_run(here / "runs" / "grid" / TASKS[1].name):
        status, out, err = reproduce(capsys, "arithmetic", "--workers", "1", "--device", "cpu")
    assert (status, out) == (75, "")
    assert err == (
        f"truedrift: small: another command is working on 1 of 2 runs: {TASKS[1].name} (abc); "
        "run the same command again when it has finished\n"
    )
    assert reproduce(capsys, "arithmetic", "--workers", "1", "--device", "cpu")[0] == 0


def test_slurm_lists_the_submitted_jobs_and_the_next_command(small_grid, capsys, here):
    waits, new = (Job(task, str(number), "slurm", here) for number, task in enumerate(TASKS, start=41))
    given = []

    def submit(plan, runs, options, device):
        given.append((str(runs), options.partition, options.time_minutes))
        return Submission((waits,), (new,), ((new, "no such luck"),))

    small_grid.setattr(run_module, "submit", submit)
    small_grid.setattr(run_module, "require_slurm", lambda: None)
    options = ("--executor", "slurm", "--slurm.partition", "gpu", "--slurm.time-minutes", "90")
    status, out, _ = reproduce(capsys, "tab:main_results", *options)
    assert status == 0
    assert given == [("runs/grid", "gpu", 90)]
    assert out.splitlines() == [
        "tab:main_results: 1 jobs submitted, 1 already in the queue",
        f"  job 41: {TASKS[0].name} (standard)",
        f"  job 42: {TASKS[1].name} (abc)",
        "  job 42 ended early: no such luck",
        f"to discard a job that will never run, remove its file, for example {here / TASKS[0].name}.job",
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


def test_dry_run_of_a_study_has_no_runs(capsys):
    status, out, _ = reproduce(capsys, "tab:baselines", "--dry-run")
    assert (status, out) == (0, "tab:baselines: computed directly, no grid of runs\n")


def test_a_dry_run_of_the_overhead_lists_its_measurements(capsys, monkeypatch):
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
    assert lines[6] == "estimate: 10 min from 5 steps of the first measurement; compilation takes additional time"
    _, paper, _ = reproduce(capsys, "tab:overhead", "--dry-run", "--scale", "paper")
    assert "estimate: 29 min on one A100" in paper  # 11 epochs of 37.1 s and of 42.8 s, twice
    monkeypatch.setenv("TRUEDRIFT_CACHE", "empty")
    status, out, _ = reproduce(capsys, "tab:overhead", "--dry-run", "--dataset", "cifar10")
    assert status == 0
    assert re.fullmatch(r"no estimate: .*cifar10 is not in the cache .*", out.splitlines()[-1])


def test_every_item_can_be_drawn():
    assert set(catalog.REPRODUCIBLE) <= set(catalog.ITEMS)


@pytest.mark.parametrize("item", ["tab:main_results", "tab:overhead"])
def test_checking_the_options_loads_no_data(item, monkeypatch):
    def fail(*arguments, **options):
        raise AssertionError("data was loaded")

    monkeypatch.setattr("truedrift.data.samples.Samples.__init__", fail)
    assert callable(command.Reproduce(item=item, scale="smoke", device="cpu").prepare())


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


def test_all_skips_items_without_data(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path / "empty"))
    done = []
    monkeypatch.setattr(command, "_reproduce_item", lambda item, *rest: done.append(item) or item)
    status, out, _ = reproduce(capsys, "all", "--scale", "smoke", "--device", "cpu")
    assert status == 0
    data_sets = {"tab:cifar100": "cifar100", "images": "cifar10"}
    assert set(catalog.REPRODUCIBLE) - set(done) == set(data_sets)
    for line, (item, data) in zip(out.splitlines()[-3::2], data_sets.items(), strict=True):
        assert re.fullmatch(
            rf"{item} is skipped: .*; run truedrift data fetch inception efficientnet-lite0 {data}", line
        )


GRIDS = re.escape(", ".join(catalog.GRIDS))
DATA_SETS = "must be one of digits, fashion-mnist, cifar10; choose one of these, or another scale"
AVAILABLE = "everything that the runs use must be available before they start"
NETWORK = "the network efficientnet-lite0, which computes the features of cifar10-cpu, is not in the cache"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tab:nothing"], r"item is 'tab:nothing'; must be one of .*'images', 'all'; choose one of these"),
        (
            ["fig:nothing"],
            r"item is 'fig:nothing'; must be one of 'fig:illustration', .*'all'; choose one of these",
        ),
        (["all", "--seed", "-1"], r"seed is -1; must be from 0 to 2147483647; pass for example 0"),
        (
            ["tab:main_results", "--scale", "huge"],
            r"scale is 'huge'; must be one of 'smoke', 'cpu', 'paper'; choose one of these",
        ),
        (
            ["tab:main_results", "--dataset", "cats"],
            rf"dataset is 'cats' for tab:main_results at scale cpu; {DATA_SETS}",
        ),
        (
            ["tab:overhead", "--dataset", "cifar100"],
            rf"dataset is 'cifar100' for tab:overhead at scale cpu; {DATA_SETS}",
        ),
        (
            ["tab:overhead", "--dataset", "cifar10"],
            rf"{NETWORK} and cifar10 is not in the cache \('.*'\); {AVAILABLE}; "
            r"run truedrift data fetch efficientnet-lite0 cifar10",
        ),
        (
            ["tab:hyperparams", "--dataset", "digits"],
            r"--dataset was given for tab:hyperparams, which does not use it; "
            rf"it is for {GRIDS}, tab:overhead; leave it out",
        ),
        (
            ["fig:bias_loglog", "--seeds", "3"],
            rf"--seeds was given for fig:bias_loglog, which does not use it; it is for {GRIDS}; leave it out",
        ),
        (
            ["digits", "--extractor", "digits"],
            rf"--extractor was given for digits, which does not use it; it is for {GRIDS}; leave it out",
        ),
        (
            ["guidance", "--executor", "slurm"],
            rf"--executor was given for guidance, which does not use it; it is for {GRIDS}; leave it out",
        ),
        (
            ["tab:overhead", "--seeds", "3"],
            rf"--seeds was given for tab:overhead, which does not use it; it is for {GRIDS}; leave it out",
        ),
        (
            ["tab:overhead", "--dataset", "cats", "--dry-run"],
            rf"dataset is 'cats' for tab:overhead at scale cpu; {DATA_SETS}",
        ),
        (["tab:main_results", "--workers", "0"], r"workers is 0; must be an integer ≥ 1; pass for example 2"),
        (["tab:main_results", "--seeds", "0"], r"seeds is 0; must be an integer ≥ 1; pass for example 3"),
        (
            ["tab:main_results", "--device", "tpu"],
            r"device 'tpu' is unknown; known: auto, cpu, cuda, mps; pass one of these",
        ),
        (
            ["tab:main_results", "--executor", "moon"],
            r"executor is 'moon'; must be one of 'local', 'slurm'; choose one of these",
        ),
        (
            ["tab:main_results", "--executor", "slurm"],
            r"the command sbatch is not available; must run on a machine of a Slurm cluster; "
            r"run this on a login node, or pass --executor local",
        ),
        (
            ["tab:cifar100", "--scale", "smoke"],
            rf"{NETWORK} and cifar100 is not in the cache \('.*'\); {AVAILABLE}; "
            r"run truedrift data fetch efficientnet-lite0 cifar100",
        ),
        (
            ["tab:main_results", "--dataset", "cifar10"],
            rf"the network inception, which evaluates cifar10-cpu, is not in the cache and {NETWORK} and "
            rf"cifar10 is not in the cache \('.*'\); {AVAILABLE}; "
            r"run truedrift data fetch inception efficientnet-lite0 cifar10",
        ),
        (
            ["tab:main_results", "--extractor", "fid"],
            r"extractor is 'fid'; must be one of 'inception', .*'encoder:efficientnet-lite0'; choose one of these",
        ),
        (
            ["tab:main_results", "--scale", "paper", "--extractor", "abc-release"],
            r"the extractor abc-release needs torchvision, which is not installed and .*cifar10 is not in the cache "
            rf"\('.*'\); {AVAILABLE}; install the version for your torch, or use the extractor inception, "
            r"and run .*truedrift data fetch cifar10",
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
