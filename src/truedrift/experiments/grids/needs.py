"""What runs need before any of them starts: their data, the network that judges them, and the one they train on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
HUB = "its weights come from the Hugging Face hub, or from encoder.folder"


@dataclass(frozen=True)
class Absent:
    """Something that is not here."""

    what: str
    fetch: str | None
    """What `truedrift data fetch` calls it; none: it is a package."""
    do: str = ""
    """How to get a package."""


def missing(plan: Plan) -> Mistake | None:
    """Everything that is not here, in one sentence, with what gets it."""
    config = plan.tasks[0].config
    absent = [*_judge(config), *_encoder(config), *_data(config.data)]
    if not absent:
        return None
    names = dict.fromkeys(each.fetch for each in absent if each.fetch)
    fetched = [f"run truedrift data fetch {' '.join(names)}"] if names else []
    came = " and ".join(each.what for each in absent)
    return mistake(
        came,
        "a grid starts when everything that its runs use is here",
        ", and ".join([*(a.do for a in absent if a.do), *fetched]),
    )


def require_here(plan: Plan) -> None:
    """Everything that the runs need is here."""
    found = missing(plan)
    if found is not None:
        raise found


def extractor_is_here(extractor: str) -> bool:
    """Whether its weights are in the cache, or come with a package."""
    name = extractor.removeprefix(ENCODER)
    if name == "abc-release":
        return find_spec("torchvision") is not None
    if name == "inception" and find_spec("torch_fidelity") is not None:
        return True
    return _is_here(name)


def _is_here(name: str) -> bool:
    if name == "dinov2":
        return find_spec("transformers") is not None
    return name not in OFFERS or is_present(OFFERS[name], cache_directory(name))


def _judge(config: RunConfig) -> Iterator[Absent]:
    extractor = config.evaluation.extractor
    if extractor is None or extractor_is_here(extractor):
        return
    name = extractor.removeprefix(ENCODER)
    if name == "abc-release":
        what = "the extractor abc-release needs torchvision, which is not installed"
        yield Absent(what, None, "install one that fits your torch, or take the extractor inception")
    else:
        yield _network(name, f"judges {config.recipe}")


def _encoder(config: RunConfig) -> Iterator[Absent]:
    if not _is_here(config.encoder.kind):
        yield _network(config.encoder.kind, f"gives {config.recipe} its features")


def _network(name: str, role: str) -> Absent:
    if name == "dinov2":
        what = f"the network dinov2, which {role}, needs transformers, which is not installed ({HUB})"
        return Absent(what, None, "run pip install 'truedrift[dinov2]'")
    return Absent(f"the network {name}, which {role}, is not in the cache", name)


def _data(data: DataOptions) -> Iterator[Absent]:
    try:
        load(data.name, root=None if data.root is None else Path(data.root), image_size=data.image_size)
    except Mistake as error:
        yield Absent(str(error).split("; ")[0], data.name)
