"""Numbers in the documents are those of the records in docs/results."""

import dataclasses
import math
import re
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from chaos.catalog import all_attacks
from chaos.runs import Bench

from truedrift.evaluation import EvaluationRecord
from truedrift.grids import ImageGrid, StudyOptions
from truedrift.paper import (
    app_temperature,
    arithmetic,
    arrays,
    digits,
    equilibrium,
    fig_ablation_trajectory,
    fig_bias_loglog,
    guidance,
    images,
    matching,
    normalization,
    tab_baselines,
    tab_main_results,
    tab_overhead,
    tab_samples_to_fid,
    temperature_sweep,
)
from truedrift.paper.catalog import plan_grid
from truedrift.paper.particles import field_name
from truedrift.recipes import PAPER_FIELD, recipe
from truedrift.records import read
from truedrift.training import warn_of_sizes

DOCS = Path(__file__).parents[2] / "docs"
STUDIES = (DOCS / "studies.md").read_text(encoding="utf-8")
REPRODUCE = (DOCS / "reproduce.md").read_text(encoding="utf-8")
MATCHING = " ".join((DOCS / "matching.md").read_text(encoding="utf-8").split())
README = " ".join((DOCS.parent / "README.md").read_text(encoding="utf-8").split())


UNEQUAL = (
    {"batch": {"n": 126, "generated": 8}, "objective": {"matched": False}},
    {**PAPER_FIELD, "batch": {"n": 126, "generated": 8}},
)
"""126 positives and 8 generated samples with row and with bidirectional normalization."""


def signal_rows(record):
    """The first cell of a row in docs/matching.md → V/RMS and the same with scaled features, at q = p."""
    names = {
        ("row", 8, 0, False): "row, 8 positives, unmatched",
        ("row", 8, 0, True): "row, 8 positives, matched",
        ("row", 126, 0, False): "row, 126 positives, unmatched",
        ("row", 126, 0, True): "row, 126 positives, matched",
        ("bidirectional", 8, 0, False): "bidirectional, 8 positives (the paper's field)",
        ("symmetric", 8, 0, True): "symmetric, 8 positives, matched",
        ("bidirectional", 8, 8, False): "row or bidirectional, 8 positives, 8 fresh negatives",
        ("row", 8, 8, False): "row or bidirectional, 8 positives, 8 fresh negatives",
        ("bidirectional", 64, 8, True): "bidirectional, 64 positives, 8 fresh negatives, matched",
    }
    rows = {}
    for key, name in names.items():
        some = [
            each
            for each in record.signals
            if (each.normalization, each.n, each.fresh, each.matched) == key and each.shift == 0
        ]
        rows[name] = [each.text() for each in some if each.stage != "V"]
    return rows


def rows_below(header):
    """The rows of the table with that header."""
    lines = iter(STUDIES.splitlines())
    assert any(line == header for line in lines)
    next(lines)
    for line in lines:
        if not line.startswith("|"):
            return
        yield line


@pytest.mark.parametrize(
    "name", ["tab_main_results", "fig_ablation_trajectory", "arithmetic", "temperature_sweep", "matching", "images"]
)
def test_grids_still_plan_the_runs_of_the_records(name):
    """The id of a run is a hash of its configuration: another default of a recipe must not change a finished study."""
    (record,) = read(DOCS / "results" / f"{name}.jsonl", ImageGrid)
    plan = plan_grid(record.item, StudyOptions(scale=record.scale, dataset=record.data))
    assert {run.id for run in record.runs} <= {task.id for task in plan.tasks}  # a record may have fewer seeds


@pytest.mark.parametrize(
    ("name", "kind", "table"),
    [
        ("fig_bias_loglog", fig_bias_loglog.BiasCurves, fig_bias_loglog.table),
        ("tab_baselines", tab_baselines.Baselines, tab_baselines.table),
        ("app_temperature", app_temperature.Temperature, app_temperature.table),
        ("normalization", normalization.FieldBiases, normalization.table),
        ("guidance", guidance.Guidance, guidance.table),
        ("equilibrium", equilibrium.Equilibrium, equilibrium.table),
    ],
)
def test_tables_match_the_records(name, kind, table):
    (record,) = read(DOCS / "results" / f"{name}.jsonl", kind)
    _, _, header, _, *rows = table(record).markdown().splitlines()
    shown = list(rows_below(header))
    assert len(shown) >= 6
    assert set(shown) <= set(rows)
    assert record.provenance.commit
    assert not record.provenance.commit.endswith("-dirty")


def test_equilibrium_matches_the_record():
    (record,) = read(DOCS / "results" / "equilibrium.jsonl", equilibrium.Equilibrium)
    assert record.provenance.command == "truedrift reproduce equilibrium --scale cpu"
    *notes, _ = equilibrium.ITEM.screen_notes(record)
    rows = {f"{each.q}, {field_name(each.estimator, each.matched)}: ": each for each in record.approach.errors}
    rows_of_errors = [note for note in notes if note.startswith(tuple(rows))]
    assert len(rows_of_errors) == len(rows) == 18
    for each in rows.values():
        cells = " | ".join(f"{error:.3f} ({speed:.2f})" for error, speed in zip(each.error, each.speed, strict=True))
        assert f"| {each.q} | {field_name(each.estimator, each.matched)} | {cells} |" in STUDIES
    heading = next(note for note in notes if note.startswith("Away from"))
    others = [note for note in notes if note not in rows_of_errors and note != heading]
    assert all(note in STUDIES for note in (*equilibrium.table(record).notes, *others))
    standard, abc = (record.push(0.2, name).unmatched for name in ("standard", "abc"))
    assert f"positives and 7 negatives is {standard[5]:.1e}, with ABC {abc[5]:.1e}" in REPRODUCE
    assert f"of 8 and 7 {standard[0]:.1e} and {abc[0]:.1e}" in REPRODUCE
    at_rest = [record.find_particles(name, on).mean for on in (False, True) for name in ("standard", "abc")]
    shown = "energy distance {:.1e}, ABC {:.1e}, matched {:.1e}, matched ABC {:.1e}".format(*at_rest)
    assert shown in REPRODUCE
    assert f"is {at_rest[0]:.3f} without matching and {at_rest[2]:.4f} with it" in README
    steps = [record.approach.find_arrival(name, True).mean(-1) for name in ("standard", "abc")]
    assert "reach an energy distance of 0.01 after {:.0f} steps, with ABC after {:.0f}".format(*steps) in MATCHING
    plans = [record.sinkhorn.find_bias(n, name) for name in ("standard", "abc") for n in (8, 64)]
    shown = "bias of {:.2g} with 8 queries and references and of {:.2g} with 64".format(
        *(each.root for each in plans[:2])
    )
    assert shown in MATCHING
    assert "With ABC it is {:.2g} and {:.2g}".format(*(each.root for each in plans[2:])) in MATCHING
    # What the project claims of them.
    assert all(each.is_stationary for each in record.particles)
    early = [
        replace(each, energy=tuple(seed[:24] for seed in each.energy)) for each in record.particles if each.matched
    ]
    assert not any(each.is_stationary for each in early)  # after a third of the steps they still move
    ratio, outside = equilibrium.measure_modes(record.find_particles("standard", True).points)
    assert f"still {ratio:.2f} times as wide as the data" in README
    assert f"center is {ratio:.2f} times that of the data, and {100 * outside:.1f} % are beyond" in MATCHING
    snapshots = [value for seed in record.find_particles("standard", True).energy for value in seed[-24:]]
    assert f"all {len(snapshots)} snapshots" in MATCHING
    assert f"positive, from {min(snapshots):.1e} to {max(snapshots):.1e}" in MATCHING
    falls = [
        record.push(tau, "standard").unmatched[3] / record.push(tau, "abc").unmatched[3] for tau in (0.1, 0.2, 0.5)
    ]
    assert "factor of {:.1f} at τ = 0.1, {:.1f} at τ = 0.2 and {:.0f} at τ = 0.5".format(*falls) in MATCHING
    for case, texts in signal_rows(record).items():
        assert f"| {case} | {' | '.join(texts)} |" in MATCHING
    assert min(at_rest[:2]) > 20 * max(at_rest[2:])
    assert steps[1] < 0.9 * steps[0]
    for plain, corrected in zip(plans[:2], plans[2:], strict=True):
        assert 0.89 < corrected.root / plain.root < 0.96
        assert corrected.variance < plain.variance
    assert all(value == 0 for push in record.pushes for value in push.matched)


def test_digits_of_the_reproduce_page_match_the_record():
    (record,) = read(DOCS / "results" / "trained_digits.jsonl", digits.TrainedDigits)
    _, _, header, rule, *rows = digits.table(record).markdown().rstrip().splitlines()
    assert "\n".join((header, rule, *rows)) in REPRODUCE
    assert f"n = {record.n}, {record.steps} steps" in REPRODUCE
    assert f"gets {record.accuracy:.1%} of held-out digits right" in REPRODUCE
    # What the project claims of them.
    assert all(run.recognized >= 0.9 and run.distance_ratio >= 0.65 and run.seconds <= 180 for run in record.runs)
    assert record.provenance.commit
    assert not record.provenance.commit.endswith("-dirty")


def test_attacks_of_the_reliability_page_match_the_record():
    record = (DOCS / "results" / "chaos.txt").read_text(encoding="utf-8")
    page = (DOCS / "reliability.md").read_text(encoding="utf-8")
    command, _, header, rule, *rows, total = record.strip().splitlines()
    assert re.fullmatch(r"python -m tests\.chaos --budget \d+ --seed \d+   # commit [0-9a-f]{40}", command)
    assert "\n".join((header, rule, *rows, total)) in page
    # Every attack is in the table, all tries survived, and every control was red.
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    attacks = all_attacks(Bench(Path()))
    assert [(name, control) for name, _, _, control, _ in cells] == [(each.name, each.control) for each in attacks]
    assert all(tries == survived and control == "red" for _, tries, survived, _, control in cells)
    tries = sum(int(tries) for _, tries, *_ in cells)
    assert total == f"| all | {tries} | {tries} |  |  |"
    assert tries >= 500


def test_distances_of_real_images_match_the_record():
    record = (DOCS / "results" / "cifar10_distances.txt").read_text(encoding="utf-8")
    page = (DOCS / "evaluation.md").read_text(encoding="utf-8")
    train_test, scipys, torchmetrics, _, halves = (
        float(number) for number in re.findall(r"(?:FID|written:|features:|means:) +(\d+\.\d+)", record)
    )
    assert f"FID {train_test:.3f}\n" in page
    assert f"at {halves:.3f}," in page
    assert scipys == pytest.approx(train_test, rel=1e-10)  # "to ten digits"
    assert torchmetrics == pytest.approx(train_test, rel=1e-10)


IMAGES = (DOCS / "results" / "image_experiments.md").read_text(encoding="utf-8")
GRIDS = {
    "tab:main_results": ("tab_main_results", tab_main_results.table),
    "tab:samples_to_fid": ("tab_main_results", tab_samples_to_fid.table),
    "fig:ablation_trajectory": ("fig_ablation_trajectory", fig_ablation_trajectory.table),
    "arithmetic": ("arithmetic", arithmetic.table),
    "temperature-sweep": ("temperature_sweep", temperature_sweep.table),
    "matching": ("matching", matching.table),
}
"""Item → its record, which some share, and its table."""


@pytest.mark.parametrize("item", GRIDS)
def test_image_experiments_match_the_records(item):
    name, table = GRIDS[item]
    (record,) = read(DOCS / "results" / f"{name}.jsonl", ImageGrid)
    _, _, header, rule, *rest = table(dataclasses.replace(record, item=item)).markdown().splitlines()
    rows = [line for line in rest if line.startswith("|")]
    assert len(rows) >= 4
    assert "\n".join((header, rule, *rows)) in IMAGES
    assert record.provenance.command in IMAGES
    assert record.provenance.commit
    assert not record.provenance.commit.endswith("-dirty")


def test_image_experiments_of_the_reproduce_page_match_the_records():
    (main,) = read(DOCS / "results" / "tab_main_results.jsonl", ImageGrid)
    (ablation,) = read(DOCS / "results" / "fig_ablation_trajectory.jsonl", ImageGrid)

    def mean(record, variant, n):
        runs = [run for run in record.runs if (run.variant, run.n) == (variant, n)]
        return sum(sum(each.metrics.fid for each in run.evaluations[-5:]) / 5 for run in runs) / len(runs)

    means = {n: f"{mean(main, 'standard', n):.3f} → {mean(main, 'abc', n):.3f}" for n in (8, 16, 32, 64)}
    assert f"n = 8: {means[8]} with ABC, 16: {means[16]}, 32: {means[32]}, 64: {means[64]}" in REPRODUCE
    sides = [f"{side} {mean(ablation, side, 8):.3f}" for side in ("none", "positive", "negative", "both")]
    assert f"n = 8: {', '.join(sides)}" in REPRODUCE


def test_matched_references_on_images_match_the_record():
    (record,) = read(DOCS / "results" / "matching.jsonl", ImageGrid)
    runs = matching.by_variant(record)
    mean = {variant: statistics.fmean(map(matching.end, by_seed.values())) for variant, by_seed in runs.items()}
    matched, unmatched, base = mean["126/8 row abc matched"], mean["126/8 row abc"], mean[matching.BASELINE]
    readme = " ".join((DOCS.parent / "README.md").read_text(encoding="utf-8").split())
    assert f"reach a Fréchet distance of {matched:.2f} instead of {unmatched:.2f}; the paper's" in readme
    cost = {name: 1000 * matching.seconds_per_step(runs[name].values()) for name in runs}
    times = f"{cost[matching.BASELINE]:.0f} ms, the matched one {cost['126/8 row abc matched']:.0f} ms"
    assert f"field with 8 and 8 reaches {base:.2f}. Its step takes {times}." in readme
    assert f"16 and 16 without matching reach {mean['16/16 row abc']:.2f} in {cost['16/16 row abc']:.0f} ms" in readme
    # Every row of the table.
    page = (DOCS / "matching.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+/\d+)( \+ \d+)?(?: fresh)?, (\w+)(.*?) \| (.*) \|$", page, re.MULTILINE)
    steps = record.runs[0].evaluations[-1].step
    for sizes, fresh, field, rest, cells in rows:
        name = f"{sizes}{fresh} {field} abc{' matched' if rest == ', matched' else ''}"
        end = steps * cost[matching.BASELINE] / cost[name]
        at_equal_time = statistics.fmean(matching.distance_at(run, end) for run in runs[name].values())
        assert cells == f"{mean[name]:.2f} | {at_equal_time:.2f} | {cost[name]:.0f} | {len(runs[name])}", name
    assert len(rows) == 19
    # The warning of a run.
    row, bidirectional = (warn_of_sizes(recipe("digits", tree=tree)) for tree in UNEQUAL)
    assert f"is {unmatched:.2f} instead of {matched:.2f}," in row
    assert f"is {mean['126/8 bidirectional abc']:.2f}, with 8 and 8 it is {base:.2f};" in bidirectional
    # What the project claims of them.
    assert matched < 0.8 * base
    assert unmatched > 2 * base
    assert all(sentence in IMAGES for sentence in matching.findings(record))


def test_matched_references_on_fashion_mnist_match_the_record():
    (record,) = read(DOCS / "results" / "matching_fashion.jsonl", ImageGrid)
    assert record.provenance.command in IMAGES
    assert not record.provenance.commit.endswith("-dirty")
    rows = [line for line in matching.table(record).markdown().splitlines() if line.startswith("|")]
    assert "\n".join(rows) in IMAGES
    assert all(sentence in IMAGES for sentence in matching.findings(record))
    ends = [statistics.fmean(map(matching.end, runs.values())) for runs in matching.by_variant(record).values()]
    page = " ".join((DOCS / "matching.md").read_text(encoding="utf-8").split())
    assert "matched, end at {1:.0f}, 128 and 32 with 64 fresh negatives at {2:.0f}, and".format(*ends) in page
    assert f"with 32 and 32 at {ends[0]:.0f}." in page


def test_overhead_matches_the_record():
    (record,) = read(DOCS / "results" / "tab_overhead.jsonl", tab_overhead.Overhead)
    _, _, header, rule, *rest = tab_overhead.table(record).markdown().splitlines()
    assert "\n".join((header, rule, *(line for line in rest if line.startswith("|")))) in IMAGES
    seconds = [f"{sum(cost.epoch_seconds) / len(cost.epoch_seconds):.3f} s" for cost in record.costs]
    assert f"eager {seconds[0]}, with ABC {seconds[1]}, compiled {seconds[2]} and {seconds[3]}" in REPRODUCE
    assert record.provenance.commit
    assert not record.provenance.commit.endswith("-dirty")


TRAINING = " ".join((DOCS / "training.md").read_text(encoding="utf-8").split())


def test_results_of_the_recipes_are_those_of_the_records():
    seeds = [each.metrics.fid for each in read(DOCS / "results" / "digits_seeds.jsonl", EvaluationRecord)]
    assert "is {:.3f}, {:.3f} and {:.3f} with 10,000 samples".format(*seeds) in TRAINING
    assert max(seeds) <= 0.25
    cars = [each.metrics.kid for each in read(DOCS / "results" / "cars.jsonl", EvaluationRecord)]
    assert "KID is {:.3f}, {:.3f} and {:.3f} for the seeds 0, 1 and 2 with the standard".format(*cars) in TRAINING
    assert max(cars) <= 0.05
    (ten,) = read(DOCS / "results" / "cifar10_cpu.jsonl", EvaluationRecord)
    distance = f"FID is {ten.metrics.fid:.1f} with {ten.protocol.samples:,} samples"
    kid = f"KID {ten.metrics.kid:.4f} ± {ten.metrics.kid_deviation:.4f}"
    assert f"{distance} and {ten.protocol.reference_count:,} images, and {kid}" in TRAINING
    (fashion,) = read(DOCS / "results" / "fashion_mnist.jsonl", EvaluationRecord)
    distance = f"FID is {fashion.metrics.fid:.1f} with {fashion.protocol.samples:,} samples"
    kid = f"KID {fashion.metrics.kid:.4f} ± {fashion.metrics.kid_deviation:.4f}"
    assert f"{distance} and {fashion.protocol.reference_count:,} images, and {kid}" in TRAINING
    assert f"(recall {fashion.metrics.recall:.3f})" in TRAINING
    (unguided,) = read(DOCS / "results" / "cifar10_unguided.jsonl", EvaluationRecord)
    assert f"a run of {unguided.step:,} steps had KID {unguided.metrics.kid:.4f}" in TRAINING
    strengths = read(DOCS / "results" / "cifar10_strengths.jsonl", EvaluationRecord)
    steps = read(DOCS / "results" / "cifar10_steps.jsonl", EvaluationRecord)
    rows = [(f"{each.protocol.strength:g}", each) for each in strengths] + [(f"{each.step:,}", each) for each in steps]
    for name, each in rows:
        of = each.metrics
        assert f"| {name} | {of.fid:.1f} | {of.kid:.3f} | {of.precision:.3f} | {of.recall:.3f} |" in TRAINING


def test_options_of_images_match_the_record():
    (record,) = read(DOCS / "results" / "images.jsonl", ImageGrid)
    assert not record.provenance.commit.endswith("-dirty")
    rows = [line for line in images.table(record).markdown().splitlines() if line.startswith("|")]
    assert "\n".join(rows) in (DOCS / "training.md").read_text(encoding="utf-8")
    # What the recipe is based on: guidance helps, and more of it does not.
    kid = {variant: images.mean_kid(runs) for variant, runs in images.by_variant(record).items()}
    fid = {run.variant: images.frechet_distance(run) for run in record.runs}
    assert kid["guidance of strength 2"] < kid["guidance of strength 1.5"] < kid[images.BASE]
    assert min(fid, key=fid.__getitem__) == "guidance of strength 2"


def test_comparison_of_arrays_matches_the_record():
    (record,) = read(DOCS / "results" / "arrays.jsonl", arrays.ArrayComparisons)
    page = (DOCS / "arrays.md").read_text(encoding="utf-8")
    assert "\n".join(line for line in arrays.table(record).markdown().splitlines() if line.startswith("|")) in page
    assert f"`{record.provenance.command}` in {record.provenance.wall_seconds / 60:.0f} minutes" in page
    assert not record.provenance.commit.endswith("-dirty")
    # What the page says of the models.
    best = {each.name: each.best.method for each in record.comparisons}
    assert len(best) == 11
    assert (list(best.values()).count("fit"), list(best.values()).count("Gaussian mixture")) == (6, 5)
    for each in record.comparisons:
        fit, mixture, density, perfect = each.distances
        if each.name in ("heavy tails", "iris"):
            assert fit.mean - mixture.mean > math.hypot(fit.error, mixture.error)
        else:
            assert abs(fit.mean - mixture.mean) < math.hypot(fit.error, mixture.error)
        if each.dimension in (1, *range(13, 100)) or each.name == "eight-gaussians":
            assert density.mean - fit.mean > math.hypot(fit.error, density.error)
        if each.dimension <= 2:
            assert fit.mean - perfect.mean < 2 * math.hypot(fit.error, perfect.error)
        assert 16.5 < each.seconds < 40.5
