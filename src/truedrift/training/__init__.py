"""Run an optimization: configuration → steps → checkpoints, in an engine that cannot lose work."""

from truedrift.training.config import RunConfig
from truedrift.training.load import load_generator
from truedrift.training.loop import TrainingReport
from truedrift.training.setup import Parts
from truedrift.training.train import replay, train

__all__ = ["Parts", "RunConfig", "TrainingReport", "load_generator", "replay", "train"]
