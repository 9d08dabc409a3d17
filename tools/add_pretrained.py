"""Add a model to the package: src/truedrift/pretrained/NAME from a run and its evaluations.

| file              | content                                                                                        |
|-------------------|------------------------------------------------------------------------------------------------|
| config.json       | architecture and options of the network, as `save_pretrained` writes them                      |
| model.safetensors | the averaged weights of the last step in float16                                               |
| record.json       | class names, hash of the weights, configuration, command, time, machine, metrics with protocol |
| README.md         | the card: record.json in words                                                                 |
| samples.png       | samples of the run's float32 weights, as `truedrift sample NAME --count N` draws them          |

Train a run to its end, evaluate it with `truedrift evaluate RUN`, and optionally with `--neighbors`. Then

    python tools/add_pretrained.py RUN digits

replaces the folder. Every number of the card comes from the files of the run: the last evaluation of each protocol,
during training or by `truedrift evaluate`, that belongs to the weights of the last step; of protocols that differ in
the number of samples only, the one with the most samples. The command is derived from the configuration and checked: it
must give the same configuration. The same run gives the same bytes.

    python tools/add_pretrained.py --cards

writes all cards again from their records, if the text below or a recipe has changed.

Rounding to float16 must not change the images visibly. With x_32 and x_16 for the bytes of the same samples,

    max |x_32 − x_16| ≤ LARGEST_DIFFERENCE

is required, and the largest difference and the share of bytes that differ are recorded.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from truedrift.axes import Tensor
from truedrift.data.samples import to_uint8
from truedrift.errors import UserError, require_choice
from truedrift.evaluation.record import Metrics, Protocol
from truedrift.generators.base import CONFIG, WEIGHTS, Generator
from truedrift.generators.pretrained import MODELS, PREFIX, RECORD, find_pretrained, pretrained_names
from truedrift.generators.sampling import balanced_labels, sample
from truedrift.options import from_dict
from truedrift.page.run_data import Evaluation, Run, final_evaluations, read_run
from truedrift.recipes.overrides import recipe
from truedrift.report.neighbors import describe_neighbors
from truedrift.report.screens import share
from truedrift.report.table import format_number
from truedrift.storage import write_atomically
from truedrift.training.config import RunConfig
from truedrift.training.load import default_strength, load_generator
from truedrift.training.pictures import grid_columns, image_grid
from truedrift.training.run_directory import open_run
from truedrift.training.status import RunStatus, last_event, wall_seconds

CARD, PICTURE = "README.md", "samples.png"
LARGEST_DIFFERENCE = 2
"""Gray levels of 255, which nobody sees. float16 gives 1 on MLPs and convolutional networks, bfloat16 gives 3."""
ROUNDING_SAMPLES = 500
LARGEST_PICTURE_BYTES = 300_000
MOST_COLUMNS = 10
"""Samples per class in the picture, if they fit into the bytes."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """Facts on a data set that no file of a run has."""

    title: str
    source: str
    license: str


DATA = {
    "digits": Data(
        title="scikit-learn's digits",
        source="the test set of Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, UCI Machine "
        "Learning Repository, 1998, doi:10.24432/C50P49; scikit-learn contains a copy",
        license="CC BY 4.0",
    ),
    "fashion-mnist": Data(
        title="Fashion-MNIST",
        source="H. Xiao, K. Rasul and R. Vollgraf, Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine "
        "Learning Algorithms, 2017, https://github.com/zalandoresearch/fashion-mnist",
        license="MIT, © 2017 Zalando SE",
    ),
    "cifar10": Data(
        title="CIFAR-10",
        source="A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009, "
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        license="none is stated; the authors ask to cite the report",
    ),
}
"""Data sets whose models may be added."""
ARCHITECTURES = {"mlp": "MLP", "conv": "convolutional network", "unet": "U-Net", "drift-dit": "DriftDiT"}


def add_model(
    run: Path, name: str, *, ema: float | None = None, machine: str | None = None, models: Path = MODELS
) -> Path:
    """Write the folder of a model, completely or not at all. An older one is replaced.

    Args:
        run: The run directory.
        name: The name of the model without its prefix.
        ema: Decay of the average, `optimizer.ema` or one of `optimizer.more_ema`; None for `optimizer.ema`.
        machine: The machine that trained it; None: this one.
        models: Directory of the folders.

    Returns:
        The folder.

    Raises:
        UserError: If the run is not complete, was not evaluated at its end, has data of unknown license, or if its
            images change by rounding.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise UserError(f"is {name!r}", "must be lower-case letters, digits and hyphens", "rename it", field="name")
    # Load the averaged weights, and round a copy to float16.
    loaded = load_generator(run, ema=ema)
    rounded = copy.deepcopy(loaded.generator).half()
    strength = default_strength(run)
    images = _draw(loaded.generator, ROUNDING_SAMPLES, strength)
    rounding = compare_rounded(images, _draw(copy.deepcopy(rounded).float(), ROUNDING_SAMPLES, strength))
    picture, count = draw_picture(loaded.generator, strength)
    models.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=models, prefix=".adding-") as scratch:
        folder = Path(scratch) / name
        # Write the weights and the picture.
        rounded.save_pretrained(folder)
        shutil.copymode(folder / CONFIG, folder / WEIGHTS)  # safetensors writes files that only their owner can read
        (folder / PICTURE).write_bytes(picture)
        # Write the record, and the card that says the same.
        content = (folder / WEIGHTS).read_bytes()
        record = describe_run(run, name, step=loaded.step, ema=ema, machine=machine)
        record |= {
            "parameters": sum(each.numel() for each in rounded.parameters()),
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "rounding": rounding,
            "picture_samples": count,
        }
        write_card(folder, record)
        # Move the folder to its place.
        if (models / name).exists():
            shutil.rmtree(models / name)
        os.replace(folder, models / name)
    return models / name


def write_card(folder: Path, record: Mapping[str, Any]) -> None:
    """Write record.json and README.md, with command and summary of this version of the recipes and of the text."""
    config = recipe(record["config"]["recipe"], tree=record["config"])
    record = {
        **record,
        "command": train_command(config),
        "summary": summarize(record),
        "strength": config.sample_strength,
    }
    text = json.dumps(record, indent=2, ensure_ascii=False, sort_keys=True, allow_nan=False)
    write_atomically(folder / RECORD, f"{text}\n".encode())
    write_atomically(folder / CARD, render_card(record).encode())


# ---- Samples ----


def _draw(generator: Generator, count: int, strength: float) -> Tensor:
    """Draw images as bytes, as `truedrift sample --count` does for all classes."""
    if len(generator.sample_shape) != 3:
        raise UserError("the samples are points", "models of the package make images", "choose another run")
    return to_uint8(sample(generator, balanced_labels(range(generator.classes), count), seed=0, strength=strength))


def compare_rounded(images: Tensor, rounded: Tensor) -> dict[str, Any]:
    """Compare samples of the run's weights with those of the rounded ones.

    Args:
        images: Bytes of the samples of float32 weights.
        rounded: Bytes of the same samples of float16 weights.

    Returns:
        The number of samples, the largest difference in gray levels, and the share of bytes that differ.

    Raises:
        UserError: If the largest difference is visible.
    """
    differences = (images.int() - rounded.int()).abs()
    largest = int(differences.max())
    if largest > LARGEST_DIFFERENCE:
        problem = f"float16 weights change the images by up to {largest} gray levels"
        raise UserError(problem, f"must be at most {LARGEST_DIFFERENCE}", "choose a run with smaller weights")
    changed = float((differences > 0).float().mean())
    return {"samples": len(images), "largest": largest, "changed": round(changed, 5)}


def draw_picture(generator: Generator, strength: float) -> tuple[bytes, int]:
    """Draw a grid with one row per class and as many columns as fit into the bytes; return the PNG and its samples."""
    classes = generator.classes
    for columns in range(MOST_COLUMNS, 0, -1):
        count = columns * (columns if classes == 1 else classes)
        labels = balanced_labels(range(classes), count)
        picture = image_grid(sample(generator, labels, seed=0, strength=strength), grid_columns(count, classes))
        file = BytesIO()
        Image.fromarray(picture.numpy()).save(file, format="PNG", optimize=True)
        if file.tell() <= LARGEST_PICTURE_BYTES:
            break
    return file.getvalue(), count


# ---- Record ----


def describe_run(
    path: Path, name: str, *, step: int | None, ema: float | None = None, machine: str | None = None
) -> dict[str, Any]:
    """Return what the files of a complete and evaluated run say; `step` is that of the weights."""
    run, opened = read_run(path, path.resolve().name), open_run(path)
    steps, weights = run.config.cadence.steps, "ema" if ema is None else f"ema {ema!r}"
    if run.status is not RunStatus.COMPLETE or step != steps:
        raise UserError(f"{str(path)!r} is not complete", "must have taken all its steps", "train it to its end")
    require_choice("the data set", run.config.data.name, DATA)
    evaluations = _final_evaluations(run, steps, weights)
    if not evaluations:
        problem = f"{str(path)!r} has no evaluation of the {weights} weights at step {steps}"
        option = "" if ema is None else f" --ema {ema!r}"
        raise UserError(problem, "the card states metrics", f"run truedrift evaluate {path}{option}")
    neighbors = run.neighbors
    if neighbors is not None and (neighbors.step, neighbors.protocol.weights) != (steps, weights):
        neighbors = None
    # A directory of this machine says nothing to others.
    config = replace(run.config, data=replace(run.config.data, root=None))
    kinds = [config.encoder.kind, *(each.kind for each in config.encoders)]
    return {
        "name": f"{PREFIX}{name}",
        "classes": list(run.classes),
        "sample_shape": list(opened.data["sample_shape"]),
        "architecture": config.generator.kind,
        "data": {**asdict(DATA[config.data.name]), "name": config.data.name, "sha256": run.data_sha256},
        "features": list(dict.fromkeys(kinds + ["pixels"] * config.objective.pixels)),
        "config": _as_json(config.tree()),
        "run": opened.id,
        "steps": steps,
        "decay": config.optimizer.ema if ema is None else ema,
        "seconds": wall_seconds(path),
        "machine": machine or _describe_machine(run),
        "time": last_event(run.history)["time"],
        "version": run.version,
        "commit": run.commit,
        "evaluations": [{"metrics": asdict(each.metrics), "protocol": asdict(each.protocol)} for each in evaluations],
        "neighbors": None if neighbors is None else describe_neighbors(neighbors),
    }


def _final_evaluations(run: Run, steps: int, weights: str) -> list[Evaluation]:
    """Return the evaluations of the last step, each protocol with its most samples; FID is the first."""
    every = (*run.average_evaluations, *final_evaluations(run))
    found = [each for each in every if (each.step, each.protocol.weights) == (steps, weights)]
    by_samples = sorted(found, key=lambda each: each.protocol.samples)
    largest = {replace(each.protocol, samples=0): each for each in by_samples}.values()

    def order(each: Evaluation) -> tuple[bool, bool, bool, int]:
        of, config = each.protocol, run.config
        other_strength, other_split = of.strength != config.sample_strength, of.split != config.evaluation.split
        return of.extractor != "inception", other_strength, other_split, -of.reference_count

    return sorted(largest, key=order)


def _describe_machine(run: Run) -> str:
    """Describe this machine, on which the run must have been trained."""
    hosts = {entry.get("host") for entry in run.history if entry.get("event") in ("started", "resumed")}
    if hosts != {socket.gethostname()}:
        problem = f"the run was trained on {', '.join(map(str, hosts))}, which is not this machine"
        raise UserError(problem, "the card states the machine", "pass --machine 'AMD EPYC, 2 cores'")
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.+)", info.read_text()) if info.exists() else []
    return f"{names[0] if names else platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def train_command(config: RunConfig) -> str:
    """Return the command of a configuration, after checking that it gives the same configuration.

    Args:
        config: A configuration that came from a recipe.

    Returns:
        A command line such as `truedrift train digits --set seed=1`.
    """
    settings = list(_settings(_as_json(recipe(config.recipe).tree()), _as_json(config.tree())))
    if recipe(config.recipe, settings=settings) != config:
        problem = f"the settings {' '.join(settings)} do not give the configuration of the run"
        raise UserError(problem, "the card states the command", "train it with a recipe and --set")
    return shlex.join(["truedrift", "train", config.recipe, *(word for each in settings for word in ("--set", each))])


def _settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options that differ as `section.option=value`; a section of another kind as a whole."""
    for name, value in new.items():
        before = old.get(name)
        if value == before:
            continue
        if isinstance(value, dict) and isinstance(before, dict) and value.get("kind") == before.get("kind"):
            yield from (f"{name}.{setting}" for setting in _settings(before, value))
        else:
            # Words need no quotes, unless they are words of JSON.
            word = isinstance(value, str) and re.fullmatch(r"[a-z][a-z0-9+-]*", value)
            plain = word and value not in ("none", "null", "true", "false")
            yield f"{name}={value if plain else json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"


def _as_json(tree: Any) -> Any:
    return json.loads(json.dumps(tree))


# ---- Text ----


def summarize(record: Mapping[str, Any]) -> str:
    """Return one line on data, network and the first metric."""
    metrics, protocol = next(_evaluations(record))
    size = "×".join(map(str, record["sample_shape"][1:]))
    color = "color" if record["sample_shape"][0] == 3 else "gray"
    classes = f"{len(record['classes'])} classes" if len(record["classes"]) > 1 else f"the class {record['classes'][0]}"
    network = f"{ARCHITECTURES[record['architecture']]} with {record['parameters'] / 1e6:.1f} million parameters"
    distance = f"{protocol.distance_name} {metrics.fid:.3g} with {protocol.samples:,} samples"
    duration = _format_duration(record["seconds"])
    return f"{record['data']['title']}, {size}, {color}, {classes}; {network}; {distance}; trained in {duration}"


def render_card(record: Mapping[str, Any]) -> str:
    """Return the card of a model as Markdown.

    Args:
        record: The content of record.json.

    Returns:
        The content of README.md. All its numbers are those of the record.
    """
    data, rounding, name = record["data"], record["rounding"], record["name"]
    facts = {
        "data": f"{data['title']}: {data['source']}",
        "license of the data": data["license"],
        "classes": ", ".join(record["classes"]),
        "samples": f"images {record['sample_shape']} (channels, height, width) in [−1, 1]",
        "network": f"{ARCHITECTURES[record['architecture']]}, {record['parameters']:,} parameters",
        "features in training": ", ".join(record["features"]),
        **_describe_guidance(record),
        "command": f"`{record['command']}`",
        "run": f"{record['run']}, {record['steps']:,} steps, averaged weights (decay {record['decay']:g})",
        "time": f"{_format_duration(record['seconds'])} ({record['seconds']:,.0f} s), ended {record['time']}",
        "machine": record["machine"],
        "version": f"truedrift {record['version']}, commit {record['commit']}",
        "weights": f"float16, {record['bytes'] / 1e6:.1f} MB, under the license of truedrift (MIT)",
        "sha256": f"`{record['sha256']}`",
    }
    rows = [f"| {key} | {value} |" for key, value in facts.items()]
    metrics = [f"| {' | '.join(_metric_row(*each))} |" for each in _evaluations(record)]
    neighbors = [] if record["neighbors"] is None else ["## Nearest training images", "", record["neighbors"], ""]
    lines = [
        f"# {name}",
        "",
        f"A one-step generator that is part of truedrift: {record['summary']}.",
        "",
        f"![samples, one row per class]({PICTURE})",
        "",
        "```python",
        "from truedrift.generators import from_pretrained",
        "",
        f'generator = from_pretrained("{name}")',
        "```",
        "",
        f"`truedrift sample {name}` draws samples; `truedrift evaluate {name}` computes the metrics again.",
        "",
        "| | |",
        "|---|---|",
        *rows,
        "",
        "## Metrics",
        "",
        "Metrics of the float32 weights of the run.",
        "",
        "| Fréchet distance | KID | precision | recall | Inception Score | protocol |",
        "|---|---|---|---|---|---|",
        *metrics,
        "",
        *neighbors,
        "## Rounding",
        "",
        "Samples of the float16 weights differ from those of the run by at most "
        f"{rounding['largest']} of 255 gray levels; {rounding['changed']:.2%} of the values differ "
        f"({rounding['samples']} samples, seed 0). The picture shows the run's weights. "
        f"`truedrift sample {name} --count {record['picture_samples']}` draws the same samples.",
        "",
        "This card is written by `tools/add_pretrained.py` from record.json.",
        "",
    ]
    return "\n".join(lines)


def _describe_guidance(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the strengths of a model that was trained with guidance."""
    config = record["config"]
    if config["batch"]["unconditional"] == 0:
        return {}
    low, high = config["condition"]["strength_low"], config["condition"]["strength_high"]
    return {"guidance": f"strengths from {low:g} to {high:g} (`--strength`), {record['strength']:g} if none is given"}


def _evaluations(record: Mapping[str, Any]) -> Iterator[tuple[Metrics, Protocol]]:
    for each in record["evaluations"]:
        yield from_dict(Metrics, each["metrics"]), from_dict(Protocol, each["protocol"])


def _metric_row(metrics: Metrics, of: Protocol) -> tuple[str, ...]:
    """Return the cells of an evaluation: its metrics, then their protocol."""
    kid = f"{format_number(metrics.kid, '.3g')} ± {metrics.kid_deviation:.2g}" if metrics.kid is not None else "–"
    score = "–" if metrics.inception_score is None else f"{metrics.inception_score:.3f}"
    protocol = (
        f"{of.samples:,} samples, {of.labels} labels, seed {of.seed}, strength {of.strength:g}; "
        f"{of.reference_count:,} images of {of.reference}, split {of.split}; "
        f"features {of.extractor} (sha256 {of.extractor_sha256[:12]}), k = {of.neighbors}"
    )
    distance = f"{of.distance_name} {metrics.fid:.4g}"
    return distance, kid, share(metrics.precision), share(metrics.recall), score, protocol


def _format_duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} seconds"
    return f"{minutes} minute{'s' * (minutes > 1)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments, write the folder and print its path."""
    parser = argparse.ArgumentParser(description="Add a model to the package.")
    parser.add_argument("run", nargs="?", type=Path, help="a complete run directory, evaluated by truedrift evaluate")
    parser.add_argument("name", nargs="?", help="name of the model, as in pretrained:NAME")
    parser.add_argument("--ema", type=float, help="decay of the average; optimizer.ema if not given")
    parser.add_argument("--machine", help="the machine that trained it; this one if not given")
    parser.add_argument("--cards", action="store_true", help="write all cards again from their records")
    given = parser.parse_args(arguments)
    if given.cards == (given.name is not None):
        parser.error("pass RUN and NAME, or --cards alone")
    try:
        if given.cards:
            for model in map(find_pretrained, pretrained_names()):
                write_card(model.folder, model.record)
        else:
            add_model(given.run, given.name, ema=given.ema, machine=given.machine)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name in pretrained_names() if given.cards else (f"{PREFIX}{given.name}",):
        model = find_pretrained(name)
        print(f"{model.name}: {model.summary}")
        print("\n".join(f"{path.stat().st_size:10,} bytes  {path}" for path in sorted(model.folder.iterdir())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
