"""What a user's mistake is answered with: a ValueError of three parts, what came; what is allowed; what to do."""

import math
import re

import pytest
import torch

from truedrift.centroids.analytical import StratifiedABC, abc_weights
from truedrift.centroids.catalog import estimator
from truedrift.centroids.centroid import centroid
from truedrift.centroids.resampling import BRSNIS, Bootstrap
from truedrift.centroids.streaming import streaming_centroid
from truedrift.kernels.distance import pairwise_distance

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

X, Y = torch.zeros(4, 3), torch.ones(6, 3)
ALPHA = torch.full((2, 6), 1 / 6)
NAN_AT_0 = Y.index_fill(0, torch.tensor([0]), math.nan)


def answered(action, match):
    """`action` is answered with a ValueError of three non-empty parts that matches."""
    with pytest.raises(ValueError, match=match) as raised:
        action()
    parts = str(raised.value).split("; ")
    assert len(parts) == 3
    assert all(parts)
    assert re.match("allowed|the |they|both", parts[1])


def cases(**named):
    return pytest.mark.parametrize(("changed", "match"), named.values(), ids=[name.replace("_", " ") for name in named])


FEATURES = {
    "x_is_a_list": ({"x": [[0.0] * 3]}, "x is a list; .*; convert it with torch.as_tensor"),
    "x_of_integers": ({"x": X.long()}, r"x has dtype torch.int64; allowed are float64.*; call .float\(\)"),
    "x_of_one_dimension": ({"x": X[0]}, r"x has shape \[3\]; allowed is a tensor \[\.\.\., B, D\].*unsqueeze"),
    "no_queries": ({"x": X[:0]}, r"x has shape \[0, 3\], which holds nothing; .*; skip empty batches"),
}
TEMPERATURES = {
    "tau_of_zero": ({"tau": 0}, "tau is 0; allowed is a positive finite number of at least 1e-30; take the scale"),
    "tau_lost_in_float32": ({"tau": 1e-46}, "tau is 1e-46; allowed is a positive finite number of at least 1e-30"),
    "tau_below_zero": ({"tau": -0.1}, "tau is -0.1; allowed is a positive"),
    "tau_is_not_a_number": ({"tau": math.nan}, "tau is nan; allowed is a positive"),
    "tau_infinite": ({"tau": math.inf}, "tau is inf; allowed is a positive finite"),
    "tau_is_a_word": ({"tau": "0.1"}, "tau is '0.1'; allowed is a positive"),
    "tau_is_true": ({"tau": True}, "tau is True; allowed is a positive"),
    "several_tau": ({"tau": torch.ones(2)}, r"tau is a tensor of shape \[2\]; .*no dimensions; pass one temperature"),
}


@cases(
    **FEATURES,
    **TEMPERATURES,
    y_of_integers=({"y": Y.int()}, "y has dtype torch.int32; allowed are float64"),
    y_of_booleans=({"y": Y.bool()}, "y has dtype torch.bool; allowed are float64"),
    y_of_one_dimension=({"y": Y[0]}, r"y has shape \[3\]; allowed is a tensor \[\.\.\., n, D\]"),
    no_references=({"y": Y[:0]}, r"y has shape \[0, 3\], which holds nothing"),
    no_features=({"x": X[:, :0], "y": Y[:, :0]}, r"x has shape \[4, 0\], which holds nothing"),
    other_dimension=({"y": Y[:, :2]}, "x has D = 3 and y has D = 2; the last dimensions must be equal; .*encoder"),
    other_device=({"y": Y.to("meta")}, r"x is on cpu and y on meta; both must be on one device; call .to\(x.device\)"),
    other_leading=(
        {"x": X.expand(2, 4, 3), "y": Y.expand(3, 6, 3)},
        r"leading dimensions of x, y are \[2\] and \[3\]; they must broadcast; unsqueeze",
    ),
    estimator=({"estimator": "abc3"}, "estimator is 'abc3'; allowed are 'standard', 'abc', 'abc2', .*; choose one"),
    estimator_object=({"estimator": 2}, r"estimator is a int; allowed is a name \(standard, abc, .*; pass one of the"),
    kernel=({"kernel": "cosine"}, "kernel is 'cosine'; allowed are 'laplace', 'gaussian'; choose one of them"),
    br_snis=(
        {"estimator": "br-snis"},
        r"br-snis was given 6 references; allowed is iterations·\(n − 1\) \+ 1.*; pass 1 or 11",
    ),
    strata=(
        {"estimator": StratifiedABC(torch.zeros(5))},
        r"strata has shape \[5\]; allowed is a tensor \[6\]; give one id",
    ),
    mask_is_a_list=(
        {"mask": [True] * 6},
        r"mask is a list; allowed is a boolean tensor \[\.\.\., 6\] or \[\.\.\., 4, 6\]",
    ),
    mask_of_numbers=({"mask": torch.ones(6)}, r"mask has dtype torch.float32; allowed is torch.bool.*; call .bool\(\)"),
    mask_of_other_length=(
        {"mask": torch.ones(4, dtype=torch.bool)},
        r"mask has shape \[4\]; allowed is \[\.\.\., 6\] or \[\.\.\., 4, 6\]; give one entry a reference",
    ),
    mask_of_no_dimension=({"mask": torch.tensor(True)}, r"mask has shape \[\]; allowed is \[\.\.\., 6\]"),
    mask_of_other_rows=(
        {"mask": torch.ones(3, 6, dtype=torch.bool)},
        r"mask has shape \[3, 6\]; allowed.*one row a query",
    ),
    mask_of_other_leading=(
        {"x": X.expand(2, 4, 3), "mask": torch.ones(3, 4, 6, dtype=torch.bool)},
        r"leading dimensions of mask, x and y are \[3\] and \[2\] and \[\]; they must broadcast",
    ),
    nan_in_x=(
        {"x": X.log() - X.log(), "check_finite": True},
        "x has 12 entries that are NaN or infinite; .*; leave those",
    ),
    infinity_in_x=({"x": X.log(), "check_finite": True}, "x has 12 entries that are NaN or infinite"),
    nan_in_y=({"y": NAN_AT_0, "check_finite": True}, "y has 3 entries that are NaN or infinite; allowed are finite"),
)
def test_mistakes_in_centroid(changed, match):
    arguments = {"x": X, "y": Y, "tau": 0.5, **changed}
    answered(lambda: centroid(arguments.pop("x"), arguments.pop("y"), **arguments), match)


def test_what_is_masked_need_not_be_finite():
    mask = torch.arange(6) > 0
    T = centroid(X, NAN_AT_0, tau=0.5, mask=mask, check_finite=True)
    torch.testing.assert_close(T, torch.ones(4, 3))


def test_values_are_looked_at_only_on_request():
    assert bool(centroid(X, NAN_AT_0, tau=0.5).isnan().all())


@cases(
    order=({"order": 3}, r"order is 3; allowed are 1 \(ABC\) and 2 \(ABC-2\); choose one of them"),
    not_a_tensor=({"alpha": [0.5, 0.5]}, r"alpha is a list; allowed is a tensor \[\.\.\., n\].*; convert it"),
    integers=({"alpha": ALPHA.long()}, "alpha has dtype torch.int64; allowed are float64, float32"),
    a_number=({"alpha": torch.tensor(1.0)}, r"alpha has shape \[\]; allowed is a tensor \[\.\.\., n\]"),
    empty=({"alpha": ALPHA[:, :0]}, r"alpha has shape \[2, 0\]; allowed.*at least 1; skip empty batches"),
    order_2_of_strata=({"order": 2, "strata": torch.zeros(6)}, "order is 2 with strata; the stratified .*; drop one"),
    strata_of_other_length=({"strata": torch.zeros(5)}, r"strata has shape \[5\]; allowed is a tensor \[6\]; give one"),
    strata_of_two_dimensions=({"strata": torch.zeros(2, 6)}, r"strata has shape \[2, 6\]; allowed is a tensor \[6\]"),
    strata_a_list=({"strata": [0] * 6}, r"strata is a list; allowed is a tensor \[6\]"),
    mask_of_numbers=({"strata": torch.zeros(6), "mask": ALPHA}, "mask has dtype torch.float32; allowed is torch.bool"),
    mask_of_other_length=(
        {"strata": torch.zeros(6), "mask": torch.ones(1, dtype=torch.bool)},
        r"mask has shape \[1\]; allowed is \[\.\.\., 6\]; give one entry a reference",
    ),
    mask_of_other_leading=(
        {"strata": torch.zeros(6), "mask": torch.ones(3, 6, dtype=torch.bool)},
        r"leading dimensions of alpha, mask are \[2\] and \[3\]; they must broadcast",
    ),
)
def test_mistakes_in_abc_weights(changed, match):
    answered(lambda: abc_weights(**{"alpha": ALPHA, **changed}), match)


@cases(
    **FEATURES,
    **TEMPERATURES,
    nothing=({"chunks": iter(())}, "chunks held no references; allowed is one chunk or more; check that the iterator"),
    estimator=(
        {"estimator": "jackknife"},
        "estimator of a streaming centroid is 'jackknife'; allowed are 'standard', 'abc'",
    ),
    kernel=({"kernel": "cosine", "chunks": iter(())}, "kernel is 'cosine'; allowed are 'laplace'"),
    chunk_is_a_number=({"chunks": [1.0]}, "a chunk is a float; allowed is a tensor"),
    chunk_of_three=({"chunks": [[Y, Y, Y]]}, r"a chunk has 3 parts; allowed is y, \(y,\) or \(y, mask\); leave out"),
    chunk_of_integers=({"chunks": [Y, Y.long()]}, "a chunk has dtype torch.int64; allowed are float64"),
    rows_for_chunks=({"chunks": Y}, r"a chunk has shape \[3\]; allowed is a tensor \[\.\.\., n, D\]"),
    empty_chunk=({"chunks": [Y[:0]]}, r"a chunk has shape \[0, 3\], which holds nothing"),
    other_dimension=({"chunks": [Y, Y[:, :2]]}, "x has D = 3 and chunk has D = 2; the last dimensions must be equal"),
    other_leading=(
        {"x": X.expand(2, 4, 3), "chunks": [Y.expand(3, 6, 3)]},
        r"leading dimensions of x, chunk are \[2\] and \[3\]; they must broadcast",
    ),
    mask_of_numbers=({"chunks": [(Y, torch.ones(6))]}, "mask has dtype torch.float32; allowed is torch.bool"),
    mask_of_other_length=(
        {"chunks": [(Y, torch.ones(5, dtype=torch.bool))]},
        r"mask has shape \[5\]; allowed is \[\.\.\., 6\]",
    ),
    nan_in_x=({"x": X.log() - X.log(), "check_finite": True}, "x has 12 entries that are NaN or infinite"),
    nan_in_a_chunk=({"chunks": [Y, NAN_AT_0], "check_finite": True}, "chunk has 3 entries that are NaN or infinite"),
)
def test_mistakes_in_streaming_centroid(changed, match):
    arguments = {"x": X, "chunks": [Y], "tau": 0.5, **changed}
    answered(lambda: streaming_centroid(arguments.pop("x"), arguments.pop("chunks"), **arguments), match)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Bootstrap(resamples=0), "resamples is 0; allowed is an integer from 1; the paper takes 100"),
        (lambda: Bootstrap(resamples=2.5), "resamples is 2.5; allowed is an integer from 1"),
        (lambda: BRSNIS(burn_in=0.5), "burn_in is 0.5 of 10 iterations; allowed are integers"),
        (lambda: BRSNIS(iterations=0, burn_in=0), "burn_in is 0 of 0 iterations; allowed are integers with 0 ≤"),
        (lambda: BRSNIS(burn_in=10), "burn_in is 10 of 10 iterations; allowed.*; the paper takes 1 of 10"),
        (lambda: BRSNIS(burn_in=-1), "burn_in is -1 of 10 iterations"),
        (lambda: estimator("ABC"), "estimator is 'ABC'; allowed are 'standard', 'abc'"),
        (lambda: estimator(None), "estimator is a NoneType; allowed is a name"),
        (lambda: pairwise_distance(X, Y, method="cdist"), "method is 'cdist'; allowed are 'auto', 'exact', 'matmul'"),
    ],
)
def test_mistakes_in_settings(make, match):
    answered(make, match)


@pytest.mark.parametrize(("m", "below", "above"), [(12, 11, 21), (2, 1, 11), (30, 21, 31)])
def test_br_snis_names_the_nearest_numbers_of_references_that_it_reads(m, below, above):
    log_w = torch.zeros(3, m)
    answered(lambda: BRSNIS().reweight(log_w), f"br-snis was given {m} references; .*; pass {below} or {above}$")
    for allowed in (below, above):
        assert BRSNIS().reweight(torch.zeros(3, allowed)).shape == (3, allowed)


def test_more_mistakes_in_centroid():
    answered(
        lambda: centroid(X, Y, tau=0.1, kernel=lambda x, y, tau: torch.full((4, 6), torch.nan), check_finite=True),
        "the kernel returned 24 values that are NaN or .infinity; allowed are logarithms",
    )
    answered(lambda: centroid(X, Y, tau=torch.tensor(-1.0), check_finite=True), "tau has an entry of -1.0; allowed are")
    answered(lambda: centroid(X, Y, tau=0.1, estimator=Bootstrap), "estimator is a type; allowed is a name")
    mask = torch.ones(4, 6, dtype=torch.bool)
    answered(
        lambda: centroid(X[None], Y[None], tau=0.1, mask=mask),
        r"mask has leading dimensions \[4\], which would repeat x and y; allowed are those of x and y, \[1\]",
    )
    answered(lambda: abc_weights(ALPHA, mask=mask[0]), "mask is given without strata; allowed is both or strata alone")


def test_a_temperature_of_numpy_is_a_number():
    import numpy as np

    torch.testing.assert_close(centroid(X, Y, tau=np.float32(0.5)), centroid(X, Y, tau=0.5))


def test_chunks_of_a_data_loader_are_lists():
    chunks = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(Y), batch_size=4)
    torch.testing.assert_close(streaming_centroid(X, chunks, tau=0.5), centroid(X, Y, tau=0.5))
