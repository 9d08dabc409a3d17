"""`tab:samples_to_fid`: positives over all classes until an evaluation first reaches a threshold distance.

The paper's thresholds are FID 10 and 7, for the features of the standard Inception network or of the published code.
Distances in other features have another scale. For these, a threshold is standard's last-5 average at the smallest n,
multiplied by the same factor as in the paper: 10/7.31 or 7/7.31. (k/S) means that k of S seeds reach the threshold. The
other seeds are not part of the mean.
"""

import statistics

from truedrift.grids.record import ImageGrid
from truedrift.paper.grid_tables import (
    axis_unit,
    by_seed,
    first_hit,
    last_average,
    protocol_line,
    short_runs_note,
    sizes,
    values_by_seed,
)
from truedrift.report.figure import LOOKS
from truedrift.report.item import Item
from truedrift.report.statistics import Paired, comparisons_note, decimals, mean_cell, paired
from truedrift.report.table import Cell, MeanCell, Row, Table, format_number

PAPER_THRESHOLDS = (10.0, 7.0)
PAPER_EXTRACTORS = ("inception", "abc-release")
"""Extractors whose distances have the scale of these thresholds."""
PAPER_STANDARD = 7.31
"""Standard's last-5 average at n = 8 in the paper."""
PAPER: dict[tuple[int, str], tuple[tuple[float, float | None, str], ...]] = {
    (8, "standard"): ((8.19, 4.29, ""), (26.52, None, "(1/3)")),
    (8, "abc"): ((3.38, 0.52, ""), (21.84, 12.48, "(3/3)")),
    (16, "standard"): ((4.94, 1.04, ""), (11.44, 7.28, "")),
    (16, "abc"): ((4.42, 0.52, ""), (7.80, 4.68, "")),
    (32, "standard"): ((8.84, 3.64, ""), (13.52, 5.20, "")),
    (32, "abc"): ((8.84, 3.64, ""), (10.92, 3.12, "")),
    (64, "standard"): ((16.64, 10.40, ""), (30.16, 4.16, "")),
    (64, "abc"): ((13.52, 8.32, ""), (27.04, 11.44, "")),
    (8, "difference"): ((-4.81, None, ""), (-4.68, None, "")),
    (16, "difference"): ((-0.52, None, ""), (-3.64, None, "")),
    (32, "difference"): ((0.0, None, ""), (-2.60, None, "")),
    (64, "difference"): ((-3.12, None, ""), (-3.12, None, "")),
}
"""Millions of positives until FID ≤ 10 and FID ≤ 7, and the share of seeds, as the paper prints them."""
VARIANTS = ("standard", "abc")


def thresholds(record: ImageGrid) -> tuple[float, float]:
    """Return the thresholds of the paper, or proportional ones for other extractors."""
    if record.protocol.extractor in PAPER_EXTRACTORS:
        return PAPER_THRESHOLDS
    n = sizes(record)[0]
    averages = values_by_seed(record, "standard", n, last_average)
    first, second = (each / PAPER_STANDARD * statistics.fmean(averages.values()) for each in PAPER_THRESHOLDS)
    return first, second


def _threshold_names(record: ImageGrid) -> list[str]:
    values = thresholds(record)
    whole = all(value == int(value) for value in values)
    texts = (f"{value:g}" if whole else format_number(value, decimals(values)) for value in values)
    return [f"{record.protocol.distance_name} ≤ {text}" for text in texts]


def _unit(record: ImageGrid) -> tuple[float, str]:
    seen = (run.evaluations[-1].positives_seen for run in record.runs)
    return axis_unit(max(seen) * record.classes)


def positives_until(record: ImageGrid, variant: str, n: int, threshold: float) -> dict[int, float]:
    """Return the first hits in the unit of the table, by seed, of the seeds that reach the threshold."""
    unit, _ = _unit(record)
    hits = {seed: first_hit(run, threshold) for seed, run in by_seed(record, variant, n).items()}
    return {seed: positives * record.classes / unit for seed, positives in hits.items() if positives is not None}


def _difference(record: ImageGrid, n: int, threshold: float) -> Paired:
    standard, abc = (positives_until(record, variant, n, threshold) for variant in VARIANTS)
    return paired(standard, abc)


def sooner_by(record: ImageGrid, n: int, threshold: float) -> str | None:
    """Return the variant with more seeds that reach the threshold, else the one that is sooner; None for a tie."""
    ranks = {}
    for variant in VARIANTS:
        found, seeds = positives_until(record, variant, n, threshold), len(by_seed(record, variant, n))
        ranks[variant] = (-len(found) / seeds, statistics.fmean(found.values()) if found else 0.0)
    first, second = VARIANTS
    return None if ranks[first] == ranks[second] else min(VARIANTS, key=ranks.__getitem__)


def table(record: ImageGrid) -> Table:
    """Return three rows per n: standard, ABC, and their difference over the seeds that both have."""
    every_n, (_, unit_name) = sizes(record), _unit(record)
    # Columns and the sentence on the thresholds
    columns = [
        column
        for threshold, paper in zip(_threshold_names(record), PAPER_THRESHOLDS, strict=True)
        for column in (f"{threshold}, {unit_name}", f"FID ≤ {paper:g}, paper, millions")
    ]
    proportional = (
        f"Thresholds are standard's last-5 average at n = {every_n[0]} times 10/{PAPER_STANDARD} and "
        f"7/{PAPER_STANDARD}, the same proportion as FID 10 and 7 in the paper. "
    )
    described = "" if record.protocol.extractor in PAPER_EXTRACTORS else proportional
    # The table
    differences = [_difference(record, n, threshold) for n in every_n for threshold in thresholds(record)]
    return Table(
        caption=(
            f"Positives over all classes ({unit_name}) until {record.protocol.distance_name} on {record.data} first "
            "reaches a threshold: mean ± largest deviation over the seeds that reach it; (k/S): k of S seeds reach it. "
            "Bold: the estimator with more such seeds or, if both have the same number, the one with the smaller mean. "
            f"{described}{protocol_line(record)} "
            "Paper: CIFAR-10, three seeds."
        ),
        label="tab:samples_to_fid",
        header=("n", "estimator", *columns),
        groups=[_rows(record, n) for n in every_n],
        notes=(
            *short_runs_note(record),
            comparisons_note(differences),
            "Differences use only the seeds that reach the threshold with both estimators.",
        ),
    )


def _rows(record: ImageGrid, n: int) -> list[Row]:
    rows: dict[str, list[Cell]] = {variant: [str(n), LOOKS[variant][0]] for variant in VARIANTS}
    rows["difference"] = [str(n), "ABC − standard"]
    for k, threshold in enumerate(thresholds(record)):
        for variant in VARIANTS:
            found, seeds = positives_until(record, variant, n, threshold), len(by_seed(record, variant, n))
            bold = sooner_by(record, n, threshold) == variant
            rows[variant].append(mean_cell(list(found.values()), ".2f", bold=bold, note=f"({len(found)}/{seeds})"))
        rows["difference"].append(_difference(record, n, threshold).cell(".2f"))
        for name, row in rows.items():
            mean, deviation, note = PAPER[n, name][k] if (n, name) in PAPER else (None, None, "")
            row.append(MeanCell(mean, deviation, None, note=note))
    return list(rows.values())


def findings(record: ImageGrid) -> list[str]:
    """Return one sentence per n and threshold."""
    unit = f" {_unit(record)[1].removesuffix('s')}"
    sentences = []
    for n in sizes(record):
        for name, threshold in zip(_threshold_names(record), thresholds(record), strict=True):
            counts = [
                f"{LOOKS[variant][0]} in {len(positives_until(record, variant, n, threshold))} "
                f"of {len(by_seed(record, variant, n))} seeds"
                for variant in VARIANTS
            ]
            found = _difference(record, n, threshold)
            difference = found.sentence("ABC", "standard", ".2f", lower="sooner", unit=unit) if found.pairs else ""
            reached = f"n = {n}, {name}: reached by {counts[0]} and {counts[1]}"
            sentences.append("; ".join(filter(None, (reached, difference))))
    return sentences


ITEM = Item(
    "tab:samples_to_fid",
    ImageGrid,
    "Positives over all classes until an evaluation first reaches a threshold distance.",
    table=table,
    findings=findings,
)
