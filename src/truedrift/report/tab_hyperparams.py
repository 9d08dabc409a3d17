"""`tab:hyperparams`: the recipe's settings beside the paper's."""

from __future__ import annotations

from pathlib import Path

from truedrift.records import Hyperparameters
from truedrift.report.table import Table

NAME = "tab_hyperparams"

PAPER = {
    "Optimizer": "AdamW (β₁ = 0.9, β₂ = 0.95)",
    "Weight decay": "0.01",
    "Learning rate": "0.0002",
    "Warmup": "2000 linear steps",
    "EMA decay": "0.999",
    "Drift-field temperatures τ": "0.02, 0.05, 0.2",
    "Steps per epoch": "195",
    "Epochs (n = 64 / 32 / 16 / 8)": "500 / 1000 / 2000 / 4000",
    "Total positive samples per class seen": "6.24M",
    "Seeds": "42, 43, 44",
    "Parameters": "26.6M",
    "Kernel normalization": "bidirectional",
}
"""What the paper prints, in its table and the paragraph above it."""

PUBLISHED_CODE = "published code"
"""In the column of the paper where the paper says nothing."""


def settings(record: Hyperparameters) -> dict[str, str]:
    """The settings of the recipe under the paper's names, and then those that only the published code tells."""
    sizes = " / ".join(str(length.n) for length in record.lengths)
    seen = sorted({length.positives_seen for length in record.lengths})
    return {
        "Optimizer": f"AdamW (β₁ = {record.beta1:g}, β₂ = {record.beta2:g})",
        "Weight decay": f"{record.weight_decay:g}",
        "Learning rate": f"{record.learning_rate:g}",
        "Warmup": f"{record.warmup_steps} linear steps",
        "EMA decay": f"{record.ema:g}",
        "Drift-field temperatures τ": ", ".join(f"{tau:g}" for tau in record.temperatures),
        "Steps per epoch": str(record.steps_per_epoch),
        f"Epochs (n = {sizes})": " / ".join(str(length.epochs) for length in record.lengths),
        "Total positive samples per class seen": ", ".join(f"{count / 1e6:.2f}M" for count in seen),
        "Seeds": ", ".join(map(str, record.seeds)),
        "Parameters": f"{record.parameters / 1e6:.1f}M",
        "Kernel normalization": record.normalization,
        "Gradient clip": f"{record.clip:g}",
        "Label dropout": f"{record.label_dropout:g}",
        "Strength": f"uniform on [{record.strength_low:g}, {record.strength_high:g}]",
    }


def table(record: Hyperparameters) -> Table:
    """Name, here, paper."""
    rows = [(name, value, PAPER.get(name, PUBLISHED_CODE)) for name, value in settings(record).items()]
    caption = f"Settings of the recipe {record.recipe} and those of the paper."
    return Table(caption=caption, label="tab:hyperparams", header=("", "here", "paper"), groups=[rows])


def save(record: Hyperparameters, directory: Path) -> list[Path]:
    """The table as Markdown, LaTeX and CSV."""
    return table(record).save(directory, NAME)


def verdicts(record: Hyperparameters) -> list[str]:
    """How many of the paper's settings are the recipe's, and which are not."""
    here = settings(record)
    other = [name for name, printed in PAPER.items() if here.get(name) != printed]
    said = f"{len(PAPER) - len(other)} of {len(PAPER)} settings that the paper prints are those of {record.recipe}"
    return [f"{said}; others: {', '.join(other)}" if other else said]


def summary(record: Hyperparameters) -> str:
    """The table for the screen."""
    width = max(map(len, settings(record)))
    lines = [f"{name:{width}}  {value:32}{PAPER.get(name, PUBLISHED_CODE)}" for name, value in settings(record).items()]
    heading = f"{f'tab:hyperparams, recipe {record.recipe}':{width}}  {'here':32}paper"
    return "\n".join((heading, *lines))
