"""Train a generator: configuration → steps → checkpoints. A run that is killed resumes bit for bit."""

from truedrift.training.config import RunConfig
from truedrift.training.load import load_generator
from truedrift.training.loop import TrainingReport
from truedrift.training.setup import Parts
from truedrift.training.train import replay, train

__all__ = ["Parts", "RunConfig", "TrainingReport", "load_generator", "replay", "train"]
