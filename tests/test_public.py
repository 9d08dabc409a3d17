"""The top-level package: names on first use, `dir`, short texts of results, and what `help` says."""

import subprocess
import sys

import pytest
import torch

import truedrift
from truedrift import drift_loss, exact_field, exact_moments
from truedrift.training.setup import _GENERATOR_ATTRIBUTES


def test_dir_is_all():
    assert dir(truedrift) == sorted(truedrift.__all__)
    assert all(getattr(truedrift, name) is not None for name in truedrift.__all__)


def test_names_and_packages_are_imported_on_first_use_also_in_compiled_code():
    code = """
import sys, truedrift
print("torch" in sys.modules)
import torch
compiled = torch.compile(lambda alpha: truedrift.abc_weights(alpha), fullgraph=True, backend="eager")
print(compiled(torch.tensor([0.5, 0.25, 0.25])).tolist())
rooms = "bias centroids data encoders evaluation field generators grids kernels objective page paper recipes records"
for name in (*rooms.split(), "report", "training"):
    assert getattr(truedrift, name).__name__ == f"truedrift.{name}"
print(truedrift.evaluation.frechet_distance.__name__, truedrift.generators.Generator.__name__)
"""
    expected = ["False", "[0.5625, 0.21875, 0.21875]", "frechet_distance Generator"]
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert finished.stdout.splitlines() == expected, finished.stderr


@pytest.mark.parametrize("package", [truedrift, truedrift.recipes, truedrift.grids])
def test_unknown_name_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match=f"^module '{package.__name__}' has no attribute 'nothing'$"):
        package.nothing  # noqa: B018


def results():
    random = torch.Generator().manual_seed(0)
    x, pool = (torch.randn(count, 2, generator=random) for count in (20, 300))
    features = torch.randn(10, 16, 32, generator=random)
    return {
        "Drift": truedrift.drift(features, features + 1, features, tau=2.0, self_mask=True),
        "DriftLoss": drift_loss(features, features + 1),
        "DriftReport": drift_loss(features[0], features[1]).report,
        "Moments": exact_moments(x, pool, tau=0.5, n=(4, 8)),
        "ExactField": exact_field(x, pool, pool + 1, tau=0.5, n=(4, 8), m=(8, 8)),
        "Diagnosis": truedrift.diagnose(queries=x, references=pool, tau=(0.1, 0.5), n=8),
        "Samples": truedrift.data.load("two-moons"),
    }


def test_results_are_shown_in_three_lines():
    for name, result in results().items():
        lines = repr(result).splitlines()
        assert lines[0].startswith(f"{name}(")
        assert len(lines) <= 3
        assert max(map(len, lines)) <= 140
        assert "tensor(" not in repr(result)


def test_numbers_in_the_text_are_those_of_the_result():
    found = results()
    moments, field, loss = found["Moments"], found["Drift"], found["DriftLoss"]
    sizes = [sum(float(bias.norm()) for bias in moments.bias[:, k]) / 20 for k in range(2)]
    assert f"mean ‖bias‖ {sizes[0]:.3g}, {sizes[1]:.3g}" in repr(moments)
    norms = [float(vector.norm()) for group in field.V for vector in group]
    assert f"mean ‖V‖ {sum(norms) / len(norms):.3g}, n_eff" in repr(field)
    assert f"mean {sum(loss.loss.tolist()) / 10:.3g})" in repr(loss)
    median = found["Diagnosis"].temperatures[0].weights.n_eff.p50
    assert f"median n_eff {median:.3g}, " in repr(found["Diagnosis"])


def test_a_result_without_values_has_a_text():
    x = torch.empty(2, 3, device="meta")
    assert "mean ‖V‖ ?" in repr(truedrift.drift(x, x, x, tau=1.0))


def test_help_says_what_parts_must_provide():
    text = truedrift.Parts.__doc__
    assert all(f"`{name}`" in text for name in _GENERATOR_ATTRIBUTES)
    assert all(f"`{name}`" in text for name in ("name", "bias_order", "budget(n)", "reweight(log_w, generator=None)"))
