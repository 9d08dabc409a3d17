"""Nearest training images: copies are found, new images are not called copies, and the p-value is exact."""

import dataclasses
from itertools import combinations

import pytest
import torch
from torch.testing import assert_close

from truedrift.data import Samples, load
from truedrift.errors import UserError
from truedrift.evaluation import (
    ExtractedFeatures,
    Extractor,
    NeighborsProtocol,
    NeighborsRecord,
    build_extractor,
    catalog,
    compute_features,
    find_neighbors,
    hold_out,
    independent_extractor,
    neighbors,
    summarize_neighbors,
)
from truedrift.evaluation import reference as reference_module
from truedrift.evaluation.neighbors import LEVEL, close_probability, close_threshold, search_nearest
from truedrift.records import append, provenance, read

CPU = torch.device("cpu")
PROTOCOL = NeighborsProtocol(
    extractor="digits",
    extractor_sha256="0" * 64,
    prepared="uint8",
    dimensions=64,
    independent=True,
    samples=200,
    seed=0,
    strength=1.0,
    weights="ema",
    data="digits",
    train=1437,
    compared=1437,
    held_out=160,
    held_out_split="test",
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEDRIFT_CACHE", str(tmp_path))
    return tmp_path


class Sums(Extractor):
    """A fixed linear map of the pixels, which counts its images. It is not a cheap extractor by name."""

    name, prepared, sha256, dimensions, device = "encoder:test", "uint8", "0" * 64, 20, CPU

    def __init__(self, fails_after=None):
        self.matrix = torch.randn(64, 20, generator=torch.Generator().manual_seed(9))
        self.calls, self.fails_after = 0, fails_after

    def extract(self, values):
        if self.fails_after is not None and self.calls >= self.fails_after:
            raise KeyboardInterrupt
        self.calls += len(values)
        return ExtractedFeatures(values.float().flatten(1) @ self.matrix)


@pytest.fixture(scope="module")
def digits():
    """Training images, 160 held-out images, and 200 other images of the test split."""
    train, test = load("digits"), load("digits", split="test")
    order = torch.randperm(360, generator=torch.Generator().manual_seed(1))
    held_out, others = (
        Samples(test.values[ids], test.labels[ids], test.classes, "digits", flips=False) for ids in order.split(160)[:2]
    )
    others = torch.cat((others.values, test.values[order[320:]]))
    return train, held_out, others


def summarize(found):
    protocol = dataclasses.replace(PROTOCOL, samples=len(found.ids), held_out=len(found.held_out))
    return summarize_neighbors(
        found, run="r", step=1, protocol=protocol, seconds=0.0, provenance=provenance(seed=0, wall_seconds=0.0)
    )


EXTRACTORS = ["digits", "encoder:convnet", "encoder:pixels"]


@pytest.mark.parametrize("name", EXTRACTORS)
def test_a_generator_that_returns_training_images_is_suspicious(digits, name):
    train, held_out, _ = digits
    extractor = build_extractor(name, sample_shape=(1, 8, 8), device=CPU)
    chosen = torch.randperm(len(train), generator=torch.Generator().manual_seed(2))[:200]
    found = find_neighbors(train.values[chosen], train, held_out, extractor)
    record = summarize(found)
    assert record.is_suspicious
    assert record.close == 200
    assert record.p_value < 1e-20
    assert found.ids[:, 0].equal(chosen)
    assert float(found.distances[:, 0].max()) <= 1e-4 * record.held_out_median  # batches of other sizes round otherwise


@pytest.mark.parametrize("name", EXTRACTORS)
def test_a_generator_that_returns_new_images_is_not_suspicious(digits, name):
    train, held_out, others = digits
    extractor = build_extractor(name, sample_shape=(1, 8, 8), device=CPU)
    record = summarize(find_neighbors(others, train, held_out, extractor))
    assert not record.is_suspicious
    assert record.share < 0.06
    assert record.median == pytest.approx(record.held_out_median, rel=0.15)


def test_a_few_copies_among_new_images_are_suspicious(digits):
    train, held_out, others = digits
    extractor = build_extractor("digits", sample_shape=(1, 8, 8), device=CPU)
    mixed = torch.cat((others[:180], train.values[500:520]))
    record = summarize(find_neighbors(mixed, train, held_out, extractor))
    assert record.is_suspicious
    assert 20 <= record.close <= 30


def test_copies_are_found_outside_of_the_random_part_of_the_training_images(digits, monkeypatch):
    train, held_out, others = digits
    copies = train.values[:200]
    found = find_neighbors(copies, train, held_out, Sums(), reference=50)
    assert found.ids[:, 0].equal(torch.arange(200))
    assert found.compared <= 50 + 160 + 200
    assert summarize(found).is_suspicious
    assert not summarize(find_neighbors(others, train, held_out, Sums(), reference=50)).is_suspicious
    # Without the nearest images in pixels, nearly all of them are missed.
    nothing = torch.empty(0, 1, dtype=torch.long), torch.empty(0, 1)
    search = neighbors.search_nearest
    monkeypatch.setattr(
        neighbors, "search_nearest", lambda q, r, k, **o: nothing if r.dtype == torch.uint8 else search(q, r, k)
    )
    missed = find_neighbors(copies, train, held_out, Sums(), reference=50)
    assert missed.compared == 50
    assert float((missed.distances[:, 0] == 0).float().mean()) < 0.1


def test_distances_agree_with_the_literal_formula(digits):
    train, held_out, others = digits
    extractor = Sums()
    found = find_neighbors(others, train, held_out, extractor, reference=len(train))
    features = [extractor.extract(values).features.double() for values in (train.values, others, held_out.values)]
    pairs = torch.stack([(features[0] - each).norm(dim=1) for each in features[1]])
    assert_close(found.distances, pairs.sort(1).values[:, :3].float(), rtol=1e-5, atol=1e-4)
    assert_close(pairs.gather(1, found.ids).float(), found.distances, rtol=1e-5, atol=1e-4)
    held = torch.stack([(features[0] - each).norm(dim=1).min() for each in features[2]])
    assert_close(found.held_out, held.float(), rtol=1e-5, atol=1e-4)
    assert found.compared == len(train)


def test_the_search_does_not_depend_on_blocks(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    queries, references = torch.randn(7, 5, generator=generator), torch.randn(101, 5, generator=generator)
    ids, distances = search_nearest(queries, references, 4)
    assert distances.equal(torch.cdist(queries.double(), references.double()).sort(1).values[:, :4].float())
    for block in (1, 50, 300):
        monkeypatch.setattr(neighbors, "BLOCK_ELEMENTS", block)
        other_ids, other_distances = search_nearest(queries, references, 4)
        assert other_ids.equal(ids)
        assert other_distances.equal(distances)


def test_the_distance_of_a_copy_is_exactly_zero():
    references = torch.randn(40, 300, generator=torch.Generator().manual_seed(0)) + 1e4  # squares would cancel
    ids, distances = search_nearest(references[[3, 17]], references, 1)
    assert ids.tolist() == [[3], [17]]
    assert distances.tolist() == [[0.0], [0.0]]


# The p-value


@pytest.mark.parametrize(("samples", "held_out", "k"), [(3, 4, 0), (4, 3, 1), (5, 4, 3), (2, 6, 2)])
def test_the_probability_agrees_with_all_orders(samples, held_out, k):
    """B samples come before the (k + 1)-th held-out image; every order has the same probability."""
    counts = []
    for places in combinations(range(samples + held_out), held_out):
        counts.append(places[k] - k)
    for close in range(samples + 1):
        expected = sum(count >= close for count in counts) / len(counts)
        assert close_probability(close, samples, k, held_out) == pytest.approx(expected, rel=1e-12)


def test_the_probability_is_one_if_all_held_out_images_are_close():
    assert close_probability(200, 200, 5, 5) == 1.0


def test_false_alarms_are_as_rare_as_stated():
    """With 4 000 trials the rate has a standard error of 0.0016 at 0.01; ties make it smaller, never larger."""
    generator = torch.Generator().manual_seed(3)
    for digits in (6, 1):
        alarms = 0
        for _ in range(4000):
            samples, held_out = torch.randn(50, generator=generator), torch.randn(120, generator=generator)
            samples, held_out = samples.round(decimals=digits), held_out.round(decimals=digits)
            t = close_threshold(held_out)
            p = close_probability(int((samples <= t).sum()), 50, int((held_out <= t).sum()), 120)
            alarms += p < LEVEL
        assert alarms / 4000 < LEVEL + 3 * 0.0016


def test_the_threshold_is_the_first_percentile():
    assert close_threshold(torch.arange(1.0, 501.0)) == 5.0
    assert close_threshold(torch.tensor([3.0, 2.0, 7.0])) == 2.0


def test_duplicates_between_the_splits_do_not_hide_copies(digits):
    """If the 1st percentile is 0, copies are at the threshold and still count."""
    train, held_out, _ = digits
    values = torch.cat((held_out.values[:-3], train.values[:3]))
    duplicated = dataclasses.replace(held_out, values=values)
    record = summarize(find_neighbors(train.values[300:400], train, duplicated, Sums(), reference=len(train)))
    assert record.threshold == 0.0
    assert record.close_held_out == 3
    assert record.is_suspicious


# The data


def test_held_out_images_of_a_test_split_are_balanced_and_fixed():
    train, test = load("digits"), load("digits", split="test")
    kept, held_out = hold_out(train, test, 100)
    assert kept is train
    assert held_out.labels.bincount().tolist() == [10] * 10
    assert hold_out(train, test, 100)[1].values.equal(held_out.values)
    assert len(hold_out(train, test, 5000)[1]) == len(test)


def test_without_a_test_split_a_part_of_every_class_is_held_out():
    values = torch.arange(120, dtype=torch.uint8).view(120, 1, 1, 1).expand(-1, 3, 4, 4).contiguous()
    labels = torch.tensor([0] * 20 + [1] * 100)
    samples = Samples(values, labels, ("few", "many"), "folder", flips=True)
    kept, held_out = hold_out(samples, None, 500)
    assert held_out.labels.bincount().tolist() == [4, 20]
    identities = [set(each.values[:, 0, 0, 0].tolist()) for each in (kept, held_out)]
    assert not identities[0] & identities[1]
    assert identities[0] | identities[1] == set(range(120))
    few = Samples(values[:4], labels[:4], ("few", "many"), "folder", flips=True)
    with pytest.raises(UserError, match="folder has 4 images to hold out from; must have at least 2"):
        hold_out(few, None, 500)


def test_too_few_training_images_are_an_error(digits):
    train, held_out, others = digits
    two = dataclasses.replace(train, values=train.values[:2], labels=train.labels[:2])
    with pytest.raises(UserError, match="digits has 2 training images; must have at least 3"):
        find_neighbors(others, two, held_out, Sums())


# The cache


def test_features_of_the_data_are_computed_once(digits):
    train, held_out, others = digits
    extractor = Sums()
    first = find_neighbors(others, train, held_out, extractor, reference=100)
    computed, extractor.calls = extractor.calls, 0
    again = find_neighbors(others, train, held_out, extractor, reference=100)
    assert again.distances.equal(first.distances)
    # Only samples and their own nearest images in pixels are computed again.
    assert 200 <= extractor.calls <= 400
    assert computed >= extractor.calls + 160 + 100


def test_interrupted_features_continue(digits, monkeypatch):
    train, _, _ = digits
    whole = Sums().extract(train.values).features
    monkeypatch.setattr(reference_module, "SAVE_EVERY_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        compute_features(train, Sums(fails_after=500), batch=100)
    rest = Sums()
    assert_close(compute_features(train, rest, batch=100), whole)
    assert rest.calls == len(train) - 500
    assert not list(reference_module.cache_directory("references").glob("*.part.*"))


# The extractor and the record


def test_the_default_extractor_is_not_an_encoder_of_the_run(monkeypatch):
    """The cache of the tests has no downloaded network."""
    assert independent_extractor((1, 8, 8), {"pixels"}) == "digits"
    assert independent_extractor((3, 32, 32), {"pixels"}) == "encoder:convnet"
    assert independent_extractor((3, 32, 32), {"convnet"}) == "encoder:pixels"
    monkeypatch.setattr(catalog, "inception_is_present", lambda: True)
    assert independent_extractor((3, 32, 32), {"pixels"}) == "inception"
    assert independent_extractor((4, 32, 32), {"pixels"}) == "encoder:convnet"  # Inception takes 1 or 3 channels


def test_a_record_survives_its_file(digits, tmp_path):
    train, held_out, others = digits
    record = summarize(find_neighbors(others, train, held_out, Sums()))
    append(tmp_path / "evaluations.jsonl", record)
    assert read(tmp_path / "evaluations.jsonl", NeighborsRecord) == [record]
    assert (tmp_path / "evaluations.jsonl").stat().st_size < 5000
    assert list(record.quantiles) == sorted(record.quantiles)


@pytest.mark.parametrize("reference", [None, 300])
def test_mirrored_copies_are_found_if_training_mirrors_images(digits, reference):
    train, held_out, _ = digits
    chosen = torch.randperm(len(train), generator=torch.Generator().manual_seed(2))[:100]
    mirrored = train.values[chosen].flip(-1)
    found = find_neighbors(mirrored, dataclasses.replace(train, flips=True), held_out, Sums(), reference=reference)
    assert summarize(found).is_suspicious
    assert found.ids[:, 0].equal(chosen)
    assert float(found.distances[:, 0].max()) < 1e-3
    assert all(len(set(row)) == len(row) for row in found.ids.tolist())
    assert (found.distances.diff(dim=1) >= 0).all()
    without = find_neighbors(mirrored, train, held_out, Sums(), reference=reference)  # negative control
    assert not summarize(without).is_suspicious


def test_distance_of_a_mirrored_comparison_is_the_smaller_one(digits):
    train, held_out, others = digits
    train = dataclasses.replace(train, flips=True)
    found = find_neighbors(others, train, held_out, Sums())
    matrix, y = Sums().matrix, train.values.float().flatten(1)
    for queries, distances in ((others, found.distances[:, 0]), (held_out.values, found.held_out)):
        views = [torch.cdist(view.float().flatten(1) @ matrix, y @ matrix) for view in (queries, queries.flip(-1))]
        assert_close(torch.minimum(*views).amin(1), distances, rtol=1e-4, atol=1e-2)
