"""`tab:hyperparams`: the settings of the recipe, read from the objects that `truedrift train` runs, and the paper's."""

import time
from dataclasses import dataclass

from truedrift.generators.catalog import build
from truedrift.grids.options import StudyOptions
from truedrift.recipes.recipes import CIFAR10_EPOCHS, CIFAR10_SEEDS, cifar10
from truedrift.records.provenance import Provenance, provenance
from truedrift.report.item import Item
from truedrift.report.table import Table

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
"""Settings as the paper prints them, in its table and the paragraph above it."""
PUBLISHED_CODE = "published code"
"""Text in the paper's column for settings that only the published code shows."""


@dataclass(frozen=True, kw_only=True)
class Epochs:
    """The length of a run at one n."""

    n: int
    epochs: int
    positives_seen: int
    """Positives per class over the whole run."""


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """The settings of the recipe; those that the paper does not state are from the published code."""

    recipe: str
    parameters: int
    """Parameters of the generator."""
    learning_rate: float
    beta1: float
    beta2: float
    weight_decay: float
    warmup_steps: int
    ema: float
    clip: float
    label_dropout: float
    strength_low: float
    strength_high: float
    temperatures: tuple[float, ...]
    normalization: str
    steps_per_epoch: int
    lengths: tuple[Epochs, ...]
    seeds: tuple[int, ...]
    evaluate_every_epochs: int
    provenance: Provenance


SAMPLE_SHAPE, CLASSES = (3, 32, 32), 10


def study(setting: StudyOptions) -> Hyperparameters:
    """Read the recipe cifar10 at every n of the paper; scale and seed have no effect."""
    # Build the configuration at every n, and the generator.
    started = time.monotonic()
    runs = {n: cifar10(n=n) for n in sorted(CIFAR10_EPOCHS, reverse=True)}
    run = runs[8]
    generator = build(run.generator, sample_shape=SAMPLE_SHAPE, classes=CLASSES, seed=0)
    # Read the settings; all but the length are the same at every n.
    return Hyperparameters(
        recipe=run.recipe,
        parameters=sum(parameter.numel() for parameter in generator.parameters()),
        learning_rate=run.optimizer.learning_rate,
        beta1=run.optimizer.beta1,
        beta2=run.optimizer.beta2,
        weight_decay=run.optimizer.weight_decay,
        warmup_steps=run.optimizer.warmup_steps,
        ema=run.optimizer.ema,
        clip=run.optimizer.clip or 0.0,
        label_dropout=run.condition.label_dropout,
        strength_low=run.condition.strength_low,
        strength_high=run.condition.strength_high,
        temperatures=run.objective.temperatures,
        normalization=run.objective.normalization,
        steps_per_epoch=run.cadence.steps_per_epoch,
        lengths=tuple(
            Epochs(n=n, epochs=each.cadence.epochs, positives_seen=each.positives_seen(each.cadence.steps))
            for n, each in runs.items()
        ),
        seeds=CIFAR10_SEEDS,
        evaluate_every_epochs=run.cadence.evaluate_every_epochs,
        provenance=provenance(seed=setting.seed, wall_seconds=time.monotonic() - started),
    )


def settings(record: Hyperparameters) -> dict[str, str]:
    """Return the settings of the recipe by the paper's names, then those that only the published code shows."""
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
    """Return one row per setting: name, here, paper."""
    rows = [(name, value, PAPER.get(name, PUBLISHED_CODE)) for name, value in settings(record).items()]
    caption = f"Settings of the recipe {record.recipe} and those of the paper."
    return Table(caption=caption, label="tab:hyperparams", header=("", "here", "paper"), groups=[rows])


def findings(record: Hyperparameters) -> list[str]:
    """Return one sentence: how many settings agree with the paper, and which do not."""
    here = settings(record)
    other = [name for name, printed in PAPER.items() if here.get(name) != printed]
    count = (
        f"{len(PAPER) - len(other)} of {len(PAPER)} settings printed in the paper agree with the recipe {record.recipe}"
    )
    return [f"{count}; different: {', '.join(other)}" if other else count]


ITEM = Item(
    "tab:hyperparams",
    Hyperparameters,
    "Settings of the recipe, read from the objects that truedrift train runs, and the paper's.",
    table=table,
    findings=findings,
)
