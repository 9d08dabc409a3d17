"""A stream of random numbers is a function of its name alone."""

import itertools

import torch

from truedrift.seeding import stream


def test_equal_names_draw_equal_numbers():
    first = torch.randn(5, generator=stream(1, "noise", 3))
    torch.randn(7, generator=stream(1, "noise", 2))
    assert torch.equal(first, torch.randn(5, generator=stream(1, "noise", 3)))


def test_different_names_draw_different_numbers():
    names = [(1, "noise", 3), (2, "noise", 3), (1, "labels", 3), (1, "noise", 4), (1, "noise"), (1, "noise", 3, 0)]
    draws = [torch.randn(5, generator=stream(*name)) for name in names]
    assert all(not torch.equal(a, b) for a, b in itertools.combinations(draws, 2))


def test_global_generator_is_unchanged():
    before = torch.get_rng_state()
    torch.randn(5, generator=stream(1, "noise", 3))
    assert torch.equal(before, torch.get_rng_state())


def test_seeds_do_not_change_between_releases():
    # A change would change every run; a resumed run would draw other numbers than before.
    assert stream(42, "noise", 7).initial_seed() == 7587785603846055743
