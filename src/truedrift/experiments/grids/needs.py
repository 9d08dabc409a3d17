"""What runs need before any of them starts: their data, and the network that judges them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from truedrift.cache import cache_directory
from truedrift.data.catalog import load
from truedrift.data.fetch import is_present
from truedrift.data.offers import OFFERS
from truedrift.experiments.grids.plan import Plan
from truedrift.training.config import DataOptions, RunConfig
from truedrift.validation import Mistake, mistake

ENCODER = "encoder:"


def judge_of(extractors: tuple[str, ...]) -> str:
    """The first that is here; where none is, the first, and `missing` tells."""
    return next((name for name in extractors if extractor_is_here(name)), extractors[0])


def extractor_is_here(extractor: str) -> bool:
    """Whether its weights are in the cache, or come with a package."""
    name = extractor.removeprefix(ENCODER)
    if name == "abc-release":
        return find_spec("torchvision") is not None
    if name == "inception" and find_spec("torch_fidelity") is not None:
        return True
    return name not in OFFERS or is_present(OFFERS[name], cache_directory(name))


def missing(plan: Plan) -> Mistake | None:
    """What is not here, in one sentence."""
    config = plan.tasks[0].config
    return _missing_judge(config) or _missing_data(config.data)


def require_here(plan: Plan) -> None:
    """Everything that the runs need is here."""
    found = missing(plan)
    if found is not None:
        raise found


def _missing_judge(config: RunConfig) -> Mistake | None:
    extractor = config.evaluation.extractor
    if extractor is None or extractor_is_here(extractor):
        return None
    name = extractor.removeprefix(ENCODER)
    if name == "abc-release":
        came = "the extractor abc-release needs torchvision, which is not installed"
        return mistake(came, "allowed is one that fits your torch", "install it, or take the extractor inception")
    trains_on = "EfficientNet-Lite0" if config.encoder.kind == "efficientnet-lite0" else "other features"
    return mistake(
        f"the network {name}, which judges {config.recipe}, is not in the cache",
        f"allowed is no other one for a run that trains on {trains_on}",
        f"run truedrift data fetch {name}",
    )


def _missing_data(data: DataOptions) -> Mistake | None:
    try:
        load(data.name, root=None if data.root is None else Path(data.root), image_size=data.image_size)
    except Mistake as error:
        came, allowed, _do = str(error).split("; ", 2)
        return mistake(came, allowed, f"run truedrift data fetch {data.name}")
    return None
