"""The plans of grids: their runs, what items share, their state, and what they require."""

import re

import pytest
from oracles.small_grid import small_task

from truedrift.errors import UserError
from truedrift.grids import StudyOptions, Task, distinct_tasks, is_done, require_available, steps_taken
from truedrift.grids import plan as plan_module
from truedrift.paper import catalog

COUNTS = {
    "tab:main_results": (8, 40, 24),
    "fig:convergence": (8, 40, 24),
    "tab:samples_to_fid": (8, 40, 24),
    "fig:ablation_trajectory": (8, 20, 12),
    "tab:cifar100": (4, 6, 6),
    "arithmetic": (24, 60, 36),
    "temperature-sweep": (20, 50, 30),
    "matching": (10, 98, None),
    "images": (4, 42, None),
}
"""Number of runs at smoke (two seeds), cpu (five seeds) and paper (three seeds; None: no such scale); CIFAR-100 has one
seed."""
SCALES = ("smoke", "cpu", "paper")


def plan(item, scale="cpu", **options):
    return catalog.plan_grid(item, StudyOptions(scale=scale, **options))


def ids(item, *arguments, **options):
    return {task.id for task in plan(item, *arguments, **options).tasks}


@pytest.fixture(autouse=True)
def with_every_network(monkeypatch):
    monkeypatch.setattr(plan_module, "extractor_is_available", lambda name: True)


@pytest.mark.parametrize("position", range(3), ids=SCALES)
@pytest.mark.parametrize("item", COUNTS)
def test_number_of_runs(item, position):
    if COUNTS[item][position] is None:
        with pytest.raises(UserError, match=f"scale is '{SCALES[position]}' for {item}"):
            plan(item, SCALES[position])
        return
    found = plan(item, SCALES[position]).tasks
    assert len(found) == len({task.id for task in found}) == COUNTS[item][position]


def test_counts_cover_every_grid():
    assert set(COUNTS) == set(catalog.GRIDS)


def test_id_is_stable_and_depends_on_length_and_seed():
    (task, *_) = plan("tab:main_results").tasks
    assert re.fullmatch(r"[0-9a-f]{12}", task.id)
    assert task.name == f"digits-{task.id}"
    assert plan("tab:main_results").tasks[0].id == task.id
    assert ids("tab:main_results", "smoke").isdisjoint(ids("tab:main_results", "cpu"))  # they differ in length alone
    assert ids("tab:main_results", "cpu", seed=5).isdisjoint(ids("tab:main_results", "cpu"))


def test_items_share_runs():
    main = ids("tab:main_results")
    assert ids("fig:convergence") == ids("tab:samples_to_fid") == main
    for item, common in (("fig:ablation_trajectory", {"none", "both"}), ("temperature-sweep", {"standard/1", "abc/1"})):
        shared = {task.variant for task in plan(item).tasks if task.id in main}
        assert shared == common
    paper = ids("tab:main_results", "paper")  # whose features have unit length, as those of `arithmetic`
    shared = {task.variant for task in plan("arithmetic", "paper").tasks if task.id in paper}
    assert shared == {"bidirectional/standard", "bidirectional/abc"}
    assert ids("arithmetic").isdisjoint(main)


TRIED = [(scale, data) for scale in ("smoke", "cpu") for data in ("digits", "fashion-mnist", "cifar10")]


@pytest.mark.parametrize(("scale", "data"), [*TRIED, ("paper", "cifar10")])
def test_every_n_sees_the_same_number_of_positives(scale, data):
    found = plan("tab:main_results", scale, dataset=data).tasks
    seen = {task.config.batch.n * task.config.cadence.epochs * task.config.cadence.steps_per_epoch for task in found}
    assert len(seen) == 1
    assert len({task.config.batch.n for task in found}) == (2 if scale == "smoke" else 4)
    assert all(task.config.generated == task.config.batch.n for task in found)


def test_digits_at_cpu_scale():
    found = {task.config.batch.n: task.config for task in plan("tab:main_results").tasks}
    assert {n: config.cadence.steps for n, config in found.items()} == {8: 2560, 16: 1280, 32: 640, 64: 320}
    cadence, evaluation = found[8].cadence, found[8].evaluation
    assert (cadence.steps_per_epoch, cadence.evaluate_every_epochs, cadence.grid_every) == (20, 2, 2560)
    assert (found[8].optimizer.ema, found[8].optimizer.warmup_steps) == (0.98, 20)
    assert (evaluation.extractor, evaluation.samples) == ("digits", 2000)
    smoke = {task.config.batch.n: task.config for task in plan("tab:main_results", "smoke").tasks}
    assert {n: config.cadence.steps for n, config in smoke.items()} == {8: 80, 16: 40}


def test_paper_scale():
    found = plan("tab:main_results", "paper").tasks
    of_n = {task.config.batch.n: task.config for task in found}
    assert {n: config.cadence.epochs for n, config in of_n.items()} == {8: 4000, 16: 2000, 32: 1000, 64: 500}
    assert {task.config.seed for task in found} == {42, 43, 44}
    assert {task.config.seed for task in plan("tab:cifar100", "paper").tasks} == {42}
    evaluation = of_n[8].evaluation
    assert (evaluation.extractor, evaluation.samples, of_n[8].cadence.evaluate_every_epochs) == (
        "inception",
        50_000,
        25,
    )


def test_variants_match_their_configurations():
    sides = {
        task.variant: (task.config.objective.estimator_pos, task.config.objective.estimator_neg)
        for task in plan("fig:ablation_trajectory").tasks
    }
    assert sides["positive"] == ("abc", "standard")
    assert sides["negative"] == ("standard", "abc")
    assert (sides["none"], sides["both"]) == (("standard",) * 2, ("abc",) * 2)
    cells = {task.variant: task.config.objective for task in plan("arithmetic").tasks}
    assert len(cells) == 12
    assert (cells["abc-release/abc2"].arithmetic, cells["abc-release/abc2"].estimator_neg) == ("abc-release", "abc2")
    assert (cells["row/standard"].normalization, cells["row/standard"].arithmetic) == ("row", "stable")
    assert {objective.feature_scale for objective in cells.values()} == {"standardize-l2"}
    swept = {task.variant: task.config.objective.temperatures for task in plan("temperature-sweep").tasks}
    assert swept["abc/0.25"] == pytest.approx((0.005, 0.0125, 0.05))
    assert swept["standard/4"] == pytest.approx((0.08, 0.2, 0.8))


def test_seeds_are_counted_from_the_first():
    assert {task.config.seed for task in plan("tab:main_results", seeds=2, seed=7).tasks} == {7, 8}
    assert {task.config.seed for task in plan("tab:main_results", "paper", seeds=1).tasks} == {42}
    with pytest.raises(ValueError, match="seeds is 0; must be an integer ≥ 1"):
        StudyOptions(seeds=0)


def test_command_reproduces_the_plan():
    assert plan("tab:main_results").command == "truedrift reproduce tab:main_results --scale cpu"
    given = plan("arithmetic", "smoke", seed=3, seeds=2, dataset="fashion-mnist").command
    assert given == "truedrift reproduce arithmetic --scale smoke --seed 3 --dataset fashion-mnist --seeds 2"


@pytest.mark.parametrize(
    ("item", "scale", "data", "message"),
    [
        (
            "tab:main_results",
            "cpu",
            "cats",
            "dataset is 'cats' for .* at scale cpu; must be one of digits, fash",
        ),
        (
            "tab:main_results",
            "cpu",
            "cifar100",
            "'cifar100' for tab:main_results .*; must be one of .*, cifar10; choose",
        ),
        (
            "tab:main_results",
            "paper",
            "digits",
            "at scale paper; must be one of cifar10; choose one of these, or another",
        ),
        ("tab:cifar100", "smoke", "digits", "'digits' for tab:cifar100 at scale smoke; must be one of cifar100"),
    ],
)
def test_unknown_data_set_is_an_error(item, scale, data, message):
    with pytest.raises(ValueError, match=message):
        plan(item, scale, dataset=data)


def test_two_variants_with_one_configuration_are_a_bug():
    (task, *_) = plan("tab:main_results").tasks
    with pytest.raises(AssertionError, match="two variants of a grid are the same run"):
        distinct_tasks([task, Task(variant="another name", config=task.config)])


EXTRACTORS = {
    "digits": "digits",
    "fashion-mnist": "encoder:efficientnet-lite0",
    "cifar10": "inception",  # for a recipe that trains on EfficientNet-Lite0
}


@pytest.mark.parametrize("data", EXTRACTORS)
def test_the_extractor_does_not_depend_on_the_cache(data, monkeypatch):
    found = []
    for is_here in (True, False):
        monkeypatch.setattr(plan_module, "is_present", lambda offer, directory, is_here=is_here: is_here)
        monkeypatch.setattr(plan_module, "extractor_is_available", lambda name, is_here=is_here: is_here)
        tasks = plan("tab:main_results", dataset=data).tasks
        assert {task.config.evaluation.extractor for task in tasks} == {EXTRACTORS[data]}
        found.append({task.id for task in tasks})
    assert found[0] == found[1]


def test_missing_requirements_are_one_error_with_the_fetch_command(monkeypatch, tmp_path):
    monkeypatch.undo()  # every network is asked after
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    monkeypatch.setattr(plan_module, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="is not in the cache") as found:
        require_available(plan("tab:cifar100", "smoke").tasks[0].config)
    assert str(found.value) == (
        "the network inception, which evaluates cifar10-cpu, is not in the cache and "
        "the network efficientnet-lite0, which computes the features of cifar10-cpu, is not in the cache and "
        f"cifar100 is not in the cache ({str(tmp_path / 'cifar100')!r}); "
        "everything that the runs use must be available before they start; "
        "run truedrift data fetch inception efficientnet-lite0 cifar100"
    )
    require_available(plan("tab:main_results", "smoke").tasks[0].config)


def test_missing_encoder_is_an_error_before_the_runs_start(monkeypatch):
    monkeypatch.setattr(plan_module, "require_present", lambda name: None)
    monkeypatch.setattr(plan_module, "is_present", lambda offer, directory: False)
    with pytest.raises(
        ValueError, match=r"^the network efficientnet-lite0, which computes the features of cifar10-cpu, is n"
    ):
        require_available(plan("tab:main_results", "smoke", dataset="cifar10").tasks[0].config)
    monkeypatch.setattr(plan_module, "find_spec", lambda name: None)
    message = (
        r"^the network dinov2, .*, needs transformers, .* hub, or from encoder.folder\); .*; run pip install 'true"
    )
    with pytest.raises(ValueError, match=message):
        require_available(plan("tab:main_results", "paper").tasks[0].config)


def test_extractor_can_be_chosen_and_is_part_of_the_id():
    named = catalog.plan_grid("tab:main_results", StudyOptions(scale="paper", extractor="abc-release"))
    assert {task.config.evaluation.extractor for task in named.tasks} == {"abc-release"}
    assert named.command.endswith("--scale paper --extractor abc-release")
    usual = catalog.plan_grid("tab:main_results", StudyOptions(scale="paper"))
    assert {task.id for task in named.tasks}.isdisjoint(task.id for task in usual.tasks)


def metrics_of(task, runs, text):
    (runs / task.name).mkdir(exist_ok=True)
    (runs / task.name / "metrics.jsonl").write_text(text)


def test_done_is_an_evaluation_at_the_last_step(tmp_path):
    evaluated, plain = small_task(0, "abc", "evaluation.extractor=digits"), small_task(0)
    text = '{"step": 5}\n{"step": 6}\n{"step": 3, "evaluation": {}}\n{"step": 6, "ev'
    for task in (evaluated, plain):
        metrics_of(task, tmp_path, text)
    assert is_done(plain, tmp_path)
    assert not is_done(evaluated, tmp_path)
    assert steps_taken(evaluated, tmp_path) == 6
    metrics_of(evaluated, tmp_path, text + 'aluation": {"fid": 3.0}}\n')
    assert is_done(evaluated, tmp_path)
    assert not is_done(evaluated, tmp_path / "nowhere")


def test_only_the_end_of_a_long_file_is_read(tmp_path):
    task = small_task(0, "abc", "cadence.epochs=100000")
    metrics_of(task, tmp_path, "".join(f'{{"step": {step}, "more": "{"x" * 100}"}}\n' for step in range(1, 3001)))
    assert steps_taken(task, tmp_path) == 3000


def test_lines_without_a_step_are_skipped(tmp_path):
    metrics_of(small_task(0), tmp_path, '{"step": "6"}\n3\n{"step": 4}\n{"step": \n')
    assert steps_taken(small_task(0), tmp_path) == 4
