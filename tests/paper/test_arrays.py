"""The study of arrays: its toys, its two densities, its table, and a small run."""

import math

import pytest
import torch

from truedrift.cli import main
from truedrift.paper import arrays
from truedrift.records import provenance, read


def generator():
    return torch.Generator().manual_seed(0)


def test_toys_have_their_moments():
    """Means and shares of 20,000 points; four standard errors are exceeded with probability 6e-5."""
    skewed = arrays.draw_toy("skewed", 20_000, generator())
    assert skewed.log().mean() == pytest.approx(0, abs=4 / math.sqrt(20_000))
    radius = arrays.draw_toy("rings", 20_000, generator()).norm(dim=-1)
    assert (radius > 0.75).double().mean() == pytest.approx(0.5, abs=0.015)
    normal, tails = (arrays.draw_toy(name, 20_000, generator()) for name in ("correlated", "heavy tails"))
    assert tails.shape == normal.shape == (20_000, 20)

    def kurtosis(x):
        return ((x - x.mean(0)) ** 4).mean(0) / x.var(0) ** 2

    assert kurtosis(normal).mean() == pytest.approx(3, abs=0.1)
    assert kurtosis(tails).mean() > 5


@pytest.mark.parametrize("sample", [arrays._sample_mixture, arrays._sample_density])
def test_densities_of_two_clusters_have_their_mean_and_width(sample):
    x = torch.randn(400, 2, generator=generator(), dtype=torch.float64) * 0.1
    x[:200, 0] += 3
    drawn = sample(x, 2000, 0)
    assert (drawn[:, 0] > 1.5).double().mean() == pytest.approx(0.5, abs=0.05)
    assert drawn[:, 1].std() == pytest.approx(0.1, rel=0.35)


def make_record():
    def distances(*rows):
        return tuple(
            arrays.Distances(method=method, values=values) for method, values in zip(arrays.METHODS, rows, strict=True)
        )

    toy = arrays.Comparison(
        name="rings",
        dimension=2,
        training=10,
        held_out=10,
        seconds=4.4,
        picture=(((0.0, 1.0),), ((1.0, 0.0),)),
        distances=distances((0.001, 0.003), (0.004, 0.004), (0.005, 0.007), (0.0, -0.002)),
    )
    table = arrays.Comparison(
        name="breast_cancer",
        dimension=30,
        training=284,
        held_out=285,
        seconds=9.0,
        picture=(),
        distances=distances((0.004, 0.004), (0.001, 0.001), (0.002, 0.002), (0.0, 0.0)),
    )
    here = provenance(seed=0, wall_seconds=1.0)
    return arrays.ArrayComparisons(steps=20, samples=10, threads=1, comparisons=(toy, table), provenance=here)


def test_table_has_mean_and_standard_error_and_marks_the_best_model():
    (toy,), (table,) = arrays.table(make_record()).groups
    assert [toy[0], table[0]] == ["rings", "breast cancer"]
    assert toy[3].text() == "2.0 ± 1.0"  # the deviation of 1 and 3 is √2, divided by √2
    assert [cell.bold for cell in toy[3:7]] == [True, False, False, False]
    assert [cell.bold for cell in table[3:7]] == [False, True, False, False]  # the other half is not a model
    (sentence,) = arrays.findings(make_record())
    assert sentence == "smallest mean distance on 2 data sets: fit 1, Gaussian mixture 1, kernel density 0"


def test_smoke_writes_a_record_with_all_data_sets(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "SIZES", {"smoke": (2, 60, 1)})
    monkeypatch.setattr(arrays, "MOST_COMPONENTS", 1)
    assert main(["reproduce", "arrays", "--scale", "smoke", "--out", str(tmp_path)]) == 0
    (record,) = read(tmp_path / "records.jsonl", arrays.ArrayComparisons)
    assert [each.name for each in record.comparisons] == [*arrays.TOY_NAMES, *arrays.TABLES]
    assert [len(each.picture) for each in record.comparisons] == [2] * 8 + [0] * 3
    # Two steps do not learn anything; a density and the other half of the data are near.
    worst = max(each.distances[3].mean for each in record.comparisons)
    assert all(each.distances[0].mean > worst for each in record.comparisons if each.name in arrays.TOY_NAMES[:5])
    assert (tmp_path / "arrays.png").exists()
