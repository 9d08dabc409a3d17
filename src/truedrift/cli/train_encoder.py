"""`truedrift train-encoder`: train an encoder on images, or resume the training."""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import torch

from truedrift.cli.options.models import TrainEncoder
from truedrift.cli.train import follow_training
from truedrift.data.folder import count_images
from truedrift.data.load import IMAGES
from truedrift.distributed import resolve_device
from truedrift.encoders.resnet import WEIGHTS
from truedrift.errors import UserError, require_choice
from truedrift.progress_display import ProgressDisplay
from truedrift.recipes.overrides import RECIPES, apply_settings
from truedrift.training.config import DataOptions
from truedrift.training.encoder_run import (
    EncoderConfig,
    encoder_config_from_dict,
    find_complete_encoder,
    train_encoder,
)
from truedrift.training.loggers import resolve_loggers
from truedrift.training.setup import load_data

FOLDER_SIZE = 32
"""Default height and width of the images of a folder."""
OWN_RECIPES = {"cifar10": "cifar10-own", "mnist": "fashion-mnist"}
"""Recipes of data sets that have no recipe of their name for an encoder of one's own."""


def prepare(command: TrainEncoder) -> Callable[[], str]:
    """Check the configuration and the device."""
    config = encoder_config_from_dict(apply_settings(EncoderConfig().tree(), (*_settings(command), *command.set)))
    if command.print_config:
        return partial(json.dumps, config.tree(), indent=2)
    return partial(_train, config, command.out, resolve_device(command.device), resolve_loggers(command.log))


def _settings(command: TrainEncoder) -> list[str]:
    """Return the settings that the flags stand for."""
    if command.name is None and command.data is None:
        problem, fix = "no images were given", "pass for example cifar10 or --data DIR"
        raise UserError(problem, "must be a data set or a directory", fix)
    name = "folder" if command.name is None else command.name
    require_choice("the data set", name, IMAGES)
    size = FOLDER_SIZE if name == "folder" and command.image_size is None else command.image_size
    root = None if command.data is None else str(command.data.absolute())
    flags = {
        "recipe": f"encoder-{name}",
        "data": {"name": name, "root": root, "image_size": size},
        "cadence.autoencoder_steps": command.steps,
        "cadence.classifier_steps": command.classifier_steps,
        "seed": command.seed,
    }
    return [f"{option}={json.dumps(value)}" for option, value in flags.items() if value is not None]


def _train(config: EncoderConfig, out: Path | None, device: torch.device, log: tuple[str, ...]) -> str:
    """Train to the end or to a signal; return the summary."""
    progress = ProgressDisplay()
    last = find_complete_encoder(config, out, progress.print_message)
    if last is not None:  # it is on a folder of images
        class_sizes = count_images(Path(config.data.root or ""), config.data.classes)
    else:
        with ProgressDisplay() as loading:
            samples = load_data(config.data, seed=config.seed, progress=loading)
        reports = train_encoder(
            config, samples=samples, out=out, device=device, progress=progress, notify=progress.print_message, log=log
        )
        last = follow_training(reports, progress, _describe_loss)
        class_sizes = samples.labels.unique(return_counts=True)[1].tolist()
    first, *others = _next_commands(config.data, last.directory, class_sizes)
    lines = (
        f"complete: {last.steps} steps, {last.metrics.get('images_seen', 0)} images seen",
        _describe_loss(last.metrics),
        f"encoder:  {last.directory / WEIGHTS}",
        f"next:     {first}",
        *(f"          {command}" for command in others),
    )
    return "\n".join(lines)


def _describe_loss(metrics: Mapping[str, Any]) -> str:
    """Return the mean square error of masked pixels, and the accuracy of the classifier if there is one."""
    text = f"mean square error of masked pixels {metrics.get('reconstruction') or float('nan'):.4f}"
    return text + (f", accuracy {metrics['accuracy']:.1%}" if "accuracy" in metrics else "")


def _next_commands(data: DataOptions, run: Path, class_sizes: Sequence[int]) -> list[str]:
    """Return the commands that evaluate the encoder and train a generator with it, both on the same images."""
    commands = [_train_words(data, run, min(class_sizes))]
    if len(class_sizes) > 1:  # without classes there is no accuracy
        commands.insert(0, _evaluate_words(data, run))
    return [shlex.join(words) for words in commands]


def _evaluate_words(data: DataOptions, run: Path) -> list[str]:
    """Return the command `evaluate-encoder` for these images."""
    words = ["truedrift", "evaluate-encoder", str(run), "pixels", "--data", data.name]
    words += [] if data.root is None else ["--root", data.root]
    return words if data.image_size is None else [*words, "--image-size", str(data.image_size)]


def _train_words(data: DataOptions, run: Path, smallest_class: int) -> list[str]:
    """Return the command `train` for these images: a recipe, and the options in which its data differ."""
    name = OWN_RECIPES.get(data.name, data.name)
    recipe = RECIPES[name]()
    words = ["truedrift", "train", name]
    words += [] if data.root is None else ["--data", data.root]
    words += ["--classes", *data.classes] if data.classes else []
    words += ["--set", f"batch.n={smallest_class}"] if smallest_class < recipe.batch.n else []
    for option in fields(data):
        value = getattr(data, option.name)
        if option.name not in ("root", "classes") and value != getattr(recipe.data, option.name):
            text = value if isinstance(value, str) else "none" if value is None else json.dumps(value)
            words += ["--set", f"data.{option.name}={text}"]
    return [*words, "--encoder", str(run)]
