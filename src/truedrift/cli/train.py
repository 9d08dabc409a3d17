"""`truedrift train RECIPE`: train a one-step generator, or resume the training."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from truedrift.cli.main import CommandExit
from truedrift.cli.options.models import Train
from truedrift.data.folder import describe_folder
from truedrift.data.registry import REMOTE_ASSETS
from truedrift.distributed import PeerLost, resolve_device
from truedrift.encoders.pooling import POOLINGS
from truedrift.encoders.resnet import OwnEncoderOptions, hash_encoder
from truedrift.errors import UserError, error_text
from truedrift.progress_display import ProgressDisplay, is_rank_zero
from truedrift.recipes.evaluator import build_evaluator
from truedrift.recipes.overrides import recipe
from truedrift.report.screens import advise_on_run
from truedrift.storage import cache_directory, iterate_json_lines, open_to_read
from truedrift.training.config import RunConfig
from truedrift.training.loggers import resolve_loggers
from truedrift.training.loop import NonFinite, TrainingReport
from truedrift.training.run_directory import METRICS
from truedrift.training.setup import Parts
from truedrift.training.signals import EXIT_STATUS, EXIT_STATUS_KEYBOARD
from truedrift.training.telemetry import describe_energy
from truedrift.training.train import find_complete, load_training, run_directory

LARGEST_CONFIG_BYTES = 1 << 20
LARGEST_TIMEOUT = 7 * 24 * 60.0


def prepare(command: Train) -> Callable[[], str]:
    """Check the configuration and the device."""
    flags = {"n": command.n, "seed": command.seed, "estimator": command.estimator, "data": command.data}
    given: dict[str, Any] = {**flags, "classes": command.classes or None}
    tree = {} if command.config is None else _read_config(command.config)
    config = recipe(command.recipe, given=given, tree=tree, settings=() if command.encoder else command.set)
    if command.encoder is not None:
        own = _own_encoder(command.encoder, getattr(config.encoder, "pooling", "mean"))
        config = recipe(command.recipe, given=given, tree=tree, settings=(own, *command.set))
    if not 0 < command.timeout <= LARGEST_TIMEOUT:
        allowed = f"must be greater than 0 and at most {LARGEST_TIMEOUT:g} minutes"
        raise UserError(f"is {command.timeout}", allowed, "pass for example 10", field="--timeout")
    if command.print_config:
        return partial(json.dumps, config.tree(), indent=2)
    log = resolve_loggers(command.log)
    return partial(_train, config, command.out, resolve_device(command.device), command.timeout, log)


def _own_encoder(run: Path, pooling: str) -> str:
    """Return the setting of the encoder in a run directory, with its weights, so that no others can resume the run."""
    try:
        weights = hash_encoder(run)
    except UserError as error:
        raise error.in_section("encoder") from None
    # Another pooling, such as one per map separated by commas, is for the maps of the recipe's own encoder.
    pooling = pooling if pooling in POOLINGS else "locations"
    encoder = OwnEncoderOptions(run=str(run.absolute()), weights=weights, pooling=pooling)
    return f"encoder={json.dumps(asdict(encoder))}"


def _read_config(path: Path) -> dict[str, Any]:
    """Read the options in a JSON file, or in the config.json of a run."""
    try:
        with open_to_read(path) as file:
            tree = json.loads(file.read(LARGEST_CONFIG_BYTES).decode())
    except (OSError, ValueError, RecursionError) as error:
        problem = f"configuration {str(path)!r} cannot be read ({error_text(error)})"
        raise UserError(problem, "must be a JSON file", "write one with --print-config") from None
    if isinstance(tree, dict) and set(tree) >= {"schema", "config"}:  # config.json of a run
        tree = tree["config"]
    if not isinstance(tree, dict):
        problem = f"configuration {str(path)!r} does not contain options"
        raise UserError(problem, "must be one JSON object", "write one with --print-config")
    return tree


def _train(
    config: RunConfig, out: Path | None, device: torch.device, timeout_minutes: float, log: tuple[str, ...]
) -> str:
    """Train to the end or to a signal; return the summary on rank 0."""
    # Load the data and build the evaluator.
    progress = ProgressDisplay(quiet=not is_rank_zero())
    data = config.data
    if data.name == "folder" and data.root is not None and Path(data.root).is_dir():
        size = "" if data.image_size is None else f"; images are resized to {data.image_size}×{data.image_size}"
        progress.print_message(f"{data.root} has {describe_folder(Path(data.root))}{size}")
    evaluated = config.evaluation.extractor is not None
    run = run_directory(config, Parts(), out)
    complete = find_complete(run, evaluated=evaluated, notify=progress.print_message)
    if complete is not None:
        return _summary(config, complete)
    with ProgressDisplay(quiet=not is_rank_zero()) as loading:
        training = load_training(config, out=out, device=device, progress=loading)
    evaluate = build_evaluator(config, device=device, samples=training.samples, progress=progress)
    # Take the steps.
    reports = training.reports(
        evaluate=evaluate,
        progress=progress,
        notify=progress.print_message,
        timeout_minutes=timeout_minutes,
        log=log,
    )
    last = follow_training(reports, progress, describe_energy)
    return _summary(config, last) if is_rank_zero() else ""


def follow_training(
    reports: Iterable[TrainingReport], progress: ProgressDisplay, describe: Callable[[Mapping[str, Any]], str]
) -> TrainingReport:
    """Take the steps of a run and show its progress.

    Args:
        reports: The reports of the run, which take the steps as they are requested.
        progress: The display.
        describe: Returns a short text on the metrics, which is shown beside the progress.

    Returns:
        The last report of a complete run.

    Raises:
        CommandExit: If a signal stopped the run, or a step was not finite.
    """
    last: TrainingReport | None = None
    with progress:
        try:
            for report in reports:
                last = report
                progress.set_note("training", describe(report.metrics))
        except NonFinite as failure:
            raise CommandExit(str(failure), status=1) from None
        except PeerLost as lost:
            signal = f"{lost.signal}: " if lost.signal else ""
            message = f"{signal}{lost}; checkpoints are intact; run the same command to resume"
            raise CommandExit(message, status=EXIT_STATUS if lost.signal else 1) from None
    # Describe how it ended.
    if last is None:
        raise CommandExit("no step was taken", status=1)
    if last.interrupted is not None:
        status = EXIT_STATUS_KEYBOARD if last.interrupted == "SIGINT" else EXIT_STATUS
        message = f"{last.interrupted}: saved at step {last.step} of {last.steps} in {last.directory}"
        raise CommandExit(f"{message}; run the same command again to continue", status=status)
    return last


def _summary(config: RunConfig, last: TrainingReport) -> str:
    """Describe the finished run."""
    metrics = last.metrics
    taus = ", ".join(f"{tau:g}" for tau in config.objective.temperatures)
    effective = ", ".join(map(_format_number, metrics.get("n_eff_pos", ())))
    spread = _format_number(metrics.get("spread"))
    lines = (
        f"complete: {last.steps} steps, {metrics.get('positives_seen', 0)} positives per class seen",
        f"effective positives of {config.references('positive')}: {effective} (τ = {taus});  distance ratio {spread}",
        *_advice_line(config, metrics),
        *_energy_line(metrics),
        *_evaluation_line(last.directory),
        *(() if config.cadence.grid_every is None else (f"samples:  {last.directory / 'samples'}",)),
        f"next:     truedrift sample {last.directory}{' --form npz' if config.data.name == 'array' else ''}",
        *_evaluation_commands(config, last.directory),
    )
    return "\n".join(lines)


def _advice_line(config: RunConfig, metrics: Mapping[str, Any]) -> list[str]:
    """Return a line if the centroid of the positives is mostly the nearest one at a temperature."""
    n_eff = metrics.get("n_eff_pos")
    return [f"advice:   {text}" for text in advise_on_run(config, {"positive": n_eff} if n_eff else {})]


def _evaluation_commands(config: RunConfig, directory: Path) -> list[str]:
    """Return the commands that evaluate a run on a folder of images, and fetch the network that this needs."""
    if config.data.name != "folder":
        return []
    name = config.evaluation.extractor or "inception"
    network, evaluate = REMOTE_ASSETS.get(name), f"          truedrift evaluate {directory}"
    if network is None or (cache_directory() / name).is_dir():
        return [evaluate]
    return [f"          truedrift data fetch {name}    # {network.size / 1e6:.0f} MB, which evaluate needs", evaluate]


def _energy_line(metrics: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a line on the energy distance since the last log, if it is known."""
    energy = describe_energy(metrics)
    return (f"{energy} (0 where generated and real features have the same distribution)",) if energy else ()


def _evaluation_line(directory: Path) -> tuple[str, ...]:
    """Return a line on the last and the best evaluation during training, if there was one."""
    entries = iterate_json_lines(directory / METRICS)  # lines that cannot be read are left out
    evaluated = [entry for entry in entries if isinstance(entry.get("protocol"), dict)]
    if not evaluated:
        return ()
    protocol, last = evaluated[-1]["protocol"], evaluated[-1]
    sizes = (protocol.get(name, "?") for name in ("samples", "reference_count", "reference"))
    by = "{} samples against {} of {}".format(*sizes)
    best = _format_number(
        min((fid for entry in evaluated if (fid := _fid(entry.get("evaluation"))) is not None), default=None)
    )
    others = last["more_ema"].items() if isinstance(last.get("more_ema"), dict) else ()
    more = "".join(f", {_format_number(_fid(each))} with ema {decay}" for decay, each in others)
    distance = _format_number(_fid(last.get("evaluation")))
    return (f"distance: {distance} by {protocol.get('extractor', '?')} ({by}), best so far {best}{more}",)


def _fid(numbers: Any) -> float | None:
    """Return the FID of an evaluation; None if there is none, as for a generator that has diverged."""
    fid = numbers.get("fid") if isinstance(numbers, dict) else None
    return fid if isinstance(fid, float) else None


def _format_number(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"
