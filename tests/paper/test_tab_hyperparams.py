"""`tab:hyperparams` is read from the recipe, which has the paper's settings."""

from dataclasses import replace

import pytest

from truedrift.grids import StudyOptions
from truedrift.paper import tab_hyperparams
from truedrift.recipes import recipes


@pytest.fixture(scope="module")
def record():
    return tab_hyperparams.study(StudyOptions())


def test_every_value_of_the_paper_is_the_recipes(record):
    # The oracle is the paper's table and the paragraph above it, written down by hand as the paper prints it.
    here = tab_hyperparams.settings(record)
    assert {name: here[name] for name in tab_hyperparams.PAPER} == tab_hyperparams.PAPER


def test_the_numbers_behind_the_table(record):
    assert record.parameters == 26_592_688
    assert [(length.n, length.epochs) for length in record.lengths] == [(64, 500), (32, 1000), (16, 2000), (8, 4000)]
    assert {length.positives_seen for length in record.lengths} == {6_240_000}
    assert (record.clip, record.label_dropout, record.strength_low, record.strength_high) == (2.0, 0.1, 1.0, 4.0)


def test_a_changed_recipe_changes_the_table(record, monkeypatch):
    monkeypatch.setattr("truedrift.recipes.recipes.STEPS_PER_EPOCH", 196)
    changed = tab_hyperparams.settings(tab_hyperparams.study(StudyOptions()))
    assert changed["Steps per epoch"] == "196"
    assert changed["Total positive samples per class seen"] == "6.27M"


def test_finding_counts_equal_settings_and_names_the_others(record):
    assert tab_hyperparams.findings(record) == ["12 of 12 settings printed in the paper agree with the recipe cifar10"]
    other = tab_hyperparams.findings(replace(record, weight_decay=0.1, ema=0.5))
    assert other == [
        "10 of 12 settings printed in the paper agree with the recipe cifar10; different: Weight decay, EMA decay",
    ]


def test_files_contain_the_table(record, tmp_path):
    markdown, latex, _ = tab_hyperparams.ITEM.save(record, tmp_path)
    assert "| Warmup | 2000 linear steps | 2000 linear steps |" in markdown.read_text()
    assert "| Gradient clip | 2 | published code |" in markdown.read_text()
    assert "\\label{tab:hyperparams}" in latex.read_text()


def test_cifar100_has_the_papers_lengths_and_one_seed():
    assert recipes.CIFAR100_EPOCHS == {8: 1000, 16: 2000, 32: 500}
    assert recipes.CIFAR100_SEEDS == (42,)
    run = recipes.cifar100(n=16)
    assert run.cadence.epochs == 2000
    assert run.positives_seen(run.cadence.steps) == 6_240_000
    same = recipes.cifar10(n=16)
    assert (run.optimizer, run.objective, run.generator, run.encoder) == (
        same.optimizer,
        same.objective,
        same.generator,
        same.encoder,
    )


def test_n_that_the_paper_does_not_use_is_an_error():
    with pytest.raises(ValueError, match=r"n is 64; must be one of 8, 16, 32, as in the paper; .*"):
        recipes.cifar100(n=64)
