"""What division by the RMS and feature scaling leave of the training signal at q = p; part of `equilibrium`.

The loss divides V by its RMS over the queries of a batch. If the negatives of a query are the other queries, the RMS
depends on them, and the expectation of V/RMS at q = p is not 0 although that of V is. Fresh negatives, as many as
positives, make both 0. Every signal is measured by Monte Carlo at fixed queries (`bias.trained_field`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from truedrift.axes import Tensor
from truedrift.bias.trained_field import measure_trained_field
from truedrift.field.spec import Form, Normalization
from truedrift.grids.options import StudyOptions
from truedrift.objective.feature_scale import FeatureScale

TAU = 0.2
GENERATED = 8
STAGES: dict[str, tuple[bool, FeatureScale]] = {
    "V": (False, "none"),
    "V/RMS": (True, "none"),
    "scaled": (True, "mean-distance"),
}
"""Stage of the computation → whether it divides by the RMS, and the feature scale."""
SETTINGS: tuple[tuple[Normalization, Form, int, int, bool], ...] = (
    ("row", "separate", 8, 0, False),
    ("row", "separate", 8, 0, True),
    ("row", "separate", 126, 0, False),
    ("row", "separate", 126, 0, True),
    ("bidirectional", "product", 8, 0, False),
    ("symmetric", "product", 8, 0, True),
    ("row", "separate", 8, 8, False),
    ("bidirectional", "product", 8, 8, False),
    ("sinkhorn", "separate", 8, 8, False),
    ("bidirectional", "product", 64, 8, True),
)
"""Normalization, form, n, fresh negatives, matched. Two sets of equal size are matched by themselves."""
SHIFTED = (*SETTINGS[:2], *SETTINGS[6:8])
"""The settings that are also measured at a shifted q."""
SHIFT = 0.1


@dataclass(frozen=True, kw_only=True)
class MeanSquare:
    """The mean over queries of an unbiased estimate of ‖E‖², and its standard error."""

    square: float
    square_error: float

    @property
    def root(self) -> float:
        """Root mean square over queries; 0 where the square is negative because of noise."""
        return math.sqrt(max(0.0, self.square))

    @property
    def resolved(self) -> bool:
        """Whether the square is at least three of its standard errors above 0."""
        return self.square >= 3 * self.square_error

    @property
    def limit(self) -> float:
        """Upper limit of the root: that of the square plus two errors."""
        return math.sqrt(max(0.0, self.square) + 2 * self.square_error)

    def text(self) -> str:
        """Return the root, or its upper limit where it is not resolved."""
        return f"{self.root:.1e}" if self.resolved else f"<{self.limit:.1e}"


@dataclass(frozen=True, kw_only=True)
class Signal(MeanSquare):
    """The expected training signal by Monte Carlo, for one setting and one stage of the computation."""

    normalization: Normalization
    form: Form
    n: int
    fresh: int
    """The number of fresh negatives; 0: the other generated samples are the negatives."""
    matched: bool
    stage: str
    """One of `STAGES`."""
    shift: float
    """The first coordinate of q minus that of p."""


def measure_signals(x: Tensor, pool: Tensor, batches: int, setting: StudyOptions) -> list[Signal]:
    """Measure the training signal of ABC at q = p in every setting and stage, and V/RMS at a shifted q."""
    cases = [(each, stage, 0.0) for each in SETTINGS for stage in STAGES]
    cases += [(each, "V/RMS", SHIFT) for each in SHIFTED]
    signals: list[Signal] = []
    for (normalization, form, n, fresh, matched), stage, shift in cases:
        setting.progress("training signal", len(signals), len(cases))
        move = torch.tensor((shift, 0.0), dtype=pool.dtype)
        divide_by_rms, feature_scale = STAGES[stage]
        found = measure_trained_field(
            x + move,
            pool,
            pool + move,
            tau=TAU,
            n=n,
            g=GENERATED,
            fresh=fresh,
            trials=batches,
            normalization=normalization,
            form=form,
            matched=matched,
            divide_by_rms=divide_by_rms,
            feature_scale=feature_scale,
            seed=setting.seed,
        )
        signal = Signal(
            normalization=normalization,
            form=form,
            n=n,
            fresh=fresh,
            matched=matched,
            stage=stage,
            shift=shift,
            square=float(found.squared.mean()),
            square_error=float(found.squared_error.square().sum().sqrt() / len(x)),
        )
        signals.append(signal)
    return signals


def signal_notes(signals: Sequence[Signal], queries: int, batches: int) -> list[str]:
    """Return the signals of all stages, one line per setting."""
    notes = [
        f"Training signal of ABC at τ = {TAU:g} with {GENERATED} generated samples, root mean square over {queries} "
        f"queries, {batches:,} batches each: V; V divided by the RMS of the batch; the same with features scaled to "
        f"mean distance 1; in brackets V/RMS if generated samples are shifted by "
        f"{max(each.shift for each in signals):g}."
    ]
    by_setting: dict[tuple[Any, ...], list[Signal]] = {}
    for signal in signals:
        key = (signal.normalization, signal.form, signal.n, signal.fresh, signal.matched)
        by_setting.setdefault(key, []).append(signal)
    for (normalization, form, n, fresh, matched), some in by_setting.items():
        negatives = f"{fresh} fresh" if fresh else f"{GENERATED - 1} other"
        at_p = "; ".join(each.text() for each in some if each.shift == 0)
        shifted = ", ".join(each.text() for each in some if each.shift)
        setting = f"{normalization}, {form}, {n} positives, {negatives} negatives{', matched' if matched else ''}"
        notes.append(f"{setting}: {at_p}" + (f" ({shifted})" if shifted else ""))
    return notes
