"""`truedrift evaluate RUN`: metrics with their protocol, a sweep over strengths, or the nearest training images."""

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Literal

import torch

from truedrift import distributed
from truedrift.axes import Tensor
from truedrift.cli.options.models import Evaluate
from truedrift.data.folder import has_test_split
from truedrift.data.samples import Samples
from truedrift.data.units import Units
from truedrift.distributed import resolve_device
from truedrift.errors import UserError, require_integer
from truedrift.evaluation.catalog import build_extractor, default_extractor, independent_extractor
from truedrift.evaluation.evaluate import evaluate, generate_batches
from truedrift.evaluation.extractors import Extractor
from truedrift.evaluation.neighbors import (
    Neighbors,
    NeighborsProtocol,
    NeighborsRecord,
    find_neighbors,
    hold_out,
    summarize_neighbors,
)
from truedrift.evaluation.record import EVALUATIONS, EvaluationRecord
from truedrift.evaluation.reference import compute_reference
from truedrift.model import Model
from truedrift.options import validated
from truedrift.progress_display import ProgressDisplay, is_rank_zero
from truedrift.recipes.evaluator import load_reference_data
from truedrift.records.provenance import provenance
from truedrift.records.store import append, writable_directory
from truedrift.report.figure import write_figure
from truedrift.report.neighbors import (
    NEIGHBOR_DISTANCES,
    NEIGHBORS,
    neighbor_distances_figure,
    neighbors_figure,
    neighbors_summary,
)
from truedrift.report.screens import evaluation_summary
from truedrift.report.sweeps import Sweep, sweep_figure, sweep_table
from truedrift.storage import write_atomically
from truedrift.training.config import DataOptions, RunConfig
from truedrift.training.load import (
    NO_GUIDANCE,
    LoadedGenerator,
    load_config,
    load_generator,
    note_on_strengths,
    output_directory,
)
from truedrift.training.setup import memory_errors_as_user_errors

NEIGHBOR_SAMPLES = 200
"""Number of samples of --neighbors, if --samples is not given."""


def prepare(command: Evaluate) -> Callable[[], str]:
    """Check the options; those of the run's configuration apply where a flag is not given."""
    require_integer("batch", command.batch, 1, 256)
    require_integer("held-out", command.held_out, 2, 500)
    _require_sweep(command)
    config = load_config(command.run) or RunConfig()
    flags = {name: getattr(command, name) for name in ("extractor", "samples", "split", "reference", "seed")}
    if command.neighbors:
        _require_one_process(command)
        flags |= {"samples": NEIGHBOR_SAMPLES if command.samples is None else command.samples, "split": "train"}
        config = replace(config, evaluation=replace(config.evaluation, extractor=None, reference=None))
    given = {name: value for name, value in flags.items() if value is not None}
    options = validated(replace(config.evaluation, **given))
    data = config.data if command.data in (None, config.data.name) else DataOptions(name=command.data)
    if command.root is not None:
        data = replace(data, root=str(command.root))
    work = _find_neighbors if command.neighbors else _evaluate
    return partial(work, command, replace(config, evaluation=options, data=data), resolve_device(command.device))


def _require_sweep(command: Evaluate) -> None:
    """Require different strengths and different steps, several of one kind only, and none with --neighbors."""
    for strength in command.strength:
        if not 0 <= strength <= 1e6:  # also NaN
            fix = "pass for example 2"
            raise UserError(f"is {strength}", "must be from 0 to 1e6", fix, field="strength")
    for name in ("strength", "step"):
        values: tuple[float, ...] = getattr(command, name)
        if len(set(values)) < len(values):
            problem = f"has a value twice ({' '.join(f'{each:g}' for each in values)})"
            raise UserError(problem, "must be one or more different numbers", "leave one of them out", field=name)
        if command.neighbors and len(values) > 1:
            problem = f"has {len(values)} values with --neighbors"
            raise UserError(problem, "must be one", f"run the command once per {name}", field=name)
    if len(command.strength) > 1 and len(command.step) > 1:
        problem = f"has {len(command.step)} values, and --strength has {len(command.strength)}"
        raise UserError(problem, "only one of them may have several", "run the command once per step", field="step")


def _require_one_process(command: Evaluate) -> None:
    """Require what --neighbors needs: the default split and a single process."""
    if command.split is not None:
        problem = f"is {command.split} with --neighbors"
        raise UserError(problem, "the train and test splits are compared", "leave --split out", field="split")
    processes = os.environ.get("WORLD_SIZE", "1")
    if processes != "1":
        raise UserError(f"there are {processes} processes", "--neighbors uses one", "run it without torchrun")


def _evaluate(command: Evaluate, config: RunConfig, device: torch.device) -> str:
    """Load the generator and the data, evaluate, append the records and return the summary; only rank 0 writes."""
    options = config.evaluation
    data = _load_data(command, config)
    loaded = [_load_generator(command, step, data) for step in command.step or (None,)]
    data = _to_units(data, loaded[0].units)
    name = options.extractor or default_extractor(data.sample_shape)
    out = writable_directory(command.out or output_directory(command.run))
    # Evaluate every step at every strength.
    started = time.monotonic()
    extractor = build_extractor(name, sample_shape=data.sample_shape, device=device)
    rank_zero = is_rank_zero()
    records = []
    with (
        memory_errors_as_user_errors("pass a smaller --batch"),
        distributed.process_group(extractor.device),
        ProgressDisplay(quiet=not rank_zero) as progress,
    ):
        reference = compute_reference(data, extractor, split=options.split, progress=progress)
        for trained, strength in product(loaded, command.strength or (config.sample_strength,)):
            metrics, protocol = evaluate(
                trained.generator.to(extractor.device),
                reference,
                extractor,
                samples=options.samples,
                seed=options.seed,
                strength=strength,
                batch=command.batch,
                weights=command.weights_name,
                progress=progress,
            )
            # Record the numbers with their protocol.
            seconds = time.monotonic() - started
            record = EvaluationRecord(
                run=command.run.resolve().name,
                step=trained.step,
                metrics=metrics,
                protocol=protocol,
                seconds=seconds,
                provenance=provenance(seed=options.seed, wall_seconds=seconds),
                few_samples=protocol.few_samples,
            )
            records.append(record)
            if rank_zero:
                append(out / EVALUATIONS, record)
            started = time.monotonic()
    if not rank_zero:
        return ""
    several = f"{command.run}, {len(loaded)} steps, {command.weights_name} weights"
    source = several if len(loaded) > 1 else loaded[0].source
    text = evaluation_summary(records[0]) if len(records) == 1 else _write_sweep(records, config, command, out)
    energy = _describe_energy(records[0], loaded[0], data) if len(records) == 1 else ""
    note = note_on_strengths(command.run, command.strength)
    return _join_lines(source, text, energy, "" if note in text else note, f"written: {out / EVALUATIONS}")


def _describe_energy(record: EvaluationRecord, trained: LoadedGenerator, data: Samples) -> str:
    """Return a line with the energy distance of a run on arrays, from `Model.evaluate`; nothing for other runs."""
    if trained.units is None or trained.shares is None or data.units is None:
        return ""
    generator, of = trained.generator.to("cpu"), record.protocol
    model = Model(generator, trained.classes, trained.shares, trained.units, of.strength)
    found = model.evaluate(data.units.to_user(data.values), seed=of.seed)
    how = f"{found.samples} samples, with classes as in training, and {found.references} of the data"
    return f"{'energy distance':22}{found.value:<20.4g}{how}"


def _join_lines(*lines: str) -> str:
    return "\n".join(line for line in lines if line)


def _write_sweep(records: list[EvaluationRecord], config: RunConfig, command: Evaluate, out: Path) -> str:
    """Write the table and the figure of several strengths or steps, and return them as text."""
    if len(command.step) > 1:
        sweep = Sweep("step", {record.step or 0: (record.metrics, record.protocol) for record in records})
    else:
        by_strength = {record.protocol.strength: (record.metrics, record.protocol) for record in records}
        sweep = Sweep("strength", by_strength, records[0].step)
    table = sweep_table(sweep)
    if sweep.quantity == "strength" and load_config(command.run) and config.batch.unconditional == 0:
        table = replace(table, notes=[*table.notes, NO_GUIDANCE])
    path = out / sweep.file_name
    write_atomically(path.with_suffix(".md"), table.markdown().encode())
    write_figure(sweep_figure(sweep), path.with_suffix(".png"))
    seconds = math.fsum(record.seconds for record in records)
    files = "\n".join(f"written: {path}.{kind}" for kind in ("md", "png"))
    return "\n".join([*table.aligned(), *table.notes, f"time: {seconds:.0f} s", files])


def _find_neighbors(command: Evaluate, config: RunConfig, device: torch.device) -> str:
    """Find the nearest training images of samples, append the record, write the pictures and return the summary."""
    # Load the generator and the images, and choose features that the run was not trained on.
    options = config.evaluation
    train = _load_data(command, replace(config, evaluation=replace(options, reference=None)))
    trained = _load_generator(command, command.step[0] if command.step else None, train)
    images = _load_neighbor_images(command, config, train)
    name = options.extractor or independent_extractor(train.sample_shape, _trained_feature_kinds(command, config))
    out = writable_directory(command.out or output_directory(command.run))
    # Find the neighbors.
    started = time.monotonic()
    extractor = build_extractor(name, sample_shape=train.sample_shape, device=device)
    strength = command.strength[0] if command.strength else config.sample_strength
    with memory_errors_as_user_errors("pass a smaller --batch"), ProgressDisplay() as progress:
        generator = trained.generator.to(extractor.device)
        batches = generate_batches(
            generator, options.samples, seed=options.seed, strength=strength, batch=command.batch
        )
        generated = torch.cat([values for _, values in batches])
        found = find_neighbors(
            generated,
            images.compared,
            images.held_out,
            extractor,
            reference=options.reference,
            batch=min(command.batch, 64),
            progress=progress,
        )
    # Record the distances with their protocol, and draw the pictures.
    seconds = time.monotonic() - started
    record = summarize_neighbors(
        found,
        run=command.run.resolve().name,
        step=trained.step,
        protocol=_neighbors_protocol(command, config, strength, extractor, images, found),
        seconds=seconds,
        provenance=provenance(seed=options.seed, wall_seconds=seconds),
    )
    text = _write_neighbors(record, found, generated, images.compared, out)
    return _join_lines(trained.source, note_on_strengths(command.run, command.strength), text)


@dataclass(frozen=True)
class NeighborImages:
    """The real images of --neighbors."""

    compared: Samples
    held_out: Samples
    held_out_split: Literal["train", "test"]


def _load_neighbor_images(command: Evaluate, config: RunConfig, train: Samples) -> NeighborImages:
    """Return the training images to compare with, and the held-out images: of the test split if there is one."""
    if not train.is_images:
        raise UserError(f"{train.name} has points", "--neighbors compares images", "leave it out")
    test = _load_test_images(config)
    compared, held_out = hold_out(train, test, command.held_out)
    return NeighborImages(compared, held_out, "train" if test is None else "test")


def _neighbors_protocol(
    command: Evaluate,
    config: RunConfig,
    strength: float,
    extractor: Extractor,
    images: NeighborImages,
    found: Neighbors,
) -> NeighborsProtocol:
    """Return how samples were generated, and what they were compared with."""
    return NeighborsProtocol(
        extractor=extractor.name,
        extractor_sha256=extractor.sha256,
        prepared=extractor.prepared,
        dimensions=extractor.dimensions,
        independent=extractor.name.removeprefix("encoder:") not in _trained_feature_kinds(command, config),
        samples=config.evaluation.samples,
        seed=config.evaluation.seed,
        strength=strength,
        weights=command.weights_name,
        data=images.compared.name,
        train=len(images.compared),
        compared=found.compared,
        held_out=len(images.held_out),
        held_out_split=images.held_out_split,
    )


def _write_neighbors(record: NeighborsRecord, found: Neighbors, generated: Tensor, train: Samples, out: Path) -> str:
    """Append the record, draw the pictures and return the summary."""
    append(out / EVALUATIONS, record)
    files = [
        out / EVALUATIONS,
        write_figure(neighbors_figure(generated, train.values, found), out / NEIGHBORS),
        write_figure(neighbor_distances_figure(record), out / NEIGHBOR_DISTANCES),
    ]
    written = "\n".join(f"written: {path}" for path in files)
    return f"{neighbors_summary(record)}\n{written}"


def _load_test_images(config: RunConfig) -> Samples | None:
    """Return the test split; None for a folder without one."""
    if config.data.name == "folder" and not has_test_split(Path(config.data.root or "")):
        return None
    options = replace(config.evaluation, split="test", reference=None)
    with ProgressDisplay() as progress:
        return load_reference_data(config.data, options, seed=config.seed, progress=progress)


def _trained_feature_kinds(command: Evaluate, config: RunConfig) -> set[str]:
    """Return the kinds of encoders whose features the run was trained on; none for a folder of weights."""
    if load_config(command.run) is None:
        return set()
    kinds: set[str] = {each.kind for each in (config.encoder, *config.encoders)}
    return kinds | {"pixels"} if config.objective.pixels else kinds


def _load_data(command: Evaluate, config: RunConfig) -> Samples:
    """Load the data to compare with."""
    if command.data is None and load_config(command.run) is None:
        problem = f"{str(command.run)!r} is a folder of weights"
        raise UserError(problem, "the data set to compare with must be given", "add for example --data cifar10")
    with ProgressDisplay(quiet=not is_rank_zero()) as progress:
        return load_reference_data(config.data, config.evaluation, seed=config.seed, progress=progress)


def _to_units(data: Samples, units: Units | None) -> Samples:
    """Standardize arrays by the shift and scale of the training data, as the samples are."""
    if units is None or data.units is None or data.units.describe() == units.describe():
        return data
    if data.units.shape != units.shape:
        raise UserError(
            f"samples of {data.name} have shape {list(data.units.shape)}",
            f"must have the shape {list(units.shape)} of the training data",
            "pass a file with the same columns",
        )
    return replace(data, values=units.to_model(data.units.to_user(data.values)), units=units)


def _load_generator(command: Evaluate, step: int | None, data: Samples) -> LoadedGenerator:
    """Load the generator of a step, whose samples must have the shape of the data."""
    trained = load_generator(command.run, weights=command.weights, ema=command.ema, step=step)
    if tuple(trained.generator.sample_shape) != data.sample_shape:
        problem = f"samples of the generator have shape {tuple(trained.generator.sample_shape)}"
        allowed = f"must be {data.sample_shape}, the shape of {data.name}"
        raise UserError(problem, allowed, "pass the data set that the generator was trained on")
    return trained
