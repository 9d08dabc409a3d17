"""`truedrift evaluate-encoder NAME…`: k nearest neighbors and a linear probe on the features of encoders."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import tyro

from truedrift.cli.progress import ProgressDisplay
from truedrift.data.load import load
from truedrift.data.samples import Samples
from truedrift.distributed import resolve_device
from truedrift.encoders.catalog import OPTIONS, EncoderOptions, build
from truedrift.encoders.resnet import OwnEncoderOptions
from truedrift.errors import UserError, require_integer
from truedrift.evaluation.probe import NEIGHBORS, ProbeResult, choose_samples, probe_encoder
from truedrift.report.table import MeanCell, Row, Table
from truedrift.seeding import require_seed
from truedrift.training.setup import memory_errors_as_user_errors

NAMED = tuple(kind for kind in OPTIONS if kind != "own")


@dataclass(frozen=True, kw_only=True)
class EvaluateEncoder:
    """Evaluate encoders: k nearest neighbors and a linear probe on their features, in one table.

    Features are the means of the encoder's maps, standardized. Both accuracies are of the same test images and use the
    same labeled images of the train split, so that encoders can be compared. The number after ± is the standard error
    over test images.

    Try it:
      truedrift evaluate-encoder pixels convnet efficientnet-lite0
      truedrift evaluate-encoder runs/encoder-cifar10-0123456789ab pixels --train 10000 --test 2000
      truedrift evaluate-encoder pixels convnet --data digits
    """

    names: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Encoders: pixels, convnet, efficientnet-lite0, dinov2, or run directories of `truedrift train-encoder`."""

    data: str = "cifar10"
    """Labeled data set."""

    root: Path | None = None
    """Directory or archive of the data set; the cache if not given."""

    image_size: int | None = None
    """Height and width to which images of the data set folder are resized."""

    train: int = 1000
    """Labeled images of the split train."""

    test: int = 500
    """Images of the split test."""

    neighbors: int = NEIGHBORS
    """k of the nearest neighbors."""

    seed: int = 0
    """Seed of the choice of images."""

    batch: int = 250
    """Images that pass through the encoder at a time."""

    device: str = "auto"
    """auto, cpu, cuda or mps."""

    def prepare(self) -> Callable[[], str]:
        """Check the options and load the images."""
        for field, example in (("train", 1000), ("test", 500), ("neighbors", NEIGHBORS), ("batch", 250)):
            require_integer(field, getattr(self, field), 1, example)
        require_seed(self.seed)
        encoders = {name: _find_encoder(name) for name in self.names}
        if not encoders:
            raise UserError("no encoder was given", f"available: {', '.join(NAMED)}", "pass one or more, or a run")
        return partial(_evaluate, self, encoders, resolve_device(self.device))


def _find_encoder(name: str) -> EncoderOptions:
    """Return the options of the encoder with that name, or in that run directory."""
    if name in NAMED:
        options: EncoderOptions = OPTIONS[name]()
        return options
    if not Path(name).is_dir():
        allowed = f"must be one of {', '.join(NAMED)}, or a run directory of truedrift train-encoder"
        raise UserError(f"the encoder is {name!r}", allowed, "choose one of these")
    return OwnEncoderOptions(run=name)


def _evaluate(command: EvaluateEncoder, encoders: dict[str, EncoderOptions], device: torch.device) -> str:
    """Evaluate the encoders one after the other; return the table."""
    train, test = (
        choose_samples(
            load(command.data, split=split, root=command.root, image_size=command.image_size), count, command.seed
        )
        for split, count in (("train", command.train), ("test", command.test))
    )
    results = {}
    with memory_errors_as_user_errors("pass a smaller --batch"), ProgressDisplay() as progress:
        for name, options in encoders.items():
            encoder = build(options, sample_shape=train.sample_shape).to(device)
            report = partial(_report, progress, name)
            results[name] = probe_encoder(
                encoder, train, test, neighbors=command.neighbors, batch=command.batch, progress=report
            )
    return "\n".join((*_table(results).aligned(), "", _describe_protocol(command, train, test)))


def _report(progress: ProgressDisplay, name: str, what: str, done: float, total: float) -> None:
    progress(f"{what} of {name}", done, total)


def _table(results: dict[str, ProbeResult]) -> Table:
    rows: list[Row] = [
        (name, str(each.dimensions), *(_accuracy(each, value) for value in (each.neighbors, each.probe)))
        for name, each in results.items()
    ]
    header = ("encoder", "features", "k-NN, %", "linear probe, %")
    return Table("Accuracy of encoders", "tab:encoders", header, [rows])


def _accuracy(result: ProbeResult, accuracy: float) -> MeanCell:
    return MeanCell(100 * accuracy, 100 * result.error(accuracy), result.test, spec=".1f")


def _describe_protocol(command: EvaluateEncoder, train: Samples, test: Samples) -> str:
    images = f"{len(test)} test images of {command.data}, {len(train)} labeled training images"
    return f"{images}, {len(train.classes)} classes; k = {command.neighbors}, cosine; seed {command.seed}"
