"""Train one-step generative models by drifting, with minibatch centroids corrected for their bias.

A drifting model moves generated features toward real ones along the field V(x) = T⁺(x) − T⁻(x), the difference of two
kernel-weighted centroids. A centroid T = Σ α_i y_i of n samples has a bias of O(1/n). Analytical bias correction (ABC)
replaces the weights α_i by γ_i = α_i (1 − p_2 + α_i) with p_2 = Σ α_i². The bias is then O(1/n²), and
the correction costs only O(n) per query.

Use the correction in your own code, in place of `alpha @ y`:

    >>> import torch, truedrift
    >>> alpha, y = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([[0.0], [1.0], [3.0]])
    >>> truedrift.abc_weights(alpha) @ y
    tensor([0.8750])

Use the loss in your own training loop, with features [groups, samples, D]:

    >>> gen = torch.randn(10, 16, 64, requires_grad=True)
    >>> truedrift.drift_loss(gen, torch.randn(10, 16, 64)).loss.mean().backward()

Train a model on arrays, and sample from it:

    model = truedrift.fit(X, y)
    model.sample(100, label="a")

Train a model from a recipe:

    for report in truedrift.train(truedrift.recipe("digits")):
        print(report)

Public names:

    abc_weights, estimator                γ from α; an estimator by name
    centroid, streaming_centroid          the corrected centroid T(x), in memory or over chunks
    drift, Drift                          the drifting field V(x)
    drift_loss, DriftLoss, DriftReport    the training loss and its telemetry
    exact_moments, Moments                exact bias and variance of a centroid over a finite pool
    exact_field, ExactField               exact expectation of the field of n positives and m negatives
    diagnose, Diagnosis                   how biased the centroids of your own data are
    fit, load, Model                      a model of arrays; saved and pretrained models
    recipe, train, RunConfig, Parts       training runs

The packages follow the path of the data:

    noise z, label c → generators → image → encoders → features x, y⁺, y⁻ → kernels → log w → centroids → γ
      → field → V → objective → loss → training → checkpoint → evaluation → metrics → records → report

`bias` computes and measures the bias of centroids, `recipes` holds configurations of whole runs, `grids` executes many
runs, and `paper` has one module per figure and table of the paper.

Every name and package is imported on first use: `truedrift.evaluation` needs no further import, and `import truedrift`
takes milliseconds. The mathematics needs only torch; fit, load, recipe, train, RunConfig and Parts also need the extra
`train`. The command line is described by `truedrift --help`.
"""

from typing import TYPE_CHECKING

from truedrift._version import __version__
from truedrift.lazy import lazy_names

if TYPE_CHECKING:
    from truedrift.bias import Diagnosis, ExactField, Moments, diagnose, exact_field, exact_moments
    from truedrift.centroids import abc_weights, centroid, estimator, streaming_centroid
    from truedrift.field import Drift, drift
    from truedrift.model import Model, fit, load
    from truedrift.objective import DriftLoss, DriftReport, drift_loss
    from truedrift.recipes import recipe
    from truedrift.training.config import RunConfig
    from truedrift.training.setup import Parts
    from truedrift.training.train import train

__all__ = [
    "Diagnosis",
    "Drift",
    "DriftLoss",
    "DriftReport",
    "ExactField",
    "Model",
    "Moments",
    "Parts",
    "RunConfig",
    "__version__",
    "abc_weights",
    "centroid",
    "diagnose",
    "drift",
    "drift_loss",
    "estimator",
    "exact_field",
    "exact_moments",
    "fit",
    "load",
    "recipe",
    "streaming_centroid",
    "train",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "truedrift.bias": ("Diagnosis", "ExactField", "Moments", "diagnose", "exact_field", "exact_moments"),
        "truedrift.centroids": ("abc_weights", "centroid", "estimator", "streaming_centroid"),
        "truedrift.data": (),
        "truedrift.encoders": (),
        "truedrift.evaluation": (),
        "truedrift.field": ("Drift", "drift"),
        "truedrift.generators": (),
        "truedrift.grids": (),
        "truedrift.kernels": (),
        "truedrift.model": ("Model", "fit", "load"),
        "truedrift.objective": ("DriftLoss", "DriftReport", "drift_loss"),
        "truedrift.page": (),
        "truedrift.paper": (),
        "truedrift.recipes": ("recipe",),
        "truedrift.records": (),
        "truedrift.report": (),
        "truedrift.training": ("Parts", "RunConfig", "train"),
    },
    __all__,
)
