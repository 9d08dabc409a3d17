"""`truedrift evaluate-encoder NAME…`: k nearest neighbors and a linear probe on the features of encoders."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch

from truedrift.cli.options.models import EvaluateEncoder
from truedrift.data.folder import has_test_split
from truedrift.data.load import load
from truedrift.data.samples import Samples
from truedrift.distributed import resolve_device
from truedrift.encoders.catalog import OPTIONS, EncoderOptions, build
from truedrift.encoders.resnet import OwnEncoderOptions
from truedrift.errors import UserError, list_names, require_integer, suggest_name
from truedrift.evaluation.neighbors import hold_out
from truedrift.evaluation.probe import NEIGHBORS, ProbeResult, choose_samples, probe_encoder
from truedrift.options import from_dict
from truedrift.progress_display import ProgressDisplay
from truedrift.recipes.overrides import apply_settings
from truedrift.report.table import MeanCell, Row, Table
from truedrift.seeding import require_seed
from truedrift.training.setup import memory_errors_as_user_errors

NAMED = tuple(kind for kind in OPTIONS if kind != "own")
FIXED = {"kind", "run"}
"""Options that the name of an encoder determines."""


def prepare(command: EvaluateEncoder) -> Callable[[], str]:
    """Check the options and load the images."""
    for field, example in (("train", 1000), ("test", 500), ("neighbors", NEIGHBORS), ("batch", 250)):
        require_integer(field, getattr(command, field), 1, example)
    require_seed(command.seed)
    encoders = {name: _find_encoder(name) for name in command.names}
    if not encoders:
        raise UserError("no encoder was given", f"available: {', '.join(NAMED)}", "pass one or more, or a run")
    return partial(_evaluate, command, _set_options(encoders, command.set), resolve_device(command.device))


def _find_encoder(name: str) -> EncoderOptions:
    """Return the options of the encoder with that name, or in that run directory."""
    if name in NAMED:
        options: EncoderOptions = OPTIONS[name]()
        return options
    if not Path(name).is_dir():
        allowed = f"must be one of {', '.join(NAMED)}, or a run directory of truedrift train-encoder"
        raise UserError(f"the encoder is {name!r}", allowed, suggest_name(name, NAMED, "choose one of these"))
    return OwnEncoderOptions(run=name)


def _set_options(encoders: dict[str, EncoderOptions], settings: Sequence[str]) -> dict[str, EncoderOptions]:
    """Return the encoders with every setting applied to those that have its option."""
    # Require that each setting is for one of the encoders.
    known = {name: {each.name for each in fields(options)} - FIXED for name, options in encoders.items()}
    available = sorted(set().union(*known.values()))
    pairs = [(_option_name(setting), setting) for setting in settings]
    for option, setting in pairs:
        if option not in available:
            problem = f"the setting {setting!r} fits none of the encoders {list_names(list(encoders))}"
            raise UserError(problem, f"their options are {', '.join(available)}", "choose one of these")
    # Apply them.
    changed: dict[str, EncoderOptions] = {}
    for name, options in encoders.items():
        kind: type[Any] = type(options)
        fitting = [setting for option, setting in pairs if option in known[name]]
        try:
            changed[name] = from_dict(kind, apply_settings(asdict(options), fitting))
        except UserError as error:
            raise error.with_prefix(name) from None
    return changed


def _option_name(setting: str) -> str:
    """Return the option of "option=value"."""
    try:
        (option,) = apply_settings({}, [setting])
    except UserError:
        raise UserError(
            f"the setting is {setting!r}", "must be option=value", "write for example image_size=96"
        ) from None
    return option


def _evaluate(command: EvaluateEncoder, encoders: dict[str, EncoderOptions], device: torch.device) -> str:
    """Evaluate the encoders one after the other; return the table."""
    train, test, is_held_out = _load_images(command)
    results = {}
    with memory_errors_as_user_errors("pass a smaller --batch"), ProgressDisplay() as progress:
        # Build all of them first, since the weights of one may be missing.
        built = {name: build(options, sample_shape=train.sample_shape) for name, options in encoders.items()}
        for name, encoder in built.items():
            report = partial(_report, progress, name)
            results[name] = probe_encoder(
                encoder.to(device), train, test, neighbors=command.neighbors, batch=command.batch, progress=report
            )
    has_own = any(isinstance(options, OwnEncoderOptions) for options in encoders.values())
    tested = _describe_tested(command.data, len(test), is_held_out=is_held_out, has_own=has_own)
    return "\n".join((*_table(results).aligned(), "", f"{tested}, {_describe_protocol(command, train)}"))


def _load_images(command: EvaluateEncoder) -> tuple[Samples, Samples, bool]:
    """Load training and test images; return them, and whether the latter were held out, without a test split."""
    with ProgressDisplay() as progress:
        read = partial(load, command.data, root=command.root, image_size=command.image_size, progress=progress)
        train = read(split="train")
        is_held_out = command.data == "folder" and command.root is not None and not has_test_split(command.root)
        train, test = hold_out(train, None, max(2, command.test)) if is_held_out else (train, read(split="test"))
    chosen = (choose_samples(train, command.train, command.seed), choose_samples(test, command.test, command.seed))
    return *chosen, is_held_out


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


def _describe_tested(data: str, count: int, *, is_held_out: bool, has_own: bool) -> str:
    """Describe the images that were classified."""
    if not is_held_out:
        return f"{count} test images of {data}"
    seen = " (an encoder that was trained on this folder has seen them)" if has_own else ""
    return f"{count} images held out of {data}, which has no test split{seen}"


def _describe_protocol(command: EvaluateEncoder, train: Samples) -> str:
    """Describe the labeled images and the options."""
    images = f"{len(train)} labeled training images, {len(train.classes)} classes"
    settings = "".join(f"; {setting}" for setting in command.set)
    return f"{images}; k = {command.neighbors}, cosine; seed {command.seed}{settings}"
