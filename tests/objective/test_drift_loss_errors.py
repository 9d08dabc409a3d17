"""Invalid input raises a UserError with three parts: the problem; what is allowed; the fix."""

import pytest
import torch

from truedrift.errors import UserError
from truedrift.objective import drift_loss

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

GEN, POS, NEG = (torch.randn(2, rows, 6, generator=torch.Generator().manual_seed(rows)) for rows in (4, 5, 3))

MISTAKES = {
    "temperatures a number": ({"temperatures": 0.1}, "temperatures is a float; must be a tuple or list of positive"),
    "temperatures a tensor": ({"temperatures": torch.ones(2)}, "temperatures is a Tensor; must be a tuple or list"),
    "no temperature": ({"temperatures": ()}, "temperatures is empty; must hold at least one"),
    "temperature zero": ({"temperatures": (0.1, 0.0)}, r"temperatures\[1\] is 0.0; must be a positive finite"),
    "temperature NaN": ({"temperatures": (float("nan"),)}, r"temperatures\[0\] is nan; must be"),
    "normalization": ({"normalization": "loo"}, "normalization is 'loo'; must be one of 'row', 'bidirectional', "),
    "form": ({"form": "sum"}, "form is 'sum'; must be one of 'separate', 'product'"),
    "feature_scale": ({"feature_scale": "unit"}, "feature_scale is 'unit'; must be one of 'standardize-l2', "),
    "path": ({"path": "fast"}, "path is 'fast'; must be one of 'auto', 'general', 'gram'"),
    "path and scale": (
        {"path": "gram", "feature_scale": "none"},
        "path is 'gram' with feature_scale 'none' and kernel 'laplace'; it requires 'standardize-l2' and 'laplace'",
    ),
    "one scale for all groups": (
        {"scale_over_batch": True},
        "scale_over_batch is True with feature_scale 'standardize-l2'; it requires 'mean-distance'",
    ),
    "estimator_pos": ({"estimator_pos": "best"}, "estimator_pos is 'best'; must be one of 'standard', 'abc', "),
    "estimator_neg": ({"estimator_neg": None}, "estimator_neg is None; must be a name"),
    "BR-SNIS pos": ({"estimator_pos": "br-snis"}, "estimator_pos is 'br-snis'; the loss .* needs 10 times"),
    "BR-SNIS neg": ({"estimator_neg": "br-snis"}, "estimator_neg is 'br-snis'; the loss .* needs 10 times"),
    "one pool": ({"neg": NEG, "estimator_neg": "abc2"}, "estimator_neg is 'abc2' with unconditional negatives; its"),
    "gen a list": ({"gen": [[0.0]]}, r"gen is a list; must be a tensor \[..., n, D\]"),
    "gen a vector": ({"gen": torch.zeros(6)}, r"gen has shape \[6\]; must be a tensor \[..., n, D\]"),
    "gen integers": ({"gen": GEN.long()}, "gen has dtype torch.int64; must be float64"),
    "no gen": ({"gen": torch.zeros(2, 0, 6)}, r"gen has shape \[2, 0, 6\] and is empty; must be"),
    "no pos": ({"pos": torch.zeros(2, 0, 6)}, r"pos has shape \[2, 0, 6\] and is empty; must be"),
    "no neg": ({"neg": torch.zeros(2, 0, 6)}, r"neg has shape \[2, 0, 6\] and is empty; must be"),
    "no group": ({"gen": torch.zeros(0, 4, 6)}, r"gen has shape \[0, 4, 6\] and is empty; must be"),
    "D of pos": ({"pos": torch.zeros(2, 5, 7)}, "gen has D = 6 and pos has D = 7; their last dimensions must be equal"),
    "D of neg": ({"neg": torch.zeros(2, 5, 7)}, "gen has D = 6 and neg has D = 7; their last dimensions must be equal"),
    "groups of pos": ({"pos": POS[0]}, r"gen has leading dimensions \[2\] and pos \[\]; they must be equal"),
    "groups of neg": ({"neg": NEG[:1]}, r"gen has leading dimensions \[2\] and neg \[1\]; they must be equal"),
    "weights without neg": ({"weight_neg": 1.0}, "weight_neg is given without neg; both or neither must be given"),
    "weights of another length": (
        {"neg": NEG, "weight_neg": torch.ones(4)},
        r"weight_neg has shape \[4\]; must be a number ≥ 0 or a tensor that broadcasts to \[2, 3\]",
    ),
    "weights of more dimensions": (
        {"neg": NEG, "weight_neg": torch.ones(5, 2, 3)},
        r"weight_neg has shape \[5, 2, 3\]; must be",
    ),
    "negative weight": ({"neg": NEG, "weight_neg": -0.5}, "weight_neg is -0.5; must be a number ≥ 0"),
    "infinite weight": ({"neg": NEG, "weight_neg": float("inf")}, "weight_neg is inf; must be"),
    "weight NaN": ({"neg": NEG, "weight_neg": float("nan")}, "weight_neg is nan; must be"),
    "weight a string": ({"neg": NEG, "weight_neg": "1"}, "weight_neg is '1'; must be"),
    "NaN": (
        {"pos": POS * torch.nan, "check_finite": True},
        "pos has 60 entries that are NaN or infinite; all entries must be finite",
    ),
    "NaN in gen": (
        {"gen": GEN / 0, "check_finite": True},
        "gen has 48 entries that are NaN or infinite; all entries must be finite",
    ),
    "NaN in weights": (
        {"neg": NEG, "weight_neg": torch.full((3,), torch.nan), "check_finite": True},
        "weight_neg has 6 entries that are NaN or infinite; all entries must be finite",
    ),
}


@pytest.mark.parametrize(("changed", "match"), MISTAKES.values(), ids=MISTAKES)
def test_error_has_three_parts(changed, match):
    with pytest.raises(UserError, match=match) as raised:
        drift_loss(**({"gen": GEN, "pos": POS} | changed))
    assert raised.value.problem
    assert raised.value.allowed
    assert raised.value.fix
    assert len(str(raised.value).split("; ")) == 3


def test_valid_arguments_are_accepted():
    """Negative control: the valid arguments, which each mistake above changes, are accepted."""
    assert drift_loss(GEN, POS, check_finite=True).loss.shape == (2,)
    assert drift_loss(GEN, POS, NEG, weight_neg=torch.ones(3), check_finite=True).loss.shape == (2,)


def test_values_are_checked_only_on_request():
    assert drift_loss(GEN * torch.nan, POS).loss.isnan().all()


def test_negative_weights_are_found_on_request():
    weight = torch.tensor([1.0, -1.0, 1.0])
    with pytest.raises(ValueError, match=r"weight_neg has an entry of -1\.0; all entries must be ≥ 0; fix"):
        drift_loss(GEN, POS, NEG, weight_neg=weight, check_finite=True)
    assert drift_loss(GEN, POS, NEG, weight_neg=weight.abs(), check_finite=True).loss.isfinite().all()
