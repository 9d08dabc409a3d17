"""The paper's colors and markers: one meaning, one look, in every figure."""

from __future__ import annotations

TARGET = "#017100"
"""T*, a diamond."""

STANDARD = "#D64541"
"""T_n, a circle."""

ABC = "#0077CC"
"""T_n^ABC, a square."""

ABC2 = "#7A3E9D"
"""T_n of ABC-2, a triangle; ours."""

INK = "#222222"
MUTED = "#8A929C"
CLOUD = "#B4BECA"
HALO = "#EEF1F5"
FRAME = "#D5DAE0"

STRATIFIED = "#D98200"
"""Stratified ABC, a triangle, dashed; ours."""

POSITIVE = "#1B8A7A"
"""ABC on the positive side alone, a triangle downward."""

NEGATIVE = "#A8631B"
"""ABC on the negative side alone, a diamond."""

LOOKS = {
    "standard": ("standard", STANDARD, "o"),
    "abc": ("ABC", ABC, "s"),
    "abc2": ("ABC-2", ABC2, "^"),
}
"""Estimator → its name for people, color and marker."""
