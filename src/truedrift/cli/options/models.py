"""Options of the commands that train, sample, evaluate and convert models."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from truedrift.choices import Estimator, Weights
from truedrift.cli.options.command import Command, named
from truedrift.errors import require_choice
from truedrift.recipes.descriptions import DESCRIPTIONS


@dataclass(frozen=True, kw_only=True)
class Train(Command):
    """Train a one-step generator by drifting; the same command resumes it.

    The run directory holds config.json, metrics.jsonl, samples/*.png, checkpoints and TensorBoard files. On SIGTERM or
    SIGUSR1 the run saves at the end of the step and exits with status 75; run the same command again. Several
    processes: torchrun --nproc-per-node 2 -m truedrift train RECIPE.

    Try it:
      truedrift train digits
      truedrift train digits --estimator standard --seed 1
      truedrift train toy --data two-moons --set objective.temperatures=0.1,0.5
      truedrift train digits --n 64 --set batch.generated=8 --set batch.fresh_negatives=64
      truedrift train digits --classes 3 8
      truedrift train digits --log tensorboard wandb mlflow
      truedrift train digits --n 16 --print-config
      truedrift train array --data table.npz
      truedrift train folder --data photos --encoder runs/encoder-folder-0123456789ab
    """

    work = "truedrift.cli.train"

    recipe: Annotated[str, tyro.conf.Positional, named("RECIPE")]
    """Name of the recipe; `truedrift recipes` lists them."""

    n: Annotated[int | None, tyro.conf.arg(aliases=["--positives"], metavar="INT")] = None
    """Positives per class and step; if not given, the value in the recipe. Under torchrun use --positives."""

    seed: Annotated[int | None, named("INT")] = None
    """Seed of all random draws."""

    estimator: Annotated[Estimator | None, named("{standard,abc,abc2,jackknife,bootstrap}")] = None
    """Estimator of both sides; for one side, use for example --set objective.estimator_neg=standard."""

    data: Annotated[str | None, named("DATA")] = None
    """Directory or archive of the data; for the recipe array, a .npz file with X and y, or a .npy file; for the recipe
    toy, the name of a toy."""

    encoder: Annotated[Path | None, named("RUN")] = None
    """Run directory of `truedrift train-encoder`, whose encoder gives the features; if not given, the recipe's."""

    classes: Annotated[tuple[str, ...], named("[CLASS ...]")] = ()
    """Names of the classes to train on; all classes of the data set if not given."""

    config: Annotated[Path | None, named("FILE")] = None
    """JSON file, as written by --print-config, whose options override those of the recipe."""

    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, named("SECTION.OPTION=VALUE")] = ()
    """An option as section.option=value; may be repeated."""

    device: Annotated[str, named("DEVICE")] = "auto"
    """auto, cpu, cuda or mps."""

    out: Annotated[Path | None, named("DIR")] = None
    """Run directory; if not given, one in runs/ that is named by recipe, estimator, n, seed and a hash."""

    log: Annotated[tuple[str, ...] | None, tyro.conf.arg(aliases=["--loggers"], metavar="[LOGGER ...]")] = None
    """Loggers: tensorboard, wandb, mlflow, or none; tensorboard if not given. Under torchrun use --loggers."""

    timeout: Annotated[float, named("MINUTES")] = 10.0
    """Under torchrun: minutes to wait for an answer of the other processes."""

    print_config: bool = False
    """Only print the configuration as JSON."""

    def prepare(self) -> Callable[[], str]:
        """Check the name of the recipe before the work is imported, which takes seconds."""
        require_choice("the recipe", self.recipe, DESCRIPTIONS)
        return super().prepare()


@dataclass(frozen=True, kw_only=True)
class Sample(Command):
    """Draw samples from a run or pretrained weights: a grid, a folder of images or an .npz file.

    A sample is a function of its number, the seed, the class and the strength. It does not depend on the other samples
    or on the batch size.

    Try it:
      truedrift sample pretrained:digits
      truedrift sample runs/digits-abc-n120-seed0-012345
      truedrift sample runs/digits-abc-n120-seed0-012345 --classes 3 7 --count 64 --seed 1
      truedrift sample runs/digits-abc-n120-seed0-012345 --form npz --count 50000
    """

    work = "truedrift.cli.sample"

    run: Annotated[Path, tyro.conf.Positional, named("RUN")]
    """Run directory; or a pretrained model such as pretrained:digits, see `truedrift data list`; or a folder written by
    `truedrift convert` or save_pretrained."""

    form: Literal["grid", "folder", "npz"] = "grid"
    """grid: one PNG; folder: one PNG per sample, in folders named by the classes; npz: arrays `images` and `labels`, or
    for a run on arrays `X` in your units and `y`."""

    count: int = 100
    """Total number of samples, divided evenly among the classes. A grid has equally many of each class, and may have
    fewer samples than this. Classes of a run on arrays are as frequent as in the data, unless --classes is given."""

    classes: Annotated[tuple[str, ...], named("[CLASS ...]")] = ()
    """Names or numbers of classes; all classes if not given."""

    strength: Annotated[float | None, named("FLOAT")] = None
    """Guidance strength, an input of the generator; evaluation.strength of its training if not given."""

    seed: int = 0
    """Seed of the noise."""

    batch: int = 256
    """Samples per batch."""

    weights: Weights = "ema"
    """ema: averaged weights; model: weights of the last step."""

    ema: Annotated[float | None, named("FLOAT")] = None
    """Decay of the average: optimizer.ema, the default, or one of optimizer.more_ema."""

    step: Annotated[int | None, named("INT")] = None
    """Step of the checkpoint; the newest if not given. A run keeps more checkpoints with cadence.keep_every."""

    device: Annotated[str, named("DEVICE")] = "auto"
    """auto, cpu, cuda or mps."""

    out: Annotated[Path | None, named("PATH")] = None
    """File, or new or empty folder, to write; if not given, inside the run directory, or runs/pretrained-NAME."""


@dataclass(frozen=True, kw_only=True)
class Evaluate(Command):
    """Evaluate a run: FID, KID, precision, recall and Inception Score, each with its protocol.

    Every class has the same number of samples. Their noise is a function of the seed; batch size and number of
    processes change the results by rounding only. Features of the data are computed once and cached. Results are
    appended to RUN/evaluations.jsonl. Several processes: torchrun --nproc-per-node 2 -m truedrift evaluate RUN.

    --neighbors finds the nearest training images of samples instead, and compares their distances with those of
    held-out images. It writes two pictures to RUN. Several values of --strength or of --step make a table and a plot in
    RUN.

    Try it:
      truedrift evaluate runs/digits-abc-n120-seed0-012345
      truedrift evaluate runs/cifar10-0123456789ab --extractor inception --samples 50000
      truedrift evaluate runs/fashion-mnist-0123456789ab --extractor encoder:convnet --samples 5000
      truedrift evaluate runs/cifar10-0123456789ab --strength 1 1.5 2 3
      truedrift evaluate runs/cifar10-0123456789ab --step 39000 78000 117000 --samples 5000
      truedrift evaluate runs/digits-abc-n120-seed0-012345 --neighbors
      truedrift evaluate pretrained:digits
    """

    work = "truedrift.cli.evaluate"

    run: Annotated[Path, tyro.conf.Positional, named("RUN")]
    """Run directory, or a pretrained model such as pretrained:digits; or, with --data, a folder written by `truedrift
    convert` or save_pretrained."""

    extractor: Annotated[str | None, named("EXTRACTOR")] = None
    """inception (standard FID), abc-release (as in the published code), digits, or encoder:NAME."""

    samples: Annotated[int | None, named("INT")] = None
    """Number of samples; if not given, the value in the run's configuration (50 000 for CIFAR), or 200 with
    --neighbors."""

    data: Annotated[str | None, named("DATASET")] = None
    """Name of the data set to compare with; if not given, the data set of the run."""

    root: Annotated[Path | None, named("DIR")] = None
    """Directory or archive of that data set; the cache if not given."""

    split: Annotated[Literal["train", "test", "all"] | None, named("{train,test,all}")] = None
    """Split of the data; if not given, the split in the run's configuration (usually train, as in the literature)."""

    reference: Annotated[int | None, named("INT")] = None
    """Number of reference samples from that split, chosen with a fixed seed; if not given, the run's value, or all.
    With --neighbors: number of training images whose features are compared; if not given, all for digits,
    encoder:pixels and encoder:convnet, else 2000."""

    seed: Annotated[int | None, named("INT")] = None
    """Seed of noise and styles."""

    strength: Annotated[tuple[float, ...], named("[FLOAT ...]")] = ()
    """Guidance strength, an input of the generator; evaluation.strength of its training if not given. Several values
    are evaluated one after the other."""

    neighbors: bool = False
    """Find the nearest training images of samples, in features that the run was not trained on."""

    held_out: int = 500
    """Number of held-out images for --neighbors, from the test split; without one, up to a fifth of the images."""

    batch: int = 256
    """Samples per batch."""

    weights: Weights = "ema"
    """ema: averaged weights; model: weights of the last step."""

    ema: Annotated[float | None, named("FLOAT")] = None
    """Decay of the average: optimizer.ema, the default, or one of optimizer.more_ema."""

    step: Annotated[tuple[int, ...], named("[INT ...]")] = ()
    """Step of the checkpoint; the newest if not given. A run keeps more checkpoints with cadence.keep_every. Several
    values are evaluated one after the other."""

    device: Annotated[str, named("DEVICE")] = "auto"
    """auto, cpu, cuda or mps."""

    out: Annotated[Path | None, named("DIR")] = None
    """Directory of evaluations.jsonl; if not given, the run directory, or runs/pretrained-NAME."""

    @property
    def weights_name(self) -> str:
        """The weights, as they are written to the protocol."""
        return self.weights if self.ema is None else f"ema {self.ema!r}"


@dataclass(frozen=True, kw_only=True)
class TrainEncoder(Command):
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

    work = "truedrift.cli.train_encoder"

    name: Annotated[str | None, tyro.conf.Positional, named("[DATASET]")] = None
    """Data set; if not given, the folder of images that --data names."""

    data: Annotated[Path | None, named("DIR")] = None
    """Directory of your own images, or directory or archive of the data set; the cache if not given."""

    image_size: Annotated[int | None, named("INT")] = None
    """Height and width to which images of a folder are resized; 32 if not given."""

    steps: Annotated[int | None, named("INT")] = None
    """Steps of the masked autoencoder."""

    classifier_steps: Annotated[int | None, named("INT")] = None
    """Further steps that also train a classifier of the labels; none if not given."""

    seed: Annotated[int | None, named("INT")] = None
    """Seed of all random draws."""

    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, named("SECTION.OPTION=VALUE")] = ()
    """An option as section.option=value; may be repeated."""

    device: Annotated[str, named("DEVICE")] = "auto"
    """auto, cpu, cuda or mps."""

    out: Annotated[Path | None, named("DIR")] = None
    """Run directory; runs/encoder-NAME-HASH if not given."""

    log: Annotated[tuple[str, ...] | None, named("[LOGGER ...]")] = None
    """Loggers: tensorboard, wandb, mlflow, or none; tensorboard if not given."""

    print_config: bool = False
    """Only print the configuration as JSON."""


@dataclass(frozen=True, kw_only=True)
class EvaluateEncoder(Command):
    """Evaluate encoders: k nearest neighbors and a linear probe on their features, in one table.

    Features are the means of the encoder's maps, standardized. Both accuracies are of the same test images and use the
    same labeled images of the train split, so that encoders can be compared. The number after ± is the standard error
    over test images. Without a test split, as in most folders, up to a fifth of the images of each class is held out;
    an encoder that was trained on the same folder has seen them.

    Try it:
      truedrift evaluate-encoder pixels convnet efficientnet-lite0
      truedrift evaluate-encoder runs/encoder-cifar10-0123456789ab pixels --train 10000 --test 2000
      truedrift evaluate-encoder pixels convnet --data digits
      truedrift evaluate-encoder efficientnet-lite0 --set image_size=96 --set taps=2,4,10,15
      truedrift evaluate-encoder runs/encoder-folder-0123456789ab pixels --data folder --root photos --image-size 32
    """

    work = "truedrift.cli.evaluate_encoder"

    names: Annotated[tuple[str, ...], tyro.conf.Positional, named("ENCODER [ENCODER ...]")]
    """Encoders: pixels, convnet, efficientnet-lite0, dinov2, or run directories of `truedrift train-encoder`."""

    data: Annotated[str, named("DATASET")] = "cifar10"
    """Labeled data set."""

    root: Annotated[Path | None, named("DIR")] = None
    """Directory or archive of the data set; the cache if not given."""

    image_size: Annotated[int | None, named("INT")] = None
    """Height and width to which images of the data set folder are resized."""

    train: int = 1000
    """Labeled images of the split train."""

    test: int = 500
    """Images of the split test, or images to hold out of a folder without one."""

    neighbors: int = 10
    """k of the nearest neighbors."""

    seed: int = 0
    """Seed of the choice of images."""

    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, named("OPTION=VALUE")] = ()
    """An option as option=value, for every encoder that has it; may be repeated."""

    batch: int = 250
    """Images that pass through the encoder at a time."""

    device: Annotated[str, named("DEVICE")] = "auto"
    """auto, cpu, cuda or mps."""


@dataclass(frozen=True, kw_only=True)
class Convert(Command):
    """Convert a published DriftDiT checkpoint (.pt, .pth, .safetensors) to config.json + safetensors.

    A separate process reads the pickle as weights only; nothing in it is executed. EMA weights are preferred if there
    are any. The sizes of the network are inferred from the shapes of its tensors.

    Try it:
      truedrift convert checkpoint.pt
      truedrift convert checkpoint.pt --weights model --out converted
    """

    work = "truedrift.cli.convert"

    file: Annotated[Path, tyro.conf.Positional, named("FILE")]
    """The checkpoint file."""

    out: Annotated[Path | None, named("DIR")] = None
    """Folder to write, new or empty; FILE without its extension if not given."""

    weights: Literal["auto", "ema", "model"] = "auto"
    """Which weights to convert; auto prefers the EMA weights."""

    image_size: Annotated[int | None, named("INT")] = None
    """Height and width of the images; pass it if the checkpoint contains a wrong value or none (32 is then assumed)."""

    style_draws: Annotated[int | None, named("INT")] = None
    """Number of style vectors summed per sample. Checkpoints do not contain it; if not given, 32 as published."""
