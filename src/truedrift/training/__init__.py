"""Train a generator: configuration → steps → checkpoints. A run that was killed resumes with bit-identical results."""

from truedrift.training.batch import GeneratorInputs, OnTheFlyFeatures, Positives, draw_inputs
from truedrift.training.checkpoint import Checkpoint, CheckpointNotSaved, DamagedCheckpoint, latest_checkpoint
from truedrift.training.config import (
    BatchOptions,
    CadenceOptions,
    ConditionOptions,
    DataOptions,
    EngineOptions,
    EvaluationOptions,
    ObjectiveOptions,
    OptimizerOptions,
    RunConfig,
    run_id,
)
from truedrift.training.config_checks import config_from_dict, validated_config, warn_of_sizes
from truedrift.training.encoder_run import EncoderConfig, train_encoder
from truedrift.training.feature_cache import CachedFeatures, build_feature_cache
from truedrift.training.journal import MetricsLog, read_metrics
from truedrift.training.load import LoadedGenerator, load_generator
from truedrift.training.loop import NonFinite, NonFiniteMonitor, TrainingReport
from truedrift.training.objective import BatchObjective, FeatureLayout, Objective
from truedrift.training.pictures import image_grid, scatter_image, write_png
from truedrift.training.run_directory import RunDirectory, lock_run, open_run
from truedrift.training.setup import Parts, TrainingSetup, build_setup, load_samples
from truedrift.training.signals import EXIT_STATUS, EXIT_STATUS_KEYBOARD, StopSignal
from truedrift.training.state import EMA, TrainingState, learning_rate
from truedrift.training.status import RunStatus, run_status
from truedrift.training.step import Step, StepResult
from truedrift.training.train import Training, load_training, replay, train

__all__ = [
    "EMA",
    "EXIT_STATUS",
    "EXIT_STATUS_KEYBOARD",
    "BatchObjective",
    "BatchOptions",
    "CachedFeatures",
    "CadenceOptions",
    "Checkpoint",
    "CheckpointNotSaved",
    "ConditionOptions",
    "DamagedCheckpoint",
    "DataOptions",
    "EncoderConfig",
    "EngineOptions",
    "EvaluationOptions",
    "FeatureLayout",
    "GeneratorInputs",
    "LoadedGenerator",
    "MetricsLog",
    "NonFinite",
    "NonFiniteMonitor",
    "Objective",
    "ObjectiveOptions",
    "OnTheFlyFeatures",
    "OptimizerOptions",
    "Parts",
    "Positives",
    "RunConfig",
    "RunDirectory",
    "RunStatus",
    "Step",
    "StepResult",
    "StopSignal",
    "Training",
    "TrainingReport",
    "TrainingSetup",
    "TrainingState",
    "build_feature_cache",
    "build_setup",
    "config_from_dict",
    "draw_inputs",
    "image_grid",
    "latest_checkpoint",
    "learning_rate",
    "load_generator",
    "load_samples",
    "load_training",
    "lock_run",
    "open_run",
    "read_metrics",
    "replay",
    "run_id",
    "run_status",
    "scatter_image",
    "train",
    "train_encoder",
    "validated_config",
    "warn_of_sizes",
    "write_png",
]
