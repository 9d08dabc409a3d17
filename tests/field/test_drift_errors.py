"""Invalid input raises a UserError with three parts: the problem; what is allowed; the fix."""

import pytest
import torch

from truedrift.errors import UserError
from truedrift.field import drift

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

X, Y_POS, Y_NEG = torch.zeros(4, 3), torch.ones(6, 3), -torch.ones(5, 3)
NAN = torch.full((6, 3), torch.nan)

MISTAKES = {
    "tau zero": ({"tau": 0.0}, "tau is 0.0; must be a positive finite number"),
    "tau negative": ({"tau": -0.1}, "tau is -0.1; must be"),
    "tau infinite": ({"tau": float("inf")}, "tau is inf; must be"),
    "tau NaN": ({"tau": float("nan")}, "tau is nan; must be"),
    "tau a string": ({"tau": "0.1"}, "tau is '0.1'; must be"),
    "tau a bool": ({"tau": True}, "tau is True; must be"),
    "tau with dimensions": ({"tau": torch.ones(2)}, r"tau is a tensor of shape \[2\]; must be"),
    "normalization": (
        {"normalization": "column"},
        "normalization is 'column'; must be one of 'row', 'bidirectional', ",
    ),
    "form": ({"form": "sum"}, "form is 'sum'; must be one of 'separate', 'product'"),
    "estimator_pos": ({"estimator_pos": "best"}, "estimator_pos is 'best'; must be one of 'standard', 'abc', "),
    "estimator_neg": ({"estimator_neg": "none"}, "estimator_neg is 'none'; must be one of"),
    "estimator_pos an object": ({"estimator_pos": object()}, "estimator_pos is <object object .*>; must be a name"),
    "estimator_neg a number": ({"estimator_neg": 2}, "estimator_neg is 2; must be a name"),
    "kernel": ({"kernel": "cauchy"}, "kernel is 'cauchy'; must be one of 'laplace', 'gaussian'"),
    "x a list": ({"x": [[0.0]]}, r"x is a list; must be a tensor \[..., B, D\]"),
    "x integers": ({"x": torch.zeros(4, 3, dtype=torch.long)}, "x has dtype torch.int64; must be float64"),
    "x a vector": ({"x": torch.zeros(3)}, r"x has shape \[3\]; must be a tensor \[..., B, D\]"),
    "no query": ({"x": torch.zeros(0, 3)}, r"x has shape \[0, 3\] and is empty; must be"),
    "no positives": ({"y_pos": torch.zeros(0, 3)}, r"y_pos has shape \[0, 3\] and is empty; must be"),
    "no negatives": ({"y_neg": torch.zeros(0, 3)}, r"y_neg has shape \[0, 3\] and is empty; must be"),
    "no dimension": ({"y_neg": torch.zeros(5, 0)}, r"y_neg has shape \[5, 0\] and is empty; must be"),
    "D of positives": ({"y_pos": torch.ones(6, 2)}, "x has D = 3 and y_pos has D = 2; their last"),
    "D of negatives": ({"y_neg": torch.ones(5, 4)}, "x has D = 3 and y_neg has D = 4; their last"),
    "leading dimensions": (
        {"x": torch.zeros(2, 4, 3), "y_pos": torch.ones(3, 6, 3)},
        r"leading dimensions of x, y_pos, y_neg are \[2\] and \[3\] and \[\]; they must broadcast",
    ),
    "self_mask and sizes": ({"self_mask": True}, "self_mask is True with 4 queries and 5 negatives; True requires"),
    "self_mask dtype": ({"self_mask": torch.zeros(4)}, r"self_mask is torch.float32 \[4\]; must be False, True or"),
    "self_mask shape": ({"self_mask": torch.zeros(5, dtype=torch.long)}, r"self_mask is torch.int64 \[5\]; must"),
    "self_mask beyond": (
        {"self_mask": torch.tensor([0, 1, 2, 5]), "check_finite": True},
        "self_mask has columns from 0 to 5; must be between −1 and 4",
    ),
    "self_mask below": (
        {"self_mask": torch.tensor([0, 1, 2, -2]), "check_finite": True},
        "self_mask has columns from -2 to 2; must be between −1 and 4",
    ),
    "kernel infinite for positives": (
        {"kernel": lambda x, y, tau: torch.full((4, len(y)), torch.inf if len(y) == 6 else 0.0), "check_finite": True},
        "the kernel returned 24 values that are NaN or .infinity",
    ),
    "kernel NaN for negatives": (
        {"kernel": lambda x, y, tau: torch.full((4, len(y)), torch.nan if len(y) == 5 else 0.0), "check_finite": True},
        "the kernel returned 20 values that are NaN or .infinity",
    ),
    "self_mask a number": ({"self_mask": 1}, r"self_mask is 1; must be False, True or an int64 tensor \[4\]"),
    "self_mask None": ({"self_mask": None}, r"self_mask is None; must be False, True or an int64 tensor \[4\]"),
    "self_mask None with matched": (
        {"self_mask": None, "matched": True},
        "self_mask is None with matched=True; must be True or False; pass True if y_neg.i. is x.i., and False",
    ),
    "self_mask a number with matched": (
        {"self_mask": 1, "matched": True},
        "self_mask is 1 with matched=True; must be True or False; pass True if",
    ),
    "self_mask and sizes with matched": (
        {"self_mask": True, "matched": True, "mask_neg": torch.ones(5, dtype=torch.bool)},
        "self_mask is True with 4 queries and 5 negatives; True requires",
    ),
    "mask dtype": ({"mask_pos": torch.ones(6)}, "mask_pos has dtype torch.float32; must be torch.bool"),
    "mask length": (
        {"mask_neg": torch.ones(6, dtype=torch.bool)},
        r"mask_neg has shape \[6\]; must have shape \[..., 5\]",
    ),
    "mask rows": ({"mask_pos": torch.ones(3, 6, dtype=torch.bool)}, r"mask_pos has shape \[3, 6\]; must have shape"),
    "NaN": (
        {"y_pos": NAN, "check_finite": True},
        "y_pos has 18 entries that are NaN or infinite; all entries must be finite",
    ),
    "NaN in y_neg": (
        {"y_neg": NAN, "check_finite": True},
        "y_neg has 18 entries that are NaN or infinite; all entries must be finite",
    ),
    "infinity": (
        {"x": X / 0 + torch.inf, "check_finite": True},
        "x has 12 entries that are NaN or infinite; all entries must be finite",
    ),
}


@pytest.mark.parametrize(("changed", "match"), MISTAKES.values(), ids=MISTAKES)
def test_error_has_three_parts(changed, match):
    arguments = {"x": X, "y_pos": Y_POS, "y_neg": Y_NEG, "tau": 0.1} | changed
    with pytest.raises(UserError, match=match) as raised:
        drift(**arguments)
    assert raised.value.problem
    assert raised.value.allowed
    assert raised.value.fix
    assert len(str(raised.value).split("; ")) == 3


def test_valid_arguments_are_accepted():
    """Negative control: the valid arguments, which each mistake above changes, are accepted."""
    assert drift(X, Y_POS, Y_NEG, tau=0.1, check_finite=True).V.shape == (4, 3)
    own = torch.tensor([-1, 0, 4, -1])
    assert drift(X, Y_POS, Y_NEG, tau=0.1, self_mask=own, check_finite=True).V.shape == (4, 3)


def test_nan_is_checked_only_on_request_and_not_in_masked_references():
    y_pos = Y_POS.clone()
    y_pos[2] = torch.nan
    assert drift(X, y_pos, Y_NEG, tau=0.1).V.isnan().all()
    mask = torch.arange(6) != 2
    assert torch.isfinite(drift(X, y_pos, Y_NEG, tau=0.1, mask_pos=mask, check_finite=True).V).all()
