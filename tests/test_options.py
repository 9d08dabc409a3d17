"""`from_dict` accepts what fits the types; anything else is an error that names the field by its dotted path."""

import math
from dataclasses import asdict, dataclass, field
from typing import Annotated, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truedrift.errors import UserError, require_integer, require_integers
from truedrift.generators import MLP, MLPOptions
from truedrift.options import NonEmpty, Within, differences, from_dict, validated


@dataclass(frozen=True, kw_only=True)
class Round:
    kind: Literal["round"] = "round"
    radius: Annotated[float, Within(0, 10, above=True)] = 1.0


@dataclass(frozen=True, kw_only=True)
class Square:
    kind: Literal["square"] = "square"
    side: int = 2
    corner: int = 1

    def __post_init__(self):
        if self.corner > self.side:
            raise UserError(f"is {self.corner}", f"must be at most side {self.side}", "cut less", field="corner")


@dataclass(frozen=True, kw_only=True)
class Plan:
    name: str
    deep: bool = False
    count: Annotated[int, Within(1, 5)] | None = None
    sizes: Annotated[tuple[Annotated[float, Within(0)], ...], NonEmpty()] = (1.0, 2.0)
    pair: tuple[int, str] = (1, "a")
    spare: tuple[int, ...] = ()
    mood: Literal["glad", "sad"] = "glad"
    shape: Round | Square = field(default_factory=Round)


SQUARE = {"kind": "square", "side": 3}


def plan(**tree):
    return from_dict(Plan, {"name": "a"} | tree)


def test_allowed_values_are_accepted():
    made = plan(deep=True, count=5, sizes=[0, 1.5], pair=[2, "b"], spare=[], mood="sad", shape=SQUARE)
    assert made == Plan(name="a", deep=True, count=5, sizes=(0.0, 1.5), pair=(2, "b"), mood="sad", shape=Square(side=3))
    assert type(made.sizes[0]) is float
    assert plan() == Plan(name="a")
    assert from_dict(Plan, asdict(made)) == made == validated(made)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"name": 3}, "name is 3; must be text without NUL or surrogates; set name to text without NUL or surrogates"),
        ({"name": "a\0b"}, r"name is 'a\\x00b'; must be text without NUL or surrogates; "),
        ({"name": "\ud800"}, r"name is '\\ud800'; must be text without NUL or surrogates; "),
        ({"deep": 1}, "deep is 1; must be true or false; "),
        ({"count": 6}, "count is 6; must be at least 1 and at most 5; "),
        ({"count": 0}, "count is 0; "),
        ({"count": True}, "count is True; must be an integer; "),
        ({"count": 2.0}, "count is 2.0; must be an integer; "),
        ({"count": 1 << 60}, "count is 1152921504606846976; must be at least 1 and at most 5; "),
        ({"count": 1 << 63}, "count is 9223372036854775808; must be an integer; "),
        ({"count": 10**6000}, "count is a int too long to show; must be an integer; "),
        ({"sizes": []}, r"sizes is \(\); must have at least one entry; "),
        ({"sizes": "1"}, r"sizes is '1'; must be a list"),
        ({"sizes": True}, r"sizes is True; must be a list"),
        ({"sizes": [1, -2]}, r"sizes\[1\] is -2.0; must be at least 0; "),
        ({"sizes": [1, math.nan]}, r"sizes\[1\] is nan; must be a finite number; "),
        ({"sizes": [math.inf]}, r"sizes\[0\] is inf; must be a finite number; "),
        ({"sizes": [10**400]}, r"sizes\[0\] is 10+\.\.\.; must be a finite number; "),
        ({"pair": [1]}, r"pair is \[1\]; must have 2 entries; "),
        ({"pair": [1, 2]}, r"pair\[1\] is 2; must be text"),
        ({"mood": "Sad"}, "mood is 'Sad'; must be one of glad, sad; did you mean 'sad'"),
        ({"mood": ["sad"]}, r"mood is \['sad'\]; must be one of glad, sad; "),
        ({"shape": "round"}, "shape is 'round'; must have a kind: round, square; "),
        ({"shape": {}}, r"shape is \{\}; must have a kind"),
        ({"shape": {"kind": "oval"}}, "shape.kind is 'oval'; must be one of round, square; "),
        ({"shape": {"kind": ["round"]}}, r"shape.kind is \['round'\]; "),
        ({"shape": {"kind": "round", "side": 1}}, "shape.side is unknown; known: kind, radius; "),
        ({"shape": {"kind": "round", "radius": 0}}, "shape.radius is 0.0; must be greater than 0 and at most 10"),
        ({"shape": {"kind": "square", "corner": 4}}, "shape.corner is 4; must be at most side"),
        ({"size": 1}, "size is unknown; known: name, deep, count, sizes, pair, spare, mood, shape; "),
        ({1: 1}, "1 is unknown; known: name"),
        ({"x" * 300: 1}, r"x+\.\.\. is unknown; known: name"),
    ],
)
def test_an_error_names_the_field(tree, message):
    with pytest.raises(UserError, match=rf"^{message}") as caught:
        plan(**tree) if all(isinstance(name, str) for name in tree) else from_dict(Plan, {"name": "a"} | tree)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_missing_fields_and_a_tree_that_is_not_a_mapping():
    with pytest.raises(UserError, match=r"^name is missing; it has no default; set it$"):
        from_dict(Plan, {})
    with pytest.raises(UserError, match=r"^the input is \[1\]; must be a mapping; "):
        from_dict(Plan, [1])


def test_a_deeply_nested_value():
    nested = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(UserError, match=r"^name is a list too long to show; "):
        plan(name=nested)


def test_options_made_in_python_are_validated():
    with pytest.raises(UserError, match=r"^count is 9; "):
        validated(Plan(name="a", count=9))
    with pytest.raises(UserError, match=r"^shape is 5; "):
        validated(Plan(name="a", shape=5))


@given(
    st.builds(
        Plan,
        name=st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=5),
        deep=st.booleans(),
        count=st.none() | st.integers(1, 5),
        sizes=st.lists(st.floats(0, 1e300), min_size=1, max_size=3).map(tuple),
        mood=st.sampled_from(["glad", "sad"]),
        shape=st.builds(Round, radius=st.floats(1e-300, 10)) | st.builds(Square, side=st.integers(1, 2**53)),
    )
)
def test_to_dictionaries_and_back(made):
    assert from_dict(Plan, asdict(made)) == made


@pytest.mark.parametrize(
    ("within", "inside", "outside"),
    [
        (Within(0, 1), (0, 0.5, 1), (-1e-9, 1.0001, math.nan)),
        (Within(0, 1, above=True), (1e-300, 1), (0, -0.0, 2)),
        (Within(3), (3, math.inf), (2.999,)),
    ],
)
def test_bounds(within, inside, outside):
    assert all(map(within.holds, inside))
    assert not any(map(within.holds, outside))


def test_differences_show_both_values():
    a = {"x": 1, "same": [1], "group": {"y": (1, 2), "z": None}}
    b = {"x": 2, "same": (1,), "group": {"y": [1, 3]}, "new": "n"}
    assert differences(a, b) == ["group.y ((1, 2) and [1, 3])", "new (None and 'n')", "x (1 and 2)"]
    assert differences(a, a) == []


@dataclass(frozen=True)
class Picky:
    size: int

    def __post_init__(self):
        raise UserError("the file 'size is' is missing", "must exist", "make it")


@dataclass(frozen=True)
class Group:
    picky: Picky


def test_an_error_without_a_field_is_prefixed_with_its_section():
    with pytest.raises(UserError, match=r"^picky: the file 'size is' is missing; must exist; make it$"):
        from_dict(Group, {"picky": {"size": 1}})
    with pytest.raises(UserError, match=r"^the file 'size is' is missing; must exist; make it$"):
        from_dict(Picky, {"size": 1})


def test_integers_of_other_libraries_are_stored_as_ints(tmp_path):
    for value in (np.int64(3), np.uint8(3), np.array(3), torch.tensor(3)):
        assert type(require_integer("n", value, 1, 8)) is int
        assert require_integers("n", (1, value), 1, ascending=True) == (1, 3)
        assert type(plan(count=value).count) is int
    for value in (True, np.True_, torch.tensor(True), 2.0, np.float64(2), np.array([1, 2]), torch.tensor([1, 2]), "2"):
        with pytest.raises(UserError, match=r"n is .*; must be an integer ≥ 1; pass for example 8"):
            require_integer("n", value, 1, 8)
    generator = MLP(MLPOptions(width=np.int64(16), depth=np.int32(2)), sample_shape=(2,), classes=1)
    generator.save_pretrained(tmp_path)  # as JSON, which has no integers of NumPy
    assert type(MLPOptions(width=np.int64(16)).width) is int
