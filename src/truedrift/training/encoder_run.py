"""`train_encoder(config)`: start or resume the training of an encoder, and yield a report at every logged step.

A run has two parts: `autoencoder_steps` of the masked autoencoder, then `classifier_steps` with the cross-entropy of a
linear classifier added, whose weight λ rises linearly over the warm-up steps. The files are those of `train`: the same
configuration, checkpoints, metrics, lock and history, and the same command resumes the run bit for bit. A complete run
also holds encoder.safetensors with the averaged weights of the encoder, which `encoder.kind=own` uses.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import torch

from truedrift.axes import Tensor
from truedrift.data.samples import Samples
from truedrift.distributed import resolve_device
from truedrift.encoders.resnet import WEIGHTS, ResNetOptions, save_encoder
from truedrift.errors import UserError
from truedrift.options import Within, from_dict
from truedrift.progress import Progress, no_progress
from truedrift.storage import read_tensors
from truedrift.training import checkpoint
from truedrift.training.autoencoder import (
    AutoencoderLoss,
    AutoencoderOptions,
    MaskedAutoencoder,
    autoencoder_loss,
    draw_batch,
)
from truedrift.training.config import Count, DataOptions, OptimizerOptions, drop_added_defaults
from truedrift.training.config_checks import require_schedule
from truedrift.training.journal import Notify, RunJournal
from truedrift.training.loggers import resolve_loggers
from truedrift.training.loop import NonFinite, NonFiniteMonitor, TrainingReport
from truedrift.training.run_directory import (
    CONFIG,
    DamagedConfig,
    RunDirectory,
    lock_run,
    read_config,
    write_errors_as_user_errors,
)
from truedrift.training.setup import load_data, memory_errors_as_user_errors
from truedrift.training.signals import StopSignal
from truedrift.training.state import TrainingState, learning_rate
from truedrift.training.telemetry import finite_or_none, timing
from truedrift.training.train import find_complete

# ---- Configuration ----


@dataclass(frozen=True, kw_only=True)
class EncoderCadence:
    """Length of the run and intervals of its outputs, in steps."""

    autoencoder_steps: Count = 3000
    """Steps of the masked autoencoder."""
    classifier_steps: Annotated[int, Within(0, 2**31 - 1)] = 0
    """Further steps that also train a classifier of the labels."""
    log_every: Count = 50
    checkpoint_every: Count = 250
    keep_last: Annotated[int, Within(1, 10_000)] = 2
    """Number of the newest checkpoints to keep."""
    keep_every: Count | None = None
    """Checkpoints of steps divisible by this number are never removed."""

    @property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        return self.autoencoder_steps + self.classifier_steps


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The complete configuration of a run of `train_encoder`.

    Example:
        >>> EncoderConfig(cadence=EncoderCadence(autoencoder_steps=200, classifier_steps=50)).cadence.steps
        250
    """

    recipe: str = "encoder"
    """First part of the name of the run directory."""
    seed: Annotated[int, Within(0, 2**31 - 1)] = 0
    """Seed of initial weights, batches and masks."""
    data: DataOptions = field(default_factory=DataOptions)
    network: ResNetOptions = field(default_factory=ResNetOptions)
    autoencoder: AutoencoderOptions = field(default_factory=AutoencoderOptions)
    optimizer: OptimizerOptions = field(
        default_factory=lambda: OptimizerOptions(learning_rate=2e-3, warmup_steps=100, ema=0.995)
    )
    cadence: EncoderCadence = field(default_factory=EncoderCadence)

    def tree(self) -> dict[str, Any]:
        """Return the configuration as nested dictionaries that can be written as JSON."""
        return asdict(self)


def encoder_config_from_dict(tree: Mapping[str, Any]) -> EncoderConfig:
    """Build a configuration from nested dictionaries.

    Args:
        tree: Options by section and name, as `EncoderConfig.tree` returns them. Missing options take their defaults.

    Returns:
        The configuration.

    Raises:
        UserError: If an option is unknown, has a wrong type or value, does not agree with another one, or has no effect
            on an encoder.

    Example:
        >>> encoder_config_from_dict({"cadence": {"autoencoder_steps": 200}}).cadence.steps
        200
    """
    config = from_dict(EncoderConfig, tree)
    require_schedule(config.optimizer, config.cadence.steps)
    if config.optimizer.more_ema:
        raise UserError(
            f"is {config.optimizer.more_ema}",
            "must be empty, since an encoder has one average, that of optimizer.ema",
            "leave it out",
            field="optimizer.more_ema",
        )
    return config


@dataclass(frozen=True)
class EncoderRun(RunDirectory):
    """The directory and the configuration of a run of `train_encoder`."""

    config: EncoderConfig  # type: ignore[assignment]  # the part of RunConfig that directories and journals use

    def identity(self, tree: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part of a configuration that determines the steps, apart from where the classifier starts."""
        kept = {name: value for name, value in tree.items() if name != "cadence"}
        if tree["optimizer"].get("schedule") == "cosine":
            kept["steps of the cosine schedule"] = from_dict(EncoderCadence, tree["cadence"]).steps
        return drop_added_defaults(kept)

    def require_same_run(self, samples: Samples) -> None:
        """Require the same configuration and data, and that the classifier starts at the same step if it has."""
        super().require_same_run(samples)
        if not (self.path / CONFIG).exists():
            return
        start = self.config.cadence.autoencoder_steps
        try:
            written = read_config(self.path)["config"]["cadence"]["autoencoder_steps"]
        except (DamagedConfig, KeyError, TypeError):  # written again, since the checkpoints are of this run
            return
        saved = max(checkpoint.steps(self.checkpoints), default=0)
        if start != written and saved > min(start, written):
            raise UserError(
                f"is {start} and the run in {str(self.path)!r} has taken {saved} steps with {written}",
                f"must be {written}, or at least {saved} if the classifier has not started",
                "set it to an allowed value, or choose another directory with --out",
                field="cadence.autoencoder_steps",
            )


# ---- Training ----


@dataclass(frozen=True)
class EncoderStep:
    """The optimizer step of a run, called with its number."""

    config: EncoderConfig
    state: TrainingState[MaskedAutoencoder]
    samples: Samples
    device: torch.device

    @property
    def images_per_step(self) -> int:
        """Number of images of a step."""
        return self.config.autoencoder.images_per_step(len(self.samples))

    def __call__(self, step: int) -> tuple[AutoencoderLoss, Tensor, Tensor]:
        """Take step number `step`, counted from 0; return loss, norm of the gradient, and whether both are finite."""
        config, options = self.config, self.config.optimizer
        batch = draw_batch(self.samples, config.autoencoder, seed=config.seed, step=step)
        batch = type(batch)(*(each.to(self.device) for each in batch))
        # Compute the gradient.
        self.state.optimizer.zero_grad(set_to_none=True)
        result = autoencoder_loss(self.state.generator, batch, self.classifier_weight(step))
        result.loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(
            self.state.parameters, torch.inf if options.clip is None else options.clip
        )
        # Update weights and average.
        finite = torch.isfinite(norm) & torch.isfinite(result.loss)
        self.state.advance(step, learning_rate(options, step, config.cadence.steps), finite)
        return AutoencoderLoss(*(each.detach() for each in result)), norm, finite

    def classifier_weight(self, step: int) -> float:
        """Return λ of a step: 0 for the masked autoencoder alone, then a linear rise."""
        since = step - self.config.cadence.autoencoder_steps
        rise = min(1.0, (since + 1) / max(1, self.config.optimizer.warmup_steps))
        return self.config.autoencoder.classifier_weight * rise if since >= 0 else 0.0

    def metrics(self, step: int, result: AutoencoderLoss, norm: Tensor) -> dict[str, Any]:
        """Return the metrics after `step` steps, all functions of the state."""
        metrics = {
            "step": step,
            "images_seen": step * self.images_per_step,
            "loss": float(result.loss),
            "reconstruction": float(result.reconstruction),
            "gradient_norm": float(norm),
            "learning_rate": learning_rate(self.config.optimizer, step - 1, self.config.cadence.steps),
        }
        if self.classifier_weight(step - 1) > 0:
            metrics |= {"classification": float(result.classification), "accuracy": float(result.accuracy)}
        return dict(finite_or_none(metrics))


def train_encoder(
    config: EncoderConfig,
    *,
    samples: Samples | None = None,
    out: Path | None = None,
    device: str | torch.device = "auto",
    progress: Progress = no_progress,
    notify: Notify | None = None,
    log: Sequence[str] | None = None,
) -> Iterator[TrainingReport]:
    """Start or resume the run of this configuration.

    Configuration, device and data are checked when the function is called; the steps are taken as the reports are
    requested.

    Args:
        config: The configuration of the run.
        samples: The images; by default those that the configuration names.
        out: The run directory; by default runs/RECIPE-HASH.
        device: `auto`, `cpu`, `cuda`, `mps`, or a device.
        progress: Called with a description, the steps done and their number.
        notify: Called with messages for the user.
        log: Loggers, as for `train`.

    Returns:
        An iterator over the reports, one per logged step and one at the end. After the last step, the run directory
        holds encoder.safetensors.

    Raises:
        UserError: If the configuration, the device, the data or the run directory cannot be used, or a logger is
            unknown or not installed.
        NonFinite: If a loss or gradient is NaN or infinite. No weight was changed.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> config = EncoderConfig(network=ResNetOptions(width=8), cadence=EncoderCadence(autoencoder_steps=2))
        >>> with TemporaryDirectory() as out:
        ...     [report.step for report in train_encoder(config, out=Path(out), device="cpu")]
        [2]
    """
    config, where, log = encoder_config_from_dict(config.tree()), resolve_device(device), resolve_loggers(log)
    samples = samples or load_data(config.data, seed=config.seed)
    if not samples.is_images:
        problem = f"{samples.name} has points of shape {samples.sample_shape}"
        raise UserError(problem, "an encoder is trained on images", "choose a data set of images")
    _require_classes(config.cadence.classifier_steps, samples)
    return _take_steps(_encoder_run(config, out), samples, where, progress, notify or _ignore, log)


def find_complete_encoder(config: EncoderConfig, out: Path | None, notify: Notify) -> TrainingReport | None:
    """Return the last report of a complete run on a folder of images, as `find_complete`; its encoder is intact."""
    run = _encoder_run(config, out)
    return find_complete(run, evaluated=False, notify=notify) if read_tensors(run.path / WEIGHTS) else None


def _encoder_run(config: EncoderConfig, out: Path | None) -> EncoderRun:
    """Return the run in `out`, or in runs/<recipe>-<hash of the configuration>."""
    run = EncoderRun(Path(out or ""), config, {})
    return run if out is not None else replace(run, path=Path("runs") / f"{config.recipe}-{run.id}")


def _require_classes(steps: int, samples: Samples) -> None:
    """Require two classes or more if there are classifier steps."""
    classes = int(samples.labels.unique().numel())
    if steps > 0 and classes < 2:
        raise UserError(
            f"is {steps} and {samples.name} has {classes} class",
            "a classifier needs two or more",
            "leave it out, or use images with classes, such as one folder per class",
            field="cadence.classifier_steps",
        )


def _take_steps(
    run: EncoderRun,
    samples: Samples,
    device: torch.device,
    progress: Progress,
    notify: Notify,
    log: Sequence[str],
) -> Iterator[TrainingReport]:
    """Open the run, take its remaining steps, and write the encoder at the end."""
    with ExitStack() as stack:
        stack.enter_context(memory_errors_as_user_errors("set a smaller autoencoder.batch or network.width"))
        stop = stack.enter_context(StopSignal())
        # Lock the directory.
        run.require_same_run(samples)
        stack.enter_context(lock_run(run.path))
        run.write_config(samples, notify)
        # Build the network and load the newest checkpoint.
        step = _build_step(run.config, samples, device)
        journal = stack.enter_context(closing(RunJournal(run, step.state, notify, log)))
        # Take the remaining steps.
        yield from EncoderLoop(run, step, journal, progress).reports(stop)


def _build_step(config: EncoderConfig, samples: Samples, device: torch.device) -> EncoderStep:
    """Build the network with its initial weights, and its step."""
    network = MaskedAutoencoder(
        config.network, sample_shape=samples.sample_shape, classes=len(samples.classes), seed=config.seed
    )
    return EncoderStep(config, TrainingState(network.to(device), config.optimizer), samples, device)


class EncoderLoop:
    """The remaining steps of a run: take, check, log and save them, and write the encoder at the end."""

    def __init__(self, run: EncoderRun, step: EncoderStep, journal: RunJournal, progress: Progress) -> None:
        self.run, self.step, self.journal, self.progress = run, step, journal, progress
        self.cadence, self.run_progress = run.config.cadence, journal.progress
        # On a CPU a check costs nothing, so that every step is checked.
        check_every = 1 if step.device.type == "cpu" else self.cadence.log_every
        self.monitor = NonFiniteMonitor(check_every, step.device)
        self._since, self._images = time.monotonic(), 0

    def reports(self, stop: StopSignal) -> Iterator[TrainingReport]:
        """Take the remaining steps; yield a report at every logged step and at the end."""
        current, cadence = self.run_progress, self.cadence
        while current.step < cadence.steps:
            # Take a step. A signal that comes later than this is for the next one.
            result, norm = self._take_step()
            is_last, signal = current.step == cadence.steps, stop.received
            logs = current.step % cadence.log_every == 0 or is_last
            saves = current.step % cadence.checkpoint_every == 0 or is_last or signal is not None
            # Check, log, save.
            if saves or current.step % self.monitor.every == 0:
                self._require_finite()
            if logs:
                self._log(result, norm)
            if saves:
                self.journal.save()
            # Report.
            if signal is not None:
                self.run.append_history("interrupted", step=current.step, signal=signal)
                yield self._report(signal)
                return
            if logs and not is_last:
                yield self._report()
        # Write the encoder.
        self._write_encoder()
        self.run.append_history("complete", step=current.step)
        yield self._report()

    def _take_step(self) -> tuple[AutoencoderLoss, Tensor]:
        """Take a step; return loss and norm of the gradient."""
        current = self.run_progress
        result, norm, finite = self.step(current.step)
        self.monitor.record(current.step, finite)
        self._images += self.step.images_per_step
        current.step += 1
        self.progress("training", current.step, self.cadence.steps)
        return result, norm

    def _require_finite(self) -> None:
        """Stop if a step since the last check was not finite."""
        for number in self.monitor.nonfinite_steps(self.run_progress.step - 1):
            raise NonFinite(
                f"step {number}: loss or gradient is not finite; no weight was changed; "
                "set a smaller optimizer.learning_rate and start again in another directory"
            )

    def _log(self, result: AutoencoderLoss, norm: Tensor) -> None:
        """Write the metrics of the current step."""
        current = self.run_progress
        speed = timing(self._images, self._since, self.step.device)
        current.metrics = self.step.metrics(current.step, result, norm) | {"timing": speed}
        self.journal.write(current.metrics)
        self._since, self._images = time.monotonic(), 0

    def _write_encoder(self) -> None:
        """Write the averaged weights of the encoder."""
        weights = self.step.state.average.generator.encoder.state_dict()
        with write_errors_as_user_errors(self.run.path):
            save_encoder(self.run.path, weights, self.run.config.network, self.step.samples.sample_shape)

    def _report(self, signal: str | None = None) -> TrainingReport:
        current = self.run_progress
        return TrainingReport(self.run.path, current.step, self.cadence.steps, current.metrics, signal)


def _ignore(message: str) -> None:
    pass
