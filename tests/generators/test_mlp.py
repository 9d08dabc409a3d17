"""MLP with signs: the network reads only the signs of the first entries of z."""

import pytest
import torch

from truedrift.errors import UserError
from truedrift.generators import MLPOptions, build


def make_mlp(signs, noise=3):
    options = MLPOptions(width=16, depth=2, noise=noise, embedding=4, final_norm=False, signs=signs)
    return build(options, sample_shape=(2,), classes=1, seed=0).eval()


def generate(generator, z):
    rows = len(z)
    with torch.no_grad():
        return generator(
            z, torch.zeros(rows, dtype=torch.long), torch.ones(rows), torch.empty(rows, 0, dtype=torch.long)
        )


def test_samples_take_two_to_the_number_of_signs_values():
    """All entries of z are signs, so that the generator has 2³ values; without signs it has one per z."""
    z = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    assert len(generate(make_mlp(signs=3), z).unique(dim=0)) == 8
    assert len(generate(make_mlp(signs=0), z).unique(dim=0)) == 500


def test_only_the_sign_of_the_first_entries_and_every_digit_of_the_others_matters():
    z = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    generator = make_mlp(signs=2)
    x = generate(generator, z)
    assert torch.equal(generate(generator, z * torch.tensor([3.0, 0.1, 1.0])), x)
    for entry, factor in ((0, -1.0), (1, -1.0), (2, 1.1)):
        other = z.clone()
        other[:, entry] *= factor
        assert (generate(generator, other) != x).any(-1).all()


@pytest.mark.parametrize(
    ("signs", "message"),
    [(-1, "signs is -1; must be an integer ≥ 0"), (4, "signs is 4; must be at most noise, 3"), (1.5, "signs is 1.5")],
)
def test_signs_are_checked(signs, message):
    with pytest.raises(UserError, match=message):
        make_mlp(signs)
