"""`truedrift train-encoder`: train an encoder on images, or resume the training."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from truedrift.cli.progress import ProgressDisplay
from truedrift.cli.train import follow_training
from truedrift.data.load import NAMES, TOYS
from truedrift.distributed import resolve_device
from truedrift.encoders.resnet import WEIGHTS
from truedrift.errors import UserError, require_choice
from truedrift.options import from_dict
from truedrift.recipes.overrides import RECIPES, apply_settings
from truedrift.training.encoder_run import EncoderConfig, train_encoder

DATA_SETS = tuple(name for name in NAMES if name not in TOYS)
FOLDER_SIZE = 32
"""Default height and width of the images of a folder."""


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

    print_config: bool = False
    """Only print the configuration as JSON."""

    def prepare(self) -> Callable[[], str]:
        """Check the configuration and the device."""
        config = from_dict(EncoderConfig, apply_settings(EncoderConfig().tree(), (*self._settings(), *self.set)))
        if self.print_config:
            return partial(json.dumps, config.tree(), indent=2)
        return partial(_train, config, self.out, resolve_device(self.device))

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


def _train(config: EncoderConfig, out: Path | None, device: torch.device) -> str:
    """Train to the end or to a signal; return the summary."""
    progress = ProgressDisplay()
    reports = train_encoder(config, out=out, device=device, progress=progress, notify=progress.print_message)
    last = follow_training(reports, progress, _describe_loss)
    lines = (
        f"complete: {last.steps} steps, {config.images_seen(last.steps)} images seen",
        _describe_loss(last.metrics),
        f"encoder:  {last.directory / WEIGHTS}",
        f"next:     truedrift evaluate-encoder {last.directory} pixels",
        f"          truedrift train {_recipe_name(config)} --encoder {last.directory}",
    )
    return "\n".join(lines)


def _describe_loss(metrics: Mapping[str, Any]) -> str:
    """Return the mean square error of masked pixels, and the accuracy of the classifier if there is one."""
    text = f"mean square error of masked pixels {metrics.get('reconstruction') or float('nan'):.4f}"
    return text + (f", accuracy {metrics['accuracy']:.1%}" if "accuracy" in metrics else "")


def _recipe_name(config: EncoderConfig) -> str:
    """Return a recipe for the same images, with its --data if it needs one."""
    name = config.data.name
    if name == "folder":
        return f"folder --data {config.data.root}"
    return "cifar10-own" if name == "cifar10" else name if name in RECIPES else "RECIPE"
