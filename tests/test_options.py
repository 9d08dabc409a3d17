"""Options from trees: what fits its type comes through, anything else is one sentence with the dotted path."""

import math
from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truedrift.errors import UserError
from truedrift.options import Within, differences, from_dict, located, to_dict, validated


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
            raise UserError(
                f"side is {self.side} and corner is {self.corner}", "allowed is a smaller corner", "cut less"
            )


@dataclass(frozen=True, kw_only=True)
class Plan:
    name: str
    deep: bool = False
    count: Annotated[int, Within(1, 5)] | None = None
    sizes: tuple[Annotated[float, Within(0)], ...] = (1.0, 2.0)
    mood: Literal["glad", "sad"] = "glad"
    shape: Round | Square = field(default_factory=Round)


def plan(**tree):
    return from_dict(Plan, {"name": "a"} | tree)


def test_what_fits_comes_through():
    made = plan(deep=True, count=5, sizes=[0, 1.5], mood="sad", shape={"kind": "square", "side": 3})
    assert made == Plan(name="a", deep=True, count=5, sizes=(0.0, 1.5), mood="sad", shape=Square(side=3))
    assert type(made.sizes[0]) is float
    assert plan() == Plan(name="a")
    assert from_dict(Plan, to_dict(made)) == made == validated(made)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"name": 3}, "name is 3; allowed is a text that can be written; change it"),
        ({"name": "a\0b"}, r"name is 'a\\x00b'; allowed is a text that can be written; "),
        ({"name": "\ud800"}, r"name is '\\ud800'; allowed is a text that can be written; "),
        ({"deep": 1}, "deep is 1; allowed is true or false; "),
        ({"count": 6}, "count is 6; allowed is a number of at least 1 and at most 5; "),
        ({"count": 0}, "count is 0; "),
        ({"count": True}, "count is True; allowed is a whole number; "),
        ({"count": 2.0}, "count is 2.0; allowed is a whole number; "),
        ({"count": 1 << 60}, "count is 1152921504606846976; allowed is a whole number; "),
        ({"count": 10**6000}, "count is a int too long to be shown; allowed is a whole number; "),
        ({"sizes": []}, r"sizes is \[\]; allowed is a list of one or more; "),
        ({"sizes": 1}, r"sizes is 1; allowed is a list"),
        ({"sizes": [1, -2]}, r"sizes\[1\] is -2.0; allowed is a number of at least 0; "),
        ({"sizes": [1, math.nan]}, r"sizes\[1\] is nan; allowed is a finite number; "),
        ({"sizes": [math.inf]}, r"sizes\[0\] is inf; allowed is a finite number; "),
        ({"sizes": [10**400]}, r"sizes\[0\] is 10+\.\.\.; allowed is a finite number; "),
        ({"mood": "Sad"}, "mood is 'Sad'; allowed are glad, sad; choose one of them"),
        ({"mood": ["sad"]}, r"mood is \['sad'\]; allowed are glad, sad; "),
        ({"shape": "round"}, "shape is 'round'; allowed are options with a kind: round, square; "),
        ({"shape": {}}, r"shape is \{\}; allowed are options with a kind"),
        ({"shape": {"kind": "oval"}}, "shape.kind is 'oval'; allowed are round, square; "),
        ({"shape": {"kind": ["round"]}}, r"shape.kind is \['round'\]; "),
        ({"shape": {"kind": "round", "side": 1}}, "shape.side is no option; allowed are kind, radius; "),
        ({"shape": {"kind": "round", "radius": 0}}, "shape.radius is 0.0; allowed is a number above 0 and at most 10"),
        ({"shape": {"kind": "square", "corner": 4}}, "shape.side is 2 and shape.corner is 4; allowed is a smaller"),
        ({"size": 1}, "size is no option; allowed are name, deep, count, sizes, mood, shape; "),
        ({1: 1}, "1 is no option; allowed are name"),
        ({"x" * 300: 1}, r"x+\.\.\.; allowed are name"),
    ],
)
def test_a_mistake_names_the_field(tree, message):
    with pytest.raises(UserError, match=rf"^{message}") as caught:
        plan(**tree) if all(isinstance(name, str) for name in tree) else from_dict(Plan, {"name": "a"} | tree)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_no_options_at_all_and_one_that_is_missing():
    with pytest.raises(UserError, match=r"^name is missing; it has no default; set it$"):
        from_dict(Plan, {})
    with pytest.raises(UserError, match=r"^the configuration is \[1\]; allowed is a group of options; "):
        from_dict(Plan, [1])


def test_something_nested_a_thousand_times():
    nested = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(UserError, match=r"^name is a list too long to be shown; "):
        plan(name=nested)


def test_options_made_in_python_are_looked_at_too():
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
def test_there_and_back(made):
    assert from_dict(Plan, to_dict(made)) == made


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


def test_differences_tell_both_values():
    a = {"x": 1, "same": [1], "group": {"y": (1, 2), "z": None}}
    b = {"x": 2, "same": (1,), "group": {"y": [1, 3]}, "new": "n"}
    assert differences(a, b) == ["group.y ((1, 2) and [1, 3])", "new (None and 'n')", "x (1 and 2)"]
    assert differences(a, a) == []


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("width is 3; w; d", "net.width is 3; w; d"),
        ("width is 3 and heads is 2; heads is odd; d", "net.width is 3 and net.heads is 2; heads is odd; d"),
        ("heads[1] is 0; a; b", "net.heads[1] is 0; a; b"),
        ("the file 'width is' has gone; a; b", "net: the file 'width is' has gone; a; b"),
        ("bandwidth is 3; a; b", "net: bandwidth is 3; a; b"),
    ],
)
def test_located(said, expected):
    assert str(located(UserError(said), "net", ["width", "heads"])) == expected
    assert str(located(UserError(said), "", ["width"])) == said
