"""n positives per class as a pure function of (seed, step): against the literal definition, and its properties."""

import hypothesis
import hypothesis.strategies as st
import pytest
import torch

from truedrift.data import Batch, ClassBatches, class_batches, gather_samples
from truedrift.data.class_batches import draw_classes
from truedrift.seeding import stream

UNEQUAL = (7, 12, 5, 9)


def labels_of(counts, seed=0):
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]


def make_batches(counts=UNEQUAL, n=2, seed=3, flips=True, **options):
    return ClassBatches(labels_of(counts), len(counts), n=n, seed=seed, flips=flips, **options)


def permutation(counts, seed, number, c):
    """Return class c in pass `number` by the definition: its images in the order of their random keys."""
    members = [i for i, label in enumerate(labels_of(counts).tolist()) if label == c]
    keys = torch.rand(len(counts), max(counts), generator=stream(seed, "positives", number), dtype=torch.float64)
    return [image for _, image in sorted(zip(keys[c].tolist(), members, strict=False))]


@pytest.mark.parametrize("counts", [UNEQUAL, (6, 6), (5,)])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_slices_of_permutations_agree_with_the_definition(counts, n):
    per_pass = min(counts) // n
    batches = make_batches(counts, n)
    for step in (0, 1, 2, 5, 11):
        number, slot = divmod(step, per_pass)
        expected = [permutation(counts, 3, number, c)[slot * n : slot * n + n] for c in range(len(counts))]
        assert batches.at(step).indices.tolist() == expected


@pytest.mark.parametrize("counts", [UNEQUAL, (6, 6), (1, 3)])
@pytest.mark.parametrize(("n", "size"), [(2, 4), (3, 1), (1, 13), (2, 256)])
def test_the_queue_agrees_with_the_definition(counts, n, size):
    batches = make_batches(counts, n, sampling="queue", queue_size=size)
    for step in (0, 1, 2, 3, 20, 4):
        drawn = torch.randint(size, (len(counts), n), generator=stream(3, "queue", step))
        for c, count in enumerate(counts):
            expected = []
            for j in drawn[c].tolist():
                number, offset = divmod(n * step + j, count)
                expected.append(permutation(counts, 3, number, c)[offset])
            assert batches.at(step).indices[c].tolist() == expected


def test_the_queue_agrees_with_recorded_values():
    """Recorded values: a run that is resumed with another version must use the same images."""
    batches = make_batches((1, 9, 4), 3, sampling="queue", queue_size=6)
    assert batches.at(0).indices.tolist() == [[13, 13, 13], [6, 8, 3], [11, 11, 9]]
    assert batches.at(1).indices.tolist() == [[13, 13, 13], [3, 4, 8], [7, 7, 7]]
    assert batches.at(5).indices.tolist() == [[13, 13, 13], [3, 3, 3], [5, 11, 9]]


def test_only_needed_passes_of_a_small_class_are_drawn(monkeypatch):
    """A queue of 256 holds 256 passes of a class with one image; only the passes of the n samples are drawn."""
    drawn = []
    monkeypatch.setattr(class_batches, "stream", lambda *key: drawn.append(key[1:]) or stream(*key))
    n = 8
    batches = make_batches((1, 500), n, sampling="queue")
    for step in range(40):
        batches.at(step)
    passes = [number for purpose, *number in drawn if purpose == "positives"]
    assert len(passes) <= 40 * n + 2
    # A pass stays in the cache: the same step draws nothing again.
    before = len(passes)
    batches.at(39)
    assert len([key for key in drawn if key[0] == "positives"]) == before


@pytest.mark.parametrize("sampling", ["without-replacement", "queue"])
@hypothesis.settings(max_examples=25)
@hypothesis.given(steps=st.lists(st.integers(0, 60), min_size=1, max_size=8), seed=st.integers(0, 5))
def test_a_step_does_not_depend_on_earlier_calls(sampling, steps, seed):
    used = make_batches(seed=seed, sampling=sampling, queue_size=8)
    for step in steps:
        fresh = make_batches(seed=seed, sampling=sampling, queue_size=8)
        for a, b in ((used.at(step), fresh.at(step)), (used.unconditional(step, 9), fresh.unconditional(step, 9))):
            assert torch.equal(a.indices, b.indices)
            assert torch.equal(a.mirrored, b.mirrored)


def test_changing_a_batch_in_place_does_not_change_the_next_one():
    batches = make_batches()
    before = batches.at(0).indices.clone()
    batches.at(0).indices.zero_()
    assert torch.equal(batches.at(0).indices, before)


def test_seeds_and_steps_differ():
    images = make_batches((500, 400), 64)
    assert not torch.equal(images.at(0).indices, images.at(1).indices)
    assert not torch.equal(images.at(0).mirrored, images.at(1).mirrored)
    assert not torch.equal(images.at(0).indices, make_batches((500, 400), 64, seed=4).at(0).indices)
    assert not torch.equal(images.at(0).indices, images.at(images.rounds_per_pass).indices)  # another pass


@hypothesis.given(counts=st.lists(st.integers(3, 15), min_size=1, max_size=5), n=st.integers(1, 3))
def test_a_pass_has_no_repeats_and_covers_the_smallest_class(counts, n):
    batches = make_batches(tuple(counts), n)
    assert batches.rounds_per_pass == min(counts) // n
    labels = labels_of(counts)
    seen = torch.cat([batches.at(step).indices for step in range(batches.rounds_per_pass)], dim=-1)
    for c, count in enumerate(counts):
        mine = seen[c].tolist()
        assert len(set(mine)) == len(mine) == batches.rounds_per_pass * n
        assert (labels[seen[c]] == c).all()
        if count == min(counts) and count % n == 0:
            assert sorted(mine) == (labels == c).nonzero()[:, 0].tolist()


def test_all_images_are_drawn_equally_often_over_many_passes():
    batches = make_batches((10, 40), 5)
    passes = 300
    seen = torch.stack([batches.at(step).indices for step in range(passes * batches.rounds_per_pass)])
    assert (torch.bincount(seen[:, 0].flatten(), minlength=50)[labels_of((10, 40)) == 0] == passes).all()
    times = torch.bincount(seen[:, 1].flatten(), minlength=50)[labels_of((10, 40)) == 1]
    # 10 of 40 a pass: binomial(300, ¼), 75 ± 7.5; a false alarm in 3 000 seeds at 4.5 of them for 40 images.
    assert (times - 75).abs().max() < 4.5 * 7.5


def test_the_queue_draws_uniformly_from_its_256_newest():
    n, count = 8, 1000
    batches = make_batches((count,), n, sampling="queue")
    place = {image: position for position, image in enumerate(permutation((count,), 3, 0, 0))}
    steps = range((count - 256) // n)
    ages = torch.tensor([place[image] - n * step for step in steps for image in batches.at(step).indices[0].tolist()])
    assert ages.min() >= 0
    assert ages.max() < 256
    observed = torch.bincount(ages // 16, minlength=16)
    expected = len(ages) / 16
    # χ² with 15 degrees of freedom exceeds 58.5 once in 2·10⁶ seeds.
    assert ((observed - expected) ** 2 / expected).sum() < 58.5
    assert len(ages.unique()) < len(ages)  # with replacement


def test_half_of_the_images_are_mirrored_if_flips_are_allowed():
    batches = make_batches((100, 60), 50)
    mirrored = torch.stack([batches.at(step).mirrored for step in range(100)]).float()
    # Five standard errors of a mean of fair coins: a false alarm in 2·10⁶ seeds.
    assert mirrored.mean().item() == pytest.approx(0.5, abs=5 * 0.5 / mirrored.numel() ** 0.5)
    assert batches.unconditional(0, 100).mirrored.float().mean().item() == pytest.approx(0.5, abs=5 * 0.5 / 10)
    assert not make_batches((100, 60), 50, flips=False).at(0).mirrored.any()
    assert not make_batches((100, 60), 50, flips=False).unconditional(0, 9).mirrored.any()


def test_unconditional_images_are_of_all_classes_in_proportion_without_repeats():
    batches = make_batches((30, 90))
    seen = torch.stack([batches.unconditional(step, 20).indices for step in range(500)])
    assert all(len(row.unique()) == 20 for row in seen)
    times = torch.bincount(seen.flatten(), minlength=120)
    # binomial(500, 1/6), 83 ± 8.3; 4.8 of them for 120 images: a false alarm in 5 000 seeds.
    assert (times - 500 / 6).abs().max() < 4.8 * 8.34
    assert sorted(batches.unconditional(7, 120).indices.tolist()) == list(range(120))
    assert batches.unconditional(7, 0).indices.shape == (0,)


def test_gathered_images_are_mirrored_left_to_right():
    values = torch.arange(24, dtype=torch.uint8).view(4, 1, 2, 3)
    batch = Batch(torch.tensor([[3, 0], [1, 1]]), torch.tensor([[False, True], [True, False]]))
    picked = gather_samples(values, batch)
    assert picked.shape == (2, 2, 1, 2, 3)
    assert picked.dtype == torch.uint8
    assert picked[0, 0].flatten().tolist() == [18, 19, 20, 21, 22, 23]
    assert picked[0, 1].flatten().tolist() == [2, 1, 0, 5, 4, 3]
    assert picked[1, 0].flatten().tolist() == [8, 7, 6, 11, 10, 9]
    points = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    unmirrored = Batch(torch.tensor([1, 0]), torch.tensor([False, False]))
    assert gather_samples(points, unmirrored).tolist() == [[3.0, 4.0], [1.0, 2.0]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 6}, r"n is 6 and class 2 has 5 images; every class must have at least 6 images; use n = 5 or less"),
        ({"n": 6, "names": ("a", "b", "cat", "d")}, r"n is 6 and class 'cat' has 5 images; "),
        ({"counts": (4, 0, 3)}, r"n is 2 and class 1 has 0 images; .*; remove that class"),
        ({"counts": (4, 0, 3), "sampling": "queue"}, r"n is 2 and class 1 has 0 images; .*; remove that class"),
        ({"n": 0}, r"n is 0; must be an integer ≥ 1; "),
        ({"sampling": "shuffle"}, r"sampling is 'shuffle'; must be one of 'without-replacement', 'queue', 'wi"),
        ({"sampling": "queue", "queue_size": 0}, r"queue_size is 0; must be an integer ≥ 1; "),
    ],
)
def test_impossible_batches_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make_batches(**options)


def test_labels_beyond_the_classes_are_refused():
    with pytest.raises(ValueError, match=r"the largest label is 3 and classes is 3; .*; "):
        ClassBatches(labels_of(UNEQUAL), 3, n=1, seed=0, flips=False)


def test_steps_and_sizes_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"step is -1; must be an integer ≥ 0; "):
        make_batches().at(-1)
    with pytest.raises(ValueError, match=r"u is 34; must be 0 to 33, .*; "):
        make_batches().unconditional(0, 34)


# ---- Some of the classes per step ----


@pytest.mark.parametrize("labels", [1, 2, 3, 5, 7])
def test_classes_of_a_round_are_drawn_without_replacement(labels):
    """A round of 7 // labels steps takes parts of one permutation; all processes and calls draw the same."""
    for step in (0, 1, 5, 40):
        drawn = draw_classes(7, labels, 3, step)
        number, slot = divmod(step, 7 // labels)
        order = torch.randperm(7, generator=stream(3, "classes", number)).tolist()
        expected = sorted(order[slot * labels : slot * labels + labels]) if labels < 7 else list(range(7))
        assert (drawn.classes.tolist(), drawn.round) == (expected, number)
    rounds = [[draw_classes(7, labels, 3, step) for step in range(k, k + 7 // labels)] for k in (0, 7 // labels)]
    for each in rounds:
        together = torch.cat([draw.classes for draw in each])
        assert len(together.unique()) == len(together) == 7 // labels * labels
        assert len({draw.round for draw in each}) == 1
    assert draw_classes(7, None, 3, 40).classes.tolist() == list(range(7))


def test_all_classes_are_drawn_equally_often():
    """Each of 30 classes is in a step with probability 4/30; binomial(2100, 4/30) per class is at most that wide.

    The largest of 30 deviations exceeds 4.9 standard errors in 3·10⁻⁵ of the seeds.
    """
    steps = 2100
    times = torch.bincount(torch.cat([draw_classes(30, 4, 0, step).classes for step in range(steps)]), minlength=30)
    assert (times - steps * 4 / 30).abs().max() < 4.9 * (steps * (4 / 30) * (26 / 30)) ** 0.5
    # Pairs of classes are together as often as in independent draws: no class has a fixed partner.
    together = sum(
        bool(torch.isin(torch.tensor([0, 1]), draw_classes(30, 4, 0, step).classes).all()) for step in range(steps)
    )
    expected = steps * (4 * 3) / (30 * 29)
    assert abs(together - expected) < 5 * expected**0.5


def own_permutation(counts, seed, number, c):
    """Return class c in pass `number` by the definition with `labels`: a random stream per class and pass."""
    members = [i for i, label in enumerate(labels_of(counts).tolist()) if label == c]
    order = torch.randperm(len(members), generator=stream(seed, "positives of class", number, c))
    return [members[k] for k in order.tolist()]


@pytest.mark.parametrize("labels", [1, 2, 3])
def test_positives_of_drawn_classes_agree_with_the_definition(labels):
    n, per_pass = 2, min(UNEQUAL) // 2
    batches = make_batches(UNEQUAL, n, classes_per_step=labels)
    for step in (0, 1, 2, 7, 3):
        drawn = draw_classes(4, labels, 3, step)
        number, slot = divmod(drawn.round, per_pass)
        expected = [own_permutation(UNEQUAL, 3, number, c)[slot * n : slot * n + n] for c in drawn.classes.tolist()]
        batch = batches.at(step)
        assert batch.indices.tolist() == expected
        assert batch.mirrored.shape == (labels, n)
        assert torch.equal(labels_of(UNEQUAL)[batch.indices], drawn.classes[:, None].expand(-1, n))


@pytest.mark.parametrize(("n", "size"), [(2, 4), (3, 1), (2, 256)])
def test_the_queue_of_drawn_classes_agrees_with_the_definition(n, size):
    counts = (1, 3, 12, 5)
    batches = make_batches(counts, n, sampling="queue", queue_size=size, classes_per_step=2)
    for step in (0, 1, 5, 20, 4):
        drawn = draw_classes(4, 2, 3, step)
        places = torch.randint(size, (2, n), generator=stream(3, "queue", step)).tolist()
        for row, c in enumerate(drawn.classes.tolist()):
            positions = [divmod(n * drawn.round + place, counts[c]) for place in places[row]]
            expected = [own_permutation(counts, 3, number, c)[offset] for number, offset in positions]
            assert batches.at(step).indices[row].tolist() == expected


@pytest.mark.parametrize("sampling", ["without-replacement", "queue"])
def test_as_many_labels_as_classes_is_the_default(sampling):
    every, chosen = (make_batches(sampling=sampling, classes_per_step=labels) for labels in (None, 4))
    for step in (0, 3, 8):
        assert torch.equal(every.at(step).indices, chosen.at(step).indices)
        assert torch.equal(every.at(step).mirrored, chosen.at(step).mirrored)


def test_a_pass_of_drawn_classes_has_no_repeats_and_covers_a_class():
    """With one class of two per step, a round has two steps and a pass of 6 // 2 rounds has six."""
    batches = make_batches((6, 6), 2, classes_per_step=1)
    for first in (0, 6):
        seen = torch.cat([batches.at(step).indices.flatten() for step in range(first, first + 6)])
        assert sorted(seen.tolist()) == list(range(12))


@pytest.mark.parametrize("sampling", ["without-replacement", "queue"])
def test_the_work_of_a_step_does_not_grow_with_the_classes(monkeypatch, sampling):
    """With 8 labels of 1,000 classes: one permutation per class and pass of the step, and nothing is cached."""
    counts = (40,) * 1000
    batches = make_batches(counts, 4, sampling=sampling, queue_size=16, classes_per_step=8)
    drawn = []
    monkeypatch.setattr(class_batches, "stream", lambda *key: drawn.append(key[1]) or stream(*key))
    before = {name: value.numel() for name, value in vars(batches).items() if isinstance(value, torch.Tensor)}
    for step in range(10):
        assert batches.at(step).indices.shape == (8, 4)
    assert drawn.count("positives") == 0
    assert drawn.count("positives of class") <= 10 * 8 * (2 if sampling == "queue" else 1)
    assert before == {name: value.numel() for name, value in vars(batches).items() if isinstance(value, torch.Tensor)}
    assert max(before.values()) == 40_000


@pytest.mark.parametrize("sampling", ["without-replacement", "queue"])
def test_memory_of_unbalanced_classes_is_that_of_the_images(monkeypatch, sampling):
    """300 classes of one image and one of 9,000: padding to the largest class would be 2.7 million entries."""
    counts = (*[1] * 300, 9000)
    largest = []
    rand = torch.rand
    monkeypatch.setattr(class_batches, "KEYS_AT_ONCE", 20_000)
    monkeypatch.setattr(torch, "rand", lambda *a, **k: largest.append(rand(*a, **k)) or largest[-1])
    batches = make_batches(counts, 1, sampling=sampling, flips=False, queue_size=64)
    batches.at(0)
    kept = [value for value in vars(batches).values() if isinstance(value, torch.Tensor)]
    assert max(value.numel() for value in kept) <= 301 * 66 + 2 * 9300
    assert max(keys.numel() for keys in largest) <= 20_000


@pytest.mark.parametrize("at_once", [1, 13, 25])
def test_blocks_of_sorting_keys_do_not_change_the_images(monkeypatch, at_once):
    expected = [make_batches().at(step).indices for step in (0, 9)]
    queue = make_batches(sampling="queue").at(3).indices
    monkeypatch.setattr(class_batches, "KEYS_AT_ONCE", at_once)
    assert all(torch.equal(make_batches().at(step).indices, each) for step, each in zip((0, 9), expected, strict=True))
    assert torch.equal(make_batches(sampling="queue").at(3).indices, queue)


@pytest.mark.parametrize("labels", [0, 5])
def test_impossible_numbers_of_labels_are_refused(labels):
    with pytest.raises(ValueError, match=rf"labels is {labels}; must be 1 to 4, the number of classes; set a smaller"):
        make_batches(classes_per_step=labels)


def test_the_queue_draws_more_than_a_class_has():
    assert make_batches(n=20, sampling="queue").at(0).indices.shape == (4, 20)
