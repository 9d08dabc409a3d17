"""A user's mistake is answered by a ValueError of three parts: what came; what is allowed; what to do."""

import pytest
import torch

from truedrift.field.drift import drift

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

X, Y_POS, Y_NEG = torch.zeros(4, 3), torch.ones(6, 3), -torch.ones(5, 3)
NAN = torch.full((6, 3), torch.nan)

MISTAKES = {
    "tau zero": ({"tau": 0.0}, "tau is 0.0; allowed is a positive finite number"),
    "tau negative": ({"tau": -0.1}, "tau is -0.1; allowed"),
    "tau infinite": ({"tau": float("inf")}, "tau is inf; allowed"),
    "tau NaN": ({"tau": float("nan")}, "tau is nan; allowed"),
    "tau a string": ({"tau": "0.1"}, "tau is '0.1'; allowed"),
    "tau a bool": ({"tau": True}, "tau is True; allowed"),
    "tau with dimensions": ({"tau": torch.ones(2)}, r"tau is a tensor of shape \[2\]; allowed"),
    "normalization": ({"normalization": "column"}, "normalization is 'column'; allowed are 'row', 'bidirectional', "),
    "form": ({"form": "sum"}, "form is 'sum'; allowed are 'separate', 'product'"),
    "estimator_pos": ({"estimator_pos": "best"}, "estimator is 'best'; allowed are 'standard', 'abc', "),
    "estimator_neg": ({"estimator_neg": "none"}, "estimator is 'none'; allowed are"),
    "estimator an object": ({"estimator_pos": object()}, "estimator is a object; allowed"),
    "kernel": ({"kernel": "cauchy"}, "kernel is 'cauchy'; allowed are 'laplace', 'gaussian'"),
    "x a list": ({"x": [[0.0]]}, r"x is a list; allowed is a tensor \[..., B, D\]"),
    "x integers": ({"x": torch.zeros(4, 3, dtype=torch.long)}, "x has dtype torch.int64; allowed"),
    "x a vector": ({"x": torch.zeros(3)}, r"x has shape \[3\]; allowed is a tensor \[..., B, D\]"),
    "no query": ({"x": torch.zeros(0, 3)}, r"x has shape \[0, 3\], which holds nothing; allowed"),
    "no positives": ({"y_pos": torch.zeros(0, 3)}, r"y_pos has shape \[0, 3\], which holds nothing; allowed"),
    "no negatives": ({"y_neg": torch.zeros(0, 3)}, r"y_neg has shape \[0, 3\], which holds nothing; allowed"),
    "no dimension": ({"y_neg": torch.zeros(5, 0)}, r"y_neg has shape \[5, 0\], which holds nothing; allowed"),
    "D of positives": ({"y_pos": torch.ones(6, 2)}, "x has D = 3 and y_pos has D = 2; the last"),
    "D of negatives": ({"y_neg": torch.ones(5, 4)}, "x has D = 3 and y_neg has D = 4; the last"),
    "leading dimensions": (
        {"x": torch.zeros(2, 4, 3), "y_pos": torch.ones(3, 6, 3)},
        r"leading dimensions of x, y_pos, y_neg are \[2\] and \[3\] and \[\]; they must broadcast",
    ),
    "self_mask and sizes": ({"self_mask": True}, "self_mask is True with 4 queries and 5 negatives; that needs"),
    "self_mask dtype": ({"self_mask": torch.zeros(4)}, r"self_mask is torch.float32 \[4\]; allowed is False, True or"),
    "self_mask shape": ({"self_mask": torch.zeros(5, dtype=torch.long)}, r"self_mask is torch.int64 \[5\]; allowed"),
    "self_mask beyond": (
        {"self_mask": torch.tensor([0, 1, 2, 5]), "check_finite": True},
        "self_mask has columns from 0 to 5; allowed are −1 to 4",
    ),
    "kernel of NaN": (
        {"kernel": lambda x, y, tau: torch.full((4, y.shape[0]), torch.inf), "check_finite": True},
        "the kernel returned .* values that are NaN or .infinity",
    ),
    "self_mask a number": ({"self_mask": 1}, r"self_mask is 1; allowed is False, True or a LongTensor \[4\]"),
    "mask dtype": ({"mask_pos": torch.ones(6)}, "mask_pos has dtype torch.float32; allowed is torch.bool"),
    "mask length": ({"mask_neg": torch.ones(6, dtype=torch.bool)}, r"mask_neg has shape \[6\]; allowed is \[..., 5\]"),
    "mask rows": ({"mask_pos": torch.ones(3, 6, dtype=torch.bool)}, r"mask_pos has shape \[3, 6\]; allowed is"),
    "NaN": ({"y_pos": NAN, "check_finite": True}, "y_pos has 18 entries that are NaN or infinite; allowed"),
    "infinity": ({"x": X / 0 + torch.inf, "check_finite": True}, "x has 12 entries that are NaN or infinite; allowed"),
}


@pytest.mark.parametrize(("changed", "match"), MISTAKES.values(), ids=MISTAKES)
def test_mistake_is_answered_in_three_parts(changed, match):
    arguments = {"x": X, "y_pos": Y_POS, "y_neg": Y_NEG, "tau": 0.1} | changed
    with pytest.raises(ValueError, match=match) as raised:
        drift(**arguments)
    came, allowed, do = str(raised.value).split("; ")
    assert came
    assert allowed
    assert do


def test_the_same_call_without_the_mistake_works():
    """Negative control: what the mistakes above are changes of is accepted."""
    assert drift(X, Y_POS, Y_NEG, tau=0.1, check_finite=True).V.shape == (4, 3)


def test_nan_is_looked_for_only_on_request_and_not_in_masked_slots():
    y_pos = Y_POS.clone()
    y_pos[2] = torch.nan
    assert drift(X, y_pos, Y_NEG, tau=0.1).V.isnan().all()
    mask = torch.arange(6) != 2
    assert torch.isfinite(drift(X, y_pos, Y_NEG, tau=0.1, mask_pos=mask, check_finite=True).V).all()
