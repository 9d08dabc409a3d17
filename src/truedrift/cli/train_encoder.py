"""`truedrift train-encoder`: train an encoder on images, or resume the training."""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from truedrift.cli.train import follow_training
from truedrift.data.folder import count_images
from truedrift.data.load import NAMES, TOYS
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

DATA_SETS = tuple(name for name in NAMES if name not in TOYS)
FOLDER_SIZE = 32
"""Default height and width of the images of a folder."""
OWN_RECIPES = {"cifar10": "cifar10-own", "mnist": "fashion-mnist"}
"""Recipes of data sets that have no recipe of their name for an encoder of one's own."""


@dataclass(frozen=True, kw_only=True)
class TrainEncoder:
    """Train an encoder on images, without labels or with them; the same command resumes it.

    A small residual network learns to complete images, half of which is hidden (masked autoencoder). With
    --classifier-steps it then also learns to tell the classes apart. Nothing pretrained is used. The run directory
    holds config.json, metrics.jsonl, checkpoints and, when it is complete, encoder.safetensors, which
    `truedrift train RECIPE --encoder RUN` uses. On SIGTERM or SIGUSR1 the run saves at the end of the step and exits
    with status 75; run the same command again.

    Try it:
      truedrift train-encoder digits --steps 200
      truedrift train-encoder cifar10 --classifier-steps 1000
      truedrift train-encoder --data photos --image-size 32
      truedrift train-encoder cifar10 --set network.width=16 --print-config
    """

    name: Annotated[str | None, tyro.conf.Positional] = None
    """Data set; if not given, the folder of images that --data names."""

    data: Path | None = None
    """Directory of your own images, or directory or archive of the data set; the cache if not given."""

    image_size: int | None = None
    """Height and width to which images of a folder are resized; 32 if not given."""

    steps: int | None = None
    """Steps of the masked autoencoder."""

    classifier_steps: int | None = None
    """Further steps that also train a classifier of the labels; none if not given."""

    seed: int | None = None
    """Seed of all random draws."""

    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """An option as section.option=value; may be repeated."""

    device: str = "auto"
    """auto, cpu, cuda or mps."""

    out: Path | None = None
    """Run directory; runs/encoder-NAME-HASH if not given."""

    log: tuple[str, ...] | None = None
    """Loggers: tensorboard, wandb, mlflow, or none; tensorboard if not given."""

    print_config: bool = False
    """Only print the configuration as JSON."""

    def prepare(self) -> Callable[[], str]:
        """Check the configuration and the device."""
        config = encoder_config_from_dict(apply_settings(EncoderConfig().tree(), (*self._settings(), *self.set)))
        if self.print_config:
            return partial(json.dumps, config.tree(), indent=2)
        return partial(_train, config, self.out, resolve_device(self.device), resolve_loggers(self.log))

    def _settings(self) -> list[str]:
        """Return the settings that the flags stand for."""
        if self.name is None and self.data is None:
            problem, fix = "no images were given", "pass for example cifar10 or --data DIR"
            raise UserError(problem, "must be a data set or a directory", fix)
        name = "folder" if self.name is None else self.name
        require_choice("the data set", name, DATA_SETS)
        size = FOLDER_SIZE if name == "folder" and self.image_size is None else self.image_size
        root = None if self.data is None else str(self.data.absolute())
        flags = {
            "recipe": f"encoder-{name}",
            "data": {"name": name, "root": root, "image_size": size},
            "cadence.autoencoder_steps": self.steps,
            "cadence.classifier_steps": self.classifier_steps,
            "seed": self.seed,
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
