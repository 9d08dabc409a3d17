"""`images`: the plan of the study, its table and its sentence."""

from dataclasses import replace

import pytest
from oracles.image_grids import grid, run

from truedrift.errors import UserError
from truedrift.grids import StudyOptions
from truedrift.paper import images
from truedrift.paper.catalog import plan_grid


def with_kid(each, kid, step_seconds):
    (last,) = each.evaluations
    last = replace(last, metrics=replace(last.metrics, kid=kid))
    return replace(each, evaluations=(last,), step_seconds=step_seconds)


def record():
    """The recipe with two seeds and two other variants."""
    return grid(
        "images",
        [
            with_kid(run(images.BASE, 96, 0, [80.0]), 0.06, 0.32),
            with_kid(run(images.BASE, 96, 1, [90.0]), 0.08, 0.48),
            with_kid(run("wider generator", 96, 0, [70.0]), 0.05, 0.32),
            with_kid(run("all classes in every step", 96, 0, [200.0]), 0.2, 0.96),
        ],
    )


def test_all_variants_generate_equally_many_images_of_the_same_classes():
    plan = plan_grid("images", StudyOptions(scale="cpu", seeds=1))
    assert [task.variant for task in plan.tasks] == list(images.VARIANTS)
    for task in plan.tasks:
        config = task.config
        assert config.data.classes == images.CLASSES
        generated = config.cadence.steps * config.generated * config.classes_per_step(len(images.CLASSES))
        assert generated == pytest.approx(images.IMAGES_PER_RUN, rel=0.002), task.variant
    assert len({task.config.evaluation for task in plan.tasks}) == 1


def test_variants_change_what_their_name_says():
    plan = plan_grid("images", StudyOptions(scale="cpu", seeds=1))
    by_name = {task.variant: task.config for task in plan.tasks}
    own = by_name[images.BASE]
    assert by_name["matched references"].objective.matched
    assert by_name["standard instead of ABC"].objective.estimator_neg == "standard"
    assert by_name["global means"].encoder.pooling == "mean"
    assert by_name["global means"].generator == own.generator
    assert by_name["DriftDiT"].encoder == own.encoder
    assert by_name["DriftDiT"].generator.kind == "drift-dit"
    assert by_name["all classes in every step"].batch.labels is None


def test_short_plan_has_two_variants():
    plan = plan_grid("images", StudyOptions(scale="smoke", seeds=1))
    assert [(task.variant, task.steps) for task in plan.tasks] == [(name, 10) for name in images.SMOKE]


def test_the_study_has_no_paper_scale():
    message = r"scale is 'paper' for images; must be one of smoke, cpu; choose another scale"
    with pytest.raises(UserError, match=message):
        plan_grid("images", StudyOptions(scale="paper"))


def test_table_has_the_mean_over_seeds_and_the_time_per_image():
    lines = images.table(record()).markdown().splitlines()
    (own,) = (line for line in lines if line.startswith(f"| {images.BASE} "))
    assert "0.070 ± 0.010" in own
    assert "85.0 ± 5.0" in own
    cells = [cell.strip() for cell in own.strip("|").split("|")]
    assert cells[-2:] == ["20", "2"]  # 0.32 s for 16 images, two seeds
    (joint,) = (line for line in lines if line.startswith("| all classes"))
    assert joint.strip("|").split("|")[-2].strip() == "20"  # 0.96 s for 48 images


def test_finding_names_better_variants_and_the_worst():
    assert images.findings(record()) == [
        "KID of the base: 0.070; smaller: wider generator (0.050); worst: all classes in every step (0.200)"
    ]


def test_figure_has_a_line_per_variant_with_the_smallest_on_top():
    (axes,) = images.draw(record()).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "all classes in every step",
        images.BASE,
        "wider generator",
    ]
