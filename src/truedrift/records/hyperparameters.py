"""`tab:hyperparams` as a record: what the recipes really are."""

from __future__ import annotations

from dataclasses import dataclass

from truedrift.records.origin import Provenance


@dataclass(frozen=True, kw_only=True)
class Epochs:
    """A run length at an n."""

    n: int
    epochs: int
    positives_seen: int
    """Of each class, over the whole run."""


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """The recipe's settings; those that the paper does not tell are the published code's."""

    recipe: str
    parameters: int
    """Of the generator."""
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
