"""Invalid input raises a UserError with three parts: the problem; what is allowed; the fix."""

import math
import re

import pytest
import torch

from truedrift.centroids import (
    BRSNIS,
    Bootstrap,
    StratifiedABC,
    abc_weights,
    centroid,
    estimator,
    streaming_centroid,
)
from truedrift.errors import UserError
from truedrift.kernels import pairwise_distance

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

X, Y = torch.zeros(4, 3), torch.ones(6, 3)
ALPHA = torch.full((2, 6), 1 / 6)
NAN_AT_0 = Y.index_fill(0, torch.tensor([0]), math.nan)


def assert_user_error(action, match):
    """`action` raises a UserError that matches and whose three parts are not empty."""
    with pytest.raises(UserError, match=match) as raised:
        action()
    assert raised.value.problem
    assert raised.value.allowed
    assert raised.value.fix
    assert len(str(raised.value).split("; ")) == 3
    assert re.match("must|all|the |they|their|both|it ", raised.value.allowed)


def cases(**named):
    return pytest.mark.parametrize(("changed", "match"), named.values(), ids=[name.replace("_", " ") for name in named])


FEATURES = {
    "x_is_a_list": ({"x": [[0.0] * 3]}, "x is a list; .*; convert it with torch.as_tensor"),
    "x_of_integers": ({"x": X.long()}, r"x has dtype torch.int64; must be float64.*; convert it with .float\(\)"),
    "x_of_one_dimension": ({"x": X[0]}, r"x has shape \[3\]; must be a tensor \[\.\.\., B, D\].*unsqueeze"),
    "no_queries": ({"x": X[:0]}, r"x has shape \[0, 3\] and is empty; .*; skip empty batches"),
}
TEMPERATURES = {
    "tau_of_zero": ({"tau": 0}, "tau is 0; must be a positive finite number, at least 1e-30; use the scale"),
    "tau_lost_in_float32": ({"tau": 1e-46}, "tau is 1e-46; must be a positive finite number, at least 1e-30"),
    "tau_below_zero": ({"tau": -0.1}, "tau is -0.1; must be a positive"),
    "tau_is_not_a_number": ({"tau": math.nan}, "tau is nan; must be a positive"),
    "tau_infinite": ({"tau": math.inf}, "tau is inf; must be a positive finite"),
    "tau_is_a_word": ({"tau": "0.1"}, "tau is '0.1'; must be a positive"),
    "tau_is_true": ({"tau": True}, "tau is True; must be a positive"),
    "several_tau": (
        {"tau": torch.ones(2)},
        r"tau is a tensor of shape \[2\]; .*zero-dimensional tensor; pass one temperature",
    ),
}


@cases(
    **FEATURES,
    **TEMPERATURES,
    y_of_integers=({"y": Y.int()}, "y has dtype torch.int32; must be float64"),
    y_of_booleans=({"y": Y.bool()}, "y has dtype torch.bool; must be float64"),
    y_of_one_dimension=({"y": Y[0]}, r"y has shape \[3\]; must be a tensor \[\.\.\., n, D\]"),
    no_references=({"y": Y[:0]}, r"y has shape \[0, 3\] and is empty"),
    no_features=({"x": X[:, :0], "y": Y[:, :0]}, r"x has shape \[4, 0\] and is empty"),
    other_dimension=({"y": Y[:, :2]}, "x has D = 3 and y has D = 2; their last dimensions must be equal; .*encoder"),
    other_device=(
        {"y": Y.to("meta")},
        r"x is on cpu and y is on meta; both must be on one device; move one with .to\(x.device\)",
    ),
    other_leading=(
        {"x": X.expand(2, 4, 3), "y": Y.expand(3, 6, 3)},
        r"leading dimensions of x, y are \[2\] and \[3\]; they must broadcast; unsqueeze",
    ),
    estimator=(
        {"estimator": "abc3"},
        "estimator is 'abc3'; must be one of 'standard', 'abc', 'abc2', .*; did you mean 'abc'",
    ),
    estimator_object=({"estimator": 2}, r"estimator is 2; must be a name \(standard, abc, .*; pass one of the"),
    kernel=({"kernel": "cosine"}, "kernel is 'cosine'; must be one of 'laplace', 'gaussian'; choose one of these"),
    br_snis=(
        {"estimator": "br-snis"},
        r"br-snis was given 6 references; must be iterations·\(n − 1\) \+ 1.*; pass 1 or 11",
    ),
    strata=(
        {"estimator": StratifiedABC(torch.zeros(5))},
        r"strata has shape \[5\]; must be a tensor \[6\]; pass one integer",
    ),
    mask_is_a_list=(
        {"mask": [True] * 6},
        r"mask is a list; must be a boolean tensor \[\.\.\., 6\] or \[\.\.\., 4, 6\]",
    ),
    mask_of_numbers=(
        {"mask": torch.ones(6)},
        r"mask has dtype torch.float32; must be torch.bool.*; convert it with .bool\(\)",
    ),
    mask_of_other_length=(
        {"mask": torch.ones(4, dtype=torch.bool)},
        r"mask has shape \[4\]; must have shape \[\.\.\., 6\] or \[\.\.\., 4, 6\]; pass one entry per reference",
    ),
    mask_of_no_dimension=({"mask": torch.tensor(True)}, r"mask has shape \[\]; must have shape \[\.\.\., 6\]"),
    mask_of_other_rows=(
        {"mask": torch.ones(3, 6, dtype=torch.bool)},
        r"mask has shape \[3, 6\]; must have shape .* or \[\.\.\., 4, 6\] and the leading dimensions \[\] of x and y",
    ),
    mask_of_other_leading=(
        {"x": X.expand(2, 4, 3), "mask": torch.ones(3, 4, 6, dtype=torch.bool)},
        r"mask has shape \[3, 4, 6\]; must have .* the leading dimensions \[2\] of x and y",
    ),
    nan_in_x=(
        {"x": X.log() - X.log(), "check_finite": True},
        "x has 12 entries that are NaN or infinite; .*; remove those",
    ),
    infinity_in_x=({"x": X.log(), "check_finite": True}, "x has 12 entries that are NaN or infinite"),
    nan_in_y=(
        {"y": NAN_AT_0, "check_finite": True},
        "y has 3 entries that are NaN or infinite; all entries must be finite",
    ),
)
def test_errors_of_centroid(changed, match):
    arguments = {"x": X, "y": Y, "tau": 0.5, **changed}
    assert_user_error(lambda: centroid(arguments.pop("x"), arguments.pop("y"), **arguments), match)


def test_masked_references_need_not_be_finite():
    mask = torch.arange(6) > 0
    T = centroid(X, NAN_AT_0, tau=0.5, mask=mask, check_finite=True)
    torch.testing.assert_close(T, torch.ones(4, 3))


def test_values_are_checked_only_on_request():
    assert bool(centroid(X, NAN_AT_0, tau=0.5).isnan().all())


@cases(
    order=({"order": 3}, r"order is 3; must be 1 \(ABC\) or 2 \(ABC-2\); choose one of these"),
    not_a_tensor=({"alpha": [0.5, 0.5]}, r"alpha is a list; must be a tensor or an array \[\.\.\., n\]; convert it"),
    integers=({"alpha": ALPHA.long()}, "alpha has dtype torch.int64; must be float64, float32"),
    a_number=({"alpha": torch.tensor(1.0)}, r"alpha has shape \[\]; must be a tensor \[\.\.\., n\]"),
    empty=({"alpha": ALPHA[:, :0]}, r"alpha has shape \[2, 0\].*; must be.*≥ 1; skip empty batches"),
    order_2_of_strata=({"order": 2, "strata": torch.zeros(6)}, "order is 2 with strata; the stratified .*; omit one"),
    strata_of_other_length=(
        {"strata": torch.zeros(5)},
        r"strata has shape \[5\]; must be a tensor \[6\]; pass one integer",
    ),
    strata_of_two_dimensions=({"strata": torch.zeros(2, 6)}, r"strata has shape \[2, 6\]; must be a tensor \[6\]"),
    strata_a_list=({"strata": [0] * 6}, r"strata is a list; must be a tensor \[6\]"),
    mask_of_numbers=({"strata": torch.zeros(6), "mask": ALPHA}, "mask has dtype torch.float32; must be torch.bool"),
    mask_of_other_length=(
        {"strata": torch.zeros(6), "mask": torch.ones(1, dtype=torch.bool)},
        r"mask has shape \[1\]; must have shape \[\.\.\., 6\]; pass one entry per reference",
    ),
    mask_of_other_leading=(
        {"strata": torch.zeros(6), "mask": torch.ones(3, 6, dtype=torch.bool)},
        r"leading dimensions of alpha, mask are \[2\] and \[3\]; they must broadcast",
    ),
)
def test_errors_of_abc_weights(changed, match):
    assert_user_error(lambda: abc_weights(**{"alpha": ALPHA, **changed}), match)


@cases(
    **FEATURES,
    **TEMPERATURES,
    nothing=({"chunks": iter(())}, "chunks is empty; must contain at least one chunk; check that the iterator"),
    estimator=(
        {"estimator": "jackknife"},
        "estimator is 'jackknife'; must be one of 'standard', 'abc'",
    ),
    kernel=({"kernel": "cosine", "chunks": iter(())}, "kernel is 'cosine'; must be one of 'laplace'"),
    chunk_is_a_number=({"chunks": [1.0]}, "a chunk is a float; must be a tensor"),
    chunk_of_three=({"chunks": [[Y, Y, Y]]}, r"a chunk has 3 parts; must be y, \(y,\) or \(y, mask\); omit"),
    chunk_of_integers=({"chunks": [Y, Y.long()]}, "a chunk has dtype torch.int64; must be float64"),
    rows_for_chunks=({"chunks": Y}, r"a chunk has shape \[3\]; must be a tensor \[\.\.\., n, D\]"),
    empty_chunk=({"chunks": [Y[:0]]}, r"a chunk has shape \[0, 3\] and is empty"),
    other_dimension=({"chunks": [Y, Y[:, :2]]}, "x has D = 3 and chunk has D = 2; their last dimensions must be equal"),
    other_leading=(
        {"x": X.expand(2, 4, 3), "chunks": [Y.expand(3, 6, 3)]},
        r"leading dimensions of x, chunk are \[2\] and \[3\]; they must broadcast",
    ),
    mask_of_numbers=({"chunks": [(Y, torch.ones(6))]}, "mask has dtype torch.float32; must be torch.bool"),
    mask_of_other_length=(
        {"chunks": [(Y, torch.ones(5, dtype=torch.bool))]},
        r"mask has shape \[5\]; must have shape \[\.\.\., 6\]",
    ),
    nan_in_x=({"x": X.log() - X.log(), "check_finite": True}, "x has 12 entries that are NaN or infinite"),
    nan_in_a_chunk=({"chunks": [Y, NAN_AT_0], "check_finite": True}, "chunk has 3 entries that are NaN or infinite"),
)
def test_errors_of_streaming_centroid(changed, match):
    arguments = {"x": X, "chunks": [Y], "tau": 0.5, **changed}
    assert_user_error(lambda: streaming_centroid(arguments.pop("x"), arguments.pop("chunks"), **arguments), match)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Bootstrap(resamples=0), "resamples is 0; must be an integer ≥ 1; pass for example 100"),
        (lambda: Bootstrap(resamples=2.5), "resamples is 2.5; must be an integer ≥ 1"),
        (lambda: BRSNIS(burn_in=0.5), "burn_in is 0.5 with iterations = 10; must be integers"),
        (lambda: BRSNIS(iterations=0, burn_in=0), "burn_in is 0 with iterations = 0; must be integers with 0 ≤"),
        (
            lambda: BRSNIS(burn_in=10),
            "burn_in is 10 with iterations = 10; must.*; pass for example burn_in=1, iterations=10",
        ),
        (lambda: BRSNIS(burn_in=-1), "burn_in is -1 with iterations = 10"),
        (lambda: estimator("ABC"), "estimator is 'ABC'; must be one of 'standard', 'abc'"),
        (lambda: estimator(None), "estimator is None; must be a name"),
        (
            lambda: pairwise_distance(X, Y, method="cdist"),
            "method is 'cdist'; must be one of 'auto', 'exact', 'matmul'",
        ),
    ],
)
def test_errors_of_options(make, match):
    assert_user_error(make, match)


@pytest.mark.parametrize(("m", "below", "above"), [(12, 11, 21), (2, 1, 11), (30, 21, 31)])
def test_br_snis_error_suggests_the_nearest_valid_numbers_of_references(m, below, above):
    log_w = torch.zeros(3, m)
    assert_user_error(
        lambda: BRSNIS().reweight(log_w), f"br-snis was given {m} references; .*; pass {below} or {above}$"
    )
    for allowed in (below, above):
        assert BRSNIS().reweight(torch.zeros(3, allowed)).shape == (3, allowed)


def test_further_errors_of_centroid():
    assert_user_error(
        lambda: centroid(X, Y, tau=0.1, kernel=lambda x, y, tau: torch.full((4, 6), torch.nan), check_finite=True),
        "the kernel returned 24 values that are NaN or .infinity; it must return logarithms",
    )
    assert_user_error(
        lambda: centroid(X, Y, tau=torch.tensor(-1.0), check_finite=True),
        "tau has an entry of -1.0; all entries must be greater than 0",
    )
    assert_user_error(
        lambda: centroid(X, Y, tau=0.1, estimator=Bootstrap), "estimator is <class .*Bootstrap.>; must be a name"
    )
    mask = torch.ones(4, 6, dtype=torch.bool)
    assert_user_error(
        lambda: centroid(X[None], Y[None], tau=0.1, mask=mask),
        r"mask has shape \[4, 6\]; must have .* leading dimensions \[1\] of x and y; .* unsqueeze it to 3 dimensions",
    )
    assert_user_error(
        lambda: abc_weights(ALPHA, mask=mask[0]), "mask is given without strata; it can only be used with strata"
    )


def test_temperature_may_be_a_numpy_number():
    import numpy as np

    torch.testing.assert_close(centroid(X, Y, tau=np.float32(0.5)), centroid(X, Y, tau=0.5))


def test_chunks_may_be_the_lists_of_a_data_loader():
    chunks = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(Y), batch_size=4)
    torch.testing.assert_close(streaming_centroid(X, chunks, tau=0.5), centroid(X, Y, tau=0.5))
